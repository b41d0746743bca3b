"""The tiered engine on a real disk, with its index in arrays and in RocksDB, one after the other, and damaged."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from spark_producer.broker.settings import BrokerSettings, TopicSettings
from spark_producer.broker.storage.tiered import TieredStorage
from spark_producer.record.batch_v2 import batches, read_header
from tests.fakes.small_tiers import SMALL_TIERS, collect, settle
from tests.unit.broker.batches import filler_batch

LOGS = 2
ROUNDS = 20
NAMES = {"arrays": "index", "rocks": "index.rocks"}


def opened(directory: Path, engine: str) -> TieredStorage:
    options = replace(SMALL_TIERS, index_engine=engine, flush_interval_s=3600.0)
    return TieredStorage(directory, BrokerSettings(sync_on_close=True), options=options)


def append(storage: TieredStorage) -> list[list[bytes]]:
    """Append to every log, flush, and return what each has."""
    logs = [storage.open("t", index, TopicSettings(), lambda header, batch: None) for index in range(LOGS)]
    for number in range(ROUNDS):
        batch = filler_batch(1 + number % 3, size=100 + number)
        logs[number % LOGS].admit(batch, read_header(batch))
    settle(storage)
    storage.engine.flusher.flush_now()
    return read(storage)


def read(storage: TieredStorage) -> list[list[bytes]]:
    logs = [storage.open("t", index, TopicSettings(), lambda header, batch: None) for index in range(LOGS)]
    return [[bytes(batch) for _, batch in batches(log.read(0, 10**6))] for log in logs]


def rows(storage: TieredStorage) -> list[list[tuple[object, ...]]]:
    return [
        [tuple(row) for row in storage.engine.ledgers[0].index.rows(log_id)]
        for log_id in storage.engine.ledgers[0].index.log_ids()
    ]


@pytest.mark.parametrize("engine", NAMES)
def test_a_stopped_broker_finds_its_index_as_it_was(
    engine: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage = opened(tmp_path, engine)
    kept = append(storage)
    before = rows(storage)
    storage.close()
    again = opened(tmp_path, engine)
    assert (rows(again), read(again)) == (before, kept)
    assert sum(map(len, before)) == ROUNDS
    assert "rebuilt" not in caplog.text
    again.close()


@pytest.mark.covers("IDX1")
@pytest.mark.parametrize("engine", NAMES)
@pytest.mark.parametrize("damage", ["gone", "unreadable"])
def test_an_index_that_is_gone_or_damaged_is_rebuilt(
    engine: str, damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage = opened(tmp_path, engine)
    kept = append(storage)
    before = rows(storage)
    storage.close()
    path = tmp_path / "tiered" / "ledgers" / NAMES[engine]
    if damage == "unreadable":
        for file in [path] if path.is_file() else path.glob("MANIFEST-*"):
            file.write_bytes(b"nonsense" * 20)
    elif path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    again = opened(tmp_path, engine)
    assert (rows(again), read(again)) == (before, kept)
    assert "the index is rebuilt from the entry logs" in caplog.text
    assert path.with_name(f"{path.name}.damaged").exists()
    again.close()


def test_another_index_is_built_from_the_entry_logs_and_the_one_before_is_removed(tmp_path: Path) -> None:
    """The first index must not be used again with its old rows."""
    kept: list[list[bytes]] = []
    for engine, other in (("arrays", "rocks"), ("rocks", "arrays"), ("arrays", "rocks")):
        storage = opened(tmp_path, engine)
        if kept:
            assert read(storage) == kept
        kept = append(storage)
        storage.close()
        names = {path.name for path in (tmp_path / "tiered" / "ledgers").iterdir()}
        assert NAMES[engine] in names
        assert NAMES[other] not in names
    assert [len(each) for each in kept] == [3 * ROUNDS // LOGS] * LOGS


def test_a_collection_takes_deleted_rows_out_of_rocksdb(tmp_path: Path) -> None:
    storage = opened(tmp_path, "rocks")
    append(storage)
    storage.delete([("t", 0)])
    storage.engine.catalog.store()
    collect(storage.engine)
    storage.close()
    again = opened(tmp_path, "rocks")
    assert again.engine.ledgers[0].index.row_count == ROUNDS // LOGS
    again.close()
