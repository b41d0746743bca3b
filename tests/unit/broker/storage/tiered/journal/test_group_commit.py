"""When a group of records is written. Ids (tests/ids.md): J."""

from __future__ import annotations

import pytest

from spark_producer.broker.storage.tiered.journal.group_commit import GroupCommit, Trigger
from spark_producer.broker.storage.tiered.journal.settings import JournalSettings
from spark_producer.errors import ConfigError

WAIT = 0.001
BYTES = 512 * 1024


def rules(**settings: float | bool) -> GroupCommit:
    return GroupCommit(JournalSettings(**settings))  # type: ignore[arg-type]


@pytest.mark.covers("J2")
def test_a_group_that_has_waited_is_written() -> None:
    assert rules().trigger(1, 100, 0.0, None, WAIT / 2) is None
    assert rules().trigger(1, 100, 0.0, None, WAIT) is Trigger.MAX_WAIT


@pytest.mark.covers("J2")
def test_a_late_group_still_takes_records_that_are_late_as_well_and_no_others() -> None:
    late, now = 1.0, 1.0 + 5 * WAIT
    assert rules().trigger(1, 100, late, late + WAIT, now) is None
    assert rules().trigger(1, 100, late, now - WAIT / 2, now) is Trigger.MAX_WAIT


@pytest.mark.covers("J2")
def test_a_late_group_is_large_enough_at_some_time() -> None:
    assert rules().trigger(9, BYTES + 1, 0.0, WAIT, 9.0) is Trigger.MAX_OUTSTANDING_BYTES


@pytest.mark.covers("J2")
def test_a_large_group_is_written_once_another_record_waits() -> None:
    assert rules().trigger(9, BYTES + 1, 0.0, None, WAIT / 2) is None
    assert rules().trigger(9, BYTES, 0.0, WAIT / 4, WAIT / 2) is None
    assert rules().trigger(9, BYTES + 1, 0.0, WAIT / 4, WAIT / 2) is Trigger.MAX_OUTSTANDING_BYTES


@pytest.mark.covers("J2")
def test_the_number_of_records_counts_only_if_it_is_set() -> None:
    assert rules().trigger(10**6, 100, 0.0, WAIT / 4, WAIT / 2) is None
    assert rules(buffered_entries_threshold=3).trigger(3, 100, 0.0, WAIT / 4, WAIT / 2) is None
    assert rules(buffered_entries_threshold=3).trigger(4, 100, 0.0, WAIT / 4, WAIT / 2) is Trigger.MAX_OUTSTANDING_BYTES


@pytest.mark.covers("J2")
@pytest.mark.parametrize("settings", [{"flush_when_queue_empty": True}, {"max_group_wait_ms": 0}])
def test_with_nothing_more_in_the_queue_a_group_is_written_if_it_need_not_wait(settings: dict[str, float]) -> None:
    assert rules(**settings).trigger(1, 100, 0.0, None, 0.0) is Trigger.EMPTY_QUEUE
    assert rules(**settings).trigger(1, 100, 0.0, 0.0, 0.0) is None


def test_a_group_waits_for_the_rest_of_its_time() -> None:
    assert rules().seconds_left(1.0, 1.0 + WAIT / 4) == pytest.approx(WAIT * 3 / 4)
    assert rules().seconds_left(1.0, 9.0) == 0


@pytest.mark.parametrize(
    "wrong",
    [{"alignment": 0}, {"alignment": 1000}, {"max_group_wait_ms": -1}, {"max_memory_bytes": 0}, {"backups": -1}],
)
def test_wrong_settings_are_refused_by_name(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        JournalSettings(**wrong)  # type: ignore[arg-type]
