"""The data source as it is, with a diary: what the worker looked like after each task.

Owns: the diary's lines. Must not know: what a test concludes from them.

Importable in Spark's workers, so that the producer cache under observation is the real one.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSource, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_producer.datasource import PyProducerDataSource
from spark_producer.datasource.task import TaskSettings, cached_producer, worker_config
from spark_producer.datasource.writers import BatchWriter, StreamWriter
from spark_producer.producer import Producer, parts_of

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
    return [Entry(*json.loads(line)) for line in diary.read_text().splitlines()]


def _memory(field: str) -> int:
    """A line of this process's status, in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1])


def taken(diary: Path) -> Path:
    """The file that appears when a task has taken all its rows; what it has not written by then, it holds."""
    return diary.with_suffix(".taken")


class _Task:
    """One task under observation: passes its Arrow batches on and counts their rows."""

    def __init__(self, batches: Iterator[pa.RecordBatch], diary: Path) -> None:
        self._batches = batches
        self._taken = taken(diary)
        self._rows = 0
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # what the task finds free and uses again would not count as growth
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        self._before = _memory("VmRSS")

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self._rows += batch.num_rows
            yield batch
        self._taken.touch()

    def record(self, diary: Path, settings: TaskSettings) -> None:
        """Write the entry."""
        producer = cached_producer(worker_config(settings))
        if not any(producer is known for known in _seen):
            _seen.append(producer)
        number = next(number for number, known in enumerate(_seen) if known is producer)
        usable = [not parts_of(known).failed for known in _seen]
        growth = _memory("VmHWM") - self._before
        entry = Entry(os.getpid(), number, usable, gc.get_freeze_count(), growth, self._rows, len(gc.get_objects()))
        with diary.open("a") as file:
            file.write(json.dumps(entry) + "\n")


class ObservedBatchWriter(BatchWriter):
    """A batch writer with a diary."""

    def __init__(self, settings: TaskSettings, diary: Path) -> None:
        super().__init__(settings)
        self.diary = diary

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = _Task(iterator, self.diary)
        message = super().write(iter(task))
        task.record(self.diary, self.settings)
        return message


class ObservedStreamWriter(StreamWriter):
    """A streaming writer with a diary."""

    def __init__(self, settings: TaskSettings, diary: Path) -> None:
        super().__init__(settings)
        self.diary = diary

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = _Task(iterator, self.diary)
        message = super().write(iter(task))
        task.record(self.diary, self.settings)
        return message


class ObservedDataSource(DataSource):
    """`format("pyproducer_observed")`, with the option `diary`."""

    def __init__(self, options: dict[str, Any]) -> None:
        given: Mapping[str, Any] = options
        self._diary = Path(given["diary"])
        self._real = PyProducerDataSource({name: value for name, value in given.items() if name != "diary"})

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> ObservedBatchWriter:
        return ObservedBatchWriter(self._real.writer(schema, overwrite).settings, self._diary)

    def streamWriter(self, schema: StructType, overwrite: bool) -> ObservedStreamWriter:
        return ObservedStreamWriter(self._real.streamWriter(schema, overwrite).settings, self._diary)
