"""The garbage collection of entry logs, and their compaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from spark_producer.broker.settings import TopicSettings
from spark_producer.broker.storage.tiered.entry_log_format import ENTRY_HEADER, HEADER_SIZE
from tests.fakes.small_tiers import collect as collect_all
from tests.unit.broker.storage.tiered.engine_harness import KIB, LEDGERS, EngineHarness

NOTHING = TopicSettings(retention_bytes=0)
WEEK_S = 7 * 24 * 3600.0


def stop_clock(harness: EngineHarness, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Stop the clock of the collection; return a function that advances it."""
    collector, passed = harness.engine.ledgers[0].collector, [0.0]
    begin = collector._clock()
    with harness.engine.flusher._running:
        monkeypatch.setattr(collector, "_clock", lambda: begin + passed[0])

    def let_pass(seconds: float) -> None:
        passed[0] += seconds

    return let_pass


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineHarness]:
    """Each flush of one batch of each log fills one entry log. Nothing is collected before a test says so."""
    made = EngineHarness(logs=3, entry_log_bytes=2 * KIB)
    stop_clock(made, monkeypatch)
    yield made
    made.close()


def append_and_flush(harness: EngineHarness, *sizes: int) -> None:
    for index, size in enumerate(sizes):
        if size:
            harness.append(index, size=size)
    harness.flush()


def collect(harness: EngineHarness, threshold: float = 0.0) -> None:
    harness.engine.catalog.store()
    collect_all(harness.engine, threshold)


def between(harness: EngineHarness, work: Callable[[], float]) -> float:
    """Run a function while the flush thread waits."""
    found: list[float] = []
    harness.engine.flusher.between_flushes(lambda: found.append(work()))
    return found[0]


def delete(harness: EngineHarness, index: int) -> None:
    harness.logs[index].close(discard=True)
    harness.storage.delete([("t", index)])


@pytest.mark.covers("GC1")
def test_a_file_is_deleted_when_no_ledger_in_it_is_left(harness: EngineHarness) -> None:
    for _ in range(3):
        append_and_flush(harness, 1000, 1000, 0)
    delete(harness, 0)
    collect(harness)
    assert len(harness.entry_logs()) == 3, "the other log's batches are in each of them"
    harness.logs[1].settings = NOTHING
    harness.logs[1].delete_old(0)
    collect(harness)
    assert harness.entry_logs() == [], "also the one that was written to has nothing else"
    append_and_flush(harness, 0, 1000, 1000)
    assert (len(harness.read_all(1)), harness.logs[1].start_offset) == (1, 3)


def deleted_soon(harness: EngineHarness, monkeypatch: pytest.MonkeyPatch, index: int) -> Callable[[float], float]:
    """Delete a log; return a function that advances the clock, collects, and returns the time of the next step."""
    let_pass = stop_clock(harness, monkeypatch)
    delete(harness, index)

    def after(seconds: float) -> float:
        let_pass(seconds)
        return between(harness, harness.engine.ledgers[0].collector.run_if_due)

    return after


