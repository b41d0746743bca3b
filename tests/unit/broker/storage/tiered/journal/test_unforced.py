"""A journal that confirms what is not forced: who appends writes, but never waits for a disk that is stuck."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from spark_producer.broker.storage.file_ops import Buffer
from tests.support.simulated_disk import SimulatedDisk
from tests.support.waiting import wait_until
from tests.unit.broker.storage.tiered.journal.journals import (
    DEADLINE,
    ON_DEMAND,
    SMALL,
    append,
    expected,
    new_disk,
    opened,
    record,
    replayed,
    write_group,
)

SELDOM = replace(SMALL, unsynced_force_ms=3_600_000)
"""Forced only on request."""


@pytest.mark.covers("J8")
@pytest.mark.parametrize("call", ["force", "write", "truncate", "close", "open", "sync_directory"])
def test_who_appends_does_not_wait_for_the_end_of_a_file(call: str) -> None:
    disk = new_disk()
    with opened(disk, replace(SELDOM, max_file_bytes=1, max_memory_bytes=1000), sync=False) as (journal, callbacks):
        append(journal, [0])
        came = disk.script.count(call)
        with disk.script.blocked(call):
            append(journal, [1, 2], 500)
            assert not journal.has_memory(1), "what waits is bounded"
            assert callbacks.of("written") == [0]
            disk.script.wait_for(call, count=came + 1)
        assert journal.wait_written(3, DEADLINE)
        assert (journal.waiting_bytes, journal.has_memory(1000)) == (0, True)
        append(journal, [3])
        assert journal.wait_written(4, DEADLINE)
    assert callbacks.of("written") == [0, 1, 2, 3]
    assert replayed(disk) == [*expected([0]), *expected([1, 2], 500), *expected([3])]


def test_who_appends_does_not_ask_the_disk_for_space() -> None:
    disk = new_disk()
    size = 10 * 1024
    with opened(disk, replace(SELDOM, preallocated=64 * 1024), sync=False) as (journal, callbacks):
        with disk.script.blocked("reserve"):
            append(journal, range(12), size)
            assert len(callbacks.of("written")) < 12
        assert journal.wait_written(append(journal, [12], size), DEADLINE)
        append(journal, [13], size)
        assert callbacks.of("written") == list(range(14)), "with space it is written at once again"


def test_a_write_that_hangs_after_a_force_does_not_block_append() -> None:
    """A disk that hangs is first seen by the force; then the page cache fills up, and writes hang too."""
    disk = new_disk()
    with opened(disk, replace(SELDOM, max_memory_bytes=100), sync=False) as (journal, callbacks):
        append(journal, [0])
        with disk.script.blocked("force", "*.txn"):
            assert not journal.force_now(0.0)
            disk.script.wait_for("force", "*.txn", count=2)
            write_group(journal, [1])
            assert (callbacks.of("written"), journal.has_memory(100)) == ([0, 1], True), "no record waits for the force"
            with disk.script.blocked("write", "*.txn"):
                append(journal, [2, 3, 4])
                assert not journal.has_memory(1)
                assert callbacks.of("written") == [0, 1]
        assert journal.wait_written(5, DEADLINE)
        assert journal.force_now(DEADLINE)
    assert callbacks.of("written") == list(range(5))
    assert callbacks.of("forced") == []


def test_what_another_thread_writes_is_waited_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer that gives its batch no time at all gets its confirmation, as long as the disk works."""
    disk = new_disk()
    with opened(disk, SELDOM, sync=False) as (journal, callbacks):
        append(journal, [0])
        with disk.script.blocked("force", "*.txn"):
            assert not journal.force_now(0.0)
            disk.script.wait_for("force", "*.txn", count=2)
            monkeypatch.setattr("spark_producer.broker.storage.tiered.journal.journal.MAX_WRITE_WAIT_S", DEADLINE)
            append(journal, [1])
            assert callbacks.of("written") == [0, 1]
            monkeypatch.setattr("spark_producer.broker.storage.tiered.journal.journal.MAX_WRITE_WAIT_S", 0.001)
            with disk.script.blocked("write", "*.txn"):
                append(journal, [2])
                monkeypatch.setattr(
                    "spark_producer.broker.storage.tiered.journal.journal.MAX_WRITE_WAIT_S", 2 * DEADLINE
                )
                append(journal, [3, 4])
                assert callbacks.of("written") == [0, 1], "but not after one that was not written in time"
        assert journal.wait_written(5, DEADLINE)


