"""The spool file of a task: rows are gathered in it, so that the transaction is open only while they are sent."""

from __future__ import annotations

import contextlib
import os
import random
import tempfile
from collections.abc import Iterator, Mapping
from io import IOBase
from types import TracebackType
from typing import Self, cast

import pyarrow as pa

from spark_producer.errors import PyProducerError

_FOLDERS = "SPARK_LOCAL_DIRS"
"""The environment variable that Spark sets for its workers: the directories of `spark.local.dir`, separated by commas."""


class Spool:
    """A file of Arrow batches with one schema. Without a name, only this process can read it, and it ends with the process.

    Raises (all methods):
        PyProducerError: the file system refuses, for example because it is full.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        folders = [folder for folder in environment.get(_FOLDERS, "").split(",") if folder]
        self.folder = random.choice(folders) if folders else tempfile.gettempdir()
        self.rows = 0
        self._file = self._open()
        self._writer: pa.RecordBatchStreamWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file, which frees its disk space. A second call does nothing."""
        # The file is closed even if its last bytes cannot be written, and they are not needed any more.
        with contextlib.suppress(OSError):
            self._file.close()

    def add(self, batch: pa.RecordBatch) -> None:
        """Append a batch. If it is a slice, only the rows of the slice are written."""
        try:
            if self._writer is None:
                self._writer = pa.ipc.new_stream(self._file, batch.schema)
            self._writer.write_batch(batch)
        except OSError as error:
            raise self._refused(error) from None
        self.rows += batch.num_rows

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all batches in the order of `add`, which must not be called any more."""
        if self._writer is None:
            return
        try:
            self._writer.close()
            self._file.seek(0)
            yield from pa.ipc.open_stream(self._file)
        except OSError as error:
            raise self._refused(error) from None

    def _open(self) -> IOBase:
        try:  # with mode 0600, new, and without a name
            return cast(IOBase, tempfile.TemporaryFile(prefix="pyproducer-", dir=self.folder))
        except OSError as error:
            raise self._refused(error) from None

    def _refused(self, error: OSError) -> PyProducerError:
        return PyProducerError(
            f"the rows of a task cannot be spooled in {self.folder} (spark.local.dir): {error.strerror or error}. Free space "
            "there, name another directory, or set exactlyOnceSpoolToDisk to false"
        )
