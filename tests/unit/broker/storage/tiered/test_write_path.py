"""Admission: into the write cache, then to the journal, or a refusal without an effect."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from spark_producer.broker.settings import BrokerSettings, TopicSettings
from spark_producer.broker.storage.tiered import TieredStorage
from spark_producer.broker.storage.tiered.journal import JournalRecord
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError
from tests.fakes.small_tiers import DEADLINE, JOURNAL_FILES, SMALL_JOURNAL, settle
from tests.unit.broker.storage.tiered.crash_runs import killed
from tests.unit.broker.storage.tiered.engine_harness import DATA_DIR, ENTRY_LOGS, KIB, EngineHarness

HALF = 8 * KIB


@pytest.fixture
def harness() -> Iterator[EngineHarness]:
    seldom = replace(SMALL_JOURNAL, unsynced_force_ms=3_600_000)  # during a force batches are confirmed a little later
    made = EngineHarness(write_cache_bytes=2 * HALF, journal=seldom)
    yield made
    made.close()


def fill(harness: EngineHarness) -> int:
    """Admit batches until one is refused; return how many were admitted."""
    for count in range(1000):
        try:
            harness.admit(size=KIB)
        except BrokerError as error:
            if error.code != Code.NOT_ENOUGH_REPLICAS:
                raise
            return count
    raise AssertionError("a write cache without an end")


@pytest.mark.covers("W1")
def test_a_batch_is_in_the_write_cache_before_the_journal_has_it() -> None:
    harness = EngineHarness(sync=True)
    with harness.disk.script.blocked("write", JOURNAL_FILES):
        harness.admit()
        assert harness.engine.write_cache.cached_batch(harness.engine.find("t", 0).log_id, 0) is not None  # type: ignore[union-attr]
        assert harness.engine.journal.written_ticket == 0
        assert (harness.log.high_watermark, harness.log.read(0, KIB)) == (0, b"")
    settle(harness.storage)
    assert harness.log.high_watermark == 1
    harness.close()


@pytest.mark.covers("W1")
def test_a_batch_that_the_journal_does_not_take_is_in_no_tier() -> None:
    harness = EngineHarness(sync=True)
    harness.disk.script.fail("write", JOURNAL_FILES)
    harness.admit()
    for thread in harness.engine.journal._threads:
        thread.join(DEADLINE)
    with pytest.raises(BrokerError):
        harness.admit()
    harness.engine.write_path.failure = None  # it is not noted yet, when the journal refuses
    with pytest.raises(BrokerError):
        harness.admit()
    state = harness.log._state
    assert (state.end_offset, harness.engine.write_cache.cached_batch(state.log_id, 1)) == (1, None)
    harness.close()


@pytest.mark.covers("W1")
def test_an_unforced_batch_is_refused_at_once_if_the_journal_cannot_write_it(harness: EngineHarness) -> None:
    harness.append()
    harness.disk.script.fail("write", JOURNAL_FILES)
    with pytest.raises(BrokerError) as raised:
        harness.admit()
    assert raised.value.code is Code.KAFKA_STORAGE_ERROR
    state = harness.log._state
    assert (state.end_offset, harness.engine.write_cache.cached_batch(state.log_id, 1)) == (1, None)
    assert harness.log.high_watermark == 1
    assert len(harness.read_all()) == 1


def test_an_unforced_batch_is_confirmed_when_it_is_admitted(harness: EngineHarness) -> None:
    """The producer gets the response without a thread switch, and without a callback."""
    reported: list[str] = []
    harness.storage.watch(lambda topic, partition: reported.append(topic), lambda: None)
    for number in range(3):
        assert harness.log.is_confirmed(harness.admit())
        assert harness.log.high_watermark == number + 1
    assert reported == []


@pytest.mark.covers("W3")
def test_a_batch_without_space_is_refused_and_takes_no_offset(harness: EngineHarness) -> None:
    with harness.disk.script.blocked("force", ENTRY_LOGS):
        admitted = fill(harness)
        assert admitted == 2 * HALF // KIB
        assert not harness.storage.has_space(KIB)
        assert not harness.storage.has_space(KIB)
        counters = harness.engine.counters.write_cache
        assert (counters.throttled, counters.rejected) == (1, 1), "it waits once, and one batch was refused"
    harness.flush()
    assert harness.space_notices > 0, "a producer that waits for space is notified"
    assert harness.storage.has_space(KIB)
    assert harness.append() == admitted, "no offset was lost"
    assert len(harness.read_all()) == admitted + 1


@pytest.mark.covers("W3")
def test_a_request_larger_than_a_half_waits_for_a_free_one(harness: EngineHarness) -> None:
    with harness.disk.script.blocked("force", ENTRY_LOGS):
        harness.admit(size=KIB)
        assert harness.storage.has_space(3 * HALF), "the other half is free"
        fill(harness)
        assert not harness.storage.has_space(3 * HALF)


def test_a_topic_with_a_larger_limit_than_the_write_cache_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    harness = EngineHarness(logs=3, write_cache_bytes=2 * HALF, topic=TopicSettings(max_message_bytes=HALF + 1))
    expected = r"topic 't': max.message.bytes is 8,193, .* set storage.write.cache.bytes to 16,386 at least"
    assert [bool(re.match(expected, record.getMessage())) for record in caplog.records] == [True]
    for size, lines in ((HALF + 1, 1), (HALF + 2, 2), (HALF, 2), (HALF + 2, 3)):
        for log in harness.logs:
            log.settings = TopicSettings(max_message_bytes=size)
        assert len(caplog.records) == lines, "once for all partitions, and again when it was altered"
    caplog.clear()
    for index in (0, 1, 0):
        with pytest.raises(BrokerError, match=r"storage.write.cache.bytes must be 20,\d+ at least") as refused:
            harness.admit(index, size=10 * KIB)
        assert refused.value.code == Code.MESSAGE_TOO_LARGE
    assert ["topic 't': batches are refused" in record.getMessage() for record in caplog.records] == [True]
    harness.close()


def test_a_batch_that_no_half_holds_is_too_large(harness: EngineHarness) -> None:
    with pytest.raises(BrokerError) as refused:
        harness.admit(size=HALF + 1)
    assert refused.value.code == Code.MESSAGE_TOO_LARGE
    assert "a larger --memory-part storage.write.cache.bytes, or more --memory" in str(refused.value)
    assert harness.append(size=HALF) == 0


@pytest.mark.covers("W8")
def test_a_failed_flush_is_repeated_with_the_same_half_and_then_no_more(harness: EngineHarness) -> None:
    first = harness.engine.last_mark.latest
    harness.append(size=KIB)
    harness.disk.script.fail("force", ENTRY_LOGS, times=None)
    for _ in range(harness.options.flush_tries):
        assert harness.engine.write_path.refusal is None
        harness.append(size=100)
        with pytest.raises(OSError, match="Input/output"):
            harness.flush()
        assert harness.engine.counters.write_cache.swaps == 1, "the halves stay"
    assert harness.engine.last_mark.latest == first, "and so does the mark"
    with pytest.raises(BrokerError, match="5 flushes of its write cache failed") as refused:
        harness.admit()
    assert refused.value.code == Code.KAFKA_STORAGE_ERROR
    assert len(harness.read_all()) == 1 + harness.options.flush_tries, "what was confirmed is still read"


@pytest.mark.covers("W8")
@pytest.mark.parametrize(
    ("call", "pattern"),
    [
        ("write", ENTRY_LOGS),
        ("force", ENTRY_LOGS),
        ("force", "index"),
        ("write", "catalog*"),
        ("rename", "lastMark*"),
        ("open", ENTRY_LOGS),
    ],
)
def test_a_flush_goes_on_from_the_step_that_failed(call: str, pattern: str) -> None:
    harness = EngineHarness(write_cache_bytes=2 * HALF, sync=True)
    for _ in range(3):
        harness.append(size=KIB)
    before = harness.read_all()
    harness.disk.script.fail(call, pattern)
    with pytest.raises(OSError, match="Input/output"):
        harness.flush()
    assert harness.read_all() == before
    harness.flush()
    assert (harness.engine.write_cache.is_empty, harness.engine.ledgers[0].index.row_count) == (True, 3)
    assert harness.read_all() == before
    again = harness.again()
    assert again.read_all() == before
    again.close()


def test_an_unexpected_error_in_the_flush_thread_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = EngineHarness()
    reported = threading.Event()

    def flushes_failed(reason: str) -> None:
        harness.engine.write_path.flushes_failed(reason)
        reported.set()

    monkeypatch.setattr(harness.engine.flusher, "_flushes_failed", flushes_failed)
    monkeypatch.setattr(harness.engine.flusher, "_collect_garbage", lambda: 1 // 0)
    harness.engine.flusher.wake()
    assert reported.wait(DEADLINE)
    with pytest.raises(BrokerError, match="ZeroDivisionError"):
        harness.admit()
    harness.close()


@pytest.mark.covers("W3")
def test_a_batch_for_which_there_is_no_memory_uses_up_no_offset_and_no_space(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = EngineHarness(sync=True)  # without it nothing waits in a queue
    harness.append(size=KIB)
    used, journal = harness.engine.write_cache._active.used, harness.engine.journal

    def refuse(record: JournalRecord) -> None:
        raise MemoryError

    with monkeypatch.context() as poor:
        poor.setattr(journal._queue, "put", refuse)
        for _ in range(3):
            refused_for_memory(harness)
    assert (harness.engine.write_cache._active.used, journal.waiting_bytes) == (used, 0)
    assert journal.counters.added == 1
    assert harness.append(size=KIB) == 1
    assert len(harness.read_all()) == 2
    again = harness.again()
    assert len(again.read_all()) == 2
    again.close()


def refused_for_memory(harness: EngineHarness) -> None:
    """A batch is refused, so that its producer sends it again."""
    with pytest.raises(BrokerError, match=r"no memory for the batch\. Send it again") as refused:
        harness.admit(size=KIB)
    assert refused.value.code == Code.NOT_ENOUGH_REPLICAS


@pytest.mark.covers("W3")
def test_an_unforced_batch_is_refused_alone_if_there_is_no_memory_to_write_it(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.append(size=KIB)
    used = harness.engine.write_cache._active.used

    def refuse(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as poor:
        poor.setattr(harness.disk, "write", refuse)
        for _ in range(3):
            refused_for_memory(harness)
    assert (harness.engine.write_cache._active.used, harness.engine.write_path.failure) == (used, None)
    assert [harness.append(size=KIB) for _ in range(2)] == [1, 2]
    again = harness.again()
    assert len(again.read_all()) == 3
    again.close()


def test_a_batch_for_whose_copy_in_the_tail_cache_there_is_no_memory_is_admitted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = EngineHarness()

    def refuse(log_id: int, base_offset: int, end_offset: int, batch: bytes | memoryview) -> None:
        raise MemoryError

    with monkeypatch.context() as poor:
        poor.setattr(harness.engine.write_path, "_admitted", refuse)
        assert harness.append() == 0
    assert harness.append() == 1
    assert len(harness.read_all()) == 2
    again = harness.again()
    assert len(again.read_all()) == 2
    again.close()


def test_an_error_in_the_tail_cache_is_logged_by_the_flush_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = EngineHarness()
    reported = threading.Event()

    def flushes_failed(reason: str) -> None:
        harness.engine.write_path.flushes_failed(reason)
        reported.set()

    monkeypatch.setattr(harness.engine.flusher, "_flushes_failed", flushes_failed)
    monkeypatch.setattr(harness.engine.flusher, "_expire", lambda: 1 // 0)
    harness.engine.flusher.wake()
    assert reported.wait(DEADLINE)
    harness.close()


def test_a_deletion_that_was_answered_is_on_the_disk(caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise a broker that is killed right after it would warn of records of no topic."""
    harness = EngineHarness(logs=2)
    harness.append(0)
    harness.append(1)
    harness.flush()
    harness.append(0)
    with harness.engine.flusher._running:  # whose thread would store the catalog later
        harness.storage.delete([("t", 0)])
        disk = killed(harness.disk)
    again = TieredStorage(DATA_DIR, BrokerSettings(), options=harness.options, files=disk)
    again.recover({})
    assert again.orphaned({}) == ["t-1"]
    assert "(t-1)" in caplog.text
    again.close()
    harness.close()


def test_the_first_batch_of_a_log_that_the_catalog_has_does_not_wait_for_the_catalog() -> None:
    """A flush writes it, whose disk may hang."""
    earlier = EngineHarness(logs=2)
    for index in range(2):
        earlier.append(index)
    harness = earlier.again()
    harness.append(0)
    script = harness.disk.script
    came = script.count("write", "catalog*")
    with script.blocked("write", "catalog*"):
        harness.engine.write_cache.swap()
        harness.engine.flusher.wake()
        script.wait_for("write", "catalog*", count=came + 1)
        admitting = threading.Thread(target=harness.admit, args=[1], daemon=True)
        admitting.start()
        admitting.join(DEADLINE / 2)  # the disk continues after it
        is_waiting = admitting.is_alive()
    admitting.join(DEADLINE)
    assert not is_waiting
    harness.flush()
    assert [len(harness.read_all(index)) for index in range(2)] == [2, 2]
    again = harness.again()
    assert [len(again.read_all(index)) for index in range(2)] == [2, 2]
    again.close()
