"""Profiles: each parses, changes what it says and nothing else, and gives way to what is set beside it."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from spark_producer.common.secret import Secret
from spark_producer.config import ProducerConfig, kafka_name, parse_options, producer_config
from spark_producer.config.profiles import PROFILES, profile, render_markdown
from spark_producer.errors import ConfigError
from spark_producer.network import ConnectionSettings
from spark_producer.security import SaslSettings

ROOT = Path(__file__).parents[3]
SERVERS = {"kafka.bootstrap.servers": "broker:9092"}
DEFAULTS = dataclasses.asdict(parse_options(SERVERS)[0])


def changes(config: ProducerConfig) -> dict[str, str]:
    """Kafka's names of the options that are not at their defaults."""
    values = dataclasses.asdict(config)
    return {kafka_name(name): str(value) for name, value in values.items() if value != DEFAULTS[name]}


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_changes_what_it_lists_and_nothing_else(name: str) -> None:
    config, sink = parse_options(SERVERS | {"profile": name})
    assert changes(config) == {setting.option: setting.value for setting in PROFILES[name].settings}
    assert sink.profile == name
    assert all(re.fullmatch(r".{10,}[a-z0-9]", setting.why) for setting in PROFILES[name].settings)


@pytest.mark.parametrize("name", PROFILES)
def test_the_file_in_conf_is_a_profile_too(name: str) -> None:
    path = str(ROOT / "conf" / f"{name}.properties")
    assert profile(path) == profile(name)
    assert parse_options(SERVERS | {"profile": path})[0] == parse_options(SERVERS | {"profile": name})[0]


def test_kafka3_is_what_java_had_before_4() -> None:
    config = parse_options(SERVERS | {"profile": "kafka3"})[0]
    for field in dataclasses.fields(ProducerConfig):
        java = {"linger_ms": "0"}.get(field.name, field.metadata["option"].kafka_default)
        if java:
            assert str(getattr(config, field.name)) == java, field.name


def test_what_is_set_itself_wins_in_any_letter_case() -> None:
    config = parse_options(SERVERS | {"Profile": " LATENCY ", "KAFKA.Linger.MS": "7"})[0]
    assert (config.linger_ms, config.batch_size) == (7, 16384)


def test_the_producer_without_spark_takes_profiles() -> None:
    config = producer_config({"bootstrap.servers": "broker:9092", "profile": "small-memory", "batch.size": 8192})
    assert (config.buffer_memory, config.batch_size) == (4194304, 8192)


def test_an_unknown_profile_names_the_others() -> None:
    with pytest.raises(
        ConfigError,
        match=r"unknown profile 'fast'. Name one of throughput, far, latency, small-memory, kafka3, event-hubs, or the path",
    ):
        parse_options(SERVERS | {"profile": "fast"})


def test_a_file_of_ones_own_in_the_form_of_kafkas_tools(tmp_path: Path) -> None:
    path = tmp_path / "my.properties"
    path.write_text("# ours\n! old style\n\nlinger.ms = 3\nbootstrap.servers=a:1,b:2\n", encoding="utf-8")
    config = parse_options({"profile": str(path)})[0]
    assert (config.linger_ms, config.bootstrap_servers) == (3, "a:1,b:2")


def test_a_file_may_have_the_prefix_of_a_sinks_options(tmp_path: Path) -> None:
    path = tmp_path / "my.properties"
    path.write_text("kafka.linger.ms=7\nbatch.size=20000\n")
    config, _ = parse_options({"kafka.bootstrap.servers": "b:1", "profile": str(path)})
    assert (config.linger_ms, config.batch_size) == (7, 20000)


@pytest.mark.covers("SEC10")
def test_a_file_of_javas_clients_has_lines_that_go_on_and_escapes(tmp_path: Path) -> None:
    path = tmp_path / "my.properties"
    path.write_text(
        "bootstrap.servers : a:9093\n"
        "security.protocol SASL_SSL\n"
        "sasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\\n"
        '   username="a\\u00e4" \\\n'
        '\tpassword="p\\=\\:=:#!\\\\\\\\";\n'
        "client.id=a\\tb\n",
        encoding="utf-8",
    )
    config = parse_options({"profile": str(path)})[0]
    assert (config.bootstrap_servers, config.security_protocol, config.client_id) == ("a:9093", "SASL_SSL", "a\tb")
    login = ConnectionSettings.from_config(config).security.sasl
    assert login == SaslSettings("PLAIN", "aä", Secret("p=:=:#!\\"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("linger.ms=1\nhunter2\n", r"line 2 of the profile '.*my\.properties' is neither"),
        ("=hunter2\n", "line 1 of the profile"),
        ("linger.ms=\\\n1\n\nhunter2 7\n", "line 4 of the profile"),
        ("hunter2", "line 1 of the profile"),
        ("MIIhunter2+/==\n", "line 1 of the profile"),
        (
            "linger.ms=hunter2\\u12\n",
            "line 1 of the profile '.*' has \\\\u without four hexadecimal digits",
        ),
        ("key.serializer=hunter2\n", "'kafka.key.serializer' is not supported"),
        ("batch.sise=hunter2\n", r"Did you mean 'kafka\.batch\.size'"),
    ],
)
def test_a_bad_line_of_a_file_is_an_error_without_its_value(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "my.properties"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=said) as raised:
        parse_options(SERVERS | {"profile": str(path)})
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("content", [None, b"\xff\xfe=1"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "my.properties"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(
        ConfigError,
        match=r"the profile '.*my\.properties' cannot be read: (FileNotFoundError, No such|UnicodeDecodeError, at byte 0)",
    ):
        parse_options(SERVERS | {"profile": str(path)})


def test_a_file_that_never_ends_is_not_read_into_memory(tmp_path: Path) -> None:
    path = tmp_path / "data.properties"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a sparse one
    with pytest.raises(ConfigError, match=r"data\.properties' cannot be read: it has more than 1,048,576 bytes"):
        profile(str(path))


def test_the_markdown_has_a_row_for_every_profile_and_no_broken_cell() -> None:
    lines = render_markdown().splitlines()
    assert len(lines) == 2 + len(PROFILES)
    assert all(line.count("|") == 4 for line in lines)
