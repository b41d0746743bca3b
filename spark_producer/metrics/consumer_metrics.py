"""The metrics of a reader: their table, under the names of Java's consumer, and the events that only readers have.

They are pushed to brokers that ask for them (KIP-714), and shown nowhere else.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from spark_producer.metrics.metric_table import (
    CLIENT,
    CONSUMER,
    CONSUMER_NODE,
    FETCHES,
    FETCHES_BY_TOPIC,
    METRICS,
    NODE,
    Metric,
    Stat,
)
from spark_producer.metrics.producer_metrics import ProducerMetrics
from spark_producer.metrics.registry import MAX_TOPICS, OTHER_TOPICS
from spark_producer.metrics.windowed_counters import SingleValues, Window

_OF_CONNECTIONS = frozenset({
    "authentication", "authentication-failure", "authentication-once", "bytes-in", "bytes-out", "connection-close",
    "connection-creation", "connection_count", "io-time", "network-io", "reauthentication", "reauthentication-failure",
    "requests", "responses", "select",
})  # fmt: skip
"""The sensors of connections, which all clients have."""


def _consumed(group: str, size: str) -> list[Metric]:
    """Return the metrics that exist for all topics together and for each of them; `size` is the sensor of the bytes."""
    records, end = "records handed to the task", "from the last fetched offset to the end of a partition"
    return [
        Metric(group, "bytes-consumed-rate", size, Stat.RATE, "bytes/s", "bytes of records in responses"),
        Metric(group, "bytes-consumed-total", size, Stat.TOTAL, "bytes", "bytes of records in responses"),
        Metric(group, "fetch-size-avg", size, Stat.AVG, "bytes", "bytes of records in a response"),
        Metric(group, "fetch-size-max", size, Stat.MAX, "bytes", "bytes of records in a response"),
        Metric(group, "records-consumed-rate", "records-consumed", Stat.RATE, "records/s", records),
        Metric(group, "records-consumed-total", "records-consumed", Stat.TOTAL, "records", records),
        Metric(group, "records-lag-max", "records-lag", Stat.MAX, "records", end),
    ]


CONSUMER_METRICS: tuple[Metric, ...] = (
    *(row._replace(group=CONSUMER) for row in METRICS if row.group == CLIENT and row.sensor in _OF_CONNECTIONS),
    *(row._replace(group=CONSUMER_NODE) for row in METRICS if row.group == NODE),
    Metric(FETCHES, "fetch-rate", "fetch-size", Stat.COUNT_RATE, "fetches/s", "responses to Fetch"),
    Metric(FETCHES, "fetch-total", "fetch-size", Stat.COUNT_TOTAL, "fetches", "responses to Fetch"),
    Metric(FETCHES, "fetch-latency-avg", "request-latency", Stat.AVG, "ms", "from a Fetch request to its response"),
    Metric(FETCHES, "fetch-latency-max", "request-latency", Stat.MAX, "ms", "from a Fetch request to its response"),
    Metric(FETCHES, "fetch-throttle-time-avg", "throttle", Stat.AVG, "ms", "waits that brokers asked for (KIP-219)"),
    Metric(FETCHES, "fetch-throttle-time-max", "throttle", Stat.MAX, "ms", "waits that brokers asked for (KIP-219)"),
    *_consumed(FETCHES, "fetch-size"),
    *_consumed(FETCHES_BY_TOPIC, "topic-fetch-size"),
)


class _ReadTopic:
    """The counters of one topic that is read."""

    __slots__ = KINDS = ("consumed", "fetched", "lag")

    def __init__(self, window: Window) -> None:
        self.fetched = SingleValues(window)
        self.consumed = SingleValues(window)
        self.lag = SingleValues(window)


class ConsumerMetrics(ProducerMetrics):
    """The counters of one reader. Those of connections, which it shares with producers, have their events there."""

    def __init__(
        self,
        client_id: str,
        lock: AbstractContextManager[object],
        now: float,
        unix_now: float,
        window: Window = Window(),  # noqa: B008 - a value
    ) -> None:
        super().__init__(client_id, lock, now, unix_now, window)
        self._read_topics: dict[str, _ReadTopic] = {}
        self._other_read_topics = _ReadTopic(window)
        self._add(self._other_read_topics, OTHER_TOPICS)

    def fetched(self, node: int, size: int, latency: float, now: float) -> None:
        """Record a response to Fetch with `size` bytes of records."""
        self.produce_completed(node, latency, now)
        self._record("fetch-size", size, now)

    def batches_fetched(self, topic: str, size: int, lag: int, now: float) -> None:
        """Record `size` bytes of a partition in a response, after which `lag` offsets are left to its end."""
        found = self._read_topics.get(topic) or self._new_read_topic(topic)
        with self._lock:
            found.fetched.record(size, now)
            found.lag.record(lag, now)

    def records_consumed(self, topic: str, records: int, now: float) -> None:
        """Record that the task got a RecordBatch of `records` records."""
        found = self._read_topics.get(topic) or self._new_read_topic(topic)
        with self._lock:
            found.consumed.record(records, now)

    def _new_read_topic(self, topic: str) -> _ReadTopic:
        with self._lock:
            if topic not in self._read_topics:
                if len(self._read_topics) >= MAX_TOPICS:
                    return self._other_read_topics
                self._read_topics[topic] = _ReadTopic(self._window)
                self._add(self._read_topics[topic], topic)
            return self._read_topics[topic]
