"""The data source as it is, in a worker with connections of others, with a diary of which sockets it touches."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from spark_producer.datasource.read.readers import BatchReader
from spark_producer.datasource.write.task_settings import TaskSettings
from spark_producer.network import quick_ack
from tests.spark.diary import Batches, DiaryDataSource, Write, lines_of

FORMAT = "pyproducer_overheard"


class Overheard(NamedTuple):
    """One task: the socket that Spark's daemon accepted for this worker, those that were touched, and all of the process."""

    jvm: int
    touched: list[int]
    sockets: list[int]


def read_diary(diary: Path) -> list[Overheard]:
    """The tasks so far."""
    return [Overheard(*line) for line in lines_of(diary)]


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
    """Return the socket that `pyspark.daemon.worker(sock, authenticated)` was called with."""
    frame = sys._getframe()
    while frame.f_code.co_name != "worker" or "authenticated" not in frame.f_locals:
        assert frame.f_back is not None, "there is no daemon below this task"
        frame = frame.f_back
    accepted: socket.socket = frame.f_locals["sock"]
    return accepted


@contextlib.contextmanager
def _watching(touched: list[int]) -> Iterator[None]:
    """Note the sockets whose options are set; the system does not show who set which option."""

    class Watched(socket.socket):
        def setsockopt(self, *given: Any) -> None:
            touched.append(_inode(self.fileno()))
            super().setsockopt(*given)

    seen = types.SimpleNamespace(**vars(socket) | {"socket": Watched})
    with patch.object(quick_ack, "socket", seen):
        yield


def overhear(write: Write, batches: Batches, settings: TaskSettings) -> tuple[WriterCommitMessage, Overheard]:
    """Open connections to where Spark's daemon listens, and elsewhere, and keep them open while the task writes."""
    touched: list[int] = []
    accepted = _accepted()
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        for address in (server.getsockname(), server.getsockname(), accepted.getsockname()):
            stack.enter_context(socket.create_connection(address))
        with _watching(touched):
            message = write(batches)
        return message, Overheard(_inode(accepted.fileno()), touched, _all_sockets())


class _OverheardReader(BatchReader):
    """The reader as it is, which also writes the diary."""

    def __init__(self, reader: BatchReader, diary: str) -> None:
        super().__init__(reader.settings, reader.schema)
        self.diary = diary

    def __setstate__(self, state: dict[str, Any]) -> None:
        touched: list[int] = []
        with _watching(touched):
            super().__setstate__(state)
        with Path(self.diary).open("a") as file:
            file.write(json.dumps((_inode(_accepted().fileno()), touched, _all_sockets())) + "\n")


class OverheardDataSource(DiaryDataSource):
    """`format("pyproducer_overheard")`, with the option `diary`."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options, overhear)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def reader(self, schema: StructType) -> BatchReader:
        return _OverheardReader(super().reader(schema), self.diary)
