"""The report to the metrics of the bytes and requests that go out over a node's connection."""

from __future__ import annotations

from spark_producer.metrics import ProducerMetrics
from spark_producer.network.node import NodeConnection


def report_written(metrics: ProducerMetrics, node: NodeConnection, queued: int, now: float) -> None:
    """Report the bytes that the kernel took; `queued` bytes are left. A request counts with its last byte."""
    taken, node.unsent = node.unsent - queued, queued
    if taken > 0:  # encryption adds some bytes: none may be taken, and more be left than before
        request_size = 0 if queued else node.request_size
        metrics.bytes_sent(node.id, taken, request_size, now)
        node.request_size -= request_size
