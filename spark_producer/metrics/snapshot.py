"""A producer's metrics at one moment, or over one task: plain numbers that can be pickled, added up, and read by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from spark_producer.metrics.histogram import percentile
from spark_producer.metrics.metric_table import METRICS, PERCENTILES, READ, TAGS, Metric
from spark_producer.metrics.sensors import Tally

SensorKey = tuple[str, str]
"""(sensor, node or topic), with "" for the whole producer."""

Tags = tuple[tuple[str, str], ...]
Values = dict[tuple[str, str, Tags], float]
"""(group, name, tags) → value."""


class Levels(NamedTuple):
    """Numbers that are looked up when a snapshot is taken, and not recorded."""

    waiting_threads: float = 0
    buffer_total_bytes: float = 0
    buffer_available_bytes: float = 0
    requests_in_flight: float = 0
    connection_count: float = 0
    metadata_age: float = 0.0
    """The age of the metadata in seconds."""


class Snapshot(NamedTuple):
    """Numbers of the time from `since` to `until`, in Unix seconds.

    Nodes and topics without an entry had no event. A merged snapshot has a client id if all its parts have the same one.
    """

    client_id: str
    since: float
    until: float
    levels: Levels
    tallies: Mapping[SensorKey, Tally]
    histograms: Mapping[str, Mapping[int, int]]

    @property
    def seconds(self) -> float:
        """The seconds that it covers."""
        return self.until - self.since

    def values(self) -> Values:
        """Return every metric by (group, name, tags), as `Producer.metrics()` does. NaN is an average or maximum of nothing."""
        client: Tags = (("client-id", self.client_id),)
        found: Values = {}
        owners = _owners(self.tallies)
        for row in METRICS:
            tag = TAGS[row.group]
            for owner in owners[tag]:
                tags = (*client, (tag, owner)) if tag else client
                found[row.group, row.name, tags] = self._value(row, owner)
        found["kafka-metrics-count", "count", client] = len(found) + 1
        return found

    def value(self, group: str, name: str, owner: str = "") -> float:
        """Return one metric. `owner` is the node or topic, in a group of metrics of nodes or topics.

        Raises:
            KeyError: there is no such metric.
        """
        return self._value(_ROWS[group, name], owner)

    def owners(self, tag: str) -> list[str]:
        """Return the nodes (`node-id`) or topics (`topic`) that have metrics, sorted."""
        return _owners(self.tallies)[tag]

    def _value(self, row: Metric, owner: str) -> float:
        if row.stat in PERCENTILES:
            return percentile(self.histograms.get(row.sensor, {}), PERCENTILES[row.stat])
        if row.stat in READ:
            return READ[row.stat](self.tallies.get((row.sensor, owner), Tally()))
        return float(getattr(self.levels, row.sensor))


_ROWS = {(row.group, row.name): row for row in METRICS}
_TAG_OF_SENSOR = {row.sensor: TAGS[row.group] for row in METRICS if TAGS[row.group]}
"""Sensor → its tag, for the sensors that nodes and topics have."""


def _owners(tallies: Mapping[SensorKey, Tally]) -> dict[str, list[str]]:
    """Return tag → its values. The tag "" has one value, "", for the whole producer."""
    found: dict[str, set[str]] = {"": {""}, "node-id": set(), "topic": set()}
    for sensor, owner in tallies:
        if owner:
            found[_TAG_OF_SENSOR[sensor]].add(owner)
    return {tag: sorted(names) for tag, names in found.items()}


def merge_snapshots(snapshots: Iterable[Snapshot]) -> Snapshot | None:
    """Merge the snapshots of several producers, or tasks, into one; None if there are none.

    Counts and totals add up, averages are weighted, maxima stay maxima, percentiles are those of all values. Rates and levels
    are weighted by the share of the whole time that their snapshot covers. So those of simultaneous tasks add up, and those of
    consecutive tasks are averaged.
    """
    parts = list(snapshots)
    if not parts:
        return None
    since, until = min(part.since for part in parts), max(part.until for part in parts)
    tallies: dict[SensorKey, Tally] = {}
    histograms: dict[str, dict[int, int]] = {}
    levels = Levels()
    for part in parts:
        share = part.seconds / (until - since) if until > since else 1.0
        levels = _add_levels(levels, part.levels, share)
        for key, tally in part.tallies.items():
            tallies[key] = _add_tallies(tallies.get(key, Tally()), tally, share)
        for name, counts in part.histograms.items():
            into = histograms.setdefault(name, {})
            for bucket, count in counts.items():
                into[bucket] = into.get(bucket, 0) + count
    names = {part.client_id for part in parts}
    return Snapshot(names.pop() if len(names) == 1 else "", since, until, levels, tallies, histograms)


def _add_tallies(whole: Tally, part: Tally, share: float) -> Tally:
    return Tally(
        whole.weight + part.weight,
        whole.amount + part.amount,
        max(whole.largest, part.largest),
        whole.weight_rate + part.weight_rate * share,
        whole.rate + part.rate * share,
        whole.total_weight + part.total_weight,
        whole.total + part.total,
    )


def _add_levels(whole: Levels, part: Levels, share: float) -> Levels:
    added = Levels._make(total + level * share for total, level in zip(whole, part, strict=True))
    return added._replace(metadata_age=max(whole.metadata_age, part.metadata_age))
