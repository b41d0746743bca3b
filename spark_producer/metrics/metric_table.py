"""The one table of all metrics: name, group, unit, sensor and meaning of each. The tables of docs/metrics.md are made from it.

Names and formulas follow Java's producer (Kafka's SenderMetricsRegistry). Where Java's formula does not give what the name
promises, the metric keeps Java's formula, and a metric in the group `pyproducer-metrics` has the right one (docs/metrics.md).
"""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from spark_producer.metrics.sensors import Tally

CLIENT = "producer-metrics"
NODE = "producer-node-metrics"
TOPIC = "producer-topic-metrics"
OWN = "pyproducer-metrics"
OWN_TOPIC = "pyproducer-topic-metrics"

CONSUMER = "consumer-metrics"
CONSUMER_NODE = "consumer-node-metrics"
FETCHES = "consumer-fetch-manager-metrics"
FETCHES_BY_TOPIC = "consumer-fetch-manager-topic-metrics"
"""Those of a topic, which in Java are in the group of the whole reader, too: `FETCHES`."""

TAGS = {
    CLIENT: "", NODE: "node-id", TOPIC: "topic", OWN: "", OWN_TOPIC: "topic", CONSUMER: "", CONSUMER_NODE: "node-id", FETCHES: "",
    FETCHES_BY_TOPIC: "topic",
}  # fmt: skip
"""Group → the tag that its metrics have beside `client-id`."""

_NANOSECONDS = 1e9


class Stat(enum.Enum):
    """The statistic of a sensor that a metric shows; the value says how tasks' metrics are merged."""

    RATE = "rate", "rates of simultaneous tasks add"
    COUNT_RATE = "rate of events", "rates of simultaneous tasks add"
    RATIO = "share of time", "shares of simultaneous tasks add"
    TOTAL = "total", "sum"
    COUNT_TOTAL = "number of events", "sum"
    AVG = "average", "weighted by counts"
    MAX = "maximum", "maximum"
    LEVEL = "level", "levels of simultaneous tasks add"
    AGE = "age", "maximum"
    P50 = "50th percentile", "of all values"
    P99 = "99th percentile", "of all values"
    P999 = "99.9th percentile", "of all values"


PERCENTILES: Mapping[Stat, float] = {Stat.P50: 0.5, Stat.P99: 0.99, Stat.P999: 0.999}
"""The statistics that are read from histograms."""

READ: Mapping[Stat, Callable[[Tally], float]] = {
    Stat.RATE: lambda tally: tally.rate,
    Stat.COUNT_RATE: lambda tally: tally.weight_rate,
    Stat.RATIO: lambda tally: tally.rate / _NANOSECONDS,
    Stat.TOTAL: lambda tally: tally.total,
    Stat.COUNT_TOTAL: lambda tally: tally.total_weight,
    Stat.AVG: lambda tally: tally.amount / tally.weight if tally.weight else math.nan,
    Stat.MAX: lambda tally: tally.largest if tally.weight else math.nan,
}
"""The statistics that are read from tallies."""


class Metric(NamedTuple):
    """One row of the table. `sensor` names a tally, a histogram, or a field of `Levels`."""

    group: str
    name: str
    sensor: str
    stat: Stat
    unit: str
    doc: str


def _meter(group: str, name: str, sensor: str, unit: str, doc: str, *, events: bool = False) -> list[Metric]:
    """Return Java's pair of a rate and a total."""
    rate, total = (Stat.COUNT_RATE, Stat.COUNT_TOTAL) if events else (Stat.RATE, Stat.TOTAL)
    return [
        Metric(group, f"{name}-rate", sensor, rate, f"{unit}/s", doc),
        Metric(group, f"{name}-total", sensor, total, unit, doc),
    ]


def _average(group: str, name: str, sensor: str, unit: str, doc: str) -> list[Metric]:
    """Return Java's pair of an average and a maximum."""
    return [
        Metric(group, f"{name}-avg", sensor, Stat.AVG, unit, doc),
        Metric(group, f"{name}-max", sensor, Stat.MAX, unit, doc),
    ]


