"""The end of an engine whose disk does not answer: it is bounded, and nothing is lost that was confirmed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from spark_producer.broker.settings import BrokerSettings, TopicSettings
from spark_producer.broker.storage.tiered import TieredStorage
from spark_producer.broker.storage.tiered.engine import Engine
from spark_producer.broker.topic_store import TopicStore
from spark_producer.errors import ConfigError
from tests.fakes.small_tiers import DEADLINE, JOURNAL_FILES, SMALL_TIERS
from tests.support.simulated_disk import SimulatedDisk
from tests.unit.broker.batches import make_batch
from tests.unit.broker.storage.tiered.engine_harness import DATA_DIR, ENTRY_LOGS, EngineHarness

DISK_TIMEOUT_S = "spark_producer.broker.storage.tiered.engine.DISK_TIMEOUT_S"
CLOCK = "spark_producer.broker.storage.tiered.engine.time"


def storage_on(disk: SimulatedDisk, *, sync: bool = False) -> TieredStorage:
    return TieredStorage(DATA_DIR, BrokerSettings(sync_each_append=sync), options=SMALL_TIERS, files=disk)


class Running:
    """The topics of a broker, with a topic of 3 partitions that have a batch each."""

    def __init__(self, path: Path, disk: SimulatedDisk) -> None:
        self.path, self.disk = path, disk
        self.store = self.open()
        self.store.create("t", 3)
        for index in range(3):
            self.store.partition("t", index).append(make_batch())

    @property
    def engine(self) -> Engine:
        return self.store._storage.engine  # type: ignore[attr-defined, no-any-return]

    def open(self) -> TopicStore:
        return TopicStore(self.path, BrokerSettings(), lambda path, settings: storage_on(self.disk))


@pytest.mark.parametrize(("call", "pattern"), [("force", ENTRY_LOGS), ("write", ENTRY_LOGS), ("write", "catalog*")])
def test_the_end_does_not_wait_for_a_flush_that_is_stuck(
    call: str, pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = SimulatedDisk()
    running = Running(tmp_path, disk)
    running.engine.force()  # with all the time it may take
    monkeypatch.setattr(DISK_TIMEOUT_S, 0.1)
    came = disk.script.count(call, pattern)
    with disk.script.blocked(call, pattern):
        running.store.close()
        disk.script.wait_for(call, pattern, count=came + 1)
        assert "3 batches (" in caplog.text
        assert "those of them that were confirmed are in the journal" in caplog.text
        with pytest.raises(ConfigError, match="in use by another broker"):
            running.open()
        crashed = disk.crash(1)
    again = EngineHarness(crashed, logs=3)
    assert [len(again.read_all(index)) for index in range(3)] == [1, 1, 1]
    again.close()


def test_logs_do_not_wait_one_after_another_for_a_journal_that_is_stuck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = SimulatedDisk()
    running = Running(tmp_path, disk)
    monkeypatch.setattr(DISK_TIMEOUT_S, 0.1)
    monkeypatch.setattr(
        CLOCK, SimpleNamespace(monotonic=lambda: 0.0)
    )  # so that all the time is left for the first wait
    journal = running.engine.journal
    waits: list[float] = []
    force_now = journal.force_now

    def waited(timeout: float) -> bool:
        waits.append(timeout)
        return bool(force_now(timeout))

    monkeypatch.setattr(journal, "force_now", waited)
    with disk.script.blocked("force", JOURNAL_FILES):
        running.store.close()
    assert [seconds > 0 for seconds in waits[:3]] == [True, False, False]
    assert caplog.text.count("has not responded for 0.1 s") == 4, "of each log, and of the end"


def test_an_end_that_succeeds_gives_everything_back(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    running = Running(tmp_path, disk)
    running.store.close()
    again = running.open()
    assert again.partition("t", 2).log.high_watermark == 1
    again.close()


def test_an_error_at_the_end_is_raised_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = storage_on(SimulatedDisk())
    storage.create("t", 0, TopicSettings())
    monkeypatch.setattr(storage.engine, "_read_cache", None)
    with pytest.raises(AttributeError):
        storage.close()
    storage.engine.flusher._thread.join(DEADLINE)
