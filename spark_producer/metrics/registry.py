"""The counters of one producer, with a bound on their number, and the snapshots that are read from them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from spark_producer.metrics.histogram import Histogram
from spark_producer.metrics.metric_table import histograms
from spark_producer.metrics.sensors import (
    SENSORS,
    BytesReceived,
    DeliveredBatches,
    DrainedBatches,
    Polls,
    ReadyNodes,
    RequestsSent,
    ResponsesReceived,
)
from spark_producer.metrics.snapshot import WHOLE_SENSORS, Interval, Levels, Snapshot, tallies_of
from spark_producer.metrics.windowed_counters import SingleValues, Window, WindowedCounters

MAX_NODES = 256
MAX_TOPICS = 1000
"""Maximum number of nodes and of topics with counters of their own. Later ones share one set of counters."""

OTHER_NODES = "node-other"
OTHER_TOPICS = "(other)"
"""The tags of the shared counters. No topic can have that name."""

NO_TOPIC = "(none)"
"""The tag of the rows that name no topic; no topic can have that name either."""


class CounterSet(Protocol):
    """The counters of one node or topic."""

    @property
    def KINDS(self) -> tuple[str, ...]:  # noqa: N802 - a constant of the classes
        """The names of its attributes."""


class _Node:
    """The counters of one node."""

    __slots__ = KINDS = ("incoming", "outgoing", "responses")

    def __init__(self, window: Window) -> None:
        self.outgoing = RequestsSent(window)
        self.incoming = BytesReceived(window)
        self.responses = ResponsesReceived(window)


class _Topic:
    """The counters of one topic."""

    __slots__ = KINDS = ("drained", "errors", "rejected", "retried")

    def __init__(self, window: Window) -> None:
        self.drained = DrainedBatches(window)
        self.retried = SingleValues(window)
        self.errors = SingleValues(window)
        self.rejected = SingleValues(window)


class MetricsRegistry:
    """All counters of one producer.

    `now` is monotonic; `unix_now` is the same moment in Unix seconds, so that snapshots of several machines can be compared.
    `lock` is a plain mutex that is used for nothing else, and nothing else is locked or called while it is held. Any thread
    may read.
    """

    def __init__(
        self,
        client_id: str,
        lock: AbstractContextManager[object],
        now: float,
        unix_now: float,
        window: Window = Window(),  # noqa: B008 - a value
    ) -> None:
        self._client_id = client_id
        self._lock = lock
        self._unix = unix_now - now
        self._window = window
        self._marked_at = now
        self._drains, self._delivered, self._polls = ReadyNodes(window), DeliveredBatches(window), Polls(window)
        self._rare = {name: SingleValues(window) for name in ("refused", *_RARE)}
        self._accepted = self._rare["record-largest"]
        self._nodes: dict[int, _Node] = {}
        self._other_nodes = _Node(window)
        self._topics: dict[str, _Topic] = {}
        self._other_topics = _Topic(window)
        self._all: list[tuple[str, str, WindowedCounters]] = [(kind, "", values) for kind, values in self._rare.items()]
        """(kind of event, node or topic or "", counters)."""
        self._all += [("drains", "", self._drains), ("delivered", "", self._delivered), ("polls", "", self._polls)]
        self._add(self._other_nodes, OTHER_NODES)
        self._add(self._other_topics, OTHER_TOPICS)
        self._histograms = {name: Histogram() for name in histograms()}
        self._queue_times, self._latencies = self._histograms["queue-time"], self._histograms["record-latency"]
        self._request_latencies = self._histograms["request-latency"]

    def _roll(self, counters: WindowedCounters, now: float) -> None:
        with self._lock:
            counters.roll(now)

    def snapshot(self, levels: Levels, now: float) -> Snapshot:
        """Return windows and totals as Java shows them. Percentiles cover all the time since the producer began."""
        with self._lock:
            readings = {(kind, owner): counters.read(now) for kind, owner, counters in self._all if counters.used}
            counts = {name: histogram.counts() for name, histogram in self._histograms.items()}
        tallies = tallies_of(readings, lambda reading: self._window.divisor(reading.since, now))
        since = now - self._window.seconds * self._window.samples
        return Snapshot(self._client_id, since + self._unix, now + self._unix, levels, tallies, counts)

    def mark(self, now: float) -> None:
        """Begin an interval, such as a task, which the next `since_mark` covers."""
        with self._lock:
            self._marked_at = now
            for _, _, counters in self._all:
                if counters.changed:
                    counters.mark()
            for histogram in self._histograms.values():
                histogram.mark()

    def since_mark(self, levels: Levels, now: float) -> Interval:
        """Return all numbers since `mark`, without windows, of the kinds that had an event. The interval goes on."""
        with self._lock:
            readings = {(kind, owner): counters.since_mark() for kind, owner, counters in self._all if counters.changed}
            counts = {name: histogram.since_mark() for name, histogram in self._histograms.items()}
        counts = {name: buckets for name, buckets in counts.items() if buckets}
        return Interval(self._client_id, self._marked_at + self._unix, now + self._unix, levels, readings, counts)

    def _new_node(self, node: int) -> _Node:
        with self._lock:
            if node not in self._nodes:
                if len(self._nodes) >= MAX_NODES:
                    return self._other_nodes
                self._nodes[node] = _Node(self._window)
                self._add(self._nodes[node], f"node-{node}")
            return self._nodes[node]

    def _new_topic(self, topic: str) -> _Topic:
        with self._lock:
            if topic not in self._topics:
                if len(self._topics) >= MAX_TOPICS:
                    return self._other_topics
                self._topics[topic] = _Topic(self._window)
                self._add(self._topics[topic], topic)
            return self._topics[topic]

    def _add(self, counters: CounterSet, owner: str) -> None:
        self._all += [(kind, owner, getattr(counters, kind)) for kind in counters.KINDS]


_RARE = [name for name in WHOLE_SENSORS if name not in SENSORS]
"""The sensors of the whole producer that are single values."""
