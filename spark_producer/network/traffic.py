"""What goes over a node's connection, told to the metrics.

Owns: which bytes and requests count, and when. Must not know: sockets, or what the metrics make of it.
"""

from __future__ import annotations

from spark_producer.metrics import ProducerMetrics
from spark_producer.network.node import Node


def report_written(metrics: ProducerMetrics, node: Node, queued: int, now: float) -> None:
    """The kernel took bytes; `queued` are left. A request counts with its last byte."""
    taken, node.unsent = node.unsent - queued, queued
    if taken:
        metrics.bytes_sent(node.id, taken, now)
    if not queued and node.request_size:
        metrics.request_sent(node.id, node.request_size, now)
        node.request_size = 0


def report_response(metrics: ProducerMetrics, node: Node, throttle_ms: int | None, now: float) -> None:
    """A response is complete; `throttle_ms` None: its kind has no such field."""
    metrics.response_received(node.id, now)
    if throttle_ms is not None:
        metrics.throttle_reported(throttle_ms, now)
