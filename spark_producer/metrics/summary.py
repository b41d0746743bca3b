"""How a write reads in the log: one line, a page, or JSON.

Owns: the wording. Must not know: where the report and the snapshot come from.
"""

from __future__ import annotations

import json
import math
from typing import Any

from spark_producer.metrics.names import CLIENT, NODE, OWN
from spark_producer.metrics.report import WriteReport
from spark_producer.metrics.snapshot import Snapshot

MOST_PARTITIONS = 100
MOST_NODES = 20
"""Lines of a page; what is beyond is counted in a last line."""


def summarize(report: WriteReport, metrics: Snapshot | None = None) -> str:
    """One line: counts, and with `metrics` duration, speed, compression and latencies."""
    line = f"{report.records:,} records, {report.bytes:,} bytes, {report.batches:,} batches, {report.retries:,} retries"
    if metrics is None or not report.records:
        return line
    if metrics.seconds > 0:
        speed = f"{report.records / metrics.seconds:,.0f} records/s, {report.bytes / metrics.seconds / 1e6:,.1f} MB/s"
        line += f" in {metrics.seconds:,.2f} s ({speed})"
    if not math.isnan(ratio := metrics.value(OWN, "compression-ratio")):
        line += f"; compression {ratio:.2f}"
    return f"{line}; latency {_latencies(metrics, OWN, 'record-latency')}"


def describe(report: WriteReport, metrics: Snapshot | None = None) -> str:
    """The line of `summarize`, with `metrics` where the time went and what each node did, and the offsets written."""
    lines = [summarize(report, metrics)]
    if metrics is not None and report.records:
        lines += [*_requests(report, metrics), *_waits(metrics), *_troubles(metrics), *_nodes(metrics)]
    lines += [
        f"  {topic}-{partition}: offsets {found.first}..{found.last}, {found.records:,} records"
        for (topic, partition), found in sorted(report.ranges.items())[:MOST_PARTITIONS]
    ]
    if len(report.ranges) > MOST_PARTITIONS:
        lines.append(f"  … and {len(report.ranges) - MOST_PARTITIONS:,} more partitions")
    return "\n".join(lines)


def to_json(write: str, report: WriteReport, metrics: Snapshot | None = None) -> str:
    """The same for programs, on one line: `write` (its name), counts, `ranges`, and with `metrics` `seconds` and `metrics`.

    `ranges` is a list of {topic, partition, first, last, records}; `metrics` maps group, then metric, then node or topic where
    the group is about those, to a number. What has no value (an average of nothing) is left out.
    """
    page: dict[str, Any] = {"write": write, **report._asdict()}
    page["ranges"] = [
        {"topic": topic, "partition": partition, **found._asdict()}
        for (topic, partition), found in sorted(report.ranges.items())
    ]
    if metrics is not None:
        page["seconds"] = metrics.seconds
        page["metrics"] = _by_group(metrics)
    return json.dumps(page)


def _by_group(metrics: Snapshot) -> dict[str, dict[str, Any]]:
    groups: dict[str, dict[str, Any]] = {}
    for (group, name, tags), value in metrics.values().items():
        if math.isfinite(value):  # JSON has no NaN
            into, key = groups.setdefault(group, {}), name
            for _, owner in tags[1:]:  # the first is the client id
                into, key = into.setdefault(name, {}), owner
            into[key] = value
    return groups


def _latencies(metrics: Snapshot, group: str, name: str) -> str:
    largest = metrics.value(group, f"{name}-max")
    if math.isnan(largest):
        return "unknown"
    # Percentiles are rounded up to the edge of a bucket, which may lie beyond the largest value.
    p50, p99 = (min(metrics.value(OWN, f"{name}-{which}"), largest) for which in ("p50", "p99"))
    return f"p50 {p50:,.1f} ms, p99 {p99:,.1f} ms, max {largest:,.1f} ms"


def _requests(report: WriteReport, metrics: Snapshot) -> list[str]:
    records = metrics.value(OWN, "records-per-produce-request-avg")
    size = metrics.value(CLIENT, "batch-size-avg")
    if math.isnan(records + size):
        return []
    return [
        f"  {report.requests:,} requests of {records:,.0f} records, batches of {size:,.0f} bytes; "
        f"latency of requests {_latencies(metrics, CLIENT, 'request-latency')}",
        f"  batches waited before they were sent: {_latencies(metrics, CLIENT, 'record-queue-time')}",
    ]


def _waits(metrics: Snapshot) -> list[str]:
    """Time that rows were held up, summed over tasks; only what happened."""
    totals = {
        "for buffer memory": metrics.value(CLIENT, "bufferpool-wait-time-ns-total") / 1e9,
        "for metadata": metrics.value(CLIENT, "metadata-wait-time-ns-total") / 1e9,
        "in flush": metrics.value(CLIENT, "flush-time-ns-total") / 1e9,
        "asked for by brokers": metrics.value(OWN, "throttled-time-total") / 1e3,
    }
    waits = [f"{seconds:,.2f} s {what}" for what, seconds in totals.items() if seconds]
    return [f"  tasks waited, all together: {', '.join(waits)}"] if waits else []


def _troubles(metrics: Snapshot) -> list[str]:
    """What did not go well; nothing if all did."""
    totals = {
        "records sent again": metrics.value(CLIENT, "record-retry-total"),
        "batches split": metrics.value(CLIENT, "batch-split-total"),
        "records failed": metrics.value(OWN, "record-failed-total"),
        "waits for memory in vain": metrics.value(CLIENT, "buffer-exhausted-total"),
        "logins failed": metrics.value(CLIENT, "failed-authentication-total"),
    }
    troubles = [f"{count:,.0f} {what}" for what, count in totals.items() if count]
    return [f"  {', '.join(troubles)}"] if troubles else []


def _nodes(metrics: Snapshot) -> list[str]:
    nodes = metrics.owners("node-id")
    lines = [f"  {node}: {_node(metrics, node)}" for node in nodes[:MOST_NODES]]
    return lines if len(nodes) <= MOST_NODES else [*lines, f"  … and {len(nodes) - MOST_NODES:,} more nodes"]


def _node(metrics: Snapshot, node: str) -> str:
    requests, size = metrics.value(NODE, "request-total", node), metrics.value(NODE, "outgoing-byte-total", node)
    average, largest = (
        metrics.value(NODE, "request-latency-avg", node),
        metrics.value(NODE, "request-latency-max", node),
    )
    line = f"{requests:,.0f} requests, {size:,.0f} bytes"
    return line if math.isnan(largest) else f"{line}, latency avg {average:,.1f} ms, max {largest:,.1f} ms"
