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
from tests.unit.broker.storage.tiered.engine_stage import DATA_DIR, ENTRY_LOGS, KIB, EngineStage

HALF = 8 * KIB


@pytest.fixture
def stage() -> Iterator[EngineStage]:
    seldom = replace(SMALL_JOURNAL, unsynced_force_ms=3_600_000)  # during a force batches are confirmed a little later
    made = EngineStage(write_cache_bytes=2 * HALF, journal=seldom)
    yield made
    made.close()


def fill(stage: EngineStage) -> int:
    """Admit batches until one is refused; return how many were admitted."""
    for count in range(1000):
        try:
            stage.admit(size=KIB)
        except BrokerError as error:
            if error.code != Code.NOT_ENOUGH_REPLICAS:
                raise
            return count
    raise AssertionError("a write cache without an end")


@pytest.mark.covers("W1")
def test_a_batch_is_in_the_write_cache_before_the_journal_has_it() -> None:
    stage = EngineStage(sync=True)
    with stage.disk.script.blocked("write", JOURNAL_FILES):
        stage.admit()
        assert stage.engine.write_cache.cached_batch(stage.engine.find("t", 0).log_id, 0) is not None  # type: ignore[union-attr]
        assert stage.engine.journal.written_ticket == 0
        assert (stage.log.high_watermark, stage.log.read(0, KIB)) == (0, b"")
    settle(stage.storage)
    assert stage.log.high_watermark == 1
    stage.close()


@pytest.mark.covers("W1")
def test_a_batch_that_the_journal_does_not_take_is_in_no_tier() -> None:
    stage = EngineStage(sync=True)
    stage.disk.script.fail("write", JOURNAL_FILES)
    stage.admit()
    for thread in stage.engine.journal._threads:
        thread.join(DEADLINE)
    with pytest.raises(BrokerError):
        stage.admit()
    stage.engine.write_path.failure = None  # it is not noted yet, when the journal refuses
    with pytest.raises(BrokerError):
        stage.admit()
    state = stage.log._state
    assert (state.end_offset, stage.engine.write_cache.cached_batch(state.log_id, 1)) == (1, None)
    stage.close()


@pytest.mark.covers("W1")
def test_an_unforced_batch_is_refused_at_once_if_the_journal_cannot_write_it(stage: EngineStage) -> None:
    stage.append()
    stage.disk.script.fail("write", JOURNAL_FILES)
    with pytest.raises(BrokerError) as raised:
        stage.admit()
    assert raised.value.code is Code.KAFKA_STORAGE_ERROR
    state = stage.log._state
    assert (state.end_offset, stage.engine.write_cache.cached_batch(state.log_id, 1)) == (1, None)
    assert stage.log.high_watermark == 1
    assert len(stage.read_all()) == 1


def test_an_unforced_batch_is_confirmed_when_it_is_admitted(stage: EngineStage) -> None:
    """So its producer gets the response without a thread switch, and without a callback."""
    reported: list[str] = []
    stage.storage.watch(lambda topic, partition: reported.append(topic), lambda: None)
    for number in range(3):
        assert stage.log.is_confirmed(stage.admit())
        assert stage.log.high_watermark == number + 1
    assert reported == []


@pytest.mark.covers("W3")
def test_a_batch_without_space_is_refused_and_takes_no_offset(stage: EngineStage) -> None:
    with stage.disk.script.blocked("force", ENTRY_LOGS):
        admitted = fill(stage)
        assert admitted == 2 * HALF // KIB
        assert not stage.storage.has_space(KIB)
        assert not stage.storage.has_space(KIB)
        counters = stage.engine.counters.write_cache
        assert (counters.throttled, counters.rejected) == (1, 1), "it waits once, and one batch was refused"
    stage.flush()
    assert stage.space_notices > 0, "a producer that waits for space is notified"
    assert stage.storage.has_space(KIB)
    assert stage.append() == admitted, "no offset was lost"
    assert len(stage.read_all()) == admitted + 1


@pytest.mark.covers("W3")
def test_a_request_larger_than_a_half_waits_for_a_free_one(stage: EngineStage) -> None:
    with stage.disk.script.blocked("force", ENTRY_LOGS):
        stage.admit(size=KIB)
        assert stage.storage.has_space(3 * HALF), "the other half is free"
        fill(stage)
        assert not stage.storage.has_space(3 * HALF)


