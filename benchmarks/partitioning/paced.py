"""The work of Kafka's ProducerPerformance with our producer: records at a steady rate, with latencies to the acknowledgement.

It runs in a process of its own, as Java's does, and prints one line of JSON.
"""

from __future__ import annotations

import functools
import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa

from spark_producer import Producer
from spark_producer.accumulator import TableResult

MIN_SLEEP_S = 0.002
"""ProducerPerformance sleeps as soon as it is this many seconds ahead, and then for whole milliseconds."""

PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}


def bursts(
    records: int,
    rate: float,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[int]:
    """Yield again and again how many records to send at once, with the sleeps of ProducerPerformance in between.

    Every record that is sent ahead of the rate adds its share of a second, and from 2 ms on the sum is slept. So records come
    in bursts, six of them every 3 ms at 2,048 a second, which matters to a rule that moves on with every batch.
    """
    begun, owed, burst = clock(), 0.0, 0
    for sent in range(1, records + 1):
        burst += 1
        passed = int(1000 * (clock() - begun)) / 1000
        if sent > rate * passed:
            owed += 1 / rate
        if owed >= MIN_SLEEP_S:
            yield burst
            sleep(math.ceil(1000 * owed) / 1000)
            owed, burst = 0.0, 0
    if burst:
        yield burst


def run(topic: str, records: int, warmup: int, rate: float, size: int, settings: dict[str, str]) -> dict[str, float]:
    """Send `records` of `size` bytes at `rate` per second, of which the first `warmup` are not measured. See `send`."""
    return send(bursts(records, rate), topic, warmup, size, settings)


def send(bursts: Iterable[int], topic: str, warmup: int, size: int, settings: dict[str, str]) -> dict[str, float]:
    """Send bursts of records of `size` bytes, of which the first `warmup` are not measured.

    Returns: records measured, mean, percentiles and maximum in ms, MiB per second; and for the whole run the requests and the
    bytes per batch.
    """
    sent, warming, measured = 0, Latencies(), Latencies()
    with _WatchedProducer(settings) as producer:
        for burst in bursts:
            # After a pause one burst may hold the end of the warm-up and measured records.
            first = max(0, min(burst, warmup - sent))
            for count, account in ((first, warming), (burst - first, measured)):
                if count:
                    producer.send_burst(_burst(count, size), topic, account)
            sent += burst
        producer.flush()
        values = {name: value for (group, name, _), value in producer.metrics().items() if group == "producer-metrics"}
    totals = {"requests": values["request-total"], "batch_bytes": values["batch-size-avg"], "records": measured.records}
    return {**measured.summary(), "megabytes": measured.megabytes(size), **totals}


class Latencies:
    """The seconds from the call to the acknowledgement, each with the number of records that took it."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._begun = self._ended = 0.0
        self._found: list[tuple[float, int]] = []

    def begin(self) -> float:
        now = self._clock()
        self._begun = self._begun or now
        return now

    def end(self, began: float, records: int) -> None:
        self._ended = self._clock()
        self._found.append((self._ended - began, records))

    @property
    def records(self) -> int:
        return sum(count for _, count in self._found)

    def megabytes(self, size: int) -> float:
        """Return MiB per second, for records of `size` bytes."""
        return self.records * size / (self._ended - self._begun) / (1 << 20)

    def summary(self) -> dict[str, float]:
        """Return mean, percentiles and maximum over the records, in ms."""
        seconds, counts = zip(*self._found, strict=True)
        each = 1000 * np.sort(np.repeat(seconds, counts))
        found = {name: float(each[int(share * len(each))]) for name, share in PERCENTILES.items()}
        return {"mean": float(each.mean()), **found, "max": float(each[-1])}


class _WatchedBurst(TableResult):
    """Notes the time at which each run of rows is acknowledged; a table's future only gives that of the last one."""

    def __init__(self, latencies: Latencies) -> None:
        super().__init__()
        self._latencies = latencies
        self._began = latencies.begin()

    def written(self, place: tuple[str, int], offset: int, records: int) -> None:
        self._latencies.end(self._began, records)
        super().written(place, offset, records)


class _WatchedProducer(Producer):
    """Sends a burst as one Arrow batch, and still measures how long each of its records takes."""

    def send_burst(self, rows: pa.RecordBatch, topic: str, latencies: Latencies) -> None:
        result = _WatchedBurst(latencies)
        self._send_rows(rows, result, topic, 0, True)
        result.no_more()


@functools.cache
def _burst(records: int, size: int) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([b"x" * size] * records, pa.binary())})


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    print(json.dumps(run(**given)))
