"""From arguments to the settings of connections, as commands and jobs make them."""

from __future__ import annotations

import argparse

import pytest

from spark_producer.cli.connecting import add_bootstrap_servers, connection_settings
from spark_producer.errors import ConfigError
from spark_producer.network import ConnectionSettings


def test_without_the_argument_a_broker_on_this_machine_is_meant() -> None:
    parser = argparse.ArgumentParser()
    add_bootstrap_servers(parser)
    assert parser.parse_args([]).bootstrap_servers == "127.0.0.1:9092"
    assert parser.parse_args(["--bootstrap-servers", "a:1,b:2"]).bootstrap_servers == "a:1,b:2"


def test_options_of_the_data_source_count_in_any_case_and_the_argument_wins() -> None:
    options = {"KAFKA.client.id": "job", "kafka.bootstrap.servers": "other:1", "includeHeaders": "false"}
    made = connection_settings("a:1,b:2", options)
    assert made == ConnectionSettings((("a", 1), ("b", 2)), client_id="job")
    assert connection_settings("a:1").client_id == "pyproducer"


@pytest.mark.parametrize(
    ("servers", "options", "message"),
    [
        ("nonsense", {}, "bootstrap.servers: bad entry 'nonsense'"),
        ("", {}, "bootstrap.servers is '': give at least one host:port"),
        ("a:1", {"kafka.clientid": "x"}, "kafka.client.id"),
        ("a:1", {"kafka.request.timeout.ms": "soon"}, "kafka.request.timeout.ms"),
    ],
)
def test_what_is_wrong_is_named(servers: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        connection_settings(servers, options)
    assert message in str(raised.value)