def test_a_topic_with_a_larger_limit_than_the_write_cache_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = EngineStage(logs=3, write_cache_bytes=2 * HALF, topic=TopicSettings(max_message_bytes=HALF + 1))
    expected = r"topic 't': max.message.bytes is 8,193, .* set storage.write.cache.bytes to 16,386 at least"
    assert [bool(re.match(expected, record.getMessage())) for record in caplog.records] == [True]
    for size, lines in ((HALF + 1, 1), (HALF + 2, 2), (HALF, 2), (HALF + 2, 3)):
        for log in stage.logs:
            log.settings = TopicSettings(max_message_bytes=size)
        assert len(caplog.records) == lines, "once for all partitions, and again when it was altered"
    caplog.clear()
    for index in (0, 1, 0):
        with pytest.raises(BrokerError, match=r"storage.write.cache.bytes must be 20,\d+ at least") as refused:
            stage.admit(index, size=10 * KIB)
        assert refused.value.code == Code.MESSAGE_TOO_LARGE
    assert ["topic 't': batches are refused" in record.getMessage() for record in caplog.records] == [True]
    stage.close()


def test_a_batch_that_no_half_holds_is_too_large(stage: EngineStage) -> None:
    with pytest.raises(BrokerError) as refused:
        stage.admit(size=HALF + 1)
    assert refused.value.code == Code.MESSAGE_TOO_LARGE
    assert "a larger --memory-part storage.write.cache.bytes, or more --memory" in str(refused.value)
    assert stage.append(size=HALF) == 0


@pytest.mark.covers("W8")
def test_a_failed_flush_is_repeated_with_the_same_half_and_then_no_more(stage: EngineStage) -> None:
    first = stage.engine.last_mark.latest
    stage.append(size=KIB)
    stage.disk.script.fail("force", ENTRY_LOGS, times=None)
    for _ in range(stage.options.flush_tries):
        assert stage.engine.write_path.refusal is None
        stage.append(size=100)
        with pytest.raises(OSError, match="Input/output"):
            stage.flush()
        assert stage.engine.counters.write_cache.swaps == 1, "the halves stay"
    assert stage.engine.last_mark.latest == first, "and so does the mark"
    with pytest.raises(BrokerError, match="5 flushes of its write cache failed") as refused:
        stage.admit()
    assert refused.value.code == Code.KAFKA_STORAGE_ERROR
    assert len(stage.read_all()) == 1 + stage.options.flush_tries, "what was confirmed is still read"


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
    stage = EngineStage(write_cache_bytes=2 * HALF, sync=True)
    for _ in range(3):
        stage.append(size=KIB)
    before = stage.read_all()
    stage.disk.script.fail(call, pattern)
    with pytest.raises(OSError, match="Input/output"):
        stage.flush()
    assert stage.read_all() == before
    stage.flush()
    assert (stage.engine.write_cache.is_empty, stage.engine.ledgers[0].index.row_count) == (True, 3)
    assert stage.read_all() == before
    again = stage.again()
    assert again.read_all() == before
    again.close()


