"""The metrics page in Prometheus' text format (version 0.0.4): writing and parsing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from spark_producer.broker.counters import MetricReading
from spark_producer.common.escape import for_log

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_LINE: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{.*\})? (\S+)")


def metrics_page(readings: Iterable[MetricReading]) -> str:
    """Return the page. The counterpart of Pulsar or BookKeeper follows the description of each metric.

    Readings of the same name must be adjacent.
    """
    lines: list[str] = []
    name = ""
    for each in readings:
        if each.name != name:
            name = each.name
            counterpart = f" ({each.meaning.counterpart})" if each.meaning.counterpart else ""
            lines.append(f"# HELP {name} {_escaped(each.meaning.text)}{counterpart}")
            lines.append(f"# TYPE {name} {each.meaning.kind.value}")
        labels = ",".join(f'{key}="{_escaped(value, quotes=True)}"' for key, value in each.labels)
        lines.append(f"{name}{{{labels}}} {each.value}" if labels else f"{name} {each.value}")
    return "\n".join(lines) + "\n"


def _escaped(text: str, *, quotes: bool = False) -> str:
    """Return a text in the escaping of the format. Terminal control characters are escaped first: people read the page too."""
    text = "\n".join(for_log(line) for line in text.split("\n"))
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
    return escaped.replace('"', '\\"') if quotes else escaped


def read_metrics_page(page: str) -> dict[str, float]:
    """Return the values of a page by name, without their labels. Lines without a value are skipped."""
    found: dict[str, float] = {}
    for line in page.splitlines():
        match = _LINE.fullmatch(line)
        if match is not None:
            try:
                found[match[1]] = float(match[2])
            except ValueError:
                continue
    return found
