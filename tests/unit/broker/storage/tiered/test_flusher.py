"""The thread of the flush while the disk refuses: it neither spins nor says everything twice."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest

from tests.unit.broker.storage.tiered.engine_stage import ENTRY_LOGS, EngineStage

ENGINE = "spark_producer.broker.storage.tiered"


@pytest.fixture
def stage() -> Iterator[EngineStage]:
    made = EngineStage(flush_tries=3)
    yield made
    made.close()


def rounds(stage: EngineStage, count: int, before: Callable[[], None] = lambda: None) -> list[float]:
    """The work of the thread in `count` rounds, and its wait after each."""
    flusher, waits = stage.engine.flusher, list[float]()
    for _ in range(count):
        before()
        with flusher._running:
            try:
                flusher._round()
            except OSError as error:
                flusher._refused(error)
            waits.append(flusher._seconds_to_wait())
    return waits


def test_a_catalog_that_cannot_be_stored_while_a_collection_is_due_keeps_the_thread_waiting(stage: EngineStage) -> None:
    stage.append()
    stage.flush()
    flusher = stage.engine.flusher
    with flusher._running:
        stage.disk.script.fail("write", "catalog*", times=None)
        stage.engine.catalog.set_index_bytes(0, 1)
        flusher._collect_at = 0.0
    assert min(rounds(stage, 3)) > 0
    stage.disk.script.heal()
    assert min(rounds(stage, 1)) > 0
    assert stage.engine.catalog.is_stored


def test_a_disk_that_stays_full_is_one_line_in_the_log(stage: EngineStage, caplog: pytest.LogCaptureFixture) -> None:
    stage.engine.flusher.close()  # here are its rounds
    stage.engine.flusher._closing = False
    stage.disk.script.fail("write", "catalog*", times=None)
    stage.engine.catalog.set_index_bytes(0, 1)
    with caplog.at_level(logging.WARNING, logger=ENGINE):
        rounds(stage, 4)
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "the flush thread continues after an error"
    ]


def test_each_flush_that_fails_is_one_line_in_the_log(stage: EngineStage, caplog: pytest.LogCaptureFixture) -> None:
    flusher = stage.engine.flusher
    flusher.close()
    flusher._closing = False
    stage.append()
    stage.disk.script.fail("write", ENTRY_LOGS, times=None)
    stage.engine.write_cache.swap()

    def at_once() -> None:
        flusher._retry_at = 0.0

    with caplog.at_level(logging.WARNING, logger=ENGINE):
        waits = rounds(stage, 6, at_once)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 3
    assert "flush 2 of the same batches failed" in said[1]
    assert "the broker accepts no more records: 3 flushes" in said[2]
    assert flusher.is_stopped
    assert min(waits[3:]) > 0, "there is nothing to try any more"
