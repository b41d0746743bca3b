"""Options that have a new name: the former one works as before, and is warned of once."""

from __future__ import annotations

import logging
import re

import pytest

from spark_producer.config import KAFKA_FIELDS, SINK_FIELDS, option_lookup, parse_sink_options, producer_config
from spark_producer.config.docs_table import option_rows
from spark_producer.errors import ConfigError

SERVERS = {"kafka.bootstrap.servers": "broker:9092"}
TOKENS = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "OAUTHBEARER"}
PROVIDER = TOKENS | {"oauthTokenProvider": "m:f"}
SINK = {
    "deadLetterFor": ("deadLetterClasses", "row", "size"),
    "maxBadRatio": ("maxBadRecordsRatio", "0.25", "0.5"),
    "exactlyOnceInlineBytes": ("exactlyOnceMaxInlineBytes", "1", "2"),
    "exactlyOnceSpool": ("exactlyOnceSpoolToDisk", "true", "false"),
    "exactlyOnceTopic": ("exactlyOnceControlTopic", "mine", "other"),
}
PRODUCER = {
    "kafka.secrets.allow": ("secretsAllow", "env:A*", "env:B*"),
    "kafka.allow.plaintext.credentials": ("allowPlaintextCredentials", "true", "false"),
    "kafka.sasl.oauthbearer.token.provider": ("oauthTokenProvider", "m:f", "m:g"),
}
CASES = [(former, *case) for former, case in (SINK | PRODUCER).items()]


@pytest.fixture(autouse=True)
def nothing_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(option_lookup, "_warned_of", set())


def beside(name: str) -> dict[str, str]:
    """Options with which an option has a use."""
    others = PROVIDER if name in ("secretsAllow", "allowPlaintextCredentials") else TOKENS
    return SERVERS | (others if name in {case[0] for case in PRODUCER.values()} else {})


def test_every_former_name_of_the_table_is_tested_here() -> None:
    fields = [*SINK_FIELDS.values(), *KAFKA_FIELDS.values()]
    former = [name for field in fields for name in field.metadata["option"].former_names]
    assert {name.removeprefix("kafka.") for name in SINK | PRODUCER} == set(former)


@pytest.mark.parametrize(("former", "name", "value", "other"), CASES)
def test_a_former_name_in_any_case_is_its_option_and_warned_of_once(
    former: str, name: str, value: str, other: str, caplog: pytest.LogCaptureFixture
) -> None:
    expected = parse_sink_options(beside(name) | {name: value})
    assert expected != parse_sink_options(beside(name) | {name: other})
    assert not caplog.messages
    for spelling in (former, former.lower(), former.upper()):
        assert parse_sink_options(beside(name) | {spelling: value}) == expected
    assert caplog.record_tuples == [
        (
            "spark_producer.config.option_lookup",
            logging.WARNING,
            f"option {former} is now called {name}; the former name still works",
        )
    ]


@pytest.mark.parametrize(("former", "name", "value", "other"), CASES)
def test_both_names_may_have_one_value_and_not_two(former: str, name: str, value: str, other: str) -> None:
    both = {former.lower(): value, name.lower(): value}
    assert parse_sink_options(beside(name) | both) == parse_sink_options(beside(name) | {name: value})
    message = "are two names of one option, with different values. Give .* alone"
    with pytest.raises(ConfigError, match=f"{former} and {name} {message}"):
        parse_sink_options(beside(name) | {former.lower(): value, name.lower(): other})


@pytest.mark.parametrize("former", PRODUCER)
def test_the_library_takes_both_names_without_a_prefix(former: str, caplog: pytest.LogCaptureFixture) -> None:
    name, value, _ = PRODUCER[former]
    others = {option.removeprefix("kafka."): text for option, text in beside(name).items()}
    assert producer_config(others | {name: value}) == producer_config(others | {former.removeprefix("kafka."): value})
    assert [f"option {former} is now called {name}" in message for message in caplog.messages] == [True]


def test_a_file_may_have_the_former_name_and_the_new_one_overrides_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("profiles") / "a.properties"
    path.write_text("secrets.allow=env:A*\nallowPlaintextCredentials=true\n", "utf-8")
    given = {option.removeprefix("kafka."): text for option, text in (SERVERS | PROVIDER).items()} | {
        "profile": str(path)
    }
    assert producer_config(given).secrets_allow == "env:A*"
    assert producer_config(given).allow_plaintext_credentials
    assert producer_config(given | {"secretsAllow": "env:B*"}).secrets_allow == "env:B*"


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("deadLeterFor", "deadLetterClasses"),
        ("exactlyOnceTopik", "exactlyOnceControlTopic"),
        ("secrets.allow", "secretsAllow"),
        ("kafka.secretsAllow", "secretsAllow"),
        ("kafka.secrets.alow", "secretsAllow"),
        ("secretAllow", "secretsAllow"),
        ("oauthTokenProvidor", "oauthTokenProvider"),
    ],
)
def test_a_misspelt_former_or_new_name_leads_to_the_new_one(written: str, name: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"unknown option {written!r}. Did you mean {name!r}?")):
        parse_sink_options(SERVERS | {written: "1"})


def test_a_misspelt_former_name_leads_to_the_new_one_in_the_library() -> None:
    with pytest.raises(ConfigError, match=r"unknown option 'secrets.alow'\. Did you mean 'secretsAllow'\?"):
        producer_config({"bootstrap.servers": "broker:9092", "secrets.alow": "1"})


@pytest.mark.parametrize(("former", "name", "value", "other"), CASES)
def test_the_table_of_options_has_the_former_name(former: str, name: str, value: str, other: str) -> None:
    rows = {option: doc for option, _, doc in option_rows()}
    assert former not in rows
    assert rows[name].endswith(f"Formerly `{former}`.")
