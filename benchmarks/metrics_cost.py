"""What the metrics cost: nanoseconds of every event, and the share of a write of a million records a second.

`python -m benchmarks.metrics_cost`. Owns: how often each event happens in such a write. Must not know: what an event records.
"""

from __future__ import annotations

import argparse
import pickle
import threading
import time
from collections.abc import Callable

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


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50_000)
    parser.add_argument("--records", type=int, default=1_000_000, help="records a second (%(default)s)")
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


if __name__ == "__main__":
    main()
