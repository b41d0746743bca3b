"""Only the worker's socket to its JVM gets the option to acknowledge at once."""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from pyspark import TaskContext

from spark_producer.config import parse_options
from spark_producer.datasource import jvm_socket
from spark_producer.datasource.jvm_socket import JvmConnection
from spark_producer.datasource.read.planning import batch_reader, default_schema, stream_reader
from spark_producer.datasource.write.task_settings import TaskSettings
from spark_producer.datasource.write.writers import BatchWriter, StreamWriter
from spark_producer.network import quick_ack, set_quickack

Pair = tuple[socket.socket, socket.socket]
Main = Callable[[Any, Any], bool]


@contextlib.contextmanager
def connection(to: socket.socket) -> Iterator[Pair]:
    """Both ends: of the one that connects, and of the one that a JVM or a broker would have accepted."""
    with socket.create_connection(to.getsockname()[:2]) as near, to.accept()[0] as far:
        yield near, far


@pytest.fixture
def jvm() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the inodes of the sockets whose option is set, by which `/proc` names connections."""
    inodes: list[int] = []

    class Watched(socket.socket):
        def setsockopt(self, *given: Any) -> None:
            assert given == (socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
            inodes.append(inode(self))
            super().setsockopt(*given)

    # Patched, since the code makes a socket of its own over a descriptor, and the kernel shows no sign of the option.
    monkeypatch.setattr(quick_ack, "socket", types.SimpleNamespace(**vars(socket) | {"socket": Watched}))
    return inodes


def inode(held: socket.socket | IO[bytes]) -> int:
    return Path(f"/proc/self/fd/{held.fileno()}").stat().st_ino


def spark_main(module: str, body: str = "return call()") -> Main:
    """`main(infile, outfile)` of a module that is run as Spark runs its own; `call` is made from a frame below it."""
    made = types.ModuleType("__main__")
    made.__spec__ = types.SimpleNamespace(name=module)  # type: ignore[assignment]
    made.__dict__["call"] = lambda: JvmConnection().answer_at_once()
    exec(f"def main(infile, outfile):\n    {body}", made.__dict__)
    main: Main = made.__dict__["main"]
    return main


def test_it_is_the_socket_of_spark_and_no_other(jvm: socket.socket, reported: list[int]) -> None:
    """Connections of a producer, of a user's own code, and even others to the very same JVM, are left alone."""
    with contextlib.ExitStack() as stack:
        brokers = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        held = [stack.enter_context(connection(to)) for to in (brokers, jvm, jvm, jvm, brokers)]
        files = [(near.makefile("rb"), near.makefile("wb")) for near, _ in held]
        for pair in files:
            stack.callback(pair[0].close)
            stack.callback(pair[1].close)
        assert spark_main("pyspark.worker")(*files[2])
        assert reported == [inode(held[2][0])]


def test_a_file_over_a_descriptor_of_its_own_is_as_good(jvm: socket.socket, reported: list[int]) -> None:
    """PySpark's daemon duplicates the descriptor for the file that its worker reads from."""
    with connection(jvm) as (near, _), open(near.fileno(), "rb", closefd=False) as infile:
        assert spark_main("pyspark.worker")(infile, None)
        assert reported == [inode(near)]
        near.sendall(b"x")  # still open: only a duplicate was closed


def test_the_jvm_is_answered_before_each_batch_is_read(jvm: socket.socket, reported: list[int]) -> None:
    with connection(jvm) as (near, _), near.makefile("rb") as infile:
        main = spark_main("pyspark.worker", "return call()")
        main.__globals__["call"] = JvmConnection
        answered = main(infile, None).answered(iter("abc"))  # type: ignore[attr-defined]
        assert reported == []
        assert [(batch, len(reported)) for batch in answered] == [("a", 1), ("b", 2), ("c", 3)]
        assert reported == [inode(near)] * 4


READ = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}


@pytest.mark.parametrize("make", [batch_reader, stream_reader])
def test_a_reader_that_a_task_unpickles_is_acknowledged_before_its_ranges_come(
    jvm: socket.socket, reported: list[int], make: Callable[..., Any]
) -> None:
    pickled = pickle.dumps(make(READ, default_schema(READ)))
    with connection(jvm) as (near, _), near.makefile("rb") as infile:
        pickle.loads(pickled)
        assert reported == [], "no task does it"
        main = spark_main("pyspark.worker")
        main.__globals__["call"] = lambda: pickle.loads(pickled)
        reader: Any = main(infile, None)
        assert reported == [inode(near)]
        assert reader.settings.source.subscribe == "t"


