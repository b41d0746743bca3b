"""The one value that says how to reach a cluster: what the options make of it, and what its `repr` keeps to itself."""

from __future__ import annotations

import dataclasses

import pytest

from spark_producer.config import producer_config
from spark_producer.errors import ConfigError
from spark_producer.network import ConnectionSettings, parse_bootstrap_servers
from spark_producer.network.settings import PLAIN

SERVERS = "one:9092,[::1]:9093"


def test_every_setting_follows_its_option() -> None:
    options = {
        "bootstrap.servers": SERVERS,
        "client.id": "me",
        "max.in.flight.requests.per.connection": 2,
        "request.timeout.ms": 1500,
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 20,
        "retry.backoff.ms": 30,
        "retry.backoff.max.ms": 40,
        "socket.connection.setup.timeout.ms": 3000,
        "socket.connection.setup.timeout.max.ms": 4000,
        "connections.max.idle.ms": 5000,
        "send.buffer.bytes": 65536,
        "receive.buffer.bytes": 32768,
        "metadata.cluster.check.enable": False,
    }
    expected = ConnectionSettings(
        bootstrap=(("one", 9092), ("::1", 9093)),
        client_id="me",
        max_in_flight=2,
        request_timeout=1.5,
        reconnect_backoff=0.01,
        reconnect_backoff_max=0.02,
        retry_backoff=0.03,
        retry_backoff_max=0.04,
        connection_setup_timeout=3.0,
        connection_setup_timeout_max=4.0,
        connections_max_idle=5.0,
        send_buffer_bytes=65536,
        receive_buffer_bytes=32768,
        check_cluster=False,
    )
    assert ConnectionSettings.from_config(producer_config(options)) == expected
    plain = ConnectionSettings(expected.bootstrap)
    same = [name for name in PLAIN if name != "bootstrap" and getattr(plain, name) == getattr(expected, name)]
    assert same == [], "each option is given another value than its default"


def test_the_defaults_are_those_of_the_table_of_options() -> None:
    config = producer_config({"bootstrap.servers": SERVERS})
    expected = ConnectionSettings(tuple(parse_bootstrap_servers(SERVERS)), client_id="pyproducer")
    assert ConnectionSettings.from_config(config) == expected


@pytest.mark.covers("NW9")
def test_writes_that_do_not_start_again_from_the_bootstrap_servers_check_no_cluster() -> None:
    options = {"bootstrap.servers": SERVERS, "metadata.recovery.strategy": "none"}
    assert not ConnectionSettings.from_config(producer_config(options)).check_cluster


def test_a_bad_address_is_refused() -> None:
    with pytest.raises(ConfigError, match="bad entry 'nonsense'"):
        ConnectionSettings.from_config(producer_config({"bootstrap.servers": "nonsense"}))


def test_repr_shows_the_plain_fields() -> None:
    settings = ConnectionSettings((("one", 9092),), "me")
    assert repr(settings).startswith("ConnectionSettings(bootstrap=(('one', 9092),), client_id='me', max_in_flight=5, ")
    assert str(settings) == repr(settings)
    assert repr(settings).endswith(", security=PLAINTEXT)")
    assert {*PLAIN, "security"} == {field.name for field in dataclasses.fields(ConnectionSettings)}, (
        "which of them are no secrets?"
    )


def test_repr_keeps_what_is_not_named_plain_to_itself() -> None:
    @dataclasses.dataclass(frozen=True, slots=True, repr=False)
    class Later(ConnectionSettings):
        password: str = ""

    settings = Later((("one", 9092),), password="canary")
    assert "client_id=None" in repr(settings)
    for shown in (repr(settings), str(settings), f"{settings}", f"{settings!r}"):
        assert "canary" not in shown
        assert "password" not in shown
