"""The cost of a batch in accumulator and pool, from its rows to its release: `python -m benchmarks.accumulator`.

It measures in one thread, with a network that takes everything at once. The figures are medians of rounds; in each round
every scene runs once, one after the other.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks.machine import kernel_facts
from spark_producer.accumulator import BufferPool, ProducerBatch, RecordAccumulator
from spark_producer.common.cluster import TopicPartition
from spark_producer.kernel import ArrangedRows, BinaryColumn, RecordColumns

ROOT = Path(__file__).parent.parent
ROWS = 128
VALUE = b"x" * 100
BATCH_SIZE = 16384
PER_REQUEST = 4
NODE = 1


class Scene(NamedTuple):
    """A scene with `partitions` that have all been in use; `active` of them get rows now."""

    name: str
    partitions: int
    active: int


SCENES = (
    Scene("1 partition", 1, 1),
    Scene("100 partitions", 100, 100),
    Scene("5,000 partitions", 5000, 5000),
    Scene("5,000 partitions, one of them active", 5000, 1),
)


class Cost(NamedTuple):
    """The microseconds of a batch; `ready` is called once for each request and divided among its `PER_REQUEST` batches."""

    append: float
    ready: float
    drain: float
    seal: float
    complete: float


class OneLeader:
    """A cluster in which one node leads every partition."""

    number = 0

    def leader_of(self, _: TopicPartition) -> tuple[int, int]:
        return NODE, 0


LEADERS = OneLeader()


def accumulator(partitions: int, linger: float = 0.0) -> RecordAccumulator:
    """Return the accumulator of a producer without compression, whose pool is never exhausted."""
    pool = BufferPool(max(64, 3 * partitions) * BATCH_SIZE, BATCH_SIZE, time.monotonic)
    return RecordAccumulator(
        pool,
        batch_size=BATCH_SIZE,
        linger=linger,
        delivery_timeout=120.0,
        max_block=1.0,
        keep_order=False,
        clock=time.monotonic,
        wakeup=lambda: None,
    )


def rows() -> ArrangedRows:
    """Return the rows that fill a batch."""
    values = pa.array([VALUE] * ROWS, pa.binary())
    return ArrangedRows(RecordColumns(BinaryColumn(values), timestamps=1_700_000_000_000), np.arange(ROWS))


def places(count: int) -> list[TopicPartition]:
    return [TopicPartition("t", partition) for partition in range(count)]


class Run:
    """One scene: rows are appended, and all ready batches are drained."""

    def __init__(self, scene: Scene) -> None:
        self._made, self._rows = accumulator(scene.partitions), rows()
        every = places(scene.partitions)
        for place in every:
            self._made.append(place, self._rows, 0, 1)
        self._spent = [0.0] * len(Cost._fields)
        while self._request(scene.partitions * BATCH_SIZE):
            continue
        self._used = every[: scene.active]
        self._turn = 0

    def cost(self, batches: int) -> Cost:
        """Return the cost of a batch, as the mean of `batches` batches."""
        self._spent = [0.0] * len(Cost._fields)
        for _ in range(batches // PER_REQUEST):
            began = time.perf_counter()
            for _ in range(PER_REQUEST):
                self._made.append(self._used[self._turn % len(self._used)], self._rows, 0, ROWS)
                self._turn += 1
            self._spent[0] += time.perf_counter() - began
            while self._request(PER_REQUEST * BATCH_SIZE):
                continue
        return Cost(*(seconds * 1e6 / batches for seconds in self._spent))

    def _request(self, max_bytes: int) -> list[ProducerBatch]:
        """Take the ready batches that fit into a request, seal them, and complete them."""
        made, times = self._made, [time.perf_counter()]
        now = time.monotonic()
        nodes = made.drainer.ready(now, LEADERS).nodes
        times.append(time.perf_counter())
        batches = made.drainer.drain(NODE, max_bytes, now) if nodes else []
        times.append(time.perf_counter())
        for batch in batches:
            batch.write_header()
        times.append(time.perf_counter())
        for batch in batches:
            made.completion.remove_in_flight(batch)
            made.completion.complete(batch, 0, -1)
        made.completion.refresh([batch.queue for batch in batches], now)
        times.append(time.perf_counter())
        for index, (start, end) in enumerate(itertools.pairwise(times), 1):
            self._spent[index] += end - start
        return batches


def idle_check(partitions: int, calls: int) -> float:
    """Return the microseconds of one `ready` while every partition holds an open batch that lingers."""
    made, arranged = accumulator(partitions, linger=60.0), rows()
    for place in places(partitions):
        made.append(place, arranged, 0, 1)
    made.drainer.ready(time.monotonic(), LEADERS)
    began = time.perf_counter()
    for _ in range(calls):
        made.drainer.ready(time.monotonic(), LEADERS)
    return (time.perf_counter() - began) * 1e6 / calls


def measure(rounds: int, batches: int) -> tuple[list[Cost], list[float]]:
    """Return the costs of every scene, and of an idle check of as many partitions."""
    runs = [Run(scene) for scene in SCENES]
    found: list[list[Cost]] = [[] for _ in SCENES]
    idle: list[list[float]] = [[] for _ in SCENES]
    for _ in range(rounds):
        for scene, run, costs, checks in zip(SCENES, runs, found, idle, strict=True):
            costs.append(run.cost(batches))
            checks.append(idle_check(scene.partitions, batches))
    medians = [Cost(*map(statistics.median, zip(*costs, strict=True))) for costs in found]
    return medians, [statistics.median(checks) for checks in idle]


def page(costs: list[Cost], idle: list[float], rounds: int, batches: int) -> str:
    """Return the whole page."""
    lines = [
        f"| {scene.name} | {' | '.join(f'{part:.2f}' for part in cost)} | {sum(cost):.2f} | {check:.2f} |"
        for scene, cost, check in zip(SCENES, costs, idle, strict=True)
    ]
    one, most = costs[0], costs[-1]
    text = [
        "# Accumulator and pool, on one core", "",
        f"Microseconds for a batch of {ROWS} rows with values of {len(VALUE)} bytes:", "",
        "| | append | ready | drain | seal | complete | all | a check while all linger |",
        "|---|--:|--:|--:|--:|--:|--:|--:|", *lines, "",
        "* `append` takes a buffer from the pool and encodes the rows; `seal` writes the header and the CRC; `complete` ends "
        "the batch and gives its buffer back.",
        "* `ready` and `drain` run on the I/O thread. `ready` does not go over partitions: "
        f"{most.ready:.2f} µs with {SCENES[-1].partitions:,} partitions of which one is active, {one.ready:.2f} µs with one.",
        "* The last column is one call of `ready` while every partition holds an open batch whose linger is not over.",
        "* With 5,000 partitions rows go into memory outside the caches: the pool hands out the buffer that was free longest.",
        "",
        f"In requests of {PER_REQUEST} batches, with a network that takes everything at once. Medians of {rounds} rounds of "
        f"{batches:,} batches, one thread. Made by `python -m benchmarks.accumulator`; do not edit.", "", *kernel_facts(), "",
    ]  # fmt: skip
    return "\n".join(text)


def main(given: list[str]) -> None:
    """Run and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accumulator", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="measured rounds (%(default)s)")
    parser.add_argument("--batches", type=int, default=20_000, help="in each round, of each scene (%(default)s)")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "benchmarks_accumulator.md", help="the page")
    options = parser.parse_args(given)
    found = page(*measure(options.rounds, options.batches), options.rounds, options.batches)
    print(found)
    options.out.write_text(found, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
