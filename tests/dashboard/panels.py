"""The panels of conf/grafana-dashboard.json, and their queries as Grafana would send them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD: dict[str, Any] = json.loads((ROOT / "conf" / "grafana-dashboard.json").read_text(encoding="utf-8"))
RATE_INTERVAL = "10s"
"""What Grafana puts in place of `$__rate_interval`: at least four times the interval between two scrapes."""


class Target(NamedTuple):
    """A query of a panel, with the names of its series: `{{topic}}` stands for a label."""

    row: str
    panel: str
    unit: str
    query: str
    legend: str

    @property
    def expression(self) -> str:
        """The query, with all jobs chosen."""
        return with_variables(self.query)

    def name_of(self, labels: Mapping[str, str]) -> str:
        """Return the name of a series in the legend."""
        name = self.legend
        for label, value in labels.items():
            name = name.replace(f"{{{{{label}}}}}", value)
        return name


def with_variables(query: str) -> str:
    """Return a query with the values of the variables in it."""
    for variable in DASHBOARD["templating"]["list"]:
        query = query.replace(f"${variable['name']}", str(variable.get("allValue", "")))
    return query.replace("$__rate_interval", RATE_INTERVAL)


def variable_queries() -> list[str]:
    """Return the metrics from whose labels the variables get their values."""
    queries = [each["query"]["query"] for each in DASHBOARD["templating"]["list"] if each["type"] == "query"]
    return [query.removeprefix("label_values(").partition(",")[0] for query in queries]


def targets() -> list[Target]:
    """Return the queries of all panels, each below the title of its row."""
    found, row = [], ""
    for panel in DASHBOARD["panels"]:
        if panel["type"] == "row":
            row = panel["title"]
        for target in panel.get("targets", ()):
            unit = panel["fieldConfig"]["defaults"]["unit"]
            found.append(Target(row, panel["title"], unit, target["expr"], target["legendFormat"]))
    return found