def test_what_waits_in_the_queue_waits_for_no_others() -> None:
    disk = new_disk()
    with opened(disk, replace(ON_DEMAND, max_file_bytes=1, unsynced_force_ms=3_600_000), sync=False) as (journal, _):
        append(journal, [0, 1])
        disk.script.wait_for("write", "2.txn", count=2)


def no_memory_before(disk: SimulatedDisk, file: int, buffers: Sequence[Buffer], position: int) -> None:
    raise MemoryError


def no_memory_after(disk: SimulatedDisk, file: int, buffers: Sequence[Buffer], position: int) -> None:
    """Write as `SystemFiles.write`, without memory for the rest of a write that was cut short."""
    SimulatedDisk.write(disk, file, [b"".join(buffers)[:300]], position)
    raise MemoryError


@pytest.mark.parametrize("write", [no_memory_before, no_memory_after])
def test_without_memory_for_a_record_the_journal_goes_on(monkeypatch: pytest.MonkeyPatch, write: object) -> None:
    disk = new_disk()
    with opened(disk, SELDOM, sync=False) as (journal, callbacks):
        append(journal, [0])
        with monkeypatch.context() as poor:
            poor.setattr(disk, "write", write.__get__(disk))  # type: ignore[attr-defined]
            with pytest.raises(MemoryError):
                append(journal, [1], 900)
        assert (journal.failure, journal.counters.added, journal.written_ticket) == (None, 1, 1)
        append(journal, [2, 3])
        assert callbacks.events == [("written", 0), ("written", 2), ("written", 3)]
    assert replayed(disk) == expected([0, 2, 3])


def test_without_memory_once_a_record_counts_the_journal_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The record cannot be taken back: the next run would read it again."""
    disk = new_disk()
    with opened(disk, SELDOM, sync=False) as (journal, callbacks):

        def refuse(*_: object) -> None:
            raise MemoryError

        monkeypatch.setattr(journal, "_call_written", refuse)
        with pytest.raises(Exception, match="Restart the broker"):
            append(journal, [0])
        assert callbacks.of("failed") == ["MemoryError"]


def test_a_queue_without_memory_stays_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = new_disk()

    class Poor(list[object]):
        def append(self, _: object) -> None:
            raise MemoryError

    with opened(disk, ON_DEMAND) as (journal, callbacks):
        with monkeypatch.context() as poor:
            poor.setattr(journal._queue, "_records", Poor())
            with pytest.raises(MemoryError):
                journal.append(record(0))
        assert (journal._queue._entries, journal._queue._bytes, journal.waiting_bytes) == (0, 0, 0)
        write_group(journal, [1])
    assert callbacks.of("forced") == [1]


def no_memory(*_: object) -> None:
    raise MemoryError


def test_without_memory_to_wait_a_record_that_was_handed_over_is_taken_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The journal's thread has it, so its batch may not be taken back: the next one would get its offset and its bytes."""
    disk = new_disk()
    with opened(disk, SELDOM, sync=False) as (journal, callbacks):
        append(journal, [0])
        with disk.script.blocked("force", "*.txn"):
            assert not journal.force_now(0.0)
            disk.script.wait_for("force", "*.txn", count=2)
            with monkeypatch.context() as poor:
                poor.setattr(journal._changed, "wait_for", no_memory)
                assert append(journal, [1]) == 2
        assert journal.wait_written(2, DEADLINE)
        assert (journal.counters.added, journal.waiting_bytes) == (2, 0)
        assert append(journal, [2]) == 3
    assert callbacks.of("written") == [0, 1, 2]
    assert replayed(disk) == expected([0, 1, 2])


def test_a_queue_without_memory_to_wake_the_journal_has_nothing_and_wakes_it_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = new_disk()
    with opened(disk) as (journal, callbacks):
        write_group(journal, [0])
        assert journal.force_now(DEADLINE)
        queue = journal._queue
        wait_until(lambda: queue._idle, "the queue is idle", pause=0.001)
        with monkeypatch.context() as poor:
            poor.setattr(queue._changed, "notify", no_memory)
            with pytest.raises(MemoryError):
                append(journal, [1])
        assert (len(queue._records), queue._entries, journal.waiting_bytes) == (0, 0, 0)
        assert journal.wait_written(append(journal, [2]), DEADLINE)
    assert callbacks.of("forced") == [0, 2]
