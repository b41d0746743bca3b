"""The data source as it is, with a diary: a line of JSON for each task, of what was seen in its worker.

`observed` and `overheard` say what they look at. Importable in Spark's workers, as they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from spark_producer.datasource import PyProducerDataSource
from spark_producer.datasource.write.task_settings import TaskSettings
from spark_producer.datasource.write.writers import BatchWriter, StreamWriter

Batches = Iterator[pa.RecordBatch]
Write = Callable[[Batches], WriterCommitMessage]
Watch = Callable[[Write, Batches, TaskSettings], tuple[WriterCommitMessage, tuple[Any, ...]]]
"""Runs one task, by the writer's own `write`; what that gives, and the entry."""


def lines_of(diary: Path) -> list[list[Any]]:
    """The entries so far, oldest first."""
    return [json.loads(line) for line in diary.read_text().splitlines()]


class _Diary:
    def __init__(self, path: Path, watch: Watch) -> None:
        self._path = path
        self._watch = watch

    def run(self, write: Write, batches: Batches, settings: TaskSettings) -> WriterCommitMessage:
        message, entry = self._watch(write, batches, settings)
        with self._path.open("a") as file:
            file.write(json.dumps(entry) + "\n")
        return message


class _BatchWriter(BatchWriter):
    def __init__(self, settings: TaskSettings, diary: _Diary) -> None:
        super().__init__(settings)
        self._diary = diary

    def write(self, iterator: Batches) -> WriterCommitMessage:  # type: ignore[override]  # as pyspark's own
        return self._diary.run(super().write, iterator, self.settings)


class _StreamWriter(StreamWriter):
    def __init__(self, settings: TaskSettings, diary: _Diary) -> None:
        super().__init__(settings)
        self._diary = diary

    def write(self, iterator: Batches) -> WriterCommitMessage:  # type: ignore[override]  # as pyspark's own
        return self._diary.run(super().write, iterator, self.settings)


class DiaryDataSource(PyProducerDataSource):
    """With the option `diary`, the file. Subclasses have a name, and say who watches each task."""

    def __init__(self, options: dict[str, Any], watch: Watch) -> None:
        super().__init__({name: value for name, value in options.items() if name != "diary"})
        self.diary = options["diary"]
        self._diary = _Diary(Path(self.diary), watch)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        return _BatchWriter(super().writer(schema, overwrite).settings, self._diary)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        return _StreamWriter(super().streamWriter(schema, overwrite).settings, self._diary)
