"""The threads of the journal: the order of callbacks, the groups of records, errors of the disk. Ids (tests/ids.md): J."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import cast

import pytest

from spark_producer.broker.storage.tiered.journal import Journal, JournalRecord, JournalSettings, Mark, Trigger
from spark_producer.broker.storage.tiered.journal.file import JournalFile
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError
from tests.support.simulated_disk import SimulatedDisk
from tests.unit.broker.storage.tiered.journal.journals import (
    DEADLINE,
    DIRECTORY,
    ON_DEMAND,
    SMALL,
    Callbacks,
    append,
    expected,
    new_disk,
    opened,
    record,
    replayed,
    start,
    write_group,
)

FORCES_OF_OPENING = 1
"""The header of a new file is forced."""


def write_and_force(journal: Journal, ticket: int) -> None:
    assert journal.wait_written(ticket, DEADLINE)
    assert journal.force_now(DEADLINE)


@pytest.mark.covers("J1")
def test_nothing_is_reported_as_safe_before_the_force() -> None:
    disk = new_disk()
    with opened(disk) as (journal, callbacks), disk.script.blocked("force", "*.txn"):
        write_group(journal, [0, 1, 2])
        disk.script.wait_for("force", count=FORCES_OF_OPENING + 1)
        assert callbacks.of("written") == [0, 1, 2]
        assert callbacks.of("forced") == []
        assert journal.forced_ticket == 0
        assert journal.mark() == Mark(1, SMALL.alignment)
        assert not journal.force_now(0.0)
    assert callbacks.of("forced") == [0, 1, 2]


@pytest.mark.covers("J2")
def test_each_reason_to_write_a_group_has_a_counter() -> None:
    disk = new_disk()
    with opened(disk, replace(SMALL, flush_when_queue_empty=True)) as (journal, _):
        write_group(journal, [0])
        assert journal.counters.groups[Trigger.EMPTY_QUEUE] == 1
    with opened(disk, replace(SMALL, max_group_wait_ms=0.01)) as (journal, _):
        append(journal, [1])
        disk.script.wait_for("write", "2.txn", count=2)
    assert journal.counters.groups[Trigger.MAX_WAIT] == 1
    with opened(disk, replace(ON_DEMAND, buffered_writes_threshold=100)) as (journal, _):
        append(journal, [2, 3, 4, 5])
        disk.script.wait_for("write", "3.txn", count=2)
        write_group(journal, [6])
        assert journal.counters.groups[Trigger.MAX_OUTSTANDING_BYTES] == 1
        assert journal.counters.groups[Trigger.REQUESTED] == 1


@pytest.mark.covers("J3")
def test_records_that_come_during_a_write_are_one_group() -> None:
    disk = new_disk()
    with opened(disk) as (journal, callbacks):
        with disk.script.blocked("write", "*.txn"):
            append(journal, [0])
            disk.script.wait_for("write", count=2)
            append(journal, range(1, 51))
        assert journal.wait_written(51, DEADLINE)
        assert sum(journal.counters.groups.values()) == 2
    assert callbacks.of("forced") == list(range(51))


@pytest.mark.covers("J3")
def test_groups_that_are_written_during_a_force_share_the_next_one() -> None:
    disk = new_disk()
    with opened(disk) as (journal, callbacks):
        with disk.script.blocked("force", "*.txn"):
            write_group(journal, [0])
            disk.script.wait_for("force", count=FORCES_OF_OPENING + 1)
            for number in range(1, 21):
                write_group(journal, [number])
        assert journal.force_now(DEADLINE)
        assert disk.script.count("force") == FORCES_OF_OPENING + 2
        counters = journal.counters
        assert (counters.forces, counters.forced_groups, counters.forced_entries) == (2, 21, 21)
    assert callbacks.forced_calls == 2


def no_note(_file: JournalFile) -> None:
    """Write no marker after a group that it was forced."""


@pytest.mark.covers("J4")
def test_groups_begin_at_blocks_and_the_space_is_asked_for_in_advance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JournalFile, "write_forced_marker", no_note)
    disk = new_disk()
    settings = replace(ON_DEMAND, alignment=4096, preallocated=64 * 1024)
    with opened(disk, settings) as (journal, _):
        for count in (1, 3, 100, 500):
            write_group(journal, range(count), 300)
        writes = disk.script.matching("write", "*.txn")
        assert [call.position % 4096 for call in writes] == [0] * 5
        assert [call.size % 4096 for call in writes] == [0] * 5
        assert [call.position for call in writes[1:]] == [call.position + call.size for call in writes[:-1]]
        reserved = [(call.position, call.size) for call in disk.script.matching("reserve")]
        assert reserved == [(0, 65536), (65536, 196608)]
        assert journal.counters.written_bytes == sum(call.size for call in writes[1:])
        assert (
            journal.counters.added_bytes + 604 * 16 + journal.counters.padding_bytes == journal.counters.written_bytes
        )


@pytest.mark.covers("J4")
@pytest.mark.parametrize("free", range(470, 513))
def test_a_marker_that_has_no_space_in_the_block_takes_another_one(free: int) -> None:
    """`free`: what the batch leaves of its block, with its header."""
    disk = new_disk()
    with opened(disk, ON_DEMAND) as (journal, _):
        write_group(journal, [0], free - 16)
        write_group(journal, [1])
        ends = [call.position + call.size for call in disk.script.matching("write", "*.txn")]
        assert ends[1] == (1024 if 512 - free >= 24 else 1536)
        assert ends[2] == ends[1] + 512
    assert replayed(disk) == [*expected([0], free - 16), *expected([1])]


@pytest.mark.covers("J5")
@pytest.mark.parametrize("call", ["force", "write", "reserve"])
def test_after_an_error_of_the_disk_only_the_error_is_reported(call: str) -> None:
    disk = new_disk()
    callbacks = Callbacks()
    journal = start(disk, replace(ON_DEMAND, preallocated=1024), callbacks)
    write_group(journal, [0])
    assert journal.force_now(DEADLINE)
    disk.script.fail(call, "*.txn", code=errno.EIO)
    append(journal, [1, 2])
    with pytest.raises(BrokerError, match="Input/output") as raised:
        write_and_force(journal, 3)
    assert raised.value.code is Code.KAFKA_STORAGE_ERROR
    for thread in journal._threads:  # the last call of one of them is the callback for the error
        thread.join(DEADLINE)
    before = list(callbacks.events)
    assert callbacks.of("forced") == [0]
    with pytest.raises(BrokerError, match="Restart the broker"):
        journal.append(record(3))
    assert isinstance(journal.failure, OSError)
    journal.close(DEADLINE)
    assert callbacks.events == before
    assert callbacks.of("failed") == ["OSError"]
    assert not any(thread.is_alive() for thread in journal._threads)


@pytest.mark.covers("J5")
def test_what_was_written_while_a_force_failed_is_not_reported_as_safe() -> None:
    disk = new_disk()
    callbacks = Callbacks()
    journal = start(disk, SMALL, callbacks)
    with disk.script.blocked("force", "*.txn"):
        write_group(journal, [0])
        disk.script.wait_for("force", count=FORCES_OF_OPENING + 1)
        disk.script.fail("force")
        write_group(journal, [1])
    with pytest.raises(BrokerError):
        journal.force_now(DEADLINE)
    for thread in journal._threads:
        thread.join(DEADLINE)
        assert not thread.is_alive(), "a thread goes on after the failure of the other one"
    journal.close(DEADLINE)
    assert callbacks.of("forced") == []
    assert journal.mark() == Mark(1, SMALL.alignment)


@pytest.mark.covers("J5")
def test_a_force_that_succeeds_while_a_write_fails_is_not_reported() -> None:
    disk = new_disk()
    callbacks = Callbacks()
    journal = start(disk, SMALL, callbacks)
    with disk.script.blocked("force", "*.txn"):
        write_group(journal, [0])
        disk.script.wait_for("force", count=FORCES_OF_OPENING + 1)
        disk.script.fail("write")
        with pytest.raises(BrokerError):
            write_group(journal, [1])
    journal.close(DEADLINE)
    assert callbacks.events == [("written", 0), ("failed", "OSError")]


@pytest.mark.covers("J5")
def test_a_write_that_succeeds_while_a_force_fails_is_not_reported() -> None:
    disk = new_disk()
    callbacks = Callbacks()
    journal = start(disk, SMALL, callbacks)
    with disk.script.blocked("write", "*.txn"):
        with disk.script.blocked("force", "*.txn"):
            disk.script.fail("force")
            disk.script.release("write", "*.txn")
            write_group(journal, [0])
            disk.script.block("write", "*.txn")
            append(journal, [1])
            disk.script.wait_for("write", count=3)
        with pytest.raises(BrokerError):
            journal.force_now(DEADLINE)
    journal.close(DEADLINE)
    assert callbacks.events == [("written", 0), ("failed", "OSError")]


@pytest.mark.covers("J5")
def test_an_error_of_the_listener_ends_the_journal_too(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = new_disk()
    callbacks = Callbacks()

    def broken(records: Sequence[JournalRecord]) -> None:
        raise IndexError("out of range")

    monkeypatch.setattr(callbacks, "forced", broken)
    journal = start(disk, SMALL, callbacks)
    append(journal, [0])
    with pytest.raises(BrokerError, match="out of range"):
        assert journal.wait_written(2, DEADLINE)
    journal.close(DEADLINE)
    assert callbacks.of("failed") == ["IndexError"]


@pytest.mark.covers("J5")
def test_a_full_disk_is_reported_when_the_journal_is_closed() -> None:
    disk = new_disk()
    callbacks = Callbacks()
    journal = start(disk, ON_DEMAND, callbacks)
    append(journal, [0])
    disk.script.fail("write", code=errno.ENOSPC, kept=100)
    with pytest.raises(OSError, match="No space"):
        journal.close(DEADLINE)
    assert callbacks.of("written") == []
    assert replayed(disk) == expected([0])  # it may be stored, though it was not confirmed


@pytest.mark.covers("J8")
def test_a_large_file_is_ended_and_the_next_one_begun() -> None:
    disk = new_disk()
    settings = replace(ON_DEMAND, max_file_bytes=2048)
    with opened(disk, settings) as (journal, callbacks):
        for number in range(9):
            write_group(journal, [number], 400)
        assert journal.counters.rolls == 2
        assert journal.force_now(DEADLINE)
        assert journal.mark() == Mark(3, 2048)
        assert callbacks.of("forced") == list(range(9))
    assert disk.names(DIRECTORY) == ["1.txn", "2.txn", "3.txn"]
    assert replayed(disk) == expected(range(9), 400)
    assert replayed(disk, Mark(2, 1024)) == expected(range(4, 9), 400)


@pytest.mark.covers("J8")
def test_the_next_file_is_begun_only_when_the_whole_file_is_on_the_disk() -> None:
    disk = new_disk()
    with opened(disk, replace(SMALL, max_file_bytes=1024)) as (journal, _):
        with disk.script.blocked("force", "*.txn"):
            write_group(journal, [0])
            append(journal, [1])
            disk.script.wait_for("force", count=FORCES_OF_OPENING + 1)
            assert disk.names(DIRECTORY) == ["1.txn"]
        assert journal.wait_written(2, DEADLINE)
    assert disk.names(DIRECTORY) == ["1.txn", "2.txn"]


@pytest.mark.covers("J8")
def test_a_file_is_ended_after_what_was_forced_also_without_sync() -> None:
    disk = new_disk()
    with opened(disk, replace(SMALL, max_file_bytes=1, unsynced_force_ms=3_600_000), sync=False) as (journal, _):
        write_group(journal, [0])
        write_group(journal, [1])
        of_first = [call.name for call in disk.script.calls if call.path.name == "1.txn"]
    header, group, end = (
        ["open", "write", "force"],
        ["write", "force", "write"],
        ["write", "truncate", "force", "close"],
    )
    assert [name for name in of_first if name != "drop_pages"] == header + group + end


@pytest.mark.covers("J8")
def test_files_before_the_mark_are_removed_except_for_the_backups() -> None:
    disk = new_disk()
    settings = replace(ON_DEMAND, max_file_bytes=1)
    with opened(disk, replace(settings, backups=2)) as (journal, _):
        for number in range(6):
            write_group(journal, [number])
        assert journal.force_now(DEADLINE)
        journal.drop_before(Mark(4, 600))
        assert disk.names(DIRECTORY) == ["2.txn", "3.txn", "4.txn", "5.txn", "6.txn"]
    with opened(disk, settings) as (journal, _):
        journal.drop_before(Mark(4, 600))
        journal.drop_before(Mark(4, 600))
        assert disk.names(DIRECTORY) == ["4.txn", "5.txn", "6.txn", "7.txn"]
        journal.drop_before(cast(Mark, journal.mark()))
        assert disk.names(DIRECTORY) == ["7.txn"]


@pytest.mark.covers("J10")
def test_what_was_forced_leaves_the_page_cache_except_for_the_last_8_mib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JournalFile, "write_forced_marker", no_note)
    disk = new_disk()
    mib = 1024 * 1024
    with opened(disk, replace(SMALL, alignment=4096)) as (journal, _):
        for number in range(12):
            write_group(journal, [number], mib)
            assert journal.force_now(DEADLINE)
        ends = [call.position + call.size for call in disk.script.matching("write", "*.txn")][1:]
        dropped = [(call.position, call.position + call.size) for call in disk.script.matching("drop_pages")]
        edges = [0, *(end - 8 * mib for end in ends if end > 8 * mib)]
        assert dropped == list(pairwise(edges))
        assert journal.counters.dropped_bytes == edges[-1]
        order = [call.name for call in disk.script.calls if call.name in ("write", "force", "drop_pages")]
        assert all(before == "force" for before, name in pairwise(order) if name == "drop_pages")


@pytest.mark.covers("J10")
def test_pages_stay_if_the_settings_say_so() -> None:
    disk = new_disk()
    with opened(disk, replace(SMALL, drop_page_cache=False)) as (journal, _):
        write_group(journal, [0], 9 * 1024 * 1024)
    assert disk.script.count("drop_pages") == 0


@pytest.mark.covers("J11")
def test_records_are_reported_as_written_before_they_are_forced_in_their_order() -> None:
    disk = new_disk()
    with opened(disk) as (journal, callbacks):
        for number in range(200):
            append(journal, [number])
        assert journal.wait_written(200, DEADLINE)
        assert callbacks.of("written") == list(range(200))
        assert journal.force_now(DEADLINE)
    assert callbacks.of("forced") == list(range(200))
    for number in range(200):
        assert callbacks.events.index(("written", number)) < callbacks.events.index(("forced", number))


def test_without_sync_records_are_forced_only_after_a_while_or_when_it_is_asked_for() -> None:
    disk = new_disk()
    with opened(disk, replace(SMALL, unsynced_force_ms=3_600_000), sync=False) as (journal, callbacks):
        write_group(journal, [0])
        assert disk.script.count("force") == FORCES_OF_OPENING
        assert journal.has_memory(10**9)
        assert journal.force_now(DEADLINE)
        assert journal.mark() == Mark(1, 1024)
        write_group(journal, [1])
        assert callbacks.of("forced") == []
    assert len(disk.durable(DIRECTORY / "1.txn")) == 1536 + 16


def test_without_sync_records_are_forced_after_their_while() -> None:
    disk = new_disk()
    with opened(disk, replace(SMALL, unsynced_force_ms=1), sync=False) as (journal, _):
        write_group(journal, [0])
        disk.script.wait_for("force", count=FORCES_OF_OPENING + 1)


def test_without_sync_a_record_is_written_when_append_returns() -> None:
    """The appending thread writes it, as a group of its own; a failure is reported and raised there too."""
    disk = new_disk()
    with opened(disk, replace(ON_DEMAND, max_memory_bytes=1000), sync=False) as (journal, callbacks):
        for number in range(3):
            append(journal, [number], 600)
            assert callbacks.of("written") == list(range(number + 1))
            assert (journal.written_ticket, journal.has_memory(1000)) == (number + 1, True)
        assert journal.counters.groups[Trigger.EMPTY_QUEUE] == 3
        disk.script.fail("write", "*.txn")
        with pytest.raises(BrokerError):
            append(journal, [3])
        assert callbacks.of("failed") == ["OSError"]
        assert journal.written_ticket == 3


def test_records_that_are_not_confirmed_take_memory() -> None:
    disk = new_disk()
    with opened(disk, replace(ON_DEMAND, max_memory_bytes=1000)) as (journal, _):
        assert journal.has_memory(5000)
        with disk.script.blocked("force", "*.txn"):
            append(journal, [0], 600)
            assert journal.has_memory(400)
            assert not journal.has_memory(401)
            assert journal.wait_written(1, DEADLINE)
            assert not journal.has_memory(401)
        assert journal.force_now(DEADLINE)
        assert journal.has_memory(1000)


def test_a_journal_that_is_stuck_is_not_waited_for_for_ever() -> None:
    disk = new_disk()
    callbacks = Callbacks()
    journal = start(disk, SMALL, callbacks)
    with disk.script.blocked("force", "*.txn"):
        write_group(journal, [0])
        with pytest.raises(TimeoutError, match="has not responded"):
            journal.close(0.01)
    journal.close(DEADLINE)


def test_a_journal_closes_with_everything_on_the_disk_and_goes_on_in_a_new_file() -> None:
    disk = new_disk()
    for run in range(3):
        with opened(disk, ON_DEMAND) as (journal, _):
            append(journal, range(10 * run, 10 * run + 10))
        disk = disk.crash(run)
    assert disk.names(DIRECTORY) == ["1.txn", "2.txn", "3.txn"]
    assert replayed(disk) == expected(range(30))


def test_a_journal_is_not_opened_after_a_file_that_was_not_read() -> None:
    disk = new_disk()
    with opened(disk, SMALL) as (journal, _):
        write_group(journal, [0])
        assert journal.force_now(DEADLINE)
        crashed: SimulatedDisk = disk.crash(0)
    with pytest.raises(ValueError, match="replay"):
        start(crashed, SMALL, Callbacks())
    assert replayed(crashed) == expected([0])
    with opened(crashed, SMALL):
        assert crashed.names(DIRECTORY) == ["1.txn", "2.txn"]


def test_an_empty_batch_is_a_record_too() -> None:
    disk = new_disk()
    with opened(disk, JournalSettings()) as (journal, _):
        append(journal, [0, 1, 2], 0)
    assert [len(batch) for _, batch in replayed(disk)] == [1, 1, 1]
