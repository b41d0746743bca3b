"""Arguments become the settings of connections, as commands and jobs make them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_producer.cli.connection_args import add_connection, connection_options, connection_settings, settings_of
from spark_producer.errors import ConfigError
from spark_producer.network import ConnectionSettings

SERVERS = "kafka.bootstrap.servers"
File = Callable[[str], str]


@pytest.fixture
def file(tmp_path: Path) -> File:
    """Writes a properties file, and returns its name."""

    def write(text: str) -> str:
        path = tmp_path / "client.properties"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


def parsed(*arguments: str, default: str | None = "127.0.0.1:9092") -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_connection(parser, default)
    return parser.parse_args(arguments)


def test_without_arguments_the_default_is_used_if_there_is_one() -> None:
    assert connection_options(parsed()) == {SERVERS: "127.0.0.1:9092"}
    assert connection_options(parsed(default=None)) == {}
    assert connection_options(parsed("--bootstrap-servers", "a:1,b:2")) == {SERVERS: "a:1,b:2"}


def test_a_file_of_kafkas_own_tools_is_read_with_or_without_the_prefix(file: File) -> None:
    name = file("# all of us\nbootstrap.servers=a:1\nCLIENT.id = job\n\nkafka.request.timeout.ms=5000\n")
    options = connection_options(parsed("--command-config", name))
    assert options == {SERVERS: "a:1", "kafka.client.id": "job", "kafka.request.timeout.ms": "5000"}
    made = settings_of(options)
    assert (made.bootstrap, made.client_id, made.request_timeout) == ((("a", 1),), "job", 5.0)


def test_the_servers_are_those_of_the_argument_then_of_an_option_then_of_the_file(file: File) -> None:
    name = file("bootstrap.servers=a:1\nclient.id=file\n")
    more = {"kafka.Bootstrap.servers": "b:1", "KAFKA.client.id": "option"}
    assert connection_options(parsed("--command-config", name))[SERVERS] == "a:1"
    assert connection_options(parsed("--command-config", name), more) == {SERVERS: "b:1", "kafka.client.id": "option"}
    assert connection_options(parsed("--command-config", name, "--bootstrap-servers", "c:1"), more)[SERVERS] == "c:1"


def test_a_file_without_servers_needs_an_argument_where_there_is_no_default(file: File) -> None:
    name = file("client.id=job\n")
    assert connection_options(parsed("--command-config", name))[SERVERS] == "127.0.0.1:9092"
    with pytest.raises(ConfigError, match=r"client\.properties has no bootstrap\.servers\. .* --bootstrap-servers"):
        connection_options(parsed("--command-config", name, default=None))


def test_what_a_file_sets_for_other_clients_is_passed_over_aloud(
    file: File, capsys: pytest.CaptureFixture[str]
) -> None:
    name = file("bootstrap.servers=a:1\ngroup.id=readers\nkafka.isolation.level=read_committed\nclient.id=job\n")
    assert connection_options(parsed("--command-config", name)) == {SERVERS: "a:1", "kafka.client.id": "job"}
    message = f"pyproducer: {name}: group.id, isolation.level are options of other clients, and are ignored\n"
    assert capsys.readouterr().err == message


def test_an_unknown_name_is_an_error_with_the_most_similar_one(file: File) -> None:
    options = connection_options(parsed("--command-config", file("bootstrap.servers=a:1\nclient.ids=job\n")))
    with pytest.raises(ConfigError, match=r"unknown option 'kafka\.client\.ids'.*'kafka\.client\.id'"):
        settings_of(options)


def test_the_file_is_one_of_properties(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed("--command-config", "latency")
    assert "ends in .properties, not 'latency'" in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"'nowhere\.properties' cannot be read"):
        connection_options(parsed("--command-config", "nowhere.properties"))


@pytest.mark.covers("SEC42")
@pytest.mark.parametrize(
    "name", ["kafka.sasl.password", "KAFKA.sasl.jaas.config", "kafka.ssl.key.pem", "kafka.ssl.keystore.key"]
)
def test_a_command_line_has_no_secrets(name: str) -> None:
    servers = parsed("--bootstrap-servers", "a:1")
    with pytest.raises(
        ConfigError, match=r"is a secret, and all users of this machine can read command lines\. .* --command-config"
    ) as raised:
        connection_options(servers, {name: "hunter2"})
    assert "hunter2" not in str(raised.value)
    reference = {name: "${env:KAFKA_PASSWORD}"}
    assert connection_options(servers, reference)[name.lower()] == "${env:KAFKA_PASSWORD}"


def test_options_of_the_data_source_count_in_any_case() -> None:
    options = {"KAFKA.client.id": "job", SERVERS: "a:1,b:2", "includeHeaders": "false"}
    assert settings_of(options) == ConnectionSettings((("a", 1), ("b", 2)), client_id="job")
    assert connection_settings("c:1", options) == ConnectionSettings((("c", 1),), client_id="job")
    assert connection_settings("a:1").client_id == "pyproducer"


@pytest.mark.parametrize(
    ("servers", "options", "message"),
    [
        ("nonsense", {}, "bootstrap.servers: bad entry 'nonsense'"),
        ("", {}, "bootstrap.servers is ''. Give at least one host:port"),
        ("a:1", {"kafka.clientid": "x"}, "kafka.client.id"),
        ("a:1", {"kafka.request.timeout.ms": "soon"}, "kafka.request.timeout.ms"),
    ],
)
def test_what_is_wrong_is_named(servers: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        settings_of(connection_options(parsed("--bootstrap-servers", servers), options))
    assert message in str(raised.value)
