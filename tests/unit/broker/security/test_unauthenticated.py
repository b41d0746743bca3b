"""The bounds of peers that have not logged in, with a clock that is passed in."""

from __future__ import annotations

import itertools
import logging

import pytest

from spark_producer.broker.security.unauthenticated import (
    LOG_INTERVAL_S,
    LOGIN_TIMEOUT_S,
    MAX_UNAUTHENTICATED,
    MIN_DISPLACED_AGE_S,
    UnauthenticatedConnections,
    host_of,
)


@pytest.mark.covers("SEC35")
def test_they_are_late_in_order_and_the_others_are_not_looked_at() -> None:
    strangers: UnauthenticatedConnections[str] = UnauthenticatedConnections()
    assert strangers.next_deadline() == float("inf")
    for number in range(5):
        strangers.add(f"peer {number}", float(number))
    strangers.remove("peer 0")
    strangers.remove("peer 0")
    assert strangers.next_deadline() == 1 + LOGIN_TIMEOUT_S
    assert strangers.expired(2 + LOGIN_TIMEOUT_S) == ["peer 1", "peer 2"]
    assert len(strangers) == 4


@pytest.mark.covers("SEC35")
def test_a_hundred_are_enough() -> None:
    strangers: UnauthenticatedConnections[int] = UnauthenticatedConnections()
    for number in range(MAX_UNAUTHENTICATED):
        assert not strangers.is_full
        strangers.add(number, 0.0)
    assert strangers.is_full
    strangers.remove(7)
    assert not strangers.is_full


@pytest.mark.covers("SEC35")
def test_one_line_a_minute_for_each_host() -> None:
    strangers: UnauthenticatedConnections[str] = UnauthenticatedConnections()
    asked = [
        ("10.0.0.1:5", 0.0),
        ("10.0.0.1:6", 1.0),
        ("10.0.0.2:5", 1.0),
        ("10.0.0.1:7", LOG_INTERVAL_S),
        ("::1:7", 9.0),
    ]
    assert [strangers.may_log(address, logging.WARNING, now) for address, now in asked] == [
        True,
        False,
        True,
        True,
        True,
    ]
    assert strangers.may_log("10.0.0.1:5", logging.INFO, LOG_INTERVAL_S), (
        "lines of another level are counted separately"
    )


@pytest.mark.covers("SEC35")
def test_a_million_hosts_cost_no_memory() -> None:
    strangers: UnauthenticatedConnections[str] = UnauthenticatedConnections()
    for number in range(5000):
        assert strangers.may_log(f"host {number}:1", logging.WARNING, float(number) / 1000)
    assert len(strangers._last_logged) == 1000
    assert not strangers.may_log("host 4999:1", logging.WARNING, 5.0)


def filled(*hosts: str) -> UnauthenticatedConnections[str]:
    """All places taken by these hosts in turn, one every millisecond."""
    strangers: UnauthenticatedConnections[str] = UnauthenticatedConnections()
    for number, host in zip(range(MAX_UNAUTHENTICATED), itertools.cycle(hosts), strict=False):
        strangers.add(f"{host}:{number}", number / 1000, f"{host}:{number}")
    return strangers


def test_a_host_that_holds_all_places_gives_its_oldest_to_another() -> None:
    strangers = filled("10.0.0.1")
    for number in range(MAX_UNAUTHENTICATED // 2):
        displaced = strangers.connection_to_displace(f"10.0.0.2:{number}", 0.1)
        assert displaced == f"10.0.0.1:{number}"
        strangers.remove(displaced)
        strangers.add(f"10.0.0.2:{number}", 0.1, f"10.0.0.2:{number}")
    assert strangers.connection_to_displace("10.0.0.2:99", 0.2) is None, "each has half of them"
    assert strangers.connection_to_displace("10.0.0.1:999", 0.2) is None
    assert strangers.connection_to_displace("10.0.0.3:1", 0.2) is not None, "a third one gets its share"


def test_hosts_with_equal_shares_displace_only_who_has_had_time_enough() -> None:
    for strangers, address in (
        (filled("127.0.0.1"), "127.0.0.1:999"),
        (filled("10.0.0.1", "10.0.0.2"), "10.0.0.2:999"),
        (filled(*(f"10.0.0.{number}" for number in range(MAX_UNAUTHENTICATED))), "10.0.1.1:1"),
    ):
        assert strangers.connection_to_displace(address, MIN_DISPLACED_AGE_S - 0.001) is None
        first = strangers.expired(LOGIN_TIMEOUT_S)[0]
        assert strangers.connection_to_displace(address, MIN_DISPLACED_AGE_S) == first


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("10.0.0.1:5", "10.0.0.1"),
        ("127.0.0.2:5", "127.0.0.2"),
        ("::1:5", "::1"),
        ("::ffff:10.0.0.1:5", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6:5", "2001:db8:1:2::"),
        ("2001:db8:1:2::7:5", "2001:db8:1:2::"),
        ("fe80::1%eth0:5", "fe80::1%eth0"),
        ("no address:5", "no address"),
        ("", ""),
    ],
)
def test_a_host_is_known_by_its_address_or_network(address: str, host: str) -> None:
    assert host_of(address) == host
