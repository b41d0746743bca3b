"""The Grafana dashboard asks only for metrics and labels that the block for Prometheus in docs/reports.md exports."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.metrics_core import Metric

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD = json.loads((ROOT / "conf" / "grafana-dashboard.json").read_text(encoding="utf-8"))
TARGETS = [(panel["title"], target) for panel in DASHBOARD["panels"] for target in panel["targets"]]
BY_PROMETHEUS = {"job", "instance"}
FUNCTIONS = {"by", "max", "rate", "sum"}


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
    """The labels of each metric that the block exports."""
    page = (ROOT / "docs" / "reports.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n((?:(?!```).)*REGISTRY\.register.*?)```", page, re.DOTALL)
    scope: dict[str, Any] = {"reports": Reports()}
    exec(block.replace("REGISTRY.register(Writes())", "writes = Writes()"), scope)
    metrics: Iterator[Metric] = scope["writes"].collect()
    return {sample.name: set(sample.labels) for metric in metrics for sample in metric.samples}


@pytest.mark.parametrize(("title", "target"), TARGETS, ids=[title for title, _ in TARGETS])
def test_a_query_asks_for_what_is_exported(exported: dict[str, set[str]], title: str, target: dict[str, str]) -> None:
    query = re.sub(r'"[^"]*"|\[\$__rate_interval\]', "", target["expr"])
    assert query.count("(") == query.count(")")
    identifiers = set(re.findall(r"[a-z_]+", query)) - FUNCTIONS
    asked = {each for each in identifiers if each.startswith("pyproducer_")}
    assert asked, title
    assert asked <= exported.keys()
    labels = set.union(*(exported[name] for name in asked)) | BY_PROMETHEUS
    assert identifiers - asked <= labels
    assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= labels


def test_panels_do_not_overlap() -> None:
    cells = [
        (column, row)
        for panel in DASHBOARD["panels"]
        for column in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for row in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