def test_an_unexpected_error_in_the_flush_thread_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = EngineStage()
    reported = threading.Event()

    def flushes_failed(reason: str) -> None:
        stage.engine.write_path.flushes_failed(reason)
        reported.set()

    monkeypatch.setattr(stage.engine.flusher, "_flushes_failed", flushes_failed)
    monkeypatch.setattr(stage.engine.flusher, "_collect_garbage", lambda: 1 // 0)
    stage.engine.flusher.wake()
    assert reported.wait(DEADLINE)
    with pytest.raises(BrokerError, match="ZeroDivisionError"):
        stage.admit()
    stage.close()


@pytest.mark.covers("W3")
def test_a_batch_for_which_there_is_no_memory_uses_up_no_offset_and_no_space(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = EngineStage(sync=True)  # without it nothing waits in a queue
    stage.append(size=KIB)
    used, journal = stage.engine.write_cache._active.used, stage.engine.journal

    def refuse(record: JournalRecord) -> None:
        raise MemoryError

    with monkeypatch.context() as poor:
        poor.setattr(journal._queue, "put", refuse)
        for _ in range(3):
            refused_for_memory(stage)
    assert (stage.engine.write_cache._active.used, journal.waiting_bytes) == (used, 0)
    assert journal.counters.added == 1
    assert stage.append(size=KIB) == 1
    assert len(stage.read_all()) == 2
    again = stage.again()
    assert len(again.read_all()) == 2
    again.close()


def refused_for_memory(stage: EngineStage) -> None:
    """A batch is refused, so that its producer sends it again."""
    with pytest.raises(BrokerError, match=r"no memory for the batch\. Send it again") as refused:
        stage.admit(size=KIB)
    assert refused.value.code == Code.NOT_ENOUGH_REPLICAS


@pytest.mark.covers("W3")
def test_an_unforced_batch_is_refused_alone_if_there_is_no_memory_to_write_it(
    stage: EngineStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.append(size=KIB)
    used = stage.engine.write_cache._active.used

    def refuse(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as poor:
        poor.setattr(stage.disk, "write", refuse)
        for _ in range(3):
            refused_for_memory(stage)
    assert (stage.engine.write_cache._active.used, stage.engine.write_path.failure) == (used, None)
    assert [stage.append(size=KIB) for _ in range(2)] == [1, 2]
    again = stage.again()
    assert len(again.read_all()) == 3
    again.close()


def test_a_batch_for_whose_copy_in_the_tail_cache_there_is_no_memory_is_admitted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = EngineStage()

    def refuse(log_id: int, base_offset: int, end_offset: int, batch: bytes | memoryview) -> None:
        raise MemoryError

    with monkeypatch.context() as poor:
        poor.setattr(stage.engine.write_path, "_admitted", refuse)
        assert stage.append() == 0
    assert stage.append() == 1
    assert len(stage.read_all()) == 2
    again = stage.again()
    assert len(again.read_all()) == 2
    again.close()


def test_an_error_in_the_tail_cache_is_logged_by_the_flush_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = EngineStage()
    reported = threading.Event()

    def flushes_failed(reason: str) -> None:
        stage.engine.write_path.flushes_failed(reason)
        reported.set()

    monkeypatch.setattr(stage.engine.flusher, "_flushes_failed", flushes_failed)
    monkeypatch.setattr(stage.engine.flusher, "_expire", lambda: 1 // 0)
    stage.engine.flusher.wake()
    assert reported.wait(DEADLINE)
    stage.close()


def test_a_deletion_that_was_answered_is_on_the_disk(caplog: pytest.LogCaptureFixture) -> None:
    """Else a broker that is killed right after it would warn of records of no topic."""
    stage = EngineStage(logs=2)
    stage.append(0)
    stage.append(1)
    stage.flush()
    stage.append(0)
    with stage.engine.flusher._running:  # whose thread would store the catalog later
        stage.storage.delete([("t", 0)])
        disk = killed(stage.disk)
    again = TieredStorage(DATA_DIR, BrokerSettings(), options=stage.options, files=disk)
    again.recover({})
    assert again.orphaned({}) == ["t-1"]
    assert "(t-1)" in caplog.text
    again.close()
    stage.close()


def test_the_first_batch_of_a_log_that_the_catalog_has_does_not_wait_for_the_catalog() -> None:
    """It is written by a flush, and its disk may hang."""
    earlier = EngineStage(logs=2)
    for index in range(2):
        earlier.append(index)
    stage = earlier.again()
    stage.append(0)
    script = stage.disk.script
    came = script.count("write", "catalog*")
    with script.blocked("write", "catalog*"):
        stage.engine.write_cache.swap()
        stage.engine.flusher.wake()
        script.wait_for("write", "catalog*", count=came + 1)
        admitting = threading.Thread(target=stage.admit, args=[1], daemon=True)
        admitting.start()
        admitting.join(DEADLINE / 2)  # the disk continues after it
        is_waiting = admitting.is_alive()
    admitting.join(DEADLINE)
    assert not is_waiting
    stage.flush()
    assert [len(stage.read_all(index)) for index in range(2)] == [2, 2]
    again = stage.again()
    assert [len(again.read_all(index)) for index in range(2)] == [2, 2]
    again.close()
