"""Figures of real runs in files, so that pages and notebooks show them without a Kafka.

Owns: the files' names and form. Must not know: how figures come about, or look.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.partitioning.performance import Measured
from benchmarks.partitioning.real import Spread

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "partitioners"
SPREADS_FILE = "spread.json"


def slow_broker_file(megabytes: float) -> str:
    """Name of the file for a load in MB/s."""
    return f"slow-broker-{megabytes:g}.json"


def write(path: Path, runs: Sequence[Measured] | Sequence[Spread]) -> None:
    """One line per run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[\n" + ",\n".join(json.dumps(run) for run in runs) + "\n]\n", encoding="utf-8")


def read_slow_broker(megabytes: float) -> list[Measured]:
    """The runs at a load."""
    return [_measured(run) for run in json.loads((FOLDER / slow_broker_file(megabytes)).read_text(encoding="utf-8"))]


def read_spreads() -> list[Spread]:
    """KIP-480's comparison."""
    runs = json.loads((FOLDER / SPREADS_FILE).read_text(encoding="utf-8"))
    return [Spread(partitions, linger, _measured(run), seconds) for partitions, linger, run, seconds in runs]


def _measured(fields: list[object]) -> Measured:
    found = Measured(*fields)  # type: ignore[arg-type]
    return found._replace(shares=tuple(found.shares))
