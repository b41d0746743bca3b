"""A file without a name, in which a task gathers its rows first, so that its transaction is open only while they are sent."""

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
"""The environment variable with the folders of `spark.local.dir`, separated by commas, which Spark sets for its workers."""


class Spool:
    """Arrow batches of one schema, in a file that only this process can read and that ends with it.

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
        """Give the room of the file back. It may be called twice."""
        with contextlib.suppress(
            OSError
        ):  # what cannot be written is not needed any more; the file is closed all the same
            self._file.close()

    def add(self, batch: pa.RecordBatch) -> None:
        """Append a batch; of a slice only its own rows are written."""
        try:
            if self._writer is None:
                self._writer = pa.ipc.new_stream(self._file, batch.schema)
            self._writer.write_batch(batch)
        except OSError as error:
            raise self._refused(error) from None
        self.rows += batch.num_rows

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all batches in the order in which they came. Nothing can be added any more."""
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
            f"the rows of a task cannot be spooled in {self.folder} (spark.local.dir): {error.strerror or error}. Make room "
            "there, name another folder, or set exactlyOnceSpoolToDisk to false"
        )
