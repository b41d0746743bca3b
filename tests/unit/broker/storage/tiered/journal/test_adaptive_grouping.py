"""Two crowds of writers that take turns become one. Ids (tests/ids.md): J."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_producer.broker.storage.tiered.journal import JournalSettings
from spark_producer.broker.storage.tiered.journal.adaptive_grouping import AdaptiveGrouping
from tests.support.waiting import wait_until
from tests.unit.broker.storage.tiered.journal.journals import (
    DEADLINE,
    ON_DEMAND,
    Callbacks,
    new_disk,
    start,
    write_group,
)

FORCE = 0.005


@pytest.mark.covers("J3")
def test_a_force_waits_for_half_the_time_of_the_last_one_and_for_twice_the_group_wait_at_most() -> None:
    rule = AdaptiveGrouping(JournalSettings(max_group_wait_ms=1))
    rule.forced(4, 4, 0.002, 10.0)
    assert round(rule.seconds_left(4, 10.0), 9) == 0.001
    rule.forced(4, 4, 1.0, 10.0)
    assert round(rule.seconds_left(4, 10.0005), 9) == 0.0015
    assert rule.seconds_left(4, 10.01) <= 0


@pytest.mark.covers("J3")
def test_a_force_begins_once_all_confirmed_writers_are_back() -> None:
    rule = AdaptiveGrouping(JournalSettings())
    rule.forced(5, 3, FORCE, 10.0)
    assert rule.seconds_left(7, 10.0) > 0
    assert rule.seconds_left(8, 10.0) == 0


@pytest.mark.covers("J3")
def test_a_force_does_not_wait_if_nothing_was_written_during_the_last_one() -> None:
    rule = AdaptiveGrouping(JournalSettings())
    rule.forced(8, 0, FORCE, 10.0)
    assert rule.seconds_left(1, 10.0) <= 0


@pytest.mark.covers("J3")
def test_who_wants_no_wait_for_groups_has_none_for_forces() -> None:
    rule = AdaptiveGrouping(JournalSettings(max_group_wait_ms=0))
    rule.forced(4, 4, FORCE, 10.0)
    assert rule.seconds_left(4, 10.0) <= 0


class Clock:
    """A fake clock."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.covers("J3")
def test_two_crowds_of_writers_share_the_next_force() -> None:
    """Four records are forced while four others are written; the first four writers come back before the next force begins."""
    disk, callbacks, clock = new_disk(), Callbacks(), Clock()
    journal = start(disk, replace(ON_DEMAND, max_group_wait_ms=1), callbacks, clock=clock)
    try:
        with disk.script.blocked("force", "*.txn"):
            write_group(journal, range(4))
            disk.script.wait_for("force", count=2)
            clock.now += FORCE
            write_group(journal, range(4, 8))
        wait_until(lambda: journal.forced_ticket == 4, "the group is forced", pause=0.001)
        write_group(journal, range(8, 12))
        wait_until(lambda: journal.forced_ticket == 12, "the group is forced", pause=0.001)
        assert journal.counters.forces == 2
    finally:
        journal.close(DEADLINE)
    assert callbacks.of("forced") == list(range(12))
