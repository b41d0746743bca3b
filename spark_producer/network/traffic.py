"""What goes out over a node's connection, told to the metrics.

Owns: which bytes and requests count, and when. Must not know: sockets, or what the metrics make of it.
"""

from __future__ import annotations

from spark_producer.metrics import ProducerMetrics
from spark_producer.network.node import Node


def report_written(metrics: ProducerMetrics, node: Node, queued: int, now: float) -> None:
    """The kernel took bytes; `queued` are left. A request counts with its last byte."""
    taken, node.unsent = node.unsent - queued, queued
    if taken:
        request_size = 0 if queued else node.request_size
        metrics.bytes_sent(node.id, taken, request_size, now)
        node.request_size -= request_size
