"""The metrics of a reader: their table, under the names of Java's consumer, and the events that only readers have.

They are pushed to brokers that ask for them (KIP-714), and shown nowhere else.
"""

from __future__ import annotations

from spark_producer.metrics.metric_table import (
    CLIENT,
    CONSUMER,
    CONSUMER_NODE,
    FETCHES,
    METRICS,
    NODE,
    Metric,
    Stat,
)
from spark_producer.metrics.producer_metrics import ProducerMetrics

_OF_CONNECTIONS = frozenset({
    "authentication", "authentication-failure", "authentication-once", "bytes-in", "bytes-out", "connection-close",
    "connection-creation", "connection_count", "io-time", "network-io", "reauthentication", "reauthentication-failure",
    "requests", "responses", "select",
})  # fmt: skip
"""The sensors of connections, which all clients have."""

CONSUMER_METRICS: tuple[Metric, ...] = (
    *(row._replace(group=CONSUMER) for row in METRICS if row.group == CLIENT and row.sensor in _OF_CONNECTIONS),
    *(row._replace(group=CONSUMER_NODE) for row in METRICS if row.group == NODE),
    Metric(FETCHES, "fetch-rate", "fetch-size", Stat.COUNT_RATE, "fetches/s", "responses to Fetch"),
    Metric(FETCHES, "fetch-total", "fetch-size", Stat.COUNT_TOTAL, "fetches", "responses to Fetch"),
    Metric(FETCHES, "fetch-size-avg", "fetch-size", Stat.AVG, "bytes", "bytes of records in a response"),
    Metric(FETCHES, "fetch-size-max", "fetch-size", Stat.MAX, "bytes", "bytes of records in a response"),
    Metric(FETCHES, "fetch-latency-avg", "request-latency", Stat.AVG, "ms", "from a Fetch request to its response"),
    Metric(FETCHES, "fetch-latency-max", "request-latency", Stat.MAX, "ms", "from a Fetch request to its response"),
    Metric(FETCHES, "fetch-throttle-time-avg", "throttle", Stat.AVG, "ms", "waits that brokers asked for (KIP-219)"),
    Metric(FETCHES, "fetch-throttle-time-max", "throttle", Stat.MAX, "ms", "waits that brokers asked for (KIP-219)"),
    Metric(FETCHES, "bytes-consumed-rate", "fetch-size", Stat.RATE, "bytes/s", "bytes of records in responses"),
    Metric(FETCHES, "bytes-consumed-total", "fetch-size", Stat.TOTAL, "bytes", "bytes of records in responses"),
    Metric(FETCHES, "records-consumed-rate", "records-consumed", Stat.RATE, "records/s", "records handed to the task"),
    Metric(FETCHES, "records-consumed-total", "records-consumed", Stat.TOTAL, "records", "records handed to the task"),
)


class ConsumerMetrics(ProducerMetrics):
    """The counters of one reader. Those of connections, which it shares with producers, have their events there."""

    def fetched(self, node: int, size: int, latency: float, now: float) -> None:
        """Record a response to Fetch with `size` bytes of records."""
        self.produce_completed(node, latency, now)
        self._record("fetch-size", size, now)

    def records_consumed(self, records: int, now: float) -> None:
        """Record that the task got a RecordBatch of `records` records."""
        self._record("records-consumed", records, now)
