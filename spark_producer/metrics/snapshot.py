"""A producer's metrics: the numbers of a task, which can be pickled and added up, and a snapshot, which is read by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from spark_producer.metrics.histogram import percentile
from spark_producer.metrics.metric_table import (
    CLIENT,
    FETCH_SENSORS,
    FETCH_TOPIC_SENSORS,
    METRICS,
    NODE,
    OWN,
    OWN_TOPIC,
    PERCENTILES,
    READ,
    TAGS,
    TOPIC,
    Metric,
    sensors_of,
)
from spark_producer.metrics.sensors import Tally, sensor_named
from spark_producer.metrics.windowed_counters import MIN_WINDOW_S, CounterValues, merge_values

SensorKey = tuple[str, str]
"""(sensor, node or topic), with "" for the whole producer."""

EventKey = tuple[str, str]
"""(kind of event, node or topic or "")."""

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
    """Numbers of the time from `since` to `until`, in Unix seconds. Nodes and topics without an entry had no event."""

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
        owners = self.all_owners()
        for row in METRICS:
            tag = TAGS[row.group]
            for owner in owners[tag]:
                tags = (*client, (tag, owner)) if tag else client
                found[row.group, row.name, tags] = self.read(row, owner)
        found["kafka-metrics-count", "count", client] = len(found) + 1
        return found

    def value(self, group: str, name: str, owner: str = "") -> float:
        """Return one metric. `owner` is the node or topic, in a group of metrics of nodes or topics.

        Raises:
            KeyError: there is no such metric.
        """
        return self.read(_ROWS[group, name], owner)

    def owners(self, tag: str) -> list[str]:
        """Return the nodes (`node-id`) or topics (`topic`) that have metrics, sorted."""
        return self.all_owners()[tag]

    def all_owners(self) -> dict[str, list[str]]:
        """Return tag → its values, sorted. The tag "" has one value, "", for the whole client."""
        found: dict[str, set[str]] = {"": {""}, "node-id": set(), "topic": set()}
        for sensor, owner in self.tallies:
            if owner:
                found[_TAG_OF_SENSOR[sensor]].add(owner)
        return {tag: sorted(names) for tag, names in found.items()}

    def read(self, row: Metric, owner: str) -> float:
        """Return the value of a row of a table; NaN is an average or maximum of nothing."""
        if row.stat in PERCENTILES:
            return percentile(self.histograms.get(row.sensor, {}), PERCENTILES[row.stat])
        if row.stat in READ:
            return READ[row.stat](self.tallies.get((row.sensor, owner), Tally()))
        return float(getattr(self.levels, row.sensor))


_ROWS = {(row.group, row.name): row for row in METRICS}
_TAG_OF_SENSOR = dict.fromkeys(FETCH_TOPIC_SENSORS, "topic") | {
    row.sensor: TAGS[row.group] for row in METRICS if TAGS[row.group]
}
"""Sensor → its tag, for the sensors that nodes and topics have."""


class Interval(NamedTuple):
    """The numbers of an interval, such as a task, from `since` to `until` in Unix seconds.

    A task sends it as it was counted: what a snapshot shows is calculated where it is read, if it is. Kinds of events without an
    event have no entry. A merged interval has a client id if all its parts have the same one.
    """

    client_id: str
    since: float
    until: float
    levels: Levels
    readings: Mapping[EventKey, CounterValues]
    histograms: Mapping[str, Mapping[int, int]]

    def snapshot(self) -> Snapshot:
        """Return the snapshot of the interval, with the sensors that had an event."""
        seconds = max(self.until - self.since, MIN_WINDOW_S)
        tallies = tallies_of(self.readings, lambda _: seconds)
        happened = {key: tally for key, tally in tallies.items() if tally.weight}
        return Snapshot(self.client_id, self.since, self.until, self.levels, happened, self.histograms)


def tallies_of(
    readings: Mapping[EventKey, CounterValues], seconds: Callable[[CounterValues], float]
) -> dict[SensorKey, Tally]:
    """Return the tallies of all sensors that some kinds of events have; `seconds` gives the divisor of a rate."""
    by_kind: dict[str, dict[str, CounterValues]] = {}
    for (kind, owner), reading in readings.items():
        by_kind.setdefault(kind, {})[owner] = reading
    all_of = {kind: merge_values(owners.values()) for kind, owners in by_kind.items()}
    found: dict[SensorKey, Tally] = {}
    for sensor in WHOLE_SENSORS:
        counted = sensor_named(sensor)
        reading = merge_values(all_of[kind] for kind in counted.kinds if kind in all_of)
        found[sensor, ""] = counted.tally(reading, seconds(reading))
    for sensor in _OWNED_SENSORS:
        counted = sensor_named(sensor)
        for owner, reading in by_kind.get(counted.kinds[0], {}).items():
            found[sensor, owner] = counted.tally(reading, seconds(reading))
    return found


WHOLE_SENSORS = [*sensors_of(CLIENT, OWN), *FETCH_SENSORS]
_OWNED_SENSORS = [*sensors_of(NODE, TOPIC, OWN_TOPIC), *FETCH_TOPIC_SENSORS]
"""The sensors of the whole client, and of its nodes and topics. Only readers record those of fetches."""


def merge_intervals(intervals: Iterable[Interval]) -> Interval | None:
    """Merge the intervals of several producers, or tasks, into one; None if there are none.

    Counts and totals add up, averages are weighted, maxima stay maxima, percentiles are those of all values. Rates are those of
    the whole time, and levels are weighted by the share of it that their interval covers. So those of simultaneous tasks add up,
    and those of consecutive tasks are averaged.
    """
    parts = list(intervals)
    if not parts:
        return None
    since, until = min(part.since for part in parts), max(part.until for part in parts)
    readings: dict[EventKey, list[CounterValues]] = {}
    histograms: dict[str, dict[int, int]] = {}
    levels = Levels()
    for part in parts:
        share = (part.until - part.since) / (until - since) if until > since else 1.0
        levels = _add_levels(levels, part.levels, share)
        for key, reading in part.readings.items():
            readings.setdefault(key, []).append(reading)
        for name, counts in part.histograms.items():
            into = histograms.setdefault(name, {})
            for bucket, count in counts.items():
                into[bucket] = into.get(bucket, 0) + count
    names = {part.client_id for part in parts}
    merged = {key: merge_values(found) for key, found in readings.items()}
    return Interval(names.pop() if len(names) == 1 else "", since, until, levels, merged, histograms)


def _add_levels(whole: Levels, part: Levels, share: float) -> Levels:
    added = Levels._make(total + level * share for total, level in zip(whole, part, strict=True))
    return added._replace(metadata_age=max(whole.metadata_age, part.metadata_age))
