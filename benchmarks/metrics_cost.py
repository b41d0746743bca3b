"""What the metrics cost: every event by itself, and a whole write with and without them.

`python -m benchmarks.metrics_cost`. Owns: the measurement, of writes to an embedded broker in another process, where events
go to the metrics or to functions that do nothing, in turn. Must not know: what an event records.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import pickle
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import NamedTuple

import pyarrow as pa

from spark_producer import Producer
from spark_producer.accumulator import ProducerBatch
from spark_producer.broker import LocalBroker
from spark_producer.metrics import Levels, ProducerMetrics
from spark_producer.sender.tally import Tally

RECORD_BYTES = 110
ROWS_PER_ARROW_BATCH = 10_000
BATCH_BYTES = (262144, 16384)
"""Our default, and Java's."""

Event = Callable[[ProducerMetrics, float], None]

EVENTS: dict[str, Event] = {
    "batch_drained": lambda metrics, now: metrics.batch_drained("t", 148, 16384, 16323, 16323, 171, 0.01, now),
    "batch_delivered": lambda metrics, now: metrics.batch_delivered(148, 16384, 0.02, now),
    "node_drained": lambda metrics, now: metrics.node_drained(592, now),
    "bytes_sent": lambda metrics, now: metrics.bytes_sent(1, 65536, 65536, now),
    "bytes_received": lambda metrics, now: metrics.bytes_received(1, 100, now),
    "response_received": lambda metrics, now: metrics.response_received(1, 0, now),
    "produce_answered": lambda metrics, now: metrics.produce_answered(1, 0.005, now),
    "polled": lambda metrics, now: metrics.polled(0.001, 0.0001, now),
    "rows_accepted": lambda metrics, now: metrics.rows_accepted(128, now),
    "buffer_waited": lambda metrics, now: metrics.buffer_waited(0.001, now),
}
"""Those of a write in which nothing goes wrong."""


class Uncounted(Tally):
    """Looks nothing up for the metrics."""

    def drained(self, batches: list[ProducerBatch], now: float) -> None:
        """Only what the report needs."""
        self.requests += bool(batches)


def _silent() -> ProducerMetrics:
    """Every event is a function of as many arguments that does nothing."""
    nothing: tuple[Callable[..., None], ...] = (
        lambda m: None,
        lambda m, a: None,
        lambda m, a, b: None,
        lambda m, a, b, c: None,
        lambda m, a, b, c, d: None,
        lambda m, a, b, c, d, e: None,
        lambda m, a, b, c, d, e, f: None,
        lambda m, a, b, c, d, e, f, g: None,
        lambda m, a, b, c, d, e, f, g, h: None,
    )
    events = {name: nothing[getattr(ProducerMetrics, name).__code__.co_argcount - 1] for name in EVENTS}
    return _metrics(type("Silent", (ProducerMetrics,), events))


def _counting(found: Counter[str]) -> ProducerMetrics:
    """Every event counts itself."""

    def counted(name: str) -> Callable[..., None]:
        return lambda *_: found.update([name])

    return _metrics(type("Counting", (ProducerMetrics,), {name: counted(name) for name in EVENTS}))


def _metrics(kind: type[ProducerMetrics]) -> ProducerMetrics:
    return kind("benchmark", threading.Lock(), 0.0, 0.0)


def nanoseconds(event: Event, rounds: int) -> float:
    """Of one call, the best of five runs; every thousandth moves the clock a second, so that samples change."""
    best = float("inf")
    for _ in range(5):
        metrics = _metrics(ProducerMetrics)
        began = time.perf_counter_ns()
        for number in range(rounds):
            event(metrics, number / 1000)
        best = min(best, (time.perf_counter_ns() - began) / rounds)
    return best


def snapshots(topics: int) -> tuple[float, float, int]:
    """Microseconds to begin and to read a lap of a task that writes to `topics` topics, and its bytes in the message."""
    metrics = _metrics(ProducerMetrics)
    for event in EVENTS.values():
        event(metrics, 1.0)
    for number in range(topics):
        metrics.batch_drained(f"topic-{number}", 1, 1, 1, 1, 1, 0.1, 1.0)
    began = time.perf_counter_ns()
    lap = metrics.lap(Levels(), 2.0)
    read = time.perf_counter_ns()
    metrics.start_lap(2.0)
    return (time.perf_counter_ns() - read) / 1e3, (read - began) / 1e3, len(pickle.dumps(lap))


def _serve(pipe: Connection) -> None:
    with LocalBroker(default_partitions=4) as broker:
        pipe.send(broker.bootstrap_servers)
        pipe.recv()


