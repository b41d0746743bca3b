"""What a batch costs in the accumulator, from its rows to its release: `python -m benchmarks.accumulator`.

Owns: the measurement, in one thread with a network that takes everything at once. Must not know: sockets, brokers.

Per batch of 128 rows of 100 bytes: `append` (encoding apart), `ready` and `drain`, sealing, completion; with 1, 100 and
5,000 partitions in turn, and with 5,000 of which one is active.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from spark_producer.accumulator import BufferPool, RecordAccumulator, TopicPartition
from spark_producer.kernel import ArrangedRows, BinaryColumn, RecordColumns

ROWS = 128
BATCH_SIZE = 16384
NODE = 1


class OneLeader:
    """Every partition is led by one node."""

    def leader_of(self, _: TopicPartition) -> tuple[int, int]:
        return NODE, 0


class Cost(NamedTuple):
    """Microseconds per batch."""

    append: float
    ready_and_drain: float
    seal: float
    complete: float


def accumulator(partitions: int) -> RecordAccumulator:
    pool = BufferPool(max(64, 3 * partitions) * BATCH_SIZE, BATCH_SIZE, time.monotonic)
    return RecordAccumulator(
        pool,
        batch_size=BATCH_SIZE,
        linger=0.0,
        delivery_timeout=120.0,
        max_block=1.0,
        keep_order=False,
        clock=time.monotonic,
        wakeup=lambda: None,
    )


def rows() -> ArrangedRows:
    values = pa.array([b"x" * 100] * ROWS, pa.binary())
    return ArrangedRows(RecordColumns(BinaryColumn(values), timestamps=1_700_000_000_000), np.arange(ROWS))


def measure(partitions: int, batches: int, active: int | None = None) -> Cost:
    """`active` partitions of all, which have been in use, get one batch after the other, four to a request."""
    made, arranged, leaders = accumulator(partitions), rows(), OneLeader()
    places = [TopicPartition("t", partition) for partition in range(partitions)]
    spent = [0.0] * 4
    for place in places:  # every partition has been used once
        made.append(place, arranged, 0, 1)
    _round(made, leaders, partitions * BATCH_SIZE, [0.0] * 4)
    used = places[: active or partitions]
    turn = 0
    while turn < batches:
        before = time.perf_counter()
        for _ in range(4):
            made.append(used[turn % len(used)], arranged, 0, ROWS)
            turn += 1
        spent[0] += time.perf_counter() - before
        _round(made, leaders, 4 * BATCH_SIZE, spent)
    return Cost(*(seconds * 1e6 / turn for seconds in spent))


def _round(made: RecordAccumulator, leaders: OneLeader, room: int, spent: list[float]) -> None:
    """Take everything that is ready, seal it, complete it."""
    while True:
        start = time.perf_counter()
        now = time.monotonic()
        batches = made.drain(NODE, room, now) if made.ready(now, leaders).nodes else []
        drained = time.perf_counter()
        for batch in batches:
            batch.seal()
        sealed = time.perf_counter()
        for batch in batches:
            made.landed(batch)
            made.complete(batch, 0, -1)
        made.settle([batch.queue for batch in batches], now)
        for index, seconds in enumerate((drained - start, sealed - drained, time.perf_counter() - sealed), 1):
            spent[index] += seconds
        if not batches:
            return


def main() -> None:
    """Print the table."""
    print(f"{'partitions':>20} {'append':>8} {'ready+drain':>12} {'seal':>6} {'complete':>9}   microseconds per batch")
    for name, partitions, active in (("1", 1, 1), ("100", 100, 100), ("5000", 5000, 5000), ("5000, 1 active", 5000, 1)):
        cost = min(measure(partitions, 20_000, active) for _ in range(3))
        print(f"{name:>20} {cost.append:8.2f} {cost.ready_and_drain:12.2f} {cost.seal:6.2f} {cost.complete:9.2f}")


if __name__ == "__main__":
    main()
