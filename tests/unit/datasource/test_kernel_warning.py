"""The warning of the portable kernel: once on each executor, whichever of its workers is the first to write."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from pyspark import SparkFiles

from spark_producer import kernel
from spark_producer.datasource.write.worker import task

PORTABLE = kernel.LOADED._replace(name="portable", problem="no compiled module")


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A worker with the portable kernel, in the folder that Spark gives an application on its executor."""
    monkeypatch.setattr(kernel, "LOADED", PORTABLE)
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", True)
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))
    return tmp_path


def lines_of_a_new_process(caplog: pytest.LogCaptureFixture) -> int:
    caplog.clear()
    kernel.warn_once.cache_clear()
    for _ in range(2):
        task._warn_of_kernel()
    return len([one for one in caplog.records if one.levelno == logging.WARNING])


def test_the_second_worker_of_an_executor_says_nothing(worker: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert [lines_of_a_new_process(caplog) for _ in range(3)] == [1, 0, 0]
    assert [path.name for path in worker.iterdir()] == [task.WARNED]


def test_where_no_file_can_be_made_each_worker_says_it_once(
    worker: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkFiles, "_root_directory", str(worker / "missing"))
    assert [lines_of_a_new_process(caplog) for _ in range(2)] == [1, 1]


def test_nothing_is_said_of_the_compiled_kernel(
    worker: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "LOADED", PORTABLE._replace(name="compiled", problem=""))
    assert lines_of_a_new_process(caplog) == 0
    assert list(worker.iterdir()) == []