@contextlib.contextmanager
def broker_elsewhere() -> Iterator[str]:
    """The bootstrap servers of an embedded broker in a process of its own."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()  # or its end would be open still if the process dies
    try:
        if not ours.poll(60):
            raise SystemExit("the embedded broker did not start within 60 s")
        yield ours.recv()
    finally:
        with contextlib.suppress(BrokenPipeError):
            ours.send("end")
        process.join(20)
        process.kill()


class Cost(NamedTuple):
    """CPU seconds of the process, and of its I/O thread: that alone records what comes often."""

    whole: float
    io: float


class Writer:
    """One producer, which writes pieces of equal rows."""

    def __init__(self, producer: Producer, records: int) -> None:
        self._producer = producer
        self._heard, self._unheard = producer.meter.events, _silent()
        self._tally, self._uncounted = producer._sender._tally, Uncounted(self._unheard)
        self._rows = pa.record_batch(
            {"value": pa.array([b"x" * (RECORD_BYTES - 10)] * ROWS_PER_ARROW_BATCH, pa.binary())}
        )
        thread = producer._thread.ident
        assert thread is not None
        self._io_clock = time.pthread_getcpuclockid(thread)
        self._batches = records // ROWS_PER_ARROW_BATCH
        self.records = self._batches * ROWS_PER_ARROW_BATCH

    def write(self) -> Cost:
        """One piece."""
        began, io_began = time.process_time(), time.clock_gettime(self._io_clock)
        for _ in range(self._batches):
            self._producer.send_batch(self._rows, topic="cost")
        self._producer.flush()
        return Cost(time.process_time() - began, time.clock_gettime(self._io_clock) - io_began)

    def write_unheard(self) -> Cost:
        """The same without metrics."""
        with self._told(self._unheard, self._uncounted):
            return self.write()

    def count(self) -> Counter[str]:
        """How often each event comes in one piece."""
        found: Counter[str] = Counter()
        counting = _counting(found)
        with self._told(counting, Tally(counting)):
            self.write()
        return found

    @contextlib.contextmanager
    def _told(self, metrics: ProducerMetrics, tally: Tally) -> Iterator[None]:
        self._attach(metrics, tally)
        try:
            yield
        finally:
            self._attach(self._heard, self._tally)

    def _attach(self, metrics: ProducerMetrics, tally: Tally) -> None:
        self._producer.meter.events = self._producer._client._metrics = metrics
        self._producer._sender._tally = self._producer._sender._completion.tally = tally


def print_write(servers: str, batch_bytes: int, pairs: int, records: int, rounds: int) -> None:
    """Events of a write, and pieces of it with and without metrics in turn: what changes on the machine meets both."""
    with Producer({"bootstrap.servers": servers, "batch.size": batch_bytes}) as producer:
        writer = Writer(producer, records)
        writer.write()
        counts = writer.count()
        heard: list[Cost] = []
        unheard: list[Cost] = []
        for number in range(pairs):
            for with_metrics in (True, False) if number % 2 else (False, True):
                (heard if with_metrics else unheard).append(writer.write() if with_metrics else writer.write_unheard())
    without = statistics.median(cost.whole for cost in unheard)
    print(f"batches of {batch_bytes:,} bytes: {without / writer.records * 1e9:,.0f} ns of CPU a record without metrics")
    whole = 0.0
    for name, event in EVENTS.items():
        cost = nanoseconds(event, rounds)
        share = counts[name] * cost / 1e9 / without
        whole += share
        print(f"  {name:18} {cost:6,.0f} ns × {counts[name] * 1e6 / writer.records:6,.0f} = {share * 100:5.2f} %")
    print(f"  {'all, by this count':35} {whole * 100:6.2f} %")
    differences = [(one.io - other.io) / without for one, other in zip(heard, unheard, strict=True)]
    low, middle, high = (percent * 100 for percent in interval(differences))
    print(f"  measured over {pairs} pairs of writes: {middle:+.2f} % (95 % interval {low:+.2f} … {high:+.2f})\n")


def interval(values: list[float]) -> tuple[float, float, float]:
    """The median, between the ends of its 95 % interval by order statistics: no shape of the noise is assumed."""
    ordered, half = sorted(values), 0.98 * len(values) ** 0.5
    middle = len(values) / 2
    low, high = max(0, round(middle - half) - 1), min(len(values) - 1, round(middle + half))
    return ordered[low], statistics.median(ordered), ordered[high]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50_000, help="calls of each event by itself (%(default)s)")
    parser.add_argument("--pairs", type=int, default=300, help="writes with and without metrics (%(default)s each)")
    parser.add_argument("--records", type=int, default=200_000, help="records of each (%(default)s)")
    options = parser.parse_args()
    print("event: cost × number of it in a million records = share of the write's CPU time\n")
    with broker_elsewhere() as servers:
        for batch_bytes in BATCH_BYTES:
            print_write(servers, batch_bytes, options.pairs, options.records, options.rounds)
    for topics in (1, 1000):
        start, read, size = snapshots(topics)
        print(
            f"a task with {topics:,} topics: {start:,.0f} µs to begin a lap, {read:,.0f} µs to read it, {size:,} bytes"
        )


if __name__ == "__main__":
    main()
