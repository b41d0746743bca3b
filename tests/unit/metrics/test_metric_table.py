"""The table: every name of Java's producer that is in scope, and each of them fed by some event."""

from __future__ import annotations

import inspect
import math
import re
from pathlib import Path

import pytest

from spark_producer.metrics import Levels, ProducerMetrics
from spark_producer.metrics.metric_table import CLIENT, METRICS, NODE, OWN, TOPIC
from spark_producer.metrics.windowed_counters import Window
from tests.fakes.metric_events import everything_once, new_metrics

LEVELS = Levels(1, 2, 3, 4, 5, 6.0)


def meter(*names: str) -> set[str]:
    return {f"{name}{suffix}" for name in names for suffix in ("-rate", "-total")}


def average(*names: str) -> set[str]:
    return {f"{name}{suffix}" for name in names for suffix in ("-avg", "-max")}


# the names of Kafka's Java producer and ours, written down a second time, group by group
JAVA = {
    CLIENT: {
        "waiting-threads", "buffer-total-bytes", "buffer-available-bytes", "bufferpool-wait-ratio",
        "bufferpool-wait-time-ns-total", "compression-rate-avg", "records-per-request-avg", "requests-in-flight",
        "metadata-age", "flush-time-ns-total", "metadata-wait-time-ns-total", "connection-count",
        "successful-authentication-no-reauth-total", "io-wait-time-ns-avg", "io-wait-ratio", "io-wait-time-ns-total",
        "io-time-ns-avg", "io-ratio", "io-time-ns-total",
        *(f"txn-{call}-time-ns-total" for call in ("init", "begin", "send-offsets", "commit", "abort")),
        *meter(
            "buffer-exhausted", "batch-split", "record-send", "record-retry", "record-error", "connection-creation",
            "connection-close", "successful-authentication", "failed-authentication", "successful-reauthentication",
            "failed-reauthentication", "network-io", "outgoing-byte", "incoming-byte", "request", "response", "select",
        ),
        *average(
            "batch-size", "record-queue-time", "request-latency", "record-size", "produce-throttle-time",
            "reauthentication-latency", "request-size",
        ),
    },
    TOPIC: {"compression-rate", *meter("record-send", "byte", "record-retry", "record-error")},
    NODE: {*meter("outgoing-byte", "request", "incoming-byte", "response"), *average("request-size", "request-latency")},
}  # fmt: skip

# The article's lists, its misprints mended: "bufferpool-wait-time" is the sensor, the metric is a ratio.
SEED = {
    CLIENT: """outgoing-byte-rate request-rate request-size-avg request-size-max incoming-byte-rate request-latency-avg
        request-latency-max response-rate connection-creation-rate connection-close-rate network-io-rate select-rate
        io-wait-time-ns-avg io-wait-ratio io-time-ns-avg io-ratio connection-count successful-authentication-rate
        failed-authentication-rate waiting-threads buffer-total-bytes buffer-available-bytes bufferpool-wait-ratio
        batch-size-avg batch-size-max batch-split-rate batch-split-total compression-rate-avg metadata-age
        produce-throttle-time-avg produce-throttle-time-max record-error-rate record-error-total record-queue-time-avg
        record-queue-time-max record-retry-rate record-retry-total record-send-rate record-send-total record-size-avg
        record-size-max records-per-request-avg requests-in-flight""",
    NODE: """outgoing-byte-rate request-rate request-size-avg request-size-max incoming-byte-rate response-rate""",
    TOPIC: """byte-rate byte-total compression-rate record-retry-rate record-retry-total record-error-rate
        record-error-total record-send-rate record-send-total""",
}


@pytest.mark.covers("SN3")
@pytest.mark.parametrize("group", JAVA)
def test_every_name_of_java_is_there_and_no_other(group: str) -> None:
    assert {row.name for row in METRICS if row.group == group} == JAVA[group]


@pytest.mark.parametrize("group", SEED)
def test_every_name_of_the_article_is_there(group: str) -> None:
    assert set(SEED[group].split()) <= JAVA[group]


def test_no_name_is_there_twice() -> None:
    names = [(row.group, row.name) for row in METRICS]
    assert len(set(names)) == len(names)


def test_every_metric_is_fed_by_some_event() -> None:
    metrics = new_metrics()
    for (group, name, tags), value in metrics.snapshot(Levels(), 1.0).values().items():
        assert math.isnan(value) or value == 0 or name == "count", f"{group} {name} {tags} without any event: {value}"
    everything_once(metrics)
    values = metrics.snapshot(LEVELS, 1.0).values()
    assert {(group, name) for group, name, _ in values} >= {(row.group, row.name) for row in METRICS}
    for (group, name, tags), value in values.items():
        assert value > 0, f"{group} {name} {tags}"


def test_no_event_is_left_out_above() -> None:
    reading = {"snapshot", "mark", "since_mark"}
    events = {name for name, _ in inspect.getmembers(ProducerMetrics, inspect.isfunction) if name[0] != "_"} - reading
    text = Path(inspect.getfile(everything_once)).read_text(encoding="utf-8")
    assert events == set(re.findall(r"metrics\.([a-z]\w*)\(", text))


def test_units_and_names_agree() -> None:
    for row in METRICS:
        if row.name.endswith("-rate") and row.name != "compression-rate":
            assert row.unit.endswith("/s"), row
        if "-ns-" in row.name:
            assert row.unit == "ns", row
        if row.name.endswith("-bytes"):
            assert row.unit == "bytes", row
        assert row.group != OWN or row.name not in {other.name for other in METRICS if other.group == CLIENT}, row


def test_the_window_can_be_chosen() -> None:
    metrics = new_metrics(window=Window(1.0, 2))
    everything_once(metrics)
    snapshot = metrics.snapshot(LEVELS, 3.5)
    assert snapshot.seconds == 2.0
    assert snapshot.value(CLIENT, "record-send-rate") == 0
    assert snapshot.value(CLIENT, "record-send-total") == 10
