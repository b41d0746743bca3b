"""Odd ways of which each is played in several lives: stateful queries whose driver is killed, and started again.

The state of a micro-batch is written while its rows are read, and counts only once Spark has noted its end. So a driver that
dies after the commit point leaves rows that are visible, and a state that lacks them.

Owns: the queries, and when their drivers die. Must not know: what a reader must see.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame

from tests.matrix.failing import FOLDER, ancestors, chosen
from tests.matrix.odd_ground import Ground, Outcome

FUNCTION = "tests.matrix.odd_lives:died"
FILES = 4
BUCKETS = 20


class Death(NamedTuple):
    """The driver is killed at a failpoint of the sink, after that was passed `passes` times in its life."""

    place: str
    passes: int


DEATHS = (Death("commit.writing", 1), Death("task.prepared", 1))
"""After the commit point of the second micro-batch; then with the next one written in part."""


def died(place: str) -> None:
    """SIGKILL to the driver, its JVM and this process, if it is this one's turn (see `tests.matrix.failing`)."""
    if chosen(Path(os.environ[FOLDER]), place) is None:
        return
    above = ancestors(os.getpid())
    jvm = [name for _, name in above].index("java")
    for pid, _ in reversed(above[: jvm + 2]):
        os.kill(pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def deduplicated(ground: Ground) -> Outcome:
    """`dropDuplicates` over all micro-batches: each has a half of the rows of the one before again."""
    for number in range(FILES):
        ground.put(number, max(0, 100 * number - 50), 100 if number == 0 else 150)
    ground.play(ground.to(ground.stream().dropDuplicates(["value"])))
    return Outcome({ground.topic: 100 * FILES}, _lives(ground))


def counted(ground: Ground) -> Outcome:
    """A running count in update mode: each micro-batch raises every count by one, and a row has the new count."""
    for number in range(FILES):
        ground.put(number, BUCKETS * number, BUCKETS)
    counts = ground.stream().selectExpr(f"int(value) % {BUCKETS} as bucket").groupBy("bucket").count()
    rows = counts.selectExpr(f"string((count - 1) * {BUCKETS} + bucket) as value")

    def write_batch(frame: DataFrame, number: int) -> None:
        ground._replace(spark=frame.sparkSession).write(frame, txnVersion=number)

    writer = rows.writeStream.outputMode("update").foreachBatch(write_batch)
    ground.play(writer.option("checkpointLocation", str(ground.home / "checkpoint")))
    return Outcome({ground.topic: BUCKETS * FILES}, _lives(ground))


def _lives(ground: Ground) -> str:
    return f"{len(list(ground.home.glob('passed-*'))) + 1} lives"
