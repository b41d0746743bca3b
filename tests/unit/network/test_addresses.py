from __future__ import annotations

import pytest

from spark_producer.common.addresses import format_address
from spark_producer.errors import ConfigError
from spark_producer.network import parse_bootstrap_servers


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        ("a:1,b:2", [("a", 1), ("b", 2)]),
        (" a:1 ,\tb:2\n,", [("a", 1), ("b", 2)]),
        ("[::1]:9092,127.0.0.1:65535", [("::1", 9092), ("127.0.0.1", 65535)]),
        ("a:1,b:2,a:1", [("a", 1), ("b", 2)]),
        ("PLAINTEXT://kafka.example.org:9092", [("kafka.example.org", 9092)]),
        ("my_host-1.example:9093", [("my_host-1.example", 9093)]),
    ],
)
def test_servers_are_parsed(servers: str, expected: list[tuple[str, int]]) -> None:
    assert parse_bootstrap_servers(servers) == expected
    assert parse_bootstrap_servers(",".join(format_address(*address) for address in expected)) == expected


@pytest.mark.parametrize("servers", ["", " ", ",", " , "])
def test_no_server_at_all_is_an_error(servers: str) -> None:
    with pytest.raises(ConfigError, match="at least one"):
        parse_bootstrap_servers(servers)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("localhost", "expected host:port"),
        (":9092", "expected host:port"),
        ("localhost:", "the port must be"),
        ("localhost:kafka", "the port must be"),
        ("localhost:0", "the port must be"),
        ("localhost:65536", "the port must be"),
        ("localhost:-1", "the port must be"),
        ("localhost:９０９２", "the port must be"),
        ("::1:9092", "needs brackets"),
        ("[]:9092", "expected host:port"),
        ("[::1:9092", "needs brackets"),
        ("a b:9092", "not a host name"),
        ("host/path:9092", "not a host name"),
    ],
)
def test_a_bad_entry_is_named(bad: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as raised:
        parse_bootstrap_servers(f"good:9092,{bad}")
    assert repr(bad) in str(raised.value)
