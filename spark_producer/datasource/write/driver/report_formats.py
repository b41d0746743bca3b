"""The report of a write in the log, as text or as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from spark_producer.common.escape import for_log
from spark_producer.metrics import OffsetRange, Snapshot, WriteReport
from spark_producer.metrics.metric_table import CLIENT, NODE, OWN

MAX_PARTITIONS = 100
MAX_NODES = 20
"""Maximum number of nodes with a line each; the last line has the number of the others."""

MIN_SHOWN_WAIT_S = 0.005
"""Minimum wait in seconds that is shown, since times have two decimals."""


def describe(report: WriteReport, metrics: Snapshot | None = None) -> str:
    """Return lines of text: the counts of a write and its offset ranges; with `metrics` also its rates, latencies and waits."""
    lines = [_totals(report, metrics), *_rejected(report)]
    if metrics is not None and report.records:
        lines += [*_times(metrics), *_sizes(metrics), *_waits(metrics), *_troubles(metrics), *_nodes(metrics)]
    lines += [
        f"  {topic}-{partition}: offsets {found.first} to {found.last}, {_count(found.records, 'record')}"
        for (topic, partition), found in sorted(report.ranges.items())[:MAX_PARTITIONS]
    ]
    if len(report.ranges) > MAX_PARTITIONS:
        lines.append(f"  … and {len(report.ranges) - MAX_PARTITIONS:,} more partitions")
    return "\n".join(for_log(line, limit=None) for line in lines)


def to_json(
    write: str,
    report: WriteReport,
    metrics: Snapshot | None = None,
    *,
    exactly_once: Mapping[str, object] | None = None,
) -> str:
    """Return the result of `report_dict` as JSON, on one line."""
    return json.dumps(report_dict(write, report, metrics, exactly_once=exactly_once))


def report_dict(
    write: str,
    report: WriteReport,
    metrics: Snapshot | None = None,
    *,
    exactly_once: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """Return the report for programs: `write` (its name), counts, `ranges`; with metrics, `seconds` and `metrics`.

    `ranges` is a list of {topic, partition, first, last, records}. `dead_letters` is such a list for the dead letters, which
    `rejected` counts, in total, and `rejected_by`, by class. `metrics` maps group, then metric, then node or topic (in groups
    that have these) to a number; a metric without a value, such as an average of nothing, is left out. `exactly_once` has
    the details of an exactly-once write.
    """
    found: dict[str, object] = {"write": write, **report._asdict()}
    found["ranges"], found["dead_letters"] = _listed(report.ranges), _listed(report.dead_letters)
    if metrics is not None:
        found["seconds"] = metrics.seconds
        found["metrics"] = _by_group(metrics)
    if exactly_once is not None:
        found["exactly_once"] = dict(exactly_once)
    return found


def _listed(ranges: Mapping[tuple[str, int], OffsetRange]) -> list[dict[str, object]]:
    return [
        {"topic": topic, "partition": partition, **found._asdict()}
        for (topic, partition), found in sorted(ranges.items())
    ]


def _rejected(report: WriteReport) -> list[str]:
    """Return a line about the rows in the dead-letter topic; no line if there are none."""
    if not report.rejected:
        return []
    by = ", ".join(f"{bad} {count:,}" for bad, count in sorted(report.rejected_by.items()))
    topics = sorted({topic for topic, _ in report.dead_letters})
    where = f" {', '.join(map(repr, topics))}" if topics else ""
    return [f"  bad rows: {_count(report.rejected, 'row')} went to the dead-letter topic{where} ({by})"]


def _by_group(metrics: Snapshot) -> dict[str, dict[str, Any]]:
    groups: dict[str, dict[str, Any]] = {}
    for (group, name, tags), value in metrics.values().items():
        if math.isfinite(value):  # JSON has no NaN
            into, key = groups.setdefault(group, {}), name
            for _, owner in tags[1:]:  # the first is the client id
                into, key = into.setdefault(name, {}), owner
            into[key] = value
    return groups


def _count(number: float, thing: str, things: str = "") -> str:
    return f"{number:,.0f} {thing if number == 1 else things or f'{thing}s'}"


def _totals(report: WriteReport, metrics: Snapshot | None) -> str:
    records, sent = _count(report.records, "record"), _count(report.bytes, "byte")
    again = f"{_count(report.retries, 'batch', 'batches')} sent again" if report.retries else "no retries"
    tail = f"{_count(report.batches, 'batch', 'batches')}, {_count(report.requests, 'request')}, {again}"
    if metrics is None or not report.records or metrics.seconds <= 0:
        return f"{records}, {sent}, {tail}"
    speed, volume = report.records / metrics.seconds, report.bytes / metrics.seconds / 1e6
    line = f"{records} in {metrics.seconds:,.2f} s ({speed:,.0f}/s); {sent} ({volume:,.1f} MB/s)"
    ratio = metrics.value(OWN, "compression-ratio")
    if ratio < 1:  # false for NaN, the ratio of nothing
        line += f", compressed to {ratio * 100:.0f} %"
    return f"{line}; {tail}"


def _times(metrics: Snapshot) -> list[str]:
    """Return lines about latencies: the total, and then its parts."""
    return [
        f"  from a batch's first row to its acknowledgement: {_spread(metrics, OWN, 'record-latency')}",
        f"    waiting to be sent: {_spread(metrics, CLIENT, 'record-queue-time')}",
        f"    request and answer: {_spread(metrics, CLIENT, 'request-latency')}",
    ]


def _spread(metrics: Snapshot, group: str, name: str) -> str:
    largest = metrics.value(group, f"{name}-max")
    if math.isnan(largest):
        return "unknown"
    # Percentiles are rounded up to the edge of a bucket, which may lie beyond the largest value.
    p50, p99 = (min(metrics.value(OWN, f"{name}-{which}"), largest) for which in ("p50", "p99"))
    return f"half within {p50:,.1f} ms, 99 % within {p99:,.1f} ms, all within {largest:,.1f} ms"


def _sizes(metrics: Snapshot) -> list[str]:
    records = metrics.value(OWN, "records-per-produce-request-avg")
    size = metrics.value(CLIENT, "batch-size-avg")
    if math.isnan(records + size):
        return []
    return [f"  on average {_count(size, 'byte')} in a batch, {_count(records, 'record')} in a request"]


def _waits(metrics: Snapshot) -> list[str]:
    """Return a line about the waits of tasks, summed over all tasks; no line if there were none."""
    totals = {
        "for buffer memory": metrics.value(CLIENT, "bufferpool-wait-time-ns-total") / 1e9,
        "for metadata": metrics.value(CLIENT, "metadata-wait-time-ns-total") / 1e9,
        "for the last responses (flush)": metrics.value(CLIENT, "flush-time-ns-total") / 1e9,
        "because brokers asked for it": metrics.value(OWN, "throttled-time-total") / 1e3,
    }
    waits = [f"{seconds:,.2f} s {what}" for what, seconds in totals.items() if seconds >= MIN_SHOWN_WAIT_S]
    return [f"  time that tasks waited, summed up: {', '.join(waits)}"] if waits else []


def _troubles(metrics: Snapshot) -> list[str]:
    """Return a line with the numbers of retries, splits, failures and timeouts; no line if all are 0."""
    totals = {
        "sent again": (metrics.value(CLIENT, "record-retry-total"), "record", ""),
        "too large for the broker and split": (metrics.value(CLIENT, "batch-split-total"), "batch", "batches"),
        "failed": (metrics.value(OWN, "record-failed-total"), "record", ""),
        "for buffer memory timed out": (metrics.value(CLIENT, "buffer-exhausted-total"), "wait", ""),
        "failed to authenticate": (metrics.value(CLIENT, "failed-authentication-total"), "connection", ""),
    }
    troubles = [f"{_count(*counted)} {what}" for what, counted in totals.items() if counted[0]]
    return [f"  not everything went well: {', '.join(troubles)}"] if troubles else []


def _nodes(metrics: Snapshot) -> list[str]:
    nodes = metrics.owners("node-id")
    lines = [f"  {_name(node)}: {_node(metrics, node)}" for node in nodes[:MAX_NODES]]
    return lines if len(nodes) <= MAX_NODES else [*lines, f"  … and {len(nodes) - MAX_NODES:,} more nodes"]


def _name(node: str) -> str:
    """Return the name of a node: `node-1` is broker 1; `node--1` is the first of `bootstrap.servers`, whose id is not known
    yet."""
    number = node.removeprefix("node-")
    return f"bootstrap server {number[1:]}" if number.startswith("-") else f"broker {number}"


def _node(metrics: Snapshot, node: str) -> str:
    requests, size = metrics.value(NODE, "request-total", node), metrics.value(NODE, "outgoing-byte-total", node)
    average, largest = (metrics.value(NODE, f"request-latency-{which}", node) for which in ("avg", "max"))
    line = f"{_count(requests, 'request')}, {_count(size, 'byte')}"
    return (
        line
        if math.isnan(largest)
        else f"{line}, answered within {average:,.1f} ms on average, {largest:,.1f} ms at most"
    )