def _percentiles(name: str, histogram: str, doc: str) -> list[Metric]:
    stats = {"p50": Stat.P50, "p99": Stat.P99, "p999": Stat.P999}
    return [Metric(OWN, f"{name}-{suffix}", histogram, stat, "ms", doc) for suffix, stat in stats.items()]


def _time(group: str, name: str, sensor: str, doc: str) -> list[Metric]:
    return [Metric(group, f"{name}-time-ns-total", sensor, Stat.TOTAL, "ns", doc)]


_BUFFERS = [
    Metric(CLIENT, "waiting-threads", "waiting_threads", Stat.LEVEL, "threads", "threads that wait for `buffer.memory`"),
    Metric(CLIENT, "buffer-total-bytes", "buffer_total_bytes", Stat.LEVEL, "bytes", "`buffer.memory`"),
    Metric(CLIENT, "buffer-available-bytes", "buffer_available_bytes", Stat.LEVEL, "bytes", "free bytes of `buffer.memory`"),
    Metric(
        CLIENT, "bufferpool-wait-ratio", "buffer-wait", Stat.RATIO, "ns/ns",
        "share of time waiting for `buffer.memory`; above 1 if several threads wait",
    ),
    *_time(CLIENT, "bufferpool-wait", "buffer-wait", "time waiting for `buffer.memory`"),
    *_meter(CLIENT, "buffer-exhausted", "buffer-exhausted", "waits", "waits for `buffer.memory` that exceeded `max.block.ms`"),
]  # fmt: skip

_SENDING = [
    *_average(CLIENT, "batch-size", "batch-size", "bytes", "size of a batch as sent, at its drain"),
    *_meter(CLIENT, "batch-split", "batch-split", "splits", "batches split, as too large for the broker"),
    Metric(
        CLIENT, "compression-rate-avg", "compression", Stat.AVG, "ratio",
        "compressed divided by uncompressed bytes of records, a mean over batches",
    ),
    *_average(CLIENT, "record-queue-time", "queue-time", "ms", "from a batch's creation to its drain"),
    *_average(CLIENT, "request-latency", "request-latency", "ms", "from a Produce request to its response"),
    *_meter(CLIENT, "record-send", "records-per-request", "records", "records drained; a retry counts again"),
    Metric(
        CLIENT, "records-per-request-avg", "records-per-request", Stat.AVG, "records",
        "records per node and drain",
    ),
    *_meter(CLIENT, "record-retry", "record-retry", "records", "records of batches queued again"),
    *_meter(
        CLIENT, "record-error", "record-error", "records",
        "records that failed, and 1 for each refused call",
    ),
    *_average(
        CLIENT, "record-size", "record-size", "bytes",
        "upper bound of each batch's largest record, the batch's overhead included",
    ),
    Metric(CLIENT, "requests-in-flight", "requests_in_flight", Stat.LEVEL, "requests", "requests without a response yet"),
    Metric(CLIENT, "metadata-age", "metadata_age", Stat.AGE, "s", "since the last complete metadata"),
    *_average(
        CLIENT, "produce-throttle-time", "throttle", "ms",
        "waits that brokers asked for (KIP-219), zeros included",
    ),
    *_time(CLIENT, "flush", "flush-time", "time in `flush`"),
    *_time(CLIENT, "metadata-wait", "metadata-wait", "time waiting for metadata of topics"),
]  # fmt: skip

_TRANSACTIONS = [
    *_time(CLIENT, "txn-init", "txn-init-time", "time in `init_transactions`"),
    *_time(CLIENT, "txn-begin", "txn-begin-time", "time in `begin_transaction`"),
    *_time(CLIENT, "txn-send-offsets", "txn-send-offsets-time", "time in `send_offsets_to_transaction`"),
    *_time(CLIENT, "txn-commit", "txn-commit-time", "time in `commit_transaction`"),
    *_time(CLIENT, "txn-abort", "txn-abort-time", "time in `abort_transaction`"),
]
"""Tasks of an exactly-once write begin and end their transactions otherwise, and add nothing there."""

