"""The flush: in which order things come to the disk, and what lies in the entry logs afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import pytest

from spark_producer.broker.storage.tiered.entry_log_format import HEADER_SIZE, merge_extents
from spark_producer.errors import BrokerError
from spark_producer.record.batch_v2 import read_header
from tests.fakes.small_tiers import JOURNAL_FILES, settle
from tests.unit.broker.storage.tiered.engine_harness import ENTRY_LOGS, KIB, EngineHarness


@pytest.fixture
def harness() -> Iterator[EngineHarness]:
    made = EngineHarness(logs=3, sync=True)
    yield made
    made.close()


@pytest.mark.covers("W6")
def test_the_batches_of_a_log_lie_together_and_in_order(harness: EngineHarness) -> None:
    for number in range(30):
        harness.admit(number % 3)
    harness.flush()
    entries = [
        (entry.log_id, read_header(entry.batch).base_offset)
        for file_id in harness.engine.ledgers[0].entry_log_files.ids()
        for entry in harness.engine.ledgers[0].entry_log_files.entries(file_id, HEADER_SIZE)
    ]
    runs = [(log_id, [base for _, base in run]) for log_id, run in groupby(entries, key=lambda entry: entry[0])]
    assert [bases for _, bases in runs] == [list(range(10))] * 3
    assert [log_id for log_id, _ in runs] == sorted(log_id for log_id, _ in runs)


@pytest.mark.covers("W7")
def test_each_step_is_on_the_disk_before_the_next_one_begins(harness: EngineHarness) -> None:
    harness.append()
    harness.flush()
    harness.append()
    harness.disk.script.calls.clear()
    harness.flush()
    wanted = [
        ("write", "00000001.log"), ("force", "00000001.log"), ("write", "index"), ("force", "index"),
        ("write", "catalog.1"), ("force", "catalog.1"),
        ("force", "lastMark.new"), ("rename", "lastMark"), ("sync_directory", "ledgers"),
    ]  # fmt: skip
    calls = iter([(call.name, call.path.name) for call in harness.disk.script.calls])
    assert [call for call in wanted if call not in calls] == [], "in this order"  # `in` reads on in the iterator


@pytest.mark.covers("W7")
def test_the_journal_is_dropped_when_all_of_it_is_elsewhere(harness: EngineHarness) -> None:
    harness.append()
    harness.flush()
    journals = [name for name in harness.disk.names(harness.engine.directory / "journal") if name.endswith(".txn")]
    assert len(journals) == 1
    again = harness.again()
    assert len(again.read_all()) == 1
    assert again.engine.counters.write_cache.hit_active == 0, "nothing was replayed"
    again.close()


def test_a_full_entry_log_is_ended_with_a_map_and_the_next_one_begun() -> None:
    harness = EngineHarness(logs=2, entry_log_bytes=4 * KIB)
    for _ in range(3):
        harness.append(0, size=KIB)
        harness.append(1, size=2 * KIB)
        harness.flush()
    first, *_ = harness.engine.ledgers[0].entry_log_files.ids()
    assert harness.entry_logs() == ["00000001.log", "00000002.log", "00000003.log"]
    extents = harness.engine.ledgers[0].entry_log_files.stored_extents(first) or []
    assert [(extent.first_offset, extent.end_offset, extent.bytes) for extent in extents] == [
        (0, 1, 1040),
        (0, 1, 2064),
    ]
    assert extents == merge_extents(harness.engine.ledgers[0].entry_log_files.scanned_extents(first)), (
        "the map says what a scan finds"
    )
    harness.close()


def test_a_log_that_is_deleted_while_it_is_flushed_leaves_no_row(harness: EngineHarness) -> None:
    harness.append(0)
    harness.append(1)
    with harness.disk.script.blocked("force", ENTRY_LOGS):
        harness.engine.write_cache.swap()
        harness.disk.script.wait_for("force", ENTRY_LOGS)
        harness.log.close(discard=True)
        harness.storage.delete([("t", 0)])
    harness.flush()
    assert (harness.engine.ledgers[0].index.row_count, len(harness.read_all(1))) == (1, 1)


@pytest.mark.slow
def test_a_flush_does_not_wait_without_end_for_a_journal_that_hangs(caplog: pytest.LogCaptureFixture) -> None:
    """The failure is retried, and reported after the last attempt. The batches are still there afterwards."""
    harness = EngineHarness(sync=True, journal_timeout_s=0.0, flush_tries=2)
    with harness.disk.script.blocked("force", JOURNAL_FILES):
        harness.admit()
        for _ in range(2):
            with pytest.raises(TimeoutError, match="its disk hangs"):
                harness.engine.flusher.flush_now()
        with pytest.raises(BrokerError, match=r"accepts no more records: 2 flushes.*the journal has not forced"):
            harness.admit()
    settle(harness.storage)
    assert len(harness.read_all()) == 1
    again = harness.again()
    assert len(again.read_all()) == 1
    again.close()


def test_a_flush_counts_where_its_time_goes(harness: EngineHarness) -> None:
    harness.append()
    harness.flush()
    counters = harness.engine.counters
    assert counters.flush.entrylog_us > 0
    assert counters.flush.index_us > 0
    assert counters.flush.us >= counters.flush.entrylog_us + counters.flush.index_us
    values = {reading.name: reading.value for reading in harness.engine.readings()}
    assert values["pyproducer_broker_index_rows"] == 1
    assert values["pyproducer_broker_index_block_cache_bytes"] == 44
