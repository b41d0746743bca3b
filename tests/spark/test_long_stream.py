"""A stream of Spark over very many tiny micro-batches: its processes do not grow.

The nightly tests play some, a campaign five thousand."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_producer import Producer
from tests.conftest import Broker
from tests.spark.read_sources import stream
from tests.support.waiting import wait_until

MIB = 1 << 20
BATCH_SECONDS = 10.0
"""Maximum seconds of one micro-batch."""
MORE_THREADS = 10
"""Maximum of more threads in the JVM at the end. One that is lost in each micro-batch would be hundreds."""
POOL_SECONDS = 90.0
"""Maximum seconds until the JVM has as few threads: a busy machine makes Spark's pools grow, and they end a thread that was idle
for a minute."""


class Size(NamedTuple):
    """The resources of one process."""

    pid: int
    command: str
    threads: int
    descriptors: int
    memory: int


class Look(NamedTuple):
    """The resources of a query's processes after some micro-batches."""

    batch: int
    heap: int
    """Bytes of live objects in the JVM."""
    jvm: Size
    workers: dict[int, Size]
    """Python processes below the JVM, by their id."""


def size_of(pid: int) -> Size | None:
    """Measure a process; None if it has ended."""
    folder = Path("/proc") / str(pid)
    try:
        status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        descriptors = len(list((folder / "fd").iterdir()))
    except FileNotFoundError:
        return None
    if "VmRSS" not in status:  # a zombie
        return None
    command = (folder / "cmdline").read_text().replace("\0", " ")
    return Size(pid, command, int(status["Threads"]), descriptors, int(status["VmRSS"].split()[0]) << 10)


def below(pid: int) -> Iterator[int]:
    """Yield the processes below one."""
    children: list[int] = []
    for path in Path("/proc").glob(f"{pid}/task/*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended meanwhile
            children += map(int, path.read_text().split())
    for child in children:
        yield child
        yield from below(child)


def look(spark: SparkSession, batch: int) -> Look:
    """Measure the JVM after a garbage collection, and all Python processes below it."""
    jvm = spark._jvm
    assert jvm is not None
    for _ in range(2):
        jvm.java.lang.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    heap = runtime.totalMemory() - runtime.freeMemory()
    pid = int(jvm.java.lang.ProcessHandle.current().pid())
    sizes = {each: size_of(each) for each in [pid, *below(pid)]}
    workers = {each: size for each, size in sizes.items() if size is not None}
    return Look(batch, heap, workers.pop(pid), workers)


def batches_of(query: StreamingQuery) -> int:
    """The number of micro-batches so far."""
    progress = query.lastProgress
    return 0 if progress is None else int(progress["batchId"])


@pytest.mark.timeout(7200)
@pytest.mark.covers("RD21")
@pytest.mark.parametrize(
    ("warm", "batches"),
    [
        pytest.param(60, 200, marks=pytest.mark.nightly),
        pytest.param(500, 5000, marks=pytest.mark.campaign),
    ],
    ids=["some", "5000"],
)
def test_processes_of_a_long_stream_stay_as_they_are(
    spark: SparkSession, kafka_4: Broker, topic: str, tmp_path: Path, warm: int, batches: int
) -> None:
    kafka_4.create_topic(topic, 1)
    with Producer({"bootstrap.servers": kafka_4.bootstrap_servers}) as producer:
        for number in range(batches + 100):
            producer.send(topic, b"%d" % number)
        producer.flush()
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "1", "commitGroup": f"group-of-{topic}"}
    writer = stream(spark, kafka_4, topic, options).writeStream.format("noop")
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(processingTime="0 seconds").start()
    began, looks = time.monotonic(), list[Look]()
    try:
        for wanted in (warm, (warm + batches) // 2, batches):

            def reached(wanted: int = wanted) -> bool:
                return batches_of(query) >= wanted

            seconds = BATCH_SECONDS * batches
            wait_until(
                reached, f"{wanted} micro-batches", seconds=seconds, pause=0.1,
                ended=lambda: not query.isActive, more=query.exception,
            )  # fmt: skip
            looks.append(look(spark, batches_of(query)))
        rows = [each["numInputRows"] for each in query.recentProgress]
        assert set(rows) == {1}
        wait_for_idle_pools(looks[0].jvm)
    finally:
        query.stop()
    for each in looks:
        python = ", ".join(f"{one.threads}/{one.descriptors}/{one.memory / MIB:.1f}" for one in each.workers.values())
        print(
            f"batch {each.batch}: heap {each.heap / MIB:.1f} MiB, JVM threads/descriptors {each.jvm.threads}/"
            f"{each.jvm.descriptors}, Python threads/descriptors/MiB {python}"
        )
    print(f"{(time.monotonic() - began) / looks[-1].batch:.3f} s for a micro-batch")
    check(looks[0], looks[-1])


def wait_for_idle_pools(first: Size) -> None:
    """Wait until the JVM has as few threads as at the first look, but for some of its pools."""

    def shrunk() -> bool:
        size = size_of(first.pid)
        return size is not None and size.threads <= first.threads + MORE_THREADS

    most = first.threads + MORE_THREADS
    wait_until(
        shrunk, f"the JVM has {most} threads or fewer", seconds=POOL_SECONDS, pause=1.0, more=lambda: size_of(first.pid)
    )


def check(first: Look, last: Look) -> None:
    """The processes are the same ones, and none has grown but by what an allocator keeps, and the pools of the JVM."""
    assert last.workers.keys() <= first.workers.keys(), "processes were started"
    assert len(last.workers) >= 2, "the driver of the stream, and a worker"
    assert last.jvm.descriptors <= first.jvm.descriptors + 10
    assert last.heap < first.heap + 60 * MIB
    for pid, after in last.workers.items():
        before = first.workers[pid]
        assert after.threads <= before.threads, after.command
        assert after.descriptors <= before.descriptors, after.command
        assert after.memory < before.memory + 8 * MIB, after.command
