"""What the metrics cost: every event by itself, and a whole write with and without them.

`python -m benchmarks.metrics_cost`. Owns: the measurement, of writes to an embedded broker in another process, where events
go to the metrics or to functions that do nothing, in turn. Must not know: what an event records.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import multiprocessing
import pickle
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

import pyarrow as pa

from spark_producer import Producer
from spark_producer.accumulator import ProducerBatch
from spark_producer.broker import LocalBroker
from spark_producer.metrics import Levels, ProducerMetrics

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

_SILENT: tuple[Callable[..., None], ...] = (
    lambda: None,
    lambda a: None,
    lambda a, b: None,
    lambda a, b, c: None,
    lambda a, b, c, d: None,
    lambda a, b, c, d, e: None,
    lambda a, b, c, d, e, f: None,
    lambda a, b, c, d, e, f, g: None,
    lambda a, b, c, d, e, f, g, h: None,
)
"""By the number of arguments."""


def nanoseconds(event: Event, rounds: int) -> float:
    """Of one call, the best of five runs; every thousandth moves the clock a second, so that samples change."""
    best = float("inf")
    for _ in range(5):
        metrics = ProducerMetrics("benchmark", threading.Lock(), 0.0, 0.0)
        began = time.perf_counter_ns()
        for number in range(rounds):
            event(metrics, number / 1000)
        best = min(best, (time.perf_counter_ns() - began) / rounds)
    return best


def snapshots(topics: int) -> tuple[float, float, int]:
    """Microseconds to begin and to read a lap of a task that writes to `topics` topics, and its bytes in the message."""
    metrics = ProducerMetrics("benchmark", threading.Lock(), 0.0, 0.0)
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


class Writer:
    """One producer, which writes pieces of equal rows."""

    def __init__(self, producer: Producer, records: int) -> None:
        self._producer = producer
        self._events = producer.meter.events
        self._rows = pa.record_batch(
            {"value": pa.array([b"x" * (RECORD_BYTES - 10)] * ROWS_PER_ARROW_BATCH, pa.binary())}
        )
        self._batches = records // ROWS_PER_ARROW_BATCH
        self.records = self._batches * ROWS_PER_ARROW_BATCH

    def write(self) -> float:
        """CPU seconds of this process for one piece."""
        began = time.process_time()
        for _ in range(self._batches):
            self._producer.send_batch(self._rows, topic="cost")
        self._producer.flush()
        return time.process_time() - began

    def write_unheard(self) -> float:
        """The same, with every event given to a function that does nothing, and nothing looked up for it of a batch."""
        instead = {name: _SILENT[event.__code__.co_argcount - 1] for name, event in _methods().items()}
        tally = self._producer._sender._tally

        def drained(batches: list[ProducerBatch], now: float) -> None:
            tally.requests += bool(batches)

        vars(tally)["drained"] = drained
        try:
            with self._replaced(instead):
                return self.write()
        finally:
            del vars(tally)["drained"]

    def count(self) -> Counter[str]:
        """How often each event comes in one piece."""
        found: Counter[str] = Counter()

        def counted(name: str, event: Callable[..., None], *args: object) -> None:
            found[name] += 1
            event(self._events, *args)

        with self._replaced({name: functools.partial(counted, name, event) for name, event in _methods().items()}):
            self.write()
        return found

    @contextlib.contextmanager
    def _replaced(self, instead: dict[str, Callable[..., None]]) -> Iterator[None]:
        vars(self._events).update(instead)
        try:
            yield
        finally:
            for name in instead:
                delattr(self._events, name)


def _methods() -> dict[str, Callable[..., None]]:
    return {name: getattr(ProducerMetrics, name) for name in EVENTS}


def print_write(servers: str, batch_bytes: int, pairs: int, records: int, rounds: int) -> None:
    """Events of a write, and pieces of it with and without metrics in turn: what changes on the machine meets both."""
    with Producer({"bootstrap.servers": servers, "batch.size": batch_bytes}) as producer:
        writer = Writer(producer, records)
        writer.write()
        counts = writer.count()
        heard: list[float] = []
        unheard: list[float] = []
        for number in range(pairs):
            for with_metrics in (True, False) if number % 2 else (False, True):
                (heard if with_metrics else unheard).append(writer.write() if with_metrics else writer.write_unheard())
    without = statistics.median(unheard)
    print(f"batches of {batch_bytes:,} bytes: {without / writer.records * 1e9:,.0f} ns of CPU a record without metrics")
    whole = 0.0
    for name, event in EVENTS.items():
        cost = nanoseconds(event, rounds)
        share = counts[name] * cost / 1e9 / without
        whole += share
        print(f"  {name:18} {cost:6,.0f} ns × {counts[name] * 1e6 / writer.records:6,.0f} = {share * 100:5.2f} %")
    print(f"  {'all, by this count':35} {whole * 100:6.2f} %")
    differences = [one / other - 1 for one, other in zip(heard, unheard, strict=True)]
    low, middle, high = (percent * 100 for percent in interval(differences))
    print(
        f"  measured over {pairs} pairs of writes: {middle:+.2f} % (95 % of medians lie in {low:+.2f} … {high:+.2f})\n"
    )


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