_CONNECTIONS = [
    *_meter(CLIENT, "connection-creation", "connection-creation", "connections", "connections opened"),
    *_meter(CLIENT, "connection-close", "connection-close", "connections", "connections closed, by either side"),
    Metric(CLIENT, "connection-count", "connection_count", Stat.LEVEL, "connections", "open connections"),
    *_meter(CLIENT, "successful-authentication", "authentication", "connections", "logins that succeeded"),
    *_meter(CLIENT, "failed-authentication", "authentication-failure", "connections", "logins that failed"),
    *_meter(CLIENT, "successful-reauthentication", "reauthentication", "connections", "repeated logins that succeeded",
            events=True),
    *_meter(CLIENT, "failed-reauthentication", "reauthentication-failure", "connections", "repeated logins that failed"),
    Metric(
        CLIENT, "successful-authentication-no-reauth-total", "authentication-once", Stat.TOTAL, "connections",
        "logins that cannot be repeated (KIP-368)",
    ),
    *_average(CLIENT, "reauthentication-latency", "reauthentication", "ms", "a repeated login"),
    *_meter(CLIENT, "network-io", "network-io", "operations", "reads and writes on all sockets"),
    *_meter(CLIENT, "select", "select", "selects", "the I/O thread's waits for ready sockets", events=True),
    Metric(CLIENT, "io-wait-time-ns-avg", "select", Stat.AVG, "ns", "one wait for ready sockets"),
    Metric(CLIENT, "io-wait-ratio", "select", Stat.RATIO, "ns/ns", "share of time waiting for ready sockets"),
    Metric(CLIENT, "io-wait-time-ns-total", "select", Stat.TOTAL, "ns", "time waiting for ready sockets"),
    Metric(CLIENT, "io-time-ns-avg", "io-time", Stat.AVG, "ns", "reading and writing after one wait"),
    Metric(CLIENT, "io-ratio", "io-time", Stat.RATIO, "ns/ns", "share of time reading and writing"),
    Metric(CLIENT, "io-time-ns-total", "io-time", Stat.TOTAL, "ns", "time reading and writing"),
]  # fmt: skip


def _traffic(group: str, where: str) -> list[Metric]:
    """Return the metrics that exist for all nodes together and for each of them."""
    return [
        *_meter(group, "outgoing-byte", "bytes-out", "bytes", f"bytes sent to {where}"),
        *_meter(group, "incoming-byte", "bytes-in", "bytes", f"bytes received from {where}"),
        *_meter(group, "request", "requests", "requests", f"requests sent to {where}", events=True),
        *_average(group, "request-size", "requests", "bytes", f"size of a request to {where}"),
        *_meter(group, "response", "responses", "responses", f"responses of {where}"),
    ]


_NODE = [
    *_traffic(NODE, "the node"),
    *_average(NODE, "request-latency", "request-latency", "ms", "from a Produce request to its response"),
]

_TOPIC = [
    *_meter(TOPIC, "record-send", "topic-records", "records", "records drained; a retry counts again"),
    *_meter(TOPIC, "byte", "batch-size", "bytes", "bytes of the batches drained, as sent"),
    Metric(
        TOPIC, "compression-rate", "compression", Stat.AVG, "ratio",
        "compressed divided by uncompressed bytes of records, a mean over batches",
    ),
    *_meter(TOPIC, "record-retry", "record-retry", "records", "records of batches queued again"),
    *_meter(TOPIC, "record-error", "record-error", "records", "records that failed"),
]  # fmt: skip

