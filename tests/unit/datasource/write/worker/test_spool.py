"""The file in which a task gathers its rows."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pyarrow as pa
import pytest

from spark_producer.datasource.write.worker.spool import Spool
from spark_producer.errors import PyProducerError


def batch(first: int, rows: int) -> pa.RecordBatch:
    numbers = [str(number) for number in range(first, first + rows)]
    return pa.record_batch({"value": pa.array(numbers, pa.string()), "key": pa.nulls(rows, pa.binary())})


def in_folder(folder: Path) -> dict[str, str]:
    return {"SPARK_LOCAL_DIRS": f"{folder},{folder}"}


def test_batches_come_back_in_order(tmp_path: Path) -> None:
    given = [batch(0, 10), batch(10, 0), batch(0, 100).slice(10, 30)]
    with Spool(in_folder(tmp_path)) as spool:
        for one in given:
            spool.add(one)
        assert spool.rows == 40
        assert pa.Table.from_batches(list(spool.batches())) == pa.Table.from_batches(given)


def test_an_empty_spool_has_no_batches(tmp_path: Path) -> None:
    with Spool(in_folder(tmp_path)) as spool:
        assert list(spool.batches()) == []


def test_no_other_user_can_read_the_file_or_find_it(tmp_path: Path) -> None:
    with Spool(in_folder(tmp_path)) as spool:
        spool.add(batch(0, 10))
        found = os.fstat(spool._file.fileno())
        assert stat.S_IMODE(found.st_mode) == 0o600
        assert found.st_nlink == 0
        assert found.st_dev == tmp_path.stat().st_dev
        assert list(tmp_path.iterdir()) == []


def test_a_slice_takes_no_more_space_than_its_rows(tmp_path: Path) -> None:
    with Spool(in_folder(tmp_path)) as spool:
        spool.add(batch(0, 100_000).slice(5, 10))
        spool._file.flush()
        assert os.fstat(spool._file.fileno()).st_size < 10_000


def test_a_folder_that_refuses_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        PyProducerError, match=r"missing \(spark.local.dir\): No such file .* exactlyOnceSpoolToDisk to false"
    ):
        Spool({"SPARK_LOCAL_DIRS": str(tmp_path / "missing")})


def test_a_full_disk_is_reported(tmp_path: Path) -> None:
    with Spool(in_folder(tmp_path)) as spool:
        spool._file.close()
        spool._file = Path("/dev/full").open("wb", buffering=0)  # noqa: SIM115 - closed with the spool
        with pytest.raises(PyProducerError, match=r"cannot be spooled in .*: No space left"):
            spool.add(batch(0, 10))


def test_without_spark_the_folder_is_the_systems() -> None:
    with Spool({}) as spool:
        assert spool.folder


def test_a_full_disk_is_an_error_once_and_not_again_at_the_end(tmp_path: Path) -> None:
    def fill() -> None:
        with Spool(in_folder(tmp_path)) as spool:
            spool._file.close()
            spool._file = Path("/dev/full").open("wb")  # noqa: SIM115 - closed with the spool
            while True:
                spool.add(batch(0, 1000))

    with pytest.raises(PyProducerError, match="No space left"):
        fill()
