"""docs/security.md agrees with the code: every recipe is parsed as it stands there, and every message that it quotes exists."""

from __future__ import annotations

import argparse
import ast
import functools
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import pytest

from docs.update import ROOT
from spark_producer.cli.connection_args import add_connection, connection_options
from spark_producer.cli.entry import main
from spark_producer.common.error_codes import Code
from spark_producer.common.secret import Secret
from spark_producer.config import KAFKA_FIELDS, ProducerConfig, parse_options, producer_config
from spark_producer.config.jaas import parse_jaas
from spark_producer.config.options import ALIASES
from spark_producer.network import ConnectionSettings
from spark_producer.security.references import resolve
from spark_producer.security.settings import SecuritySettings

PAGE = ROOT / "docs" / "security.md"
ENVIRONMENT = {"KAFKA_PASSWORD": "pw-1", "KAFKA_CLIENT_SECRET": "pw-2", "KAFKA_CONNECTION_STRING": "Endpoint=sb://pw-3"}


class Expected(NamedTuple):
    """The texts with which a recipe must end."""

    protocol: str
    mechanism: str = ""
    others: int = 0
    """The number of further properties files in its section."""


RECIPES = {
    "Confluent Cloud": Expected("SASL_SSL", "PLAIN", others=1),
    "Amazon MSK with SCRAM": Expected("SASL_SSL", "SCRAM-SHA-512"),
    "Amazon MSK with IAM": Expected("SASL_SSL", "OAUTHBEARER"),
    "Azure Event Hubs": Expected("SASL_SSL", "PLAIN"),
    "Azure Event Hubs with Entra": Expected("SASL_SSL", "OAUTHBEARER", others=1),
    "Google Managed Service for Apache Kafka": Expected("SASL_SSL", "OAUTHBEARER"),
    "Kubernetes service accounts": Expected("SASL_SSL", "OAUTHBEARER"),
    "Kerberos": Expected("SASL_SSL", "GSSAPI"),
    "Aiven": Expected("SSL", others=1),
    "Redpanda": Expected("SASL_SSL", "SCRAM-SHA-256"),
    "Strimzi with certificates": Expected("SSL", others=1),
}


def text() -> str:
    return PAGE.read_text(encoding="utf-8")


