"""The index of locations in RocksDB: what of it is on the disk, and what happens when it is not as it should be."""

from __future__ import annotations

import builtins
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from spark_producer.broker.storage.tiered.location_index import IndexDamaged, RocksIndex
from spark_producer.broker.storage.tiered.location_index.rocks_database import NAME
from spark_producer.errors import ConfigError
from tests.unit.broker.storage.tiered.index_rows import rows
from tests.unit.test_layout import ROOT

MIB = 1024 * 1024


class SpiedDatabase:
    """A database that notes the options of its writes, and refuses a given number of them."""

    def __init__(self, database: Any, refused: int = 0) -> None:
        self._database, self.refused = database, refused
        self.synced: list[bool] = []

    def write(self, batch: Any, options: Any) -> None:
        self.synced.append(options.sync)
        if self.refused:
            self.refused -= 1
            self._database.write(batch, options)  # the worst case: it is in the log, and RocksDB says that it is not
            raise Exception("IO error: No space left on device: While appending to file")
        self._database.write(batch, options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)


def spied(index: RocksIndex, refused: int = 0) -> SpiedDatabase:
    spy = SpiedDatabase(index._database, refused)
    index._database = spy  # type: ignore[assignment]
    return spy


@pytest.mark.covers("IDX2")
def test_rows_are_forced_with_the_write_ahead_log_before_they_count(tmp_path: Path) -> None:
    """BookKeeper's EntryLocationIndex.flush syncs its batch; a flush drops the journal afterwards."""
    index = RocksIndex(tmp_path, MIB)
    spy = spied(index)
    index.add({5: rows(0, 3)})
    location = index.find(5, 0)
    assert location is not None
    index.move({5: [location]})
    assert spy.synced == [True, True]
    index.close()


def test_an_add_that_fails_may_be_repeated(tmp_path: Path) -> None:
    index = RocksIndex(tmp_path, MIB)
    index.add({5: rows(0, 2)})
    spied(index, refused=1)
    with pytest.raises(OSError, match="No space left"):
        index.add({5: rows(4, 2), 6: rows(0, 1)})
    assert index.row_count == 2
    index.add({5: rows(4, 2), 6: rows(0, 1)})
    assert (index.row_count, len(list(index.rows(5)))) == (5, 4)
    spied(index, refused=1)
    with pytest.raises(OSError, match="No space left"):
        index.move({})
    index.add({5: rows(8, 1)})
    assert (index.row_count, len(list(index.rows(5)))) == (6, 5)
    index.close()


def test_rows_that_were_added_survive_a_kill(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path;"
        "from spark_producer.broker.storage.tiered.location_index import RocksIndex;"
        "from tests.unit.broker.storage.tiered.index_rows import rows;"
        "index = RocksIndex(Path(sys.argv[1]), 1 << 20); index.add({5: rows(0, 1500)}); index.add({5: rows(3000, 7)});"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, timeout=120, check=False)
    assert ended.returncode == -signal.SIGKILL
    index = RocksIndex(tmp_path, MIB)
    assert (index.row_count, [row.position for row in index.rows(5)][-1]) == (1507, 1506 * 100)
    index.close()


def test_a_database_that_cannot_be_read_is_damage(tmp_path: Path) -> None:
    index = RocksIndex(tmp_path, MIB)
    index.add({5: rows(0, 3)})
    index.close()
    for path in (tmp_path / NAME).glob("MANIFEST-*"):
        path.write_bytes(b"nonsense" * 20)
    with pytest.raises(IndexDamaged, match="is damaged"):
        RocksIndex(tmp_path, MIB)


def test_a_database_that_is_open_elsewhere_is_no_damage(tmp_path: Path) -> None:
    index = RocksIndex(tmp_path, MIB)
    with pytest.raises(OSError, match="lock"):
        RocksIndex(tmp_path, MIB)
    index.close()


def test_without_rocksdict_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> ModuleType:
        if name == "rocksdict":
            raise ImportError(name)
        return imported(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"--index rocks.* pip install 'pyproducer\[rocksdb\]'"):
        RocksIndex(tmp_path, MIB)
    assert not (tmp_path / NAME).exists()


def test_its_memory_is_what_rocksdb_counts(tmp_path: Path) -> None:
    index = RocksIndex(tmp_path, MIB)
    index.add({5: rows(0, 1000)})
    assert 0 < index.memory_bytes < 3 * MIB
    index.close()
