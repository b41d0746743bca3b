"""The cost of sending a partition's first batch alone: `python -m benchmarks.first_batches`, against the embedded broker.

In each round a new producer writes the same rows a few times to every partition of one topic. It has its memory, connection
and producer id from earlier writes to another topic. So its first write differs from the later ones only in that the brokers do
not know its id in these partitions. Time is from the first row to the last acknowledgement.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks.topics import broker
from spark_producer import Producer
from spark_producer.producer import parts_of

PARTITIONS = (4, 1_000)
VALUE = b"x" * 1_000
LATER = 4
"""The number of writes of each producer after the first one."""


class Writes(NamedTuple):
    """The seconds and requests of one producer's first write, and of each of its later ones."""

    first: tuple[float, int]
    later: list[tuple[float, int]]


def rows_for(partitions: int, megabytes: int) -> pa.RecordBatch:
    """Return rows for all partitions in turn, with at least three batches for each of a thousand."""
    count = megabytes * 1_000_000 // len(VALUE)
    places = pa.array(np.arange(count, dtype=np.int32) % partitions)
    return pa.record_batch({"partition": places, "value": pa.array([VALUE] * count, pa.binary())})


def write(producer: Producer, rows: pa.RecordBatch, topic: str) -> tuple[float, int]:
    """Return the seconds and requests of one write."""
    began = time.perf_counter()
    producer.send_batch(rows, topic=topic)
    producer.flush()
    return time.perf_counter() - began, parts_of(producer).take_report().requests


def one_producer(rows: pa.RecordBatch, servers: str) -> Writes:
    """Measure a new, warm producer on a topic that others have written to."""
    with Producer({"bootstrap.servers": servers}) as producer:
        for _ in range(2):
            write(producer, rows, "warm")
        first = write(producer, rows, "measured")
        return Writes(first, [write(producer, rows, "measured") for _ in range(LATER)])


def measure(partitions: int, megabytes: int, rounds: int) -> list[Writes]:
    """Measure `rounds` producers, one after the other."""
    rows = rows_for(partitions, megabytes)
    with broker(partitions) as servers:
        one_producer(rows, servers)
        return [one_producer(rows, servers) for _ in range(rounds)]


def line(partitions: int, found: list[Writes]) -> str:
    """Return a line for people."""
    first = statistics.median(seconds for seconds, _ in (writes.first for writes in found))
    later = statistics.median(seconds for writes in found for seconds, _ in writes.later)
    asked = statistics.median(requests for _, requests in (writes.first for writes in found))
    asked_later = statistics.median(requests for writes in found for _, requests in writes.later)
    return (
        f"{partitions:5,} partitions: first write {first * 1e3:7.1f} ms in {asked:g} requests, later ones "
        f"{later * 1e3:7.1f} ms in {asked_later:g}: {(first - later) * 1e3:+.1f} ms once for each producer id"
    )


def main(given: list[str]) -> None:
    """Print a line for each number of partitions."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.first_batches", description="What a first batch costs that flies alone."
    )
    parser.add_argument("--megabytes", type=int, default=48, help="of each write (%(default)s)")
    parser.add_argument("--rounds", type=int, default=9, help="producers for each line (%(default)s)")
    options = parser.parse_args(given)
    for partitions in PARTITIONS:
        print(line(partitions, measure(partitions, options.megabytes, options.rounds)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
