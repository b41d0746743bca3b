"""Several ledger directories, and a journal in a directory of its own."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_producer.broker.settings import BrokerSettings, TopicSettings
from spark_producer.broker.storage.tiered import TieredStorage
from spark_producer.broker.storage.tiered.entry_log import EntryPosition, NewEntry
from spark_producer.errors import ConfigError
from spark_producer.record.batch_v2 import read_header
from spark_producer.record.checksum import crc32c
from tests.fakes.small_tiers import collect, settle
from tests.support.simulated_disk import SimulatedDisk
from tests.unit.broker.batches import filler_batch
from tests.unit.broker.storage.tiered.engine_harness import DATA_DIR, KIB, EngineHarness

JOURNAL = Path("/fast/journal")
DIRECTORIES = (Path("/one/ledgers"), Path("/two/ledgers"))
OUTSIDE: dict[str, Any] = {"journal_dir": JOURNAL, "ledger_dirs": DIRECTORIES}
NEW = {"identity", "outside", "removed"}
CATALOG = DATA_DIR / "tiered" / "catalog.json"


@pytest.fixture
def harness() -> Iterator[EngineHarness]:
    made = EngineHarness(logs=4, sync=True, entry_log_bytes=2 * KIB, **OUTSIDE)
    yield made
    made.close()


def fill(harness: EngineHarness, *, size: int = 300) -> list[list[bytes]]:
    """Append a batch to each log, and flush; return all that they have."""
    for index in range(len(harness.logs)):
        harness.append(index, size=size)
    harness.flush()
    return contents(harness)


def contents(harness: EngineHarness) -> list[list[bytes]]:
    return [harness.read_all(index) for index in range(len(harness.logs))]


@pytest.mark.covers("DIR1")
def test_all_batches_of_a_log_lie_in_one_directory(harness: EngineHarness) -> None:
    for _ in range(5):
        before = fill(harness)
    for ledger in harness.engine.ledgers:
        ids = ledger.entry_log_files.ids()
        assert len(ids) > 1
        logs = {entry.log_id for file_id in ids for entry in ledger.entry_log_files.entries(file_id)}
        assert logs == {log_id for log_id in range(4) if log_id % 2 == ledger.number}
        assert {file_id % 2 for file_id in ids} == {ledger.number}, "so that no two files have the same id"
        assert ledger.index.log_ids() == sorted(logs)
    assert [len(batches) for batches in before] == [5] * 4
    again = harness.again()
    assert contents(again) == before
    assert fill(again)[0][:5] == before[0]
    again.close()


@pytest.mark.covers("DIR1")
def test_nothing_of_them_is_inside_the_data_directory(harness: EngineHarness) -> None:
    fill(harness)
    assert {name.split(".")[0] for name in harness.disk.names(DATA_DIR / "tiered")} == {"catalog"}
    assert any(name.endswith(".txn") for name in harness.disk.names(JOURNAL))
    for directory in DIRECTORIES:
        assert {"index", "lastMark", "owner"} < set(harness.disk.names(directory))


@pytest.mark.covers("DIR1")
def test_the_journal_is_replayed_from_its_directory(harness: EngineHarness) -> None:
    for index in range(4):
        harness.append(index)
    before = contents(harness)
    again = EngineHarness(harness.disk.crash(1), logs=4, sync=True, **OUTSIDE)
    assert contents(again) == before
    again.close()


@pytest.mark.covers("DIR2")
@pytest.mark.parametrize(
    ("outside", "named"),
    [
        ({}, "the journal inside and ledgers inside"),
        ({"ledger_dirs": DIRECTORIES}, "the journal inside and ledgers in /one/ledgers, /two/ledgers"),
        ({"journal_dir": JOURNAL, "ledger_dirs": DIRECTORIES[:1]}, "ledgers in /one/ledgers:"),
        ({"journal_dir": JOURNAL, "ledger_dirs": DIRECTORIES[::-1]}, "ledgers in /two/ledgers, /one/ledgers:"),
        ({"journal_dir": JOURNAL, "ledger_dirs": (*DIRECTORIES, Path("/three"))}, "/two/ledgers, /three"),
        ({"journal_dir": Path("/slow"), "ledger_dirs": DIRECTORIES}, "the journal in /slow"),
    ],
)
def test_other_directories_are_refused_by_name_and_nothing_is_lost(
    harness: EngineHarness, outside: dict[str, Any], named: str
) -> None:
    before = fill(harness)
    harness.close()
    with pytest.raises(ConfigError, match="Name the same directories") as refused:
        EngineHarness(harness.disk, logs=4, sync=True, **outside)
    assert named in str(refused.value)
    assert "the journal in /fast/journal and ledgers in /one/ledgers, /two/ledgers. Name" in str(refused.value)
    again = harness.again()
    assert contents(again) == before
    again.close()


@pytest.mark.covers("DIR2")
def test_a_data_directory_that_keeps_all_inside_stays_so() -> None:
    harness = EngineHarness()
    harness.append()
    harness.close()
    with pytest.raises(
        ConfigError,
        match=r"/one/ledgers, /two/ledgers: its records are kept with the journal inside and ledgers inside",
    ):
        EngineHarness(harness.disk, **OUTSIDE)


@pytest.mark.covers("DIR2")
@pytest.mark.parametrize("directory", [JOURNAL, *DIRECTORIES])
def test_a_directory_whose_disk_is_not_mounted_is_refused(harness: EngineHarness, directory: Path) -> None:
    fill(harness)
    harness.close()
    for name in harness.disk.names(directory):
        harness.disk.unlink(directory / name)
    with pytest.raises(ConfigError, match=f"{directory} is not the directory .* Check that its disk is mounted"):
        EngineHarness(harness.disk, logs=4, **OUTSIDE)


@pytest.mark.covers("DIR2")
def test_directories_that_were_exchanged_are_refused(harness: EngineHarness) -> None:
    fill(harness)
    harness.close()
    disk = harness.disk
    disk._directories[DIRECTORIES[0]], disk._directories[DIRECTORIES[1]] = (
        disk._directories[DIRECTORIES[1]],
        disk._directories[DIRECTORIES[0]],
    )
    with pytest.raises(ConfigError, match="belongs to another data directory"):
        EngineHarness(disk, logs=4, **OUTSIDE)


@pytest.mark.covers("DIR2")
def test_a_new_directory_is_empty_and_belongs_to_no_other_broker(harness: EngineHarness) -> None:
    other = BrokerSettings(sync_on_close=False)
    with pytest.raises(ConfigError, match="/one/ledgers: by its file owner it belongs to another data directory"):
        TieredStorage(
            Path("/other"), other, options=EngineHarness(ledger_dirs=DIRECTORIES[:1]).options, files=harness.disk
        )
    disk = SimulatedDisk()
    disk.make_directory(JOURNAL)
    disk.put(JOURNAL / "lost+found", b"")
    EngineHarness(disk, journal_dir=JOURNAL).close()
    disk = SimulatedDisk()
    disk.make_directory(JOURNAL)
    disk.put(JOURNAL / "1.txn", b"foreign")
    with pytest.raises(ConfigError, match=r"/fast/journal: it is not empty \(it has 1.txn\)"):
        EngineHarness(disk, journal_dir=JOURNAL)
    assert disk.content(JOURNAL / "1.txn") == b"foreign"


@pytest.mark.covers("DIR2")
@pytest.mark.parametrize("call", range(30))
def test_a_first_start_that_a_crash_cuts_short_can_be_repeated(call: int) -> None:
    disk = SimulatedDisk()
    for name in ("write", "force", "rename", "sync_directory", "open"):
        disk.script.fail(name, times=None, after=call)
    try:
        EngineHarness(disk, **OUTSIDE).close()
    except OSError:
        logging.debug("the disk has died")
    again = EngineHarness(disk.crash(call), sync=True, **OUTSIDE)
    again.append()
    assert len(again.read_all()) == 1
    again.close()


@pytest.mark.covers("DIR3")
@pytest.mark.parametrize(
    ("call", "what"), [("write", "*.log"), ("force", "*.log"), ("write", "index"), ("force", "index")]
)
@pytest.mark.parametrize("directory", DIRECTORIES)
def test_a_flush_fails_by_name_if_one_directory_refuses_and_nothing_is_lost_or_doubled(
    harness: EngineHarness, directory: Path, call: str, what: str
) -> None:
    fill(harness)
    mark = harness.engine.last_mark.latest
    for index in range(4):
        harness.append(index)
    harness.disk.script.fail(call, f"{directory}/{what}", times=2)
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output") as refused:
            harness.engine.flusher.flush_now()
        assert str(directory) in str(refused.value), "it is named"
        assert harness.engine.last_mark.latest == mark, "nothing counts as flushed"
        assert [len(batches) for batches in contents(harness)] == [2] * 4
    harness.engine.flusher.flush_now()
    assert harness.engine.write_cache.is_empty
    assert [ledger.index.row_count for ledger in harness.engine.ledgers] == [4, 4]
    other = harness.engine.ledgers[1 - DIRECTORIES.index(directory)]
    entries = [
        (entry.log_id, read_header(entry.batch).base_offset)
        for file_id in other.entry_log_files.ids()
        for entry in other.entry_log_files.entries(file_id)
    ]
    assert len(entries) == len(set(entries)) == 4, "what the other directory has was not written again"
    before = contents(harness)
    again = EngineHarness(harness.disk.crash(2), logs=4, sync=True, **OUTSIDE)
    assert contents(again) == before
    again.close()


@pytest.mark.covers("DIR3")
def test_a_full_directory_is_named_and_records_are_taken_by_itself_once_it_has_space(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    for index in range(4):
        harness.append(index)

    def refuse(entries: Iterable[NewEntry]) -> list[EntryPosition]:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # as of a file that is open, without its name

    with monkeypatch.context() as full:
        full.setattr(harness.engine.ledgers[1].entry_log, "write", refuse)
        for _ in range(harness.options.flush_tries + 3):
            with pytest.raises(OSError, match="No space left on device: '/two/ledgers'"):
                harness.engine.flusher.flush_now()
    harness.engine.flusher.flush_now()
    harness.append()
    assert [len(batches) for batches in contents(harness)] == [2, 1, 1, 1]
    again = harness.again()
    assert [len(batches) for batches in contents(again)] == [2, 1, 1, 1]
    again.close()


@pytest.mark.covers("DIR4")
def test_each_directory_is_collected(harness: EngineHarness) -> None:
    for _ in range(3):
        fill(harness, size=1200)
    for log in harness.logs[:2]:
        log.close(discard=True)
        harness.storage.delete([("t", log._state.log_id)])
    harness.engine.catalog.store()
    collect(harness.engine, 0.9)
    for ledger in harness.engine.ledgers:
        assert ledger.collector.counters.deleted
        logs = {entry.log_id for each in ledger.entry_log_files.ids() for entry in ledger.entry_log_files.entries(each)}
        assert ledger.number + 2 in logs
    assert [len(harness.read_all(index)) for index in (2, 3)] == [3, 3]


@pytest.mark.covers("DIR5")
def test_an_index_is_rebuilt_from_its_own_directory(harness: EngineHarness, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        before = fill(harness)
    harness.close()
    damaged = bytearray(harness.disk.content(DIRECTORIES[1] / "index"))
    damaged[50] ^= 1
    harness.disk.put(DIRECTORIES[1] / "index", bytes(damaged))
    again = harness.again()
    assert contents(again) == before
    assert caplog.text.count("is rebuilt from the entry logs") == 1
    assert "index.damaged" not in harness.disk.names(DIRECTORIES[0])
    again.close()


def test_a_catalog_from_before_there_were_directories_outside_is_read(caplog: pytest.LogCaptureFixture) -> None:
    harness = EngineHarness()
    harness.append()
    harness.flush()
    harness.close()
    found = harness.engine.catalog
    catalog = found._content(found.entries(), []) | {"format": 1, "index_bytes": found.index_bytes(0)}
    text = json.dumps({name: value for name, value in catalog.items() if name not in NEW}).encode()
    harness.disk.put(CATALOG, b"%08x\n" % crc32c(text) + text)
    again = harness.again()
    assert len(again.read_all()) == 1
    assert "rebuilt" not in caplog.text, "it is known how much of the index was on the disk"
    again.close()


@pytest.mark.covers("DIR6")
def test_two_data_directories_cannot_use_one_ledger_directory_at_a_time(tmp_path: Path) -> None:
    settings = BrokerSettings(
        storage_engine="tiered", ledger_dirs=(str(tmp_path / "l"),), journal_dir=str(tmp_path / "j")
    )
    TieredStorage(tmp_path / "d", settings).close()
    shutil.copytree(tmp_path / "d", tmp_path / "copy")
    first = TieredStorage(tmp_path / "d", settings)
    log = first.create("t", 0, TopicSettings())
    batch = filler_batch(1)
    log.admit(batch, read_header(batch))
    settle(first)
    with pytest.raises(ConfigError, match="in use by another broker"):
        TieredStorage(tmp_path / "copy", settings)
    with pytest.raises(ConfigError, match="belongs to another data directory"):
        TieredStorage(tmp_path / "e", settings)
    first.close()
    again = TieredStorage(tmp_path / "d", settings)
    assert again.open("t", 0, TopicSettings(), lambda header, batch: None).high_watermark == 1
    again.close()


def warned_of(harness: EngineHarness, caplog: pytest.LogCaptureFixture) -> list[str]:
    harness.close()
    return [record.getMessage() for record in caplog.records if "on one device" in record.getMessage()]


@pytest.mark.covers("DIR7")
@pytest.mark.parametrize(
    ("devices", "shared"),
    [
        ((1, 1, 2), "the journal in /fast/journal and ledgers in /one/ledgers. Each"),
        ((1, 2, 2), "ledgers in /one/ledgers and ledgers in /two/ledgers. Each"),
        ((1, 1, 1), "the journal in /fast/journal and ledgers in /one/ledgers and ledgers in /two/ledgers. Each"),
        ((1, 2, 3), None),
    ],
)
def test_directories_on_one_device_are_logged_once_where_batches_wait_for_forces(
    devices: tuple[int, ...], shared: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    for sync in (True, False):
        caplog.clear()
        disk = SimulatedDisk()
        disk.devices.update(zip((JOURNAL, *DIRECTORIES), devices, strict=True))
        logged = warned_of(EngineHarness(disk, sync=sync, **OUTSIDE), caplog)
        assert len(logged) == (sync and shared is not None)
        assert all(f"/data/tiered: on one device are {shared}" in text and "--journal-dir" in text for text in logged)


@pytest.mark.covers("DIR7")
def test_the_device_is_that_of_the_file_system(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    TieredStorage(tmp_path, BrokerSettings(sync_each_append=True)).close()
    (logged,) = [record for record in caplog.records if "on one device" in record.getMessage()]
    assert logged.levelname == "INFO", "the directories were not configured"
    assert f"the journal in {tmp_path}/tiered/journal and ledgers in {tmp_path}/tiered/ledgers" in logged.getMessage()
    caplog.clear()
    TieredStorage(tmp_path, BrokerSettings()).close()
    assert not [record for record in caplog.records if "on one device" in record.getMessage()]
    directories = BrokerSettings(sync_each_append=True, journal_dir=str(tmp_path / "journal"))
    TieredStorage(tmp_path / "other", directories).close()
    (logged,) = [record for record in caplog.records if "on one device" in record.getMessage()]
    assert logged.levelname == "WARNING"


@pytest.mark.covers("DIR6")
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"journal_dir": "a", "storage_engine": "segments"}, "engine is 'segments', and only 'tiered' has journal_dir"),
        (
            {"ledger_dirs": ("a",), "storage_engine": "segments"},
            "engine is 'segments', and only 'tiered' has ledger_dirs",
        ),
        ({"storage_engine": "tiered", "ledger_dirs": ("a", "./a")}, r"must differ, and are 'a', './a'"),
        ({"storage_engine": "tiered", "ledger_dirs": ("a", "")}, "must differ"),
        ({"storage_engine": "tiered", "ledger_dirs": ("a",), "journal_dir": "a"}, "must differ"),
    ],
)
def test_wrong_settings_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BrokerSettings(**given)