@pytest.mark.parametrize("writer", [BatchWriter, StreamWriter])
def test_a_writer_that_a_task_unpickles_is_acknowledged_before_its_rows_are_read(
    jvm: socket.socket, reported: list[int], monkeypatch: pytest.MonkeyPatch, writer: type[BatchWriter | StreamWriter]
) -> None:
    """The commit of a batch write unpickles it too, and loads no network for that."""
    config, sink = parse_options({"kafka.bootstrap.servers": "localhost:9092", "topic": "t"})
    pickled = pickle.dumps(writer(TaskSettings(config, sink)))
    with connection(jvm) as (near, _), near.makefile("rb") as infile:
        main = spark_main("pyspark.worker")
        main.__globals__["call"] = lambda: pickle.loads(pickled)
        main(infile, None)
        assert reported == [], "no task does it"
        monkeypatch.setattr(TaskContext, "_taskContext", object())
        restored: Any = main(infile, None)
        assert reported == [inode(near)]
        assert restored.settings.sink.topic == "t"


def test_without_spark_among_the_callers_nothing_is_touched(jvm: socket.socket, reported: list[int]) -> None:
    with connection(jvm) as (near, _), near.makefile("rb") as infile:
        assert not JvmConnection().answer_at_once()
        assert not spark_main("a_users_module")(infile, None)
        assert not spark_main("pyspark.sql.worker.write_into_data_source")(infile, None)
        assert reported == []


class Odd:
    """Objects that another Spark might have instead of a file over a socket."""

    def __init__(self, descriptor: object) -> None:
        self._descriptor = descriptor

    def fileno(self) -> Any:
        if isinstance(self._descriptor, Exception):
            raise self._descriptor
        return self._descriptor


ODD: list[Any] = [None, object(), Odd(-1), Odd("seven"), Odd(10**6), Odd(10**30), Odd(OSError("no descriptor"))]


@pytest.mark.parametrize("infile", ODD, ids=map(repr, range(len(ODD))))
def test_what_is_not_a_socket_fails_no_task(infile: object, reported: list[int]) -> None:
    assert not spark_main("pyspark.worker")(infile, None)
    assert reported == []


def test_a_frame_without_an_infile_fails_no_task(reported: list[int]) -> None:
    assert not spark_main("pyspark.worker", "del infile; return call()")(None, None)


def test_a_worker_without_the_daemon_is_left_alone(jvm: socket.socket, reported: list[int]) -> None:
    """The one file of both directions has no descriptor."""
    with connection(jvm) as (near, _), near.makefile("rwb") as both:
        assert not spark_main("pyspark.worker")(both, both)
    assert reported == []


def test_closed_sockets_files_and_unix_sockets_are_left_alone(
    jvm: socket.socket, tmp_path: Path, reported: list[int]
) -> None:
    main = spark_main("pyspark.worker")
    with connection(jvm) as (near, _):
        closed = near.makefile("rb")
        closed.close()
        assert not main(closed, None)
    near, far = socket.socketpair(socket.AF_UNIX)
    with near, far, near.makefile("rb") as infile:
        assert not main(infile, None)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        assert not main(datagrams, None)
    (tmp_path / "file").write_bytes(b"x")
    with (tmp_path / "file").open("rb") as infile:
        assert not main(infile, None)
    assert reported == []


@pytest.mark.parametrize("timeout", [0.0, 30.0])
def test_the_connection_stays_as_it_is_whatever_timeout_new_sockets_have(
    jvm: socket.socket, reported: list[int], timeout: float
) -> None:
    """A user's code in the same worker may set it: a read that does not wait would end the task's rows early."""
    with connection(jvm) as (near, _), near.makefile("rb") as infile:
        before = socket.getdefaulttimeout()
        socket.setdefaulttimeout(timeout)
        try:
            assert spark_main("pyspark.worker")(infile, None)
        finally:
            socket.setdefaulttimeout(before)
        assert os.get_blocking(near.fileno())
        assert reported == [inode(near)]


def test_a_system_without_the_option_is_left_alone(jvm: socket.socket, reported: list[int]) -> None:
    with connection(jvm) as (near, _):
        assert not set_quickack(near.fileno(), None)
    assert reported == []


def test_a_system_that_refuses_the_option_fails_no_task(jvm: socket.socket) -> None:
    with connection(jvm) as (near, _):
        assert not set_quickack(near.fileno(), 10_000)


def test_no_call_of_this_test_is_taken_for_sparks() -> None:
    assert jvm_socket._main_of_spark(sys._getframe()) is None  # a connection would not say why it does nothing