@pytest.mark.covers("GC4")
def test_the_disk_has_its_space_back_soon_after_a_deletion(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Holds also for the open entry log, of which another log needs a little."""
    append_and_flush(harness, 1500, 300, 0)
    before = harness.read_all(1)
    after = deleted_soon(harness, monkeypatch, 0)
    assert after(0.0) == pytest.approx(5.0)
    assert harness.entry_logs() == ["00000001.log"]
    after(5.0)
    after(1.0)
    assert (harness.entry_logs(), harness.read_all(1)) == (["00000002.log"], before)
    again = harness.again()
    assert again.read_all(1) == before
    again.close()


@pytest.mark.covers("GC4")
def test_many_deletions_are_few_collections(harness: EngineHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    append_and_flush(harness, 1500, 0, 0)
    append_and_flush(harness, 0, 1500, 0)
    after = deleted_soon(harness, monkeypatch, 0)
    after(0.0)
    after(5.0)
    assert harness.entry_logs() == ["00000002.log"]
    delete(harness, 1)
    assert after(1.0) == pytest.approx(29.0)
    after(28.0)
    assert harness.entry_logs() == ["00000002.log"]
    after(1.0)
    assert harness.entry_logs() == []
    assert after(1.0) > 800.0, "nothing was deleted since"


@pytest.mark.covers("GC1")
def test_a_damaged_file_stays_while_the_index_has_batches_after_the_damage(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The file has no map, because it was the open file when its run ended, so a scan ends at the damage."""
    first = EngineHarness(logs=2)
    append_and_flush(first, 200, 200)
    first.append(1, size=300)
    before = first.read_all(1)[1:]
    first.flush()
    first.close()
    name = LEDGERS / "00000001.log"
    content = bytearray(first.disk.content(name))
    content[HEADER_SIZE + 2 * ENTRY_HEADER.size + 300] ^= 1  # in the second entry
    first.disk.put(name, bytes(content))
    again = EngineHarness(first.disk, logs=2)
    delete(again, 0)
    collect(again)
    assert again.entry_logs() == ["00000001.log"]
    assert "it is damaged, and the index has batches" in caplog.text
    assert [again.logs[1].read(1, 1000)] == before
    again.close()


@pytest.mark.covers("GC4")
@pytest.mark.parametrize("call", ["write", "force"])
def test_a_file_that_cannot_be_ended_loses_nothing(harness: EngineHarness, call: str) -> None:
    append_and_flush(harness, 1500, 300, 0)
    before = harness.read_all(1)
    delete(harness, 0)
    harness.disk.script.fail(call, "*.log")
    with pytest.raises(OSError, match="Input/output"):
        collect(harness, 0.5)
    assert harness.read_all(1) == before
    append_and_flush(harness, 0, 0, 1900)
    collect(harness, 0.5)
    assert harness.read_all(1) == before
    again = EngineHarness(harness.disk.crash(3), logs=3)
    assert again.read_all(1) == before
    again.close()


@pytest.mark.covers("GC2")
def test_a_file_of_which_little_is_needed_is_compacted(harness: EngineHarness) -> None:
    for _ in range(3):
        append_and_flush(harness, 1500, 300, 0)
    append_and_flush(harness, 0, 0, 1800)
    before = harness.read_all(1)
    delete(harness, 0)
    collect(harness, 0.1)
    assert harness.engine.ledgers[0].collector.counters.compacted == 0, "300 of 1,800 bytes are more than a tenth"
    collect(harness, 0.5)
    counters = harness.engine.ledgers[0].collector.counters
    assert (counters.compacted, counters.copied_bytes) == (3, 3 * 300)
    assert harness.read_all(1) == before
    again = harness.again()
    assert [again.read_all(index) for index in (1, 2)] == [before, stage_of_one(1800)]
    again.close()


@pytest.mark.covers("IDX1")
def test_an_index_is_rebuilt_after_a_compaction_has_mixed_old_batches_with_new_ones(harness: EngineHarness) -> None:
    for _ in range(3):
        append_and_flush(harness, 1500, 300, 0)
    append_and_flush(harness, 0, 300, 1400)
    before = harness.read_all(1)
    delete(harness, 0)
    collect(harness, 0.5)
    places = [harness.engine.ledgers[0].index.find(harness.logs[1]._state.log_id, offset) for offset in (0, 3)]
    assert places[0] is not None
    assert places[1] is not None
    assert places[0][2:4] > places[1][2:4], "the oldest batch is after the newest"
    harness.close()
    content = bytearray(harness.disk.content(LEDGERS / "index"))
    content[50] ^= 1
    harness.disk.put(LEDGERS / "index", bytes(content))
    again = EngineHarness(harness.disk, logs=3)
    assert again.read_all(1) == before
    again.close()


def stage_of_one(size: int) -> list[bytes]:
    """Return the batch of a log that has one."""
    made = EngineHarness()
    made.append(size=size)
    found = made.read_all()
    made.close()
    return found


@pytest.fixture
def half_flushed(monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineHarness]:
    """One entry log to be compacted; and one of a flush that could not force the index, so its rows do not count yet."""
    made = EngineHarness(logs=2, entry_log_bytes=2 * KIB, sync=True, flush_tries=2, minor_threshold=0.4)
    stop_clock(made, monkeypatch)  # a collection of the engine's own would take the failure that the flush is to have
    append_and_flush(made, 1500, 300)
    delete(made, 0)
    made.engine.catalog.store()
    made.append(1, size=1900)
    made.disk.script.fail("force", "index")
    with pytest.raises(OSError, match="Input/output"):
        made.flush()
    yield made
    made.close()


@pytest.mark.covers("GC3")
def test_nothing_is_deleted_while_a_flush_is_to_be_repeated(half_flushed: EngineHarness) -> None:
    before, there = half_flushed.read_all(1), half_flushed.entry_logs()
    for _ in range(2):  # the first time its entry log would be ended, the second time it would be deleted
        collect(half_flushed, 0.4)
    assert (len(before), half_flushed.entry_logs()) == (2, there)
    half_flushed.flush()
    assert half_flushed.read_all(1) == before
    again = half_flushed.again()
    assert again.read_all(1) == before
    again.close()


@pytest.mark.covers("GC3")
def test_nothing_is_deleted_after_the_last_try_of_a_flush(
    half_flushed: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk works again, and the broker, which takes no more batches, collects no entry logs."""
    let_pass = stop_clock(half_flushed, monkeypatch)
    before, there = half_flushed.read_all(1), half_flushed.entry_logs()
    half_flushed.disk.script.fail("force", "index")
    with pytest.raises(OSError, match="Input/output"):
        half_flushed.flush()
    flusher = half_flushed.engine.flusher
    assert flusher.is_stopped
    for _ in range(3):
        let_pass(WEEK_S)
        with flusher._running:
            flusher._retry_at = 0.0
            flusher._round()
    assert half_flushed.entry_logs() == there
    again = half_flushed.again()
    assert again.read_all(1) == before
    again.close()


@pytest.mark.covers("GC3")
def test_nothing_is_deleted_before_the_catalog_knows_of_it(harness: EngineHarness) -> None:
    append_and_flush(harness, 1000, 0, 0)
    append_and_flush(harness, 0, 1000, 1000)
    harness.disk.script.fail("write", "catalog*", times=None)
    with pytest.raises(OSError, match="Input/output"):
        delete(harness, 0)
    assert list(harness.engine.ledgers[0].collector.steps(0.5)) == []
    assert len(harness.entry_logs()) == 2
    harness.disk.script.heal()
    collect(harness)
    assert len(harness.entry_logs()) == 1


@pytest.mark.covers("GC2")
@pytest.mark.parametrize(
    ("call", "pattern"), [("write", "*.log"), ("force", "*.log"), ("force", "index"), ("unlink", "*.log")]
)
def test_a_compaction_that_fails_loses_nothing(harness: EngineHarness, call: str, pattern: str) -> None:
    for _ in range(2):
        append_and_flush(harness, 1500, 300, 0)
    append_and_flush(harness, 0, 0, 1800)
    before = harness.read_all(1)
    delete(harness, 0)
    harness.engine.catalog.store()
    harness.disk.script.fail(call, pattern)
    with pytest.raises(OSError, match="Input/output"):
        collect(harness, 0.5)
    assert harness.read_all(1) == before
    collect(harness, 0.5)
    assert harness.read_all(1) == before
    again = EngineHarness(harness.disk.crash(3), logs=3)
    assert again.read_all(1) == before
    again.close()


def test_the_index_is_rewritten_when_most_of_its_rows_are_dead(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_producer.broker.storage.tiered.location_index.arrays.MIN_ROWS", 10)
    for _ in range(20):
        harness.append(0)
    append_and_flush(harness, 0, 100, 0)
    size = harness.engine.ledgers[0].index.durable_bytes
    delete(harness, 0)
    collect(harness)
    assert harness.engine.ledgers[0].index.durable_bytes < size / 5
    again = harness.again()
    assert (again.engine.ledgers[0].index.row_count, len(again.read_all(1))) == (1, 1)
    again.close()


def test_minor_and_major_compactions_have_their_times(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = EngineHarness(gc_interval_s=10.0, minor_interval_s=100.0, major_interval_s=1000.0)
    collector, ran = harness.engine.ledgers[0].collector, list[float]()
    stop_clock(harness, monkeypatch)
    collector.steps = lambda threshold: ran.append(threshold) or iter(())  # type: ignore[func-returns-value, method-assign, assignment, return-value]
    begin = collector._next - 10.0
    for second in (9, 10, 15, 20, 100, 130, 200, 1000, 1010):
        collector._clock = lambda second=second: begin + second  # type: ignore[misc]
        between(harness, collector.run_if_due)
    assert ran == [0.0, 0.0, 0.2, 0.0, 0.2, 0.5, 0.2]
    harness.close()


def test_a_log_that_is_deleted_while_the_index_is_rewritten_is_no_damage(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The catalog on the disk may still have it after a crash, so the new file has its rows."""
    monkeypatch.setattr("spark_producer.broker.storage.tiered.location_index.arrays.MIN_ROWS", 10)
    for _ in range(20):
        harness.append(0)
    append_and_flush(harness, 0, 100, 100)
    delete(harness, 0)
    index, catalog = harness.engine.ledgers[0].index, harness.engine.catalog

    def note(size: int) -> None:
        catalog.set_index_bytes(0, size)
        catalog.store()
        if size == 0:
            index.delete_log(
                harness.logs[1]._state.log_id
            )  # as the broker's thread does, which then stores the catalog

    index.compact(note)
    assert index.row_count == 1
    again = EngineHarness(harness.disk.crash(1), logs=3)
    assert [len(again.read_all(each)) for each in (1, 2)] == [1, 1]
    assert "rebuilt" not in caplog.text
    again.close()


@pytest.mark.covers("GC2")
def test_a_compaction_copies_no_faster_than_it_may(harness: EngineHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flushes come between the steps of a collection, and entries flushed meanwhile are not touched."""
    monkeypatch.setattr("spark_producer.broker.storage.tiered.garbage_collection.CHUNK", 1)
    for _ in range(3):
        append_and_flush(harness, 1500, 300, 0)
    append_and_flush(harness, 0, 0, 1800)
    before = harness.read_all(1)
    delete(harness, 0)
    collector = harness.engine.ledgers[0].collector
    now, rate = collector._next_major, harness.options.compaction_rate
    monkeypatch.setattr(collector, "_clock", lambda: now)
    for copied in (1, 2, 3):
        assert between(harness, collector.run_if_due) == pytest.approx(300 / rate)
        assert between(harness, collector.run_if_due) == pytest.approx(300 / rate), "it waits"
        assert collector.counters.copied_bytes == copied * 300
        append_and_flush(harness, 0, 0, 100)
        now += 300 / rate
    assert between(harness, collector.run_if_due) == pytest.approx(harness.options.gc_interval_s, abs=1.0)
    assert (collector.counters.compacted, harness.read_all(1)) == (3, before)
    assert len(harness.read_all(2)) == 4


@pytest.mark.covers("GC2")
def test_a_file_that_an_earlier_life_has_not_ended_is_read_no_faster_than_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file without a map. So the first collection after a start reads it as a whole, and flushes come between."""
    earlier = EngineHarness(logs=2)
    for _ in range(2):
        append_and_flush(earlier, 1000, 500)
    harness = earlier.again()
    monkeypatch.setattr("spark_producer.broker.storage.tiered.garbage_collection.CHUNK", 1)
    collector = harness.engine.ledgers[0].collector
    now, rate = collector._next, harness.options.compaction_rate
    monkeypatch.setattr(collector, "_clock", lambda: now)
    for size in (1000, 500, 1000, 500):
        whole = size + ENTRY_HEADER.size
        assert between(harness, collector.run_if_due) == pytest.approx(whole / rate)
        assert between(harness, collector.run_if_due) == pytest.approx(whole / rate), "it waits"
        append_and_flush(harness, 0, 100)
        now += whole / rate
    assert between(harness, collector.run_if_due) == pytest.approx(harness.options.gc_interval_s, abs=1.0)
    assert len(harness.read_all(1)) == 6
    harness.close()


@pytest.mark.covers("GC4")
def test_space_is_freed_before_a_file_of_an_earlier_run_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scan takes minutes if the file is large."""
    earlier = EngineHarness(logs=2)
    append_and_flush(earlier, 1000, 1000)
    harness = earlier.again()
    append_and_flush(harness, 0, 1500)
    harness.engine.ledgers[0].entry_log.end()
    assert harness.entry_logs() == ["00000001.log", "00000002.log"]
    monkeypatch.setattr("spark_producer.broker.storage.tiered.garbage_collection.CHUNK", 1)
    after = deleted_soon(harness, monkeypatch, 1)
    after(0.0)
    after(5.0)
    assert harness.entry_logs() == ["00000001.log"]
    for _ in range(3):
        after(1.0)
    assert harness.engine.ledgers[0].collector.counters.compacted == 0, "half of the other file is needed"
    assert len(harness.read_all(0)) == 1
    harness.close()


@pytest.mark.covers("GC2")
def test_a_compaction_that_is_cut_short_is_begun_again_in_the_next_life(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_producer.broker.storage.tiered.garbage_collection.CHUNK", 1)
    for _ in range(3):
        append_and_flush(harness, 1500, 300, 0)
    append_and_flush(harness, 0, 0, 1800)
    before = harness.read_all(1)
    delete(harness, 0)
    collector = harness.engine.ledgers[0].collector
    monkeypatch.setattr(collector, "_clock", lambda begin=collector._next_major: begin)
    between(harness, collector.run_if_due)
    assert (collector.counters.copied_bytes, collector.counters.compacted) == (300, 0)
    harness.close()
    assert harness.disk._open == {}, "the file that was being copied was closed"
    again = harness.again()
    assert again.read_all(1) == before
    again.engine.catalog.store()
    collect_all(again.engine, 0.5)
    assert again.engine.ledgers[0].collector.counters.compacted >= 3
    assert again.read_all(1) == before
    again.close()
