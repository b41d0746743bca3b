"""The data source as it is, in a worker with connections of others: which sockets it touches is written down.

Owns: the diary's lines. Must not know: what a test concludes from them. Importable in Spark's workers.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSource, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_producer.datasource import PyProducerDataSource
from spark_producer.datasource.task import TaskSettings
from spark_producer.datasource.writers import BatchWriter
from spark_producer.network import quick_ack

FORMAT = "pyproducer_overheard"


class Overheard(NamedTuple):
    """One task: the socket that Spark's daemon accepted for this worker, those that were touched, and all of the process."""

    jvm: int
    touched: list[int]
    sockets: list[int]


def read_diary(diary: Path) -> list[Overheard]:
    """The tasks so far."""
    return [Overheard(*json.loads(line)) for line in diary.read_text().splitlines()]


def _inode(descriptor: int) -> int:
    return os.fstat(descriptor).st_ino


def _all_sockets() -> list[int]:
    """Inodes of every socket of this process."""
    links = (entry.name for entry in os.scandir("/proc/self/fd"))
    targets = []
    for link in links:
        with contextlib.suppress(OSError):  # the directory's own descriptor
            targets.append(str(Path("/proc/self/fd", link).readlink()))
    return sorted({int(target[8:-1]) for target in targets if target.startswith("socket:[")})


def _accepted() -> socket.socket:
    """What `pyspark.daemon.worker(sock, authenticated)` was called with; another frame than the one that is used."""
    frame = sys._getframe()
    while frame.f_code.co_name != "worker" or "authenticated" not in frame.f_locals:
        assert frame.f_back is not None, "there is no daemon below this task"
        frame = frame.f_back
    accepted: socket.socket = frame.f_locals["sock"]
    return accepted


class OverheardWriter(BatchWriter):
    """A writer that opens a connection to where Spark's daemon listens, and others, before it writes."""

    def __init__(self, settings: TaskSettings, diary: Path) -> None:
        super().__init__(settings)
        self.diary = diary

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        touched: list[int] = []

        class Watched(socket.socket):
            def setsockopt(self, *given: Any) -> None:
                touched.append(_inode(self.fileno()))
                super().setsockopt(*given)

        seen = types.SimpleNamespace(**vars(socket) | {"socket": Watched})
        accepted = _accepted()
        with contextlib.ExitStack() as stack:
            server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            for address in (server.getsockname(), server.getsockname(), accepted.getsockname()):
                stack.enter_context(socket.create_connection(address))
            quick_ack.socket = seen  # type: ignore[assignment]
            try:
                message = super().write(iterator)
            finally:
                quick_ack.socket = socket
            entry = Overheard(_inode(accepted.fileno()), touched, _all_sockets())
        with self.diary.open("a") as file:
            file.write(json.dumps(entry) + "\n")
        return message


class OverheardDataSource(DataSource):
    """`format("pyproducer_overheard")`, with the option `diary`."""

    def __init__(self, options: dict[str, Any]) -> None:
        given: Mapping[str, Any] = options
        self._diary = Path(given["diary"])
        self._real = PyProducerDataSource({name: value for name, value in given.items() if name != "diary"})

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> OverheardWriter:
        return OverheardWriter(self._real.writer(schema, overwrite).settings, self._diary)
