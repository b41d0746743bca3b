"""The results of the matrix: one line of JSON each, kept from run to run in docs/results, and the tables that are made of them.

Owns: the files, the tables, their position in docs/exactly_once_matrix.md. Must not know: how a result came about.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.matrix.play import Case, Result

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
MATRIX, SCENES = RESULTS / "matrix.jsonl", RESULTS / "matrix_scenes.jsonl"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "exactly_once_matrix.md"
BEGIN, END = "<!-- made by python -m tests.matrix -->", "<!-- end of what is made -->"
FOR_PEOPLE = ("reported", "places")
"""Fields that are kept only of results with violations."""

SHOWN = {"loud": "loud", "exact": "exact", "not reached": "not reached", "violated": "**violated**"}


def load(path: Path) -> dict[str, Result]:
    """Name of a case → its last result."""
    found: dict[str, Result] = {}
    if path.exists():
        for line in path.read_text().splitlines():
            result = Result(**json.loads(line))
            found[result.name] = result
    return found


def missing(cases: Iterable[Case], known: Mapping[str, Result], since: str) -> list[Case]:
    """Return the cases that have no result of `since`, a day as in 2026-01-31, or later."""
    return [case for case in cases if case.name not in known or known[case.name].day < since]


def append(path: Path, result: Result) -> None:
    """Append a result to the file, so that an interrupted run can continue."""
    result.day = f"{datetime.now(tz=UTC):%Y-%m-%d}"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(_kept(result)) + "\n")


def _kept(result: Result) -> dict[str, Any]:
    """The fields that are not as in every good result."""
    usual = Result("")
    return {
        field.name: value
        for field in fields(Result)
        if (value := getattr(result, field.name)) != getattr(usual, field.name)
        and (result.violations or field.name not in FOR_PEOPLE)
    }


def write_page(matrix: Path = MATRIX, scenes: Path = SCENES, page: Path = PAGE, of: int = 0) -> str:
    """Replace both tables of the page, and return them. `of` is the number of cases of the matrix."""
    cases, shown = load(matrix).values(), load(scenes).values()
    days = sorted({result.day for result in (*cases, *shown)})
    reported = f"{len(cases):,} of {of:,} cases were played, and {len(shown)} scenes" + (
        f", from {days[0]} to {days[-1]}." if days else "."
    )
    tables = "\n".join([reported, "", as_table(cases), as_list(shown)])
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page.name} has no place for the tables, between {BEGIN} and {END}")
    page.write_text(f"{before}{BEGIN}\n\n{tables}\n{END}{after}", encoding="utf-8")
    return tables


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
    alike: dict[str, list[str]] = defaultdict(list)
    for row, found in counts.items():
        alike[" | ".join(_cell(found[column]) for column in ordered)].append(row)
    lines += [f"| {'<br>'.join(rows)} | {cells} |" for cells, rows in alike.items()]
    total = sum((counter for row in counts.values() for counter in row.values()), Counter[str]())
    lines += ["", "; ".join(f"{SHOWN[verdict]}: {count}" for verdict, count in sorted(total.items())) + "."]
    return "\n".join(lines) + "\n"


def as_list(results: Iterable[Result]) -> str:
    """Return the table of scenes: clusters in columns, a cell has the paths, and an outcome where it is not exact.

    Scenes that ended alike share a row.
    """
    ends: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    clusters: set[str] = set()
    for result in results:
        cluster, path, title, _ = result.name.split("/")
        outcome = result.loud if result.verdict == "loud" else SHOWN[result.verdict]
        ends[title][cluster].append(path if outcome == "exact" else f"{path} {outcome}")
        clusters.add(cluster)
    ordered = sorted(clusters)
    lines = ["| scene | " + " | ".join(ordered) + " |", "|" + " --- |" * (len(ordered) + 1)]
    alike: dict[str, list[str]] = defaultdict(list)
    for title, found in ends.items():
        alike[" | ".join(", ".join(sorted(found[cluster])) for cluster in ordered)].append(title)
    lines += [f"| {'<br>'.join(titles)} | {cells} |" for cells, titles in alike.items()]
    return "\n".join(lines) + "\n"


def _cell(found: Counter[str]) -> str:
    if not found:
        return ""
    if found["exact"] == found.total():
        return str(found["exact"])
    text = f"{found['exact']} of {found.total()}"
    others = [f"{count} {SHOWN[verdict]}" for verdict, count in sorted(found.items()) if verdict != "exact"]
    return text + (f" ({', '.join(others)})" if others else "")
