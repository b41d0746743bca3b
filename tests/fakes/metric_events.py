"""One of every event, and how often each method is called: for tests that must miss none."""

from __future__ import annotations

import threading

from spark_producer.metrics import ProducerMetrics, Window


def new_metrics(now: float = 0.0, window: Window = Window()) -> ProducerMetrics:  # noqa: B008 - a value
    return ProducerMetrics("spark", threading.Lock(), now, 1_000_000.0 + now, window)


def drain(
    metrics: ProducerMetrics,
    *,
    topic: str = "t",
    records: int = 10,
    size: int = 1061,
    uncompressed: int = 2000,
    compressed: int = 1000,
    largest: int = 300,
    queued: float = 0.5,
    now: float = 1.0,
) -> None:
    metrics.batch_drained(topic, records, size, uncompressed, compressed, largest, queued, now)


def everything_once(metrics: ProducerMetrics, now: float = 1.0) -> None:
    metrics.rows_accepted(99, now)
    metrics.record_accepted(99, now)
    metrics.call_refused(now)
    metrics.metadata_waited(0.1, now)
    metrics.buffer_waited(0.2, now)
    metrics.buffer_exhausted(now)
    metrics.flushed(0.3, now)
    for call in ("init", "begin", "send-offsets", "commit", "abort"):
        metrics.transaction_call_completed(call, 0.4, now)
    drain(metrics, now=now)
    metrics.node_drained(10, now)
    metrics.batch_delivered(10, 1061, 0.75, now)
    metrics.batch_retried("t", 10, now)
    metrics.batch_failed("t", 10, now)
    metrics.rows_rejected("t", 3, now)
    metrics.batch_split(now)
    metrics.bytes_sent(1, 500, 1200, now)
    metrics.bytes_received(1, 80, now)
    metrics.response_received(1, 100, now)
    metrics.produce_completed(1, 0.05, now)
    metrics.polled(0.004, 0.001, now)
    metrics.connection_created(now)
    metrics.connection_closed(now)
    metrics.logged_in(now, repeatable=False)
    metrics.reauthenticated(0.02, now)
    for again in (False, True):
        metrics.login_failed(now, reauthentication=again)
