"""The Grafana dashboard asks only for metrics and labels that are there: `test_fleet` has a Prometheus answer the queries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import pytest
from prometheus_client.metrics_core import Metric

from spark_producer.broker import BrokerSettings, LocalBroker
from spark_producer.metrics.consumer_metrics import CONSUMER_METRICS
from spark_producer.metrics.metric_table import METRICS
from spark_producer.telemetry.points import name_of
from tests.dashboard.panels import DASHBOARD, ROOT, Target, targets, variable_queries
from tests.dashboard.picture import picture_name

FUNCTIONS = {"and", "by", "max", "on", "rate", "sum"}
BY_PROMETHEUS = {"job", "instance"}
BY_COLLECTOR = {"client_id", "client_instance_id", "topic"}
PANELS = targets()
by_title = pytest.mark.parametrize("target", PANELS, ids=[f"{target.panel}: {target.legend}" for target in PANELS])


class Report:
    """The report of a write, as far as the block reads it."""

    class Range:
        records = 7

    ranges = {("events", 0): Range()}  # noqa: RUF012
    metrics = {"producer-metrics": {"request-latency-avg": 12.0}}  # noqa: RUF012

    @property
    def report(self) -> Any:
        return type("", (), {"rejected_by": {"size": 1}})()


class Reports:
    def take(self) -> list[Report]:
        return [Report()]


@pytest.fixture(scope="module")
def exported() -> dict[str, set[str]]:
    """The labels of each metric: of the block's, of those that clients push, of those of the embedded broker."""
    page = (ROOT / "docs" / "reports.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n((?:(?!```).)*REGISTRY\.register.*?)```", page, re.DOTALL)
    scope: dict[str, Any] = {"reports": Reports()}
    exec(block.replace("REGISTRY.register(Writes())", "writes = Writes()"), scope)
    metrics: Iterator[Metric] = scope["writes"].collect()
    found = {sample.name: set(sample.labels) for metric in metrics for sample in metric.samples}
    for each in (*METRICS, *CONSUMER_METRICS):
        found[name_of(each).replace(".", "_")] = BY_COLLECTOR
    with LocalBroker(settings=BrokerSettings(storage_engine="tiered"), metrics_port=0) as broker:
        connection = HTTPConnection("127.0.0.1", broker.metrics_port or 0, timeout=20)
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        connection.close()
    return found | {re.split(r"[{ ]", line)[0]: set() for line in lines if not line.startswith("#")}


@by_title
def test_a_query_asks_for_what_is_exported(exported: dict[str, set[str]], target: Target) -> None:
    query = re.sub(r'"[^"]*"|\[\$__rate_interval\]', "", target.query)
    assert query.count("(") == query.count(")")
    identifiers = set(re.findall(r"[a-z_]+", query)) - FUNCTIONS
    asked = identifiers & exported.keys()
    assert asked
    labels = set.union(*(exported[name] for name in asked)) | BY_PROMETHEUS
    assert identifiers - asked <= labels
    assert set(re.findall(r"{{(\w+)}}", target.legend)) <= labels


def test_the_variables_are_jobs_that_export_something(exported: dict[str, set[str]]) -> None:
    assert set(variable_queries()) <= exported.keys()
    assert "$" not in "".join(target.expression for target in PANELS)


def test_panels_do_not_overlap() -> None:
    cells = [
        (column, row)
        for panel in DASHBOARD["panels"]
        for column in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for row in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))


def test_a_picture_of_each_row_is_on_the_page() -> None:
    page = (ROOT / "docs" / "reports.md").read_text(encoding="utf-8")
    for row in {target.row for target in PANELS}:
        assert re.search(rf"!\[[^\]]{{20,}}\]\(results/{picture_name(row)}\)", page), row
        assert (ROOT / "docs" / "results" / picture_name(row)).is_file()
