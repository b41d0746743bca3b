"""The thread of the flush while the disk refuses: it neither spins nor says everything twice."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest

from tests.unit.broker.storage.tiered.engine_harness import ENTRY_LOGS, EngineHarness

ENGINE = "spark_producer.broker.storage.tiered"


@pytest.fixture
def harness() -> Iterator[EngineHarness]:
    made = EngineHarness(flush_tries=3)
    yield made
    made.close()


def rounds(harness: EngineHarness, count: int, before: Callable[[], None] = lambda: None) -> list[float]:
    """The work of the thread in `count` rounds, and its wait after each."""
    flusher, waits = harness.engine.flusher, list[float]()
    for _ in range(count):
        before()
        with flusher._running:
            try:
                flusher._round()
            except OSError as error:
                flusher._refused(error)
            waits.append(flusher._seconds_to_wait())
    return waits


def test_a_catalog_that_cannot_be_stored_while_a_collection_is_due_keeps_the_thread_waiting(
    harness: EngineHarness,
) -> None:
    harness.append()
    harness.flush()
    flusher = harness.engine.flusher
    with flusher._running:
        harness.disk.script.fail("write", "catalog*", times=None)
        harness.engine.catalog.set_index_bytes(0, 1)
        flusher._collect_at = 0.0
    assert min(rounds(harness, 3)) > 0
    harness.disk.script.heal()
    assert min(rounds(harness, 1)) > 0
    assert harness.engine.catalog.is_stored


def test_a_disk_that_stays_full_is_one_line_in_the_log(
    harness: EngineHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.engine.flusher.close()  # here are its rounds
    harness.engine.flusher._closing = False
    harness.disk.script.fail("write", "catalog*", times=None)
    harness.engine.catalog.set_index_bytes(0, 1)
    with caplog.at_level(logging.WARNING, logger=ENGINE):
        rounds(harness, 4)
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "the flush thread continues after an error"
    ]


def test_each_flush_that_fails_is_one_line_in_the_log(harness: EngineHarness, caplog: pytest.LogCaptureFixture) -> None:
    flusher = harness.engine.flusher
    flusher.close()
    flusher._closing = False
    harness.append()
    harness.disk.script.fail("write", ENTRY_LOGS, times=None)
    harness.engine.write_cache.swap()

    def at_once() -> None:
        flusher._retry_at = 0.0

    with caplog.at_level(logging.WARNING, logger=ENGINE):
        waits = rounds(harness, 6, at_once)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 3
    assert "flush 2 of the same batches failed" in said[1]
    assert "the broker accepts no more records: 3 flushes" in said[2]
    assert flusher.is_stopped
    assert min(waits[3:]) > 0, "there is nothing to try any more"
