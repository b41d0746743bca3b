"""The results of the matrix: one line of JSON each, kept from run to run, and the table that is made of them.

Owns: the file, the table. Must not know: how a result came about.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from tests.matrix.play import Result

WORDS = {"loud": "loud", "exact": "exact", "not reached": "not reached", "violated": "**violated**"}


def load(path: Path) -> dict[str, Result]:
    """Name of a case → its last result."""
    found: dict[str, Result] = {}
    if path.exists():
        for line in path.read_text().splitlines():
            result = Result(**json.loads(line))
            found[result.name] = result
    return found


def append(path: Path, result: Result) -> None:
    """Add a result, so that a run that is interrupted goes on behind it."""
    with path.open("a") as file:
        file.write(json.dumps(asdict(result)) + "\n")


def as_table(results: Iterable[Result]) -> str:
    """Places in rows, clusters and paths in columns: cases in which every row was seen once, of all that were played."""
    counts: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    columns: set[str] = set()
    for result in results:
        cluster, path, faults, _ = result.name.split("/")
        row = " after ".join(f"`{fault.split(':')[0]}`" for fault in reversed(faults.split("+")))
        column = f"{cluster}, {path}"
        columns.add(column)
        counts[row][column][result.verdict] += 1
    ordered = sorted(columns)
    lines = ["| the process is stopped at | " + " | ".join(ordered) + " |", "|" + " --- |" * (len(ordered) + 1)]
    for row, found in counts.items():
        lines.append("| " + " | ".join([row, *(_cell(found[column]) for column in ordered)]) + " |")
    total = sum((counter for row in counts.values() for counter in row.values()), Counter[str]())
    lines += ["", "; ".join(f"{WORDS[word]}: {count}" for word, count in sorted(total.items())) + "."]
    return "\n".join(lines) + "\n"


def _cell(found: Counter[str]) -> str:
    if not found:
        return ""
    text = f"{found['exact']} of {found.total()}"
    others = [f"{count} {WORDS[word]}" for word, count in sorted(found.items()) if word != "exact"]
    return text + (f" ({', '.join(others)})" if others else "")