@functools.cache
def sections() -> Mapping[str, str]:
    """Title of a recipe → its text."""
    (recipes,) = re.findall(r"^## Recipes$(.*?)^## ", text(), re.MULTILINE | re.DOTALL)
    parts = re.split(r"^### (.+)$", recipes, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def blocks(language: str, of: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", of, re.MULTILINE | re.DOTALL)


class Frame:
    """A fake of a DataFrame and its writer, which keeps the options."""

    def __init__(self) -> None:
        self.given: dict[str, str] = {}
        self.saved = False

    @property
    def write(self) -> Self:
        return self

    def format(self, name: str) -> Self:
        assert name == "pyproducer"
        return self

    def mode(self, name: str) -> Self:
        assert name == "append"
        return self

    def options(self, **given: str) -> Self:
        self.given |= given
        return self

    def option(self, name: str, value: str) -> Self:
        self.given[name] = value
        return self

    def save(self) -> None:
        self.saved = True


def given_to_spark(section: str) -> dict[str, str]:
    """Return the options of a recipe's DataFrame."""
    (code,) = blocks("python", section)
    frame = Frame()
    exec(compile(code, "the page", "exec"), {"df": frame})
    assert frame.saved
    assert frame.given.pop("topic") == "orders"
    return frame.given


def of_spark(section: str) -> ProducerConfig:
    return parse_options(given_to_spark(section) | {"topic": "orders"})[0]


def of_producer(section: str) -> ProducerConfig:
    """Return what `Producer` makes of the same options, which it takes without the prefix."""
    return producer_config({name.removeprefix("kafka."): value for name, value in given_to_spark(section).items()})


def of_file(content: str, place: Path, capsys: pytest.CaptureFixture[str]) -> ProducerConfig:
    """Parse a file as the commands do; as a profile it has the same settings."""
    path = place / "client.properties"
    path.write_text(content, encoding="utf-8")
    parser = argparse.ArgumentParser()
    add_connection(parser, default=None)
    options = connection_options(parser.parse_args(["--command-config", str(path)]))
    config = parse_options(options)[0]
    assert capsys.readouterr().err == "", "nothing in it is for others"
    assert producer_config({"profile": str(path)}) == config
    return config


def security(config: ProducerConfig) -> SecuritySettings:
    return ConnectionSettings.from_config(config).security


def test_there_is_a_recipe_for_each_platform() -> None:
    assert set(sections()) == set(RECIPES)


@pytest.mark.covers("SEC12")
@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_says_the_same_to_spark_to_the_producer_and_in_a_file(
    title: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    section, expected = sections()[title], RECIPES[title]
    first, *others = blocks("properties", section)
    assert len(others) == expected.others
    spark, own, file = of_spark(section), of_producer(section), of_file(first, tmp_path, capsys)
    assert spark == own
    assert security(spark) == security(own) == security(file), "the file may say it with JAAS, and means the same"
    assert unsecured(spark) == unsecured(file)
    made = security(spark)
    assert made.protocol == expected.protocol
    assert (made.sasl.mechanism if made.sasl else "") == expected.mechanism
    for other in others:
        assert security(of_file(other, tmp_path, capsys)).protocol in ("SSL", "SASL_SSL")


def unsecured(config: ProducerConfig) -> dict[str, object]:
    """All options that have nothing to do with security."""
    names = (field.name for field in KAFKA_FIELDS.values())
    return {name: getattr(config, name) for name in names if not name.startswith(("ssl_", "sasl_", "secrets_"))}


@pytest.mark.covers("SEC12")
@pytest.mark.parametrize("title", RECIPES)
def test_the_references_of_a_recipe_are_allowed_by_it(title: str) -> None:
    settings = security(of_spark(sections()[title]))
    password = settings.sasl.password if settings.sasl else None
    if password is not None:
        assert resolve(password, settings.allowed_secrets, ENVIRONMENT) in ENVIRONMENT.values()


@pytest.mark.covers("SEC12")
def test_event_hubs_gets_requests_that_it_takes() -> None:
    config = of_spark(sections()["Azure Event Hubs"])
    assert config.batch_size < config.max_request_size < 1_046_528
    assert config.sasl_username == "$ConnectionString"


def test_the_other_examples_of_the_page_are_options() -> None:
    """The PEM texts in options, and the delegation token."""
    (code,) = [block for block in blocks("python", text()) if "read_text" in block]

    class Path:
        def __init__(self, name: str) -> None:
            self.name = name

        def read_text(self) -> str:
            return f"-----BEGIN CERTIFICATE-----\n{self.name}\n-----END CERTIFICATE-----\n"

    names: dict[str, Any] = {"Path": Path}
    exec(compile(code, "the page", "exec"), names)
    made = security(parse_options({"kafka.bootstrap.servers": "a:1", **names["secured"]})[0])
    assert made.tls is not None
    assert made.tls.identity is not None
    assert made.tls.identity.key_pem
    (entry,) = re.findall(r"`kafka\.sasl\.jaas\.config=(…ScramLoginModule.*?;)`", text())
    parsed = parse_jaas(Secret(entry.replace("…", "org.apache.kafka.common.security.scram.")))
    assert set(parsed.options) == {"username", "password", "tokenauth"}


def test_every_python_example_belongs_to_a_recipe_or_to_the_test_above() -> None:
    assert len(blocks("python", text())) == len(RECIPES) + 1


@functools.cache
def strings() -> str:
    """All texts in the package's sources, one a line, with … for what is filled in."""
    found = []
    for path in sorted((ROOT / "spark_producer").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
                found.append("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(found)


def test_every_message_that_the_page_quotes_is_one_of_the_code() -> None:
    (section,) = re.findall(r"^## What you see, and what to do$(.*?)^## ", text(), re.MULTILINE | re.DOTALL)
    cells = [line.strip("|").split(" | ")[0] for line in section.splitlines() if line.startswith("| `")]
    assert len(cells) >= 15
    for quoted in (quote for cell in cells for quote in re.findall(r"`([^`]+)`", cell)):
        for part in map(str.strip, quoted.split("…")):
            assert part in strings() or part in names_of_codes(), f"no message says {part!r}"


def names_of_codes() -> set[str]:
    return {code.name for code in Code}


def test_every_option_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`kafka\.([a-z.]+[a-z])(?:=[^`]*)?`", text()))
    assert named
    assert named - set(KAFKA_FIELDS) - set(ALIASES) == set()


def test_the_commands_of_the_page_parse(capsys: pytest.CaptureFixture[str]) -> None:
    commands = [line for block in blocks("console", text()) for line in block.splitlines()]
    ours = [line for line in commands if line.startswith("$ pyproducer")]
    assert ours
    for line in ours:
        arguments = shlex.split(line, comments=True)[2:]
        with pytest.raises(SystemExit) as caught:
            main([*arguments, "--help"])
        assert caught.value.code == 0
        shown = capsys.readouterr().out
        assert all(argument in shown for argument in arguments if argument.startswith("--"))
