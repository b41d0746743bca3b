"""The data source as it is, with a diary of what the worker looked like after each task: its producers, memory and objects."""

from __future__ import annotations

import ctypes
import gc
import os
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql.datasource import WriterCommitMessage

from spark_producer.datasource.write.task_settings import TaskSettings
from spark_producer.datasource.write.worker.task import cached_producer, worker_config
from spark_producer.producer import Producer, parts_of
from tests.spark.diary import Batches, DiaryDataSource, Write, lines_of

FORMAT = "pyproducer_observed"
_seen: list[Producer] = []


class Entry(NamedTuple):
    """The worker after a task: the number of the producer it used, and which of all it ever had are usable.

    `growth_kib`: the most memory that the worker had at once during the task, less what it had before.
    `tracked`: objects that a garbage collection has to look at.
    """

    pid: int
    producer: int
    usable: list[bool]
    frozen: int
    growth_kib: int
    rows: int
    tracked: int


def read_diary(diary: Path) -> list[Entry]:
    """The entries so far, oldest first."""
    return [Entry(*line) for line in lines_of(diary)]


def _memory(field: str) -> int:
    """A line of this process's status, in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1])


def taken(diary: Path) -> Path:
    """The file that appears when a task has taken all its rows; what it has not written by then, it holds."""
    return diary.with_suffix(".taken")


def observe(marker: Path, write: Write, batches: Batches, settings: TaskSettings) -> tuple[WriterCommitMessage, Entry]:
    """Pass its batches on and count their rows; touch `marker` after the last; look around when it is over."""
    rows = 0

    def counted() -> Batches:
        nonlocal rows
        for batch in batches:
            rows += batch.num_rows
            yield batch
        marker.touch()

    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # memory that is free already would not count as growth
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = _memory("VmRSS")
    message = write(counted())
    producer = cached_producer(worker_config(settings))
    if not any(producer is known for known in _seen):
        _seen.append(producer)
    number = next(number for number, known in enumerate(_seen) if known is producer)
    usable = [not parts_of(known).failed for known in _seen]
    growth = _memory("VmHWM") - before
    return message, Entry(os.getpid(), number, usable, gc.get_freeze_count(), growth, rows, len(gc.get_objects()))


class ObservedDataSource(DiaryDataSource):
    """`format("pyproducer_observed")`, with the option `diary`."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options, partial(observe, taken(Path(options["diary"]))))

    @classmethod
    def name(cls) -> str:
        return FORMAT
