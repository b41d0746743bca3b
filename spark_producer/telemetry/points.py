"""The metrics of a client under the names that brokers ask for, and what of their sums was pushed already."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from spark_producer.metrics.metric_table import FETCHES, FETCHES_BY_TOPIC, TAGS, Metric, Stat
from spark_producer.metrics.snapshot import Snapshot
from spark_producer.telemetry.otlp import Point

MAX_POINTS = 2000
"""Maximum values in a push, which takes some 20 ms then. Those of single topics and nodes are the first to be left out."""

KAFKA = "org.apache.kafka."
"""The prefix of the names that KIP-714 defines. The others, which Java's clients do not have, begin with `pyproducer.`."""

_SUMS = (Stat.TOTAL, Stat.COUNT_TOTAL)

SumKey = tuple[str, str]
"""(name, node or topic or "")."""


class _Pushed(NamedTuple):
    """The value of a sum in the last push, and the Unix nanoseconds of that."""

    value: float
    at: int


def name_of(metric: Metric) -> str:
    """Return the name that KIP-714 gives a metric: `org.apache.kafka.producer.record.queue.time.avg`."""
    group = FETCHES if metric.group == FETCHES_BY_TOPIC else metric.group
    name = f"{group.removesuffix('-metrics')}.{metric.name}".replace("-", ".")
    return name if name.startswith("pyproducer.") else KAFKA + name


class Points:
    """Turns snapshots into points. `started` is the start of the client in Unix nanoseconds, where its sums begin."""

    def __init__(self, table: Sequence[Metric], started: int) -> None:
        named = [(name_of(metric), metric) for metric in table]
        self._table = sorted(named, key=lambda each: bool(TAGS[each[1].group]))
        self._started = started
        self._pushed: dict[SumKey, _Pushed] = {}

    def points(self, snapshot: Snapshot, wants: Callable[[str], bool], *, delta: bool) -> list[Point]:
        """Return at most `MAX_POINTS` points of the metrics whose names are wanted.

        Values that are not known, such as the average of nothing, are left out. With `delta` a sum counts from its last
        `accepted` push.
        """
        return list(itertools.islice(self._all(snapshot, wants, delta), MAX_POINTS))

    def _all(self, snapshot: Snapshot, wants: Callable[[str], bool], delta: bool) -> Iterator[Point]:
        owners = snapshot.all_owners()
        for name, metric in self._table:
            if not wants(name):
                continue
            tag = TAGS[metric.group]
            for owner in owners[tag]:
                value = snapshot.read(metric, owner)
                if not math.isfinite(value):
                    continue
                attributes = ((tag.replace("-", "_"), owner),) if tag else ()
                since = None
                if metric.stat in _SUMS:
                    pushed = self._pushed.get((name, owner)) if delta else None
                    since = pushed.at if pushed is not None else self._started
                    value -= pushed.value if pushed is not None else 0.0
                yield Point(name, value, attributes, since)

    def accepted(self, points: Sequence[Point], now: int) -> None:
        """Record that a push of deltas was taken; `now` is its time in Unix nanoseconds. Later deltas begin there."""
        for point in points:
            if point.since is not None:
                key = (point.name, point.attributes[0][1] if point.attributes else "")
                before = self._pushed.get(key)
                self._pushed[key] = _Pushed(point.value + (before.value if before is not None else 0.0), now)
