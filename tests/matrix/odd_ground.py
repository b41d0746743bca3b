"""Parts of Spark's odd ways of running a write: their topics, the attempts of tasks, harm to a worker.

Owns: rows, options, files of a stream, notes of attempts. Must not know: which ways there are, or what readers must see.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from spark_producer import register
from tests.matrix.failing import ancestors
from tests.matrix.readers import read_later
from tests.support.waiting import wait_until

ROWS = 4_000
TASKS = 4
WIDTH = 2_000
"""Digits of a wide row: Python reads 4,300 as one number."""
SECONDS = 90.0


class Ground(NamedTuple):
    """The session, paths and options of a way. `options` choose the path of the rows."""

    spark: SparkSession
    servers: str
    topic: str
    home: Path
    options: Mapping[str, str]

    def numbers(self, count: int = ROWS, tasks: int = TASKS, first: int = 0) -> DataFrame:
        """Rows."""
        return self.spark.range(first, first + count, 1, tasks).selectExpr("string(id) as value")

    def write_wide(self, passed: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]) -> None:
        """A batch write of rows that are numbers with many zeros before them, so they reach the writer while others come.

        Between Python workers of Spark 64 KiB of rows gather, twice (`spark.buffer.size`), however few an Arrow batch has.
        """
        wide = self.numbers().selectExpr(f"lpad(value, {WIDTH}, '0') as value").mapInArrow(passed, "value string")
        self.write(wide, **{"kafka.batch.size": 4 * WIDTH})

    def elsewhere(self, topic: str = "") -> Ground:
        """The same in a session of its own, for the thread that calls this."""
        session = self.spark.newSession()
        register(session)
        return self._replace(spark=session, topic=topic or self.topic)

    def given(self, more: Mapping[str, object]) -> dict[str, str]:
        """Options of a write, to this topic and id unless `more` says otherwise."""
        usual = {"kafka.bootstrap.servers": self.servers, "topic": self.topic, "exactlyOnceId": self.topic}
        return {**usual, **self.options, **{name: str(value) for name, value in more.items()}}

    def write(self, frame: DataFrame, **more: object) -> None:
        """A batch write."""
        frame.write.format("pyproducer").options(**self.given(more)).mode("append").save()

    def files(self, name: str = "files") -> Path:
        """A folder that is read as a stream."""
        (self.home / name).mkdir(exist_ok=True)
        return self.home / name

    def put(self, number: int, first: int, count: int, folder: str = "files") -> None:
        """A file of the stream, which is a micro-batch."""
        hidden = self.files(folder) / f".{number}"
        hidden.write_text("".join(f"{each}\n" for each in range(first, first + count)))
        os.utime(hidden, (1_700_000_000 + number,) * 2)
        hidden.rename(self.files(folder) / f"{number}.txt")

    def stream(self, folder: str = "files") -> DataFrame:
        """One file is one micro-batch of two tasks."""
        return self.spark.readStream.option("maxFilesPerTrigger", 1).text(str(self.files(folder))).repartition(2)

    def to(self, frame: DataFrame, checkpoint: str = "checkpoint", **more: object) -> DataStreamWriter:
        """A write of a stream, which only needs its trigger and start."""
        writer = frame.writeStream.format("pyproducer").options(**self.given(more))
        return writer.option("checkpointLocation", str(self.home / checkpoint))

    def play(self, writer: DataStreamWriter) -> None:
        """All that is there."""
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(int(SECONDS)), "the query has not ended"


class Outcome(NamedTuple):
    """Topic → count of its rows, and a note for the report."""

    topics: dict[str, int]
    reported: str = ""


def wait_for(path: Path, failed: Sequence[str] = ()) -> None:
    """Wait until a file is there; not any more when something has `failed`."""
    wait_until(path.exists, path.name, seconds=SECONDS, more=lambda: failed[:1], ended=lambda: bool(failed))


def wait_for_rows(servers: str, topic: str, numbers: range) -> None:
    """Wait until a row with one of these numbers is in the log, committed or not."""

    def is_there() -> bool:
        found = read_later(servers, topic, "read_uncommitted").values()
        return any(int(one.value or b"-1") in numbers for rows in found for one in rows)

    wait_until(is_there, f"one of the rows {numbers} is in the log", seconds=SECONDS, pause=0.05)


def attempts(home: Path) -> Counter[tuple[int, int]]:
    """Return the number of starts of each attempt (partition, number) of a task."""
    names = (path.name.split("-") for path in home.glob("began-*"))
    return Counter((int(partition), int(number)) for _, partition, number, _ in names)


def began(home: Path) -> tuple[int, int]:
    """Note that an attempt of a task begins: its partition and number."""
    context = TaskContext.get()
    assert context is not None
    where = context.partitionId(), context.attemptNumber()
    (home / f"began-{where[0]}-{where[1]}-{context.taskAttemptId()}").touch()
    return where


def wait_for_second(home: Path, partition: int) -> None:
    """Wait until the second attempt of a task has begun."""
    wait_until(lambda: attempts(home)[partition, 1], "a second attempt", seconds=SECONDS, pause=0.02)


def slow_tasks(
    home: Path, slow: Mapping[tuple[int, int], float]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function that passes rows on; before each Arrow batch, some attempts sleep for the seconds in `slow`.

    A slow first attempt stops after some rows until the second one has begun, so a busy machine has a second one, too.
    """

    def passed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        mine = began(home)
        pause = slow.get(mine, 0.0)
        for number, batch in enumerate(batches):
            time.sleep(pause)  # makes the attempt slow
            if number == 3 and pause and mine[1] == 0:
                wait_for_second(home, mine[0])
            yield batch

    return passed


def last_error(text: str) -> str:
    """The line of an error of Spark that says what happened."""
    lines = [line.strip() for line in text.splitlines() if "spark_producer.errors" in line or "Error:" in line]
    return lines[-1] if lines else text[:500]


def together(jobs: list[Callable[[], None]]) -> None:
    """Each in a thread of its own."""
    threads = [threading.Thread(target=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive()


def kill_writers() -> None:
    """SIGKILL to the other workers of this executor: this one only makes rows, and another one writes them.

    Workers of unlike environments have parents of their own (Spark's `PythonWorkerFactory`), all of them below one JVM.
    """
    jvm = next(pid for pid, name in ancestors(os.getpid()) if name == "java")
    families = {pid for pid in _children({jvm}) if b"\0pyspark.worker\0" in _command(pid)}
    for pid in _children(families) - {os.getpid()}:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _children(parents: set[int]) -> set[int]:
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            if int(path.read_text().rpartition(")")[2].split()[1]) in parents:
                found.add(int(path.parent.name))
    return found


def _command(pid: int) -> bytes:
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""
