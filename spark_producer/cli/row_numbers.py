"""The rows of several files, one after the other, and the file and row of an error of the producer."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence

import pyarrow as pa

from spark_producer.cli.table_files import NO_MEMORY, UNREADABLE, Mapped, Source, as_sink_columns
from spark_producer.common.escape import for_log
from spark_producer.errors import PyProducerError, RecordError


class FileRows:
    """Yields the rows of files as batches of the sink's columns, and remembers at which row each file begins."""

    def __init__(self, sources: Sequence[Source], mapped: Mapped) -> None:
        self._sources = sources
        self._mapped = mapped
        self._starts: list[int] = []
        """The number of rows before each file that was begun."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches of all files.

        Raises:
            RecordError: a row cannot be read or converted. SchemaError: as `as_sink_columns`.
        """
        rows = 0
        for source in self._sources:
            self._starts.append(rows)
            try:
                for batch in as_sink_columns(source, self._mapped):
                    rows += batch.num_rows
                    yield batch
            except MemoryError as error:
                raise RecordError(f"{source.name} {NO_MEMORY}") from error
            except UNREADABLE as error:
                raise RecordError(f"{source.name}: {for_log(str(error))}") from error

    def with_file_row(self, error: PyProducerError, topic: str) -> PyProducerError:
        """Return an error that names a row of the producer with the file and its row, from 1 on; other errors unchanged."""
        pattern = rf"(?:topic {re.escape(repr(topic))}, )?row (\d+) of the task"
        text = re.sub(pattern, lambda found: self._file_row(int(found[1])), str(error), count=1)
        return error if text == str(error) else RecordError(text)

    def _file_row(self, row: int) -> str:
        at = bisect_right(self._starts, row) - 1
        return f"{self._sources[at].name}, row {row - self._starts[at] + 1}"
