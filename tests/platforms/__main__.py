"""Try the wheel of this tree with each Spark, and put the table into docs/platforms.md: `make platforms`.

An environment is kept in build/platforms, some 900 MB each. A result is kept in docs/results as soon as it is there, with the
day of its run. A Python that this system lacks may be in a root that `make roots` has made.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from tests.platforms.environments import build_wheel, make, renew
from tests.platforms.page import with_part
from tests.platforms.roots import python_of

TRIED = Path(__file__).resolve().parents[2] / "docs" / "results" / "platforms.jsonl"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "platforms.md"
BEGIN, END = "<!-- made by make platforms -->", "<!-- end of what is made -->"
PROGRAM = Path(__file__).with_name("program.py")
MINUTES = 15


class Pair(NamedTuple):
    """Versions that are tried together; the newest pyarrow if none is named."""

    spark: str
    python: str
    pyarrow: str = ""

    @property
    def name(self) -> str:
        """The pair's name, as in the folder of its environment."""
        return f"spark-{self.spark}-python-{self.python}" + (f"-pyarrow-{self.pyarrow}" if self.pyarrow else "")


OLDEST = "18.0.0"
"""The oldest pyarrow that pyproject.toml allows."""

PAIRS = (
    Pair("4.0.0", "3.11", OLDEST),
    Pair("4.0.0", "3.11"),
    Pair("4.0.2", "3.11"),
    Pair("4.0.5", "3.12"),
    Pair("4.1.1", "3.12"),
    Pair("4.1.4", "3.13"),
    Pair("4.2.1", "3.13"),
    Pair("4.3.0", "3.11"),
    Pair("4.3.0", "3.13"),
    Pair("4.3.0", "3.14"),
)
"""The Sparks of today's platforms (4.0.0, 4.0.2, 4.1.1), the last release of each line, the Pythons that we
build for, and the oldest pyarrow with the oldest Spark and Python."""


def main() -> int:
    """Try and print; how many pairs had a way that failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="try the pairs whose names have this in them, as spark-4.0")
    only = parser.parse_args().only
    wheel, failed = build_wheel(), 0
    for pair in PAIRS:
        if only in pair.name:
            reported = tried(pair, wheel)
            keep(pair, reported)
            failed += any(way["wrong"] for way in reported)
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), load()), encoding="utf-8")
    return failed


def tried(pair: Pair, wheel: Path) -> list[dict[str, Any]]:
    """Return the outcome of each way to write and to read."""
    outside, within = python_of(pair.python)
    # setuptools: Spark 4.0 looks for distutils, which Python 3.12 no longer has
    others = ["pandas", "setuptools<81", "confluent-kafka", "pyarrow" + (f"=={pair.pyarrow}" if pair.pyarrow else "")]
    python = make(outside, pair.name, [f"pyspark=={pair.spark}", *others, str(wheel)], within)
    renew(python, wheel, within)
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "SPARK_HOME", "PYSPARK_DRIVER_PYTHON")
    }
    done = subprocess.run(
        [*within, str(python), str(PROGRAM)],
        env={**kept, "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=python.parent,
        capture_output=True,
        text=True,
        timeout=60 * MINUTES,
        check=False,
    )
    ways = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if not ways:
        raise RuntimeError(f"{pair.name} has not begun:\n{done.stderr[-4000:]}")
    for way in ways:
        print(
            f"{pair.name}: {way['way']}, {way['seconds']} s, {way['kernel']}: {way['wrong'] or 'every row once'}",
            flush=True,
        )
    return ways


def keep(pair: Pair, ways: Sequence[dict[str, Any]]) -> None:
    """Replace the results of a pair, which are of today."""
    others = [line for line in load() if pair_of(line) != pair]
    reported = {way["way"]: way["wrong"].strip().splitlines()[-1] if way["wrong"] else "" for way in ways}
    found = {"kernel": ways[0]["kernel"], "found": ways[0]["pyarrow"], "day": f"{datetime.now(UTC):%Y-%m-%d}"}
    lines = [*others, {**pair._asdict(), **found, "ways": reported}]
    order = {pair: number for number, pair in enumerate(PAIRS)}
    lines.sort(key=lambda line: order.get(pair_of(line), len(order)))
    TRIED.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def pair_of(line: dict[str, Any]) -> Pair:
    """The pair of a result."""
    return Pair(line["spark"], line["python"], line["pyarrow"])


def load() -> list[dict[str, Any]]:
    """The results of all pairs."""
    return [json.loads(line) for line in TRIED.read_text(encoding="utf-8").splitlines()] if TRIED.exists() else []


def with_table(page: str, results: Sequence[dict[str, Any]]) -> str:
    """The page with the table of these results.

    Raises:
        ValueError: the page has no marks for it.
    """
    ways = list(dict.fromkeys(way for line in results for way in line["ways"]))
    titles = ["Spark", "Python", "pyarrow", "run on", "loops", *ways]
    lines = ["| " + " | ".join(titles) + " |", "| --- " * len(titles) + "|"]
    for line in results:
        outcomes = [line["ways"].get(way) for way in ways]
        cells = ["not tried" if wrong is None else f"**no**: {wrong}" if wrong else "yes" for wrong in outcomes]
        versions = [line["spark"], line["python"], line["found"] or "newest", line["day"]]
        lines.append("| " + " | ".join([*versions, line["kernel"].split()[0], *cells]) + " |")
    return with_part(page, BEGIN, END, "\n".join(lines))


if __name__ == "__main__":
    sys.exit(main())