_TWINS = [
    *_meter(OWN, "record-delivered", "delivered", "records", "records acknowledged, each once"),
    *_meter(OWN, "byte-delivered", "delivered-bytes", "bytes", "bytes of acknowledged batches, as sent"),
    Metric(OWN, "batch-delivered-total", "delivered-bytes", Stat.COUNT_TOTAL, "batches", "batches acknowledged"),
    *_meter(OWN, "record-failed", "failed", "records", "records accepted that then failed, each once"),
    *_meter(OWN, "record-rejected", "record-rejected", "records", "rows that went to the dead-letter topic"),
    Metric(OWN, "batch-retry-total", "record-retry", Stat.COUNT_TOTAL, "batches", "batches queued again"),
    Metric(OWN, "record-bytes-avg", "record-bytes", Stat.AVG, "bytes", "encoded, uncompressed bytes of a record"),
    Metric(OWN, "record-bytes-max", "record-largest", Stat.MAX, "bytes", "encoded, uncompressed bytes of the largest record"),
    Metric(
        OWN, "compression-ratio", "compressed-bytes", Stat.AVG, "ratio",
        "all compressed divided by all uncompressed bytes of records",
    ),
    *_average(OWN, "records-per-produce-request", "records-per-produce", "records", "records of a sent request"),
    *_average(OWN, "throttled-time", "throttled", "ms", "waits that brokers asked for, without zeros"),
    Metric(OWN, "throttled-time-total", "throttled", Stat.TOTAL, "ms", "waits that brokers asked for"),
    *_average(OWN, "record-latency", "record-latency", "ms", "from a batch's creation to its acknowledgement, by record"),
    *_percentiles("record-latency", "record-latency", "from a batch's creation to its acknowledgement, by record"),
    *_percentiles("record-queue-time", "queue-time", "from a batch's creation to its drain, by record"),
    *_percentiles("request-latency", "request-latency", "from a Produce request to its response"),
    *_percentiles("bufferpool-wait-time", "buffer-wait", "one wait for buffer memory"),
]  # fmt: skip

_OWN_TOPIC = _meter(
    OWN_TOPIC, "record-rejected", "record-rejected", "records",
    "rows for the topic that went to the dead-letter topic; `(none)`: rows without a topic",
)  # fmt: skip

FETCH_SENSORS = ("fetch-size", "records-consumed", "records-lag")
FETCH_TOPIC_SENSORS = ("topic-fetch-size", "records-consumed", "records-lag")
"""The sensors that only readers record (`consumer_metrics`), of all topics and of each."""

METRICS: tuple[Metric, ...] = (
    *_traffic(CLIENT, "all nodes"), *_CONNECTIONS, *_BUFFERS, *_SENDING, *_TRANSACTIONS, *_NODE, *_TOPIC, *_TWINS, *_OWN_TOPIC
)  # fmt: skip
"""The table, in the order of the page."""


def sensors_of(*groups: str) -> list[str]:
    """Return the sensors that some groups' metrics are read from, each once, without levels and histograms."""
    return list(dict.fromkeys(row.sensor for row in METRICS if row.group in groups and row.stat in READ))


def histograms() -> list[str]:
    """Return the histograms that percentiles are read from, each once."""
    return list(dict.fromkeys(row.sensor for row in METRICS if row.stat in PERCENTILES))


def render_markdown() -> str:
    """Return one table for each group."""
    titles = {
        CLIENT: "the producer",
        NODE: "each node, tag `node-id` (`node-1`)",
        TOPIC: "each topic, tag `topic`",
        OWN: "what Java does not have, or counts otherwise",
        OWN_TOPIC: "the same for each topic, tag `topic`",
    }
    return "\n".join(
        f"## `{group}`: {title}\n\n{(_list if group == NODE else _table)([row for row in METRICS if row.group == group])}"
        for group, title in titles.items()
    )


def _table(rows: Iterable[Metric]) -> str:
    """Return a table in which metrics that say the same of one event share a row."""
    lines = ["| metric | unit | what it is |", "|---|---|---|"]
    lines += [f"| {_names(group)} | {group[-1].unit} | {group[0].doc} |" for group in _of_one_event(rows)]
    return "\n".join(lines) + "\n"


def _list(rows: Iterable[Metric]) -> str:
    """Return the names of metrics that an earlier table explains."""
    return f"As above: {'; '.join(map(_names, _of_one_event(rows)))}.\n"


def _of_one_event(rows: Iterable[Metric]) -> list[list[Metric]]:
    """Return the metrics in groups that say the same of one event. The last one has the unit without `/s`."""
    return [list(group) for _, group in itertools.groupby(rows, lambda row: (row.doc, row.name.rpartition("-")[0]))]


def _names(group: Sequence[Metric]) -> str:
    return ", ".join([f"`{group[0].name}`", *(f"`-{row.name.rpartition('-')[2]}`" for row in group[1:])])
