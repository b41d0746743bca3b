"""A write that stops half-way until the test has done its damage.

Owns: the rows, the gate between their halves, the write in the background, the check of what arrived.
Must not know: which fault it is.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tests.conftest import Broker
from tests.spark.frames import session_settings, write
from tests.support.read_back import Row, read_topic
from tests.support.waiting import wait_until

SECONDS = 120.0
TASKS = 2
HALF = 3_000
"""rows of each task before the gate, and as many after it: 1 kB each, so that they do not all wait in some buffer"""

TOTAL = TASKS * 2 * HALF
PADDING = "x" * 1_000
ARROW_BATCHES = {"spark.sql.execution.arrow.maxRecordsPerBatch": "100"}
FAULT_OPTIONS: dict[str, object] = {
    "kafka.batch.size": 16_384,
    "kafka.linger.ms": 5,
    "kafka.request.timeout.ms": 10_000,
    "kafka.reconnect.backoff.max.ms": 200,
    "kafka.retry.backoff.max.ms": 200,
}


def paced_rows(spark: SparkSession, gate: Path, partitions: int) -> DataFrame:
    """Rows for `partitions` partitions in turn; each task makes its second half once the file `gate` is there."""
    name, limit = str(gate), SECONDS

    def rows(tasks: Iterable[int]) -> Iterator[tuple[str, int]]:
        for task in tasks:
            for number in range(2 * HALF):
                if number == HALF:
                    wait_until(lambda: Path(name).exists(), "the gate opens", seconds=limit)
                yield f"{task} {number} {PADDING}", number % partitions

    source = spark.sparkContext.parallelize(range(TASKS), TASKS).mapPartitions(rows)
    return spark.createDataFrame(source, "value string, partition int")


def activate(spark: SparkSession) -> None:
    """Make `spark` the session of this thread: in a thread without one, save() finds no Python data source of any name."""
    java: Any = spark._jvm
    java.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)


class PacedWrite:
    """The write of `paced_rows`, in a thread, for a `with` block; `finish` opens the gate and raises what failed."""

    def __init__(
        self,
        spark: SparkSession,
        broker: Broker,
        topic: str,
        folder: Path,
        *,
        partitions: int = 3,
        options: Mapping[str, object] | None = None,
    ) -> None:
        self._spark, self._broker, self._topic = spark, broker, topic
        self._gate = folder / "gate"
        self._frame = paced_rows(spark, self._gate, partitions)
        self._options = {**FAULT_OPTIONS, **(options or {})}
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="paced-write", daemon=True)

    def __enter__(self) -> PacedWrite:
        self._settings = session_settings(self._spark, ARROW_BATCHES)
        self._settings.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.open_gate()
        self._thread.join(SECONDS)
        self._settings.__exit__(None, None, None)

    @property
    def running(self) -> bool:
        """Return whether the write has not ended."""
        return self._thread.is_alive()

    def wait_until_half_done(self) -> None:
        """Wait until the topic holds rows of every task: then the write is under way, and cannot be at its end."""

        def all_tasks() -> bool:
            rows = read_topic(self._broker.bootstrap_servers, self._topic, client="confluent")
            return len({task for _, task, _ in places(rows)}) == TASKS

        self.wait(all_tasks, "the first rows of each task")

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until `condition` holds, as long as the write goes on."""
        wait_until(
            condition,
            what,
            seconds=SECONDS,
            pause=0.02,
            more=lambda: repr(self._error),
            ended=lambda: not self.running,
        )

    def open_gate(self) -> None:
        """Let the second half come."""
        self._gate.touch()

    def finish(self) -> None:
        """Open the gate, wait for the end, and raise what the write raised."""
        self.open_gate()
        self._thread.join(SECONDS)
        assert not self.running, f"the write has not ended within {SECONDS:g} s"
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            activate(self._spark)
            write(self._frame, self._broker, self._topic, self._options)
        except BaseException as error:
            self._error = error


def places(rows: Iterable[Row]) -> Iterator[tuple[int, int, int]]:
    """(partition, task, number) of every row."""
    for row in rows:
        task, number, _ = (row.value or b"").split(b" ")
        yield row.partition, int(task), int(number)


def assert_exactly_once_in_order(broker: Broker, topic: str, partitions: int = 3) -> None:
    """Every row once; in each partition the rows of a task in the order in which it made them."""
    rows = read_topic(broker.bootstrap_servers, topic, client="confluent")
    found: dict[tuple[int, int], list[int]] = {}
    for partition, task, number in places(rows):
        found.setdefault((partition, task), []).append(number)
    for partition in range(partitions):
        for task in range(TASKS):
            wanted = [number for number in range(2 * HALF) if number % partitions == partition]
            numbers = found.get((partition, task), [])
            assert len(numbers) == len(wanted), f"partition {partition}, task {task}: {differences(numbers, wanted)}"
            assert numbers == wanted, f"partition {partition}, task {task}: the order changed"


def differences(found: list[int], wanted: list[int]) -> str:
    """Return the rows that are missing, and those that are there more than once."""
    counts = Counter(found)
    repeated = [number for number, count in counts.items() if count > 1]
    missing = sorted(set(wanted) - set(found))
    return f"{len(missing)} missing, from {missing[:5]}; {len(repeated)} repeated, from {repeated[:5]}"
