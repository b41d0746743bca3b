"""What the metrics cost: nanoseconds of every event, the share of a write of a million records a second, and of a real one.

`python -m benchmarks.metrics_cost`. Owns: how often each event happens in such a write; writes with and without metrics, to an
embedded broker in another process. Must not know: what an event records.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import pickle
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

import pyarrow as pa

from spark_producer import Producer
from spark_producer.broker import LocalBroker
from spark_producer.metrics import Levels, ProducerMetrics

RECORD_BYTES = 110
BATCHES_PER_REQUEST = 4
WRITE_BYTES = 65536  # of one call of sendmsg to a socket whose buffer is full now and then
ROWS_PER_ARROW_BATCH = 10_000

Event = Callable[[ProducerMetrics, float], None]


def events(batch_bytes: int, records_per_second: int) -> dict[str, tuple[Event, float]]:
    """Event → (the call, how often it comes in a second of the write)."""
    records = max(1, batch_bytes // RECORD_BYTES)
    batches = records_per_second / records
    requests = batches / BATCHES_PER_REQUEST
    writes = max(requests, batches * batch_bytes / WRITE_BYTES)
    return {
        "rows_accepted": (lambda m, now: m.rows_accepted(128, now), records_per_second / ROWS_PER_ARROW_BATCH),
        "buffer_waited": (lambda m, now: m.buffer_waited(0.001, now), batches),
        "batch_drained": (
            lambda m, now: m.batch_drained("t", records, batch_bytes, batch_bytes, batch_bytes, 128, 0.01, now),
            batches,
        ),
        "batch_delivered": (lambda m, now: m.batch_delivered(records, batch_bytes, 0.02, now), batches),
        "node_drained": (lambda m, now: m.node_drained(records, now), requests),
        "request_sent": (lambda m, now: m.request_sent(1, batch_bytes, now), requests),
        "response_received": (lambda m, now: m.response_received(1, now), requests),
        "produce_answered": (lambda m, now: m.produce_answered(1, 0.005, now), requests),
        "throttle_reported": (lambda m, now: m.throttle_reported(0, now), requests),
        "bytes_sent": (lambda m, now: m.bytes_sent(1, WRITE_BYTES, now), writes),
        "bytes_received": (lambda m, now: m.bytes_received(1, 100, now), requests),
        "polled": (lambda m, now: m.polled(0.001, 0.0001, now), writes + requests),
    }


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
    for event, _ in events(131072, 1_000_000).values():
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
    try:
        if not ours.poll(60):
            raise SystemExit("the embedded broker did not start within 60 s")
        yield ours.recv()
    finally:
        ours.send("end")
        process.join(20)
        process.kill()


def write(servers: str, records: int, batch_bytes: int, *, heard: bool) -> float:
    """CPU seconds of this process for a million records; not `heard`: every event goes to a function that does nothing."""
    rows = pa.record_batch({"value": pa.array([b"x" * (RECORD_BYTES - 10)] * ROWS_PER_ARROW_BATCH, pa.binary())})
    with Producer({"bootstrap.servers": servers, "batch.size": batch_bytes}) as producer:
        if not heard:
            for name in [name for name in dir(ProducerMetrics) if name[0] != "_"]:
                setattr(producer.meter.events, name, lambda *_, **__: None)
        producer.send_batch(rows, topic="cost")
        producer.flush()
        began = time.process_time()
        for _ in range(records // ROWS_PER_ARROW_BATCH):
            producer.send_batch(rows, topic="cost")
        producer.flush()
        return (time.process_time() - began) * 1e6 / records


def print_writes(rounds: int, records: int) -> None:
    """Writes with and without metrics in turn, so that what changes on the machine meets both."""
    with broker_elsewhere() as servers:
        for batch_bytes in (262144, 16384):
            costs: dict[bool, list[float]] = {True: [], False: []}
            for number in range(2 * rounds):
                heard = number % 4 in (1, 2)
                costs[heard].append(write(servers, records, batch_bytes, heard=heard))
            with_them, without = statistics.median(costs[True]), statistics.median(costs[False])
            print(
                f"writes in batches of {batch_bytes:,} bytes, CPU s for a million records, medians of {rounds}: "
                f"{with_them:.4f} with metrics, {without:.4f} without: {(with_them / without - 1) * 100:+.2f} %"
            )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50_000)
    parser.add_argument("--records", type=int, default=1_000_000, help="records a second (%(default)s)")
    parser.add_argument("--writes", type=int, default=20, help="writes with and without metrics (%(default)s each)")
    parser.add_argument("--write-records", type=int, default=1_000_000, help="records of each (%(default)s)")
    options = parser.parse_args()
    for batch_bytes in (262144, 16384):  # our default, and Java's
        print(f"{options.records:,} records/s of {RECORD_BYTES} bytes in batches of {batch_bytes:,} bytes")
        whole = 0.0
        for name, (event, per_second) in events(batch_bytes, options.records).items():
            cost = nanoseconds(event, options.rounds)
            whole += cost * per_second / 1e9
            print(f"  {name:20} {cost:7,.0f} ns × {per_second:8,.0f} = {cost * per_second / 1e7:6.3f} % of a core")
        print(f"  {'all':20} {whole * 100:37.3f} % of a core\n")
    for topics in (1, 1000):
        start, read, size = snapshots(topics)
        print(
            f"a task with {topics:,} topics: {start:,.0f} µs to begin a lap, {read:,.0f} µs to read it, {size:,} bytes"
        )
    print_writes(options.writes, options.write_records)


if __name__ == "__main__":
    main()
