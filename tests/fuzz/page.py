"""Counts the inputs of all runs in docs/results/fuzz.json, and writes them into docs/fuzzing.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from spark_producer import __version__
from tests.fuzz.campaign import Outcome
from tests.fuzz.target import Target

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "results" / "fuzz.json"
PAGE = ROOT / "docs" / "fuzzing.md"
BEGIN, END = "<!-- made by make fuzz -->\n", "<!-- end of what is made -->"


def load() -> dict[str, Any]:
    """Return what all runs counted, by the name of the target."""
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    return found


def add(counts: dict[str, Any], target: Target, outcome: Outcome, day: str) -> None:
    """Add the inputs of a run to the others."""
    before = counts.get(target.name, {"inputs": 0, "seconds": 0.0, "findings": 0})
    counts[target.name] = {
        "inputs": before["inputs"] + outcome.inputs,
        "seconds": round(before["seconds"] + outcome.seconds, 1),
        "findings": before["findings"] + bool(outcome.finding),
        "day": day,
        "version": __version__,
    }


def table(counts: dict[str, Any], targets: dict[str, Target]) -> str:
    """Return a row for each target."""
    lines = ["| target | decodes | inputs | inputs/s | findings | last run |", "|---|---|--:|--:|--:|---|"]
    for name, target in targets.items():
        found = counts.get(name)
        if found is None:
            lines.append(f"| `{name}` | {target.decodes} | 0 | | | |")
            continue
        rate = found["inputs"] / max(found["seconds"], 0.1)
        lines.append(
            f"| `{name}` | {target.decodes} | {found['inputs']:,} | {rate:,.0f} | {found['findings']} | "
            f"{found['day']}, {found['version']} |"
        )
    return "\n".join(lines) + "\n"


def write(counts: dict[str, Any], targets: dict[str, Target]) -> None:
    """Write the counts and the page."""
    RESULTS.write_text(json.dumps(dict(sorted(counts.items())), indent=1) + "\n", encoding="utf-8")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(before + BEGIN + "\n" + table(counts, targets) + "\n" + END + after, encoding="utf-8")
