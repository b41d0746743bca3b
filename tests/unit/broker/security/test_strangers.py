"""The bounds of peers that have not logged in, with a clock that is passed in."""

from __future__ import annotations

import logging

from spark_producer.broker.security.strangers import LOGIN_SECONDS, MOST, QUIET_SECONDS, Strangers


def test_sec35_they_are_late_in_order_and_the_others_are_not_looked_at() -> None:
    strangers: Strangers[str] = Strangers()
    assert strangers.next_deadline() == float("inf")
    for number in range(5):
        strangers.add(f"peer {number}", float(number))
    strangers.remove("peer 0")
    strangers.remove("peer 0")
    assert strangers.next_deadline() == 1 + LOGIN_SECONDS
    assert strangers.late(2 + LOGIN_SECONDS) == ["peer 1", "peer 2"]
    assert len(strangers) == 4


def test_sec35_a_hundred_are_enough() -> None:
    strangers: Strangers[int] = Strangers()
    for number in range(MOST):
        assert not strangers.full
        strangers.add(number, 0.0)
    assert strangers.full
    strangers.remove(7)
    assert not strangers.full


def test_sec35_one_line_a_minute_for_each_host() -> None:
    strangers: Strangers[str] = Strangers()
    asked = [
        ("10.0.0.1:5", 0.0),
        ("10.0.0.1:6", 1.0),
        ("10.0.0.2:5", 1.0),
        ("10.0.0.1:7", QUIET_SECONDS),
        ("::1:7", 9.0),
    ]
    assert [strangers.may_be_logged(address, logging.WARNING, now) for address, now in asked] == [
        True,
        False,
        True,
        True,
        True,
    ]
    assert strangers.may_be_logged("10.0.0.1:5", logging.INFO, QUIET_SECONDS), (
        "what is told at another level is counted apart"
    )


def test_sec35_a_million_hosts_cost_no_memory() -> None:
    strangers: Strangers[str] = Strangers()
    for number in range(5000):
        assert strangers.may_be_logged(f"host {number}:1", logging.WARNING, float(number) / 1000)
    assert len(strangers._said) == 1000
    assert not strangers.may_be_logged("host 4999:1", logging.WARNING, 5.0)
