"""A file of the tiered engine that is missing is damage, until it is proved that there was none. Nothing is deleted by it."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

import pytest

from spark_producer.broker.settings import BrokerSettings
from spark_producer.broker.storage.tiered import TieredStorage
from spark_producer.broker.storage.tiered.journal import space
from spark_producer.errors import BrokerError, CorruptRecord, PyProducerError
from tests.fakes.small_tiers import SMALL_TIERS
from tests.support.disk_script import Call
from tests.support.simulated_disk import SimulatedDisk
from tests.support.waiting import wait_until
from tests.unit.broker.storage.tiered.crash_runs import killed
from tests.unit.broker.storage.tiered.engine_harness import DATA_DIR, LEDGERS, EngineHarness

TIERS = DATA_DIR / "tiered"
JOURNAL = TIERS / "journal"


def filled(*, flush: bool) -> SimulatedDisk:
    """Two logs with batches, as a process leaves them that is killed after a flush, or before it."""
    harness = EngineHarness(logs=2, sync=True)
    for index in (0, 1, 0):
        harness.append(index)
    if flush:
        harness.flush()
        harness.append(1)
    after = killed(harness.disk)
    harness.close()
    return after


def remove(disk: SimulatedDisk, path: Path) -> None:
    disk.unlink(path)
    disk.sync_directory(path.parent)


@pytest.mark.parametrize("flush", [True, False])
def test_a_catalog_that_is_missing_is_missed_by_what_else_is_there(flush: bool) -> None:
    disk = filled(flush=flush)
    remove(disk, TIERS / "catalog.json")
    before = {path: disk.content(path) for path in everything(disk)}
    with pytest.raises(CorruptRecord, match=r"/data/tiered/catalog\.json is missing.*it existed"):
        EngineHarness(disk, logs=0)
    assert {path: disk.content(path) for path in everything(disk)} == before, "nothing is changed"


@pytest.mark.parametrize("left", ["lastMark", "log", "index", "txn", "changes"])
def test_each_trace_alone_proves_that_there_was_a_catalog(left: str) -> None:
    disk = filled(flush=True)
    for path in everything(disk):
        kind = "changes" if path.name.startswith("catalog.") and path.suffix != ".json" else path.name.split(".")[-1]
        if kind != left:
            remove(disk, path)
    (kept,) = everything(disk)
    with pytest.raises(CorruptRecord, match=r"catalog\.json is missing.*it existed.*[Rr]estore a backup") as refused:
        EngineHarness(disk, logs=0)
    assert str(kept) in str(refused.value)
    assert everything(disk) == [kept]


def everything(disk: SimulatedDisk) -> list[Path]:
    return sorted(
        path / name for path in (TIERS, JOURNAL, LEDGERS) for name in disk.names(path) if "." in name or path != TIERS
    )


def test_changes_that_are_missing_are_missed() -> None:
    disk = filled(flush=False)
    remove(disk, TIERS / "catalog.1")
    with pytest.raises(
        CorruptRecord, match=r"/data/tiered/catalog\.1 is missing, and /data/tiered/catalog\.json refers to it"
    ):
        EngineHarness(disk, logs=0)


@pytest.mark.parametrize("flush", [True, False])
def test_emptied_changes_are_detected_by_the_batches_of_their_logs(flush: bool) -> None:
    disk = filled(flush=flush)
    disk.put(TIERS / "catalog.1", b"")
    with pytest.raises(CorruptRecord, match=r"has batches of log 0, which is missing in the catalog .*\. Restore"):
        EngineHarness(disk, logs=0)


def test_without_the_catalog_all_records_are_kept_and_new_logs_get_other_ids(caplog: pytest.LogCaptureFixture) -> None:
    disk = filled(flush=True)
    remove(disk, TIERS / "catalog.json")
    remove(disk, TIERS / "catalog.1")
    harness = EngineHarness(disk, logs=2, skip_damage=True)
    assert [log._state.log_id for log in harness.logs] == [2, 3]
    assert [log.high_watermark for log in harness.logs] == [0, 0]
    assert "catalog.json is missing" in caplog.text
    assert "log 1, which is missing in the catalog /data/tiered/catalog.json: its records are kept" in caplog.text
    for ledger in harness.engine.ledgers:
        assert list(ledger.collector.steps(0.9)) == []
    assert harness.entry_logs()
    assert [harness.engine.write_path.states[log_id].end_offset for log_id in (0, 1)] == [2, 2]
    harness.close()


def test_an_entry_log_of_a_log_that_the_catalog_lost_is_not_deleted(caplog: pytest.LogCaptureFixture) -> None:
    """The catalog of the first moment, with none of the logs, is put back; the index is rebuilt from it."""
    disk = SimulatedDisk()
    EngineHarness(disk, logs=0).close()
    early = disk.content(TIERS / "catalog.json")
    harness = EngineHarness(disk, logs=1)
    harness.append()
    harness.flush()
    harness.again().close()
    disk.put(TIERS / "catalog.json", early)
    disk.put(TIERS / "catalog.1", b"")
    disk.put(LEDGERS / "index", b"")
    again = EngineHarness(disk, logs=0)
    names = again.entry_logs()
    for _ in range(2):
        for _ in again.engine.ledgers[0].collector.steps(0.9):
            pass
    assert again.entry_logs() == names
    assert "is not deleted: it has batches of log 0, which is missing in the catalog" in caplog.text
    again.close()


@pytest.mark.parametrize("name", ["lastMark", "index", "1.txn", "2.txn", "00000001.log"])
def test_every_other_missing_file_is_detected_or_rebuilt(name: str) -> None:
    """After a life that flushed, and one that was killed: what was acknowledged is there, or the start or the log is refused."""
    harness = EngineHarness(logs=1, sync=True)
    harness.append()
    harness.flush()
    second = harness.again()
    second.append()
    disk = killed(second.disk)
    expected = second.read_all()
    second.close()
    for directory in (JOURNAL, LEDGERS):
        if name in disk.names(directory):
            remove(disk, directory / name)
    if name in ("index", "1.txn"):  # rebuilt; not needed any more
        third = EngineHarness(disk, logs=1, sync=True)
        assert third.read_all() == expected
        third.close()
    else:
        with pytest.raises(PyProducerError, match=name):
            EngineHarness(disk, logs=1, sync=True)


class MortalDisk(SimulatedDisk):
    """All calls fail from the one on that has number `calls_until_failure`."""

    calls_until_failure = 10**9

    def _called(self, name: str, path: Path, position: int = 0, size: int = 0) -> None:
        if len(self.script.calls) >= self.calls_until_failure:
            raise OSError(5, "dead", str(path))
        super()._called(name, path, position, size)


@pytest.mark.parametrize("sync", [True, False])
def test_a_first_start_that_died_at_any_moment_is_followed_by_one_that_succeeds(sync: bool) -> None:
    whole = MortalDisk()
    EngineHarness(whole, logs=0, sync=sync).close()
    calls: list[Call] = whole.script.calls
    for calls_until_failure in range(len(calls) + 1):
        disk = MortalDisk()
        disk.calls_until_failure = calls_until_failure
        settings = BrokerSettings(sync_each_append=sync)
        with contextlib.suppress(OSError, BrokerError):
            TieredStorage(DATA_DIR, settings, options=SMALL_TIERS, files=disk).close()
        for after in (killed(disk), disk.crash(calls_until_failure), killed(disk).crash(calls_until_failure + 1)):
            harness = EngineHarness(after, logs=1, sync=sync)
            harness.append()
            assert len(harness.read_all()) == 1, f"died at {calls[calls_until_failure : calls_until_failure + 1]}"
            harness.close()


def test_a_full_disk_can_be_read_and_is_written_to_once_it_has_space(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space, "RETRY_S", 0.001)
    caplog.set_level(logging.WARNING)
    harness = EngineHarness(logs=1, sync=True)
    harness.append()
    expected = harness.read_all()
    disk = killed(harness.disk)
    harness.close()
    disk.capacity = 0
    again = EngineHarness(disk, logs=1, sync=True)
    assert again.read_all() == expected
    with pytest.raises(BrokerError, match="the simulated disk is full"):
        again.admit()
    disk.capacity = None
    wait_until(lambda: not again.engine.journal.full, "the journal has space again", pause=0.001)
    assert "the disk has space again, batches are accepted" in caplog.text
    again.append()
    again.flush()
    assert len(again.read_all()) == 2
    again.close()
