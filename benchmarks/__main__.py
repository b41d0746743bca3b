"""The benchmarks: `python -m benchmarks` (or `make bench`) measures the parts, keeps each one's results, and writes the pages."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.contenders import CONTENDERS, chosen
from benchmarks.machine import facts
from benchmarks.pages import folder_of, write_pages
from benchmarks.part import Measured, Options, store
from benchmarks.parts import BULK, PARTS, named
from benchmarks.session import ROOT, SPARK_SINK
from tests.support.kafka_node import KAFKA_4

PAGE = ROOT / "docs" / "benchmarks.md"


def arguments(given: list[str]) -> argparse.Namespace:
    """Parse and check the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rows", type=int, default=Options().rows, help="rows of the bulk scenes with small values")
    parser.add_argument("--repetitions", type=int, help="measured rounds, where a part should not have its own number")
    parser.add_argument("--warmups", type=int, help="rounds before them, the same")
    parser.add_argument(
        "--parts", action="append", default=[], help=f"{BULK}, {', '.join(part.name for part in PARTS)}; default: all"
    )
    parser.add_argument("--only", action="append", default=[], help=", ".join(item.name for item in CONTENDERS))
    parser.add_argument("--pages", action="store_true", help="measure nothing: write the pages from what is stored")
    parser.add_argument(
        "--out", type=Path, default=PAGE, help="the main page; the others and all results lie beside it"
    )
    chosen_values = parser.parse_args(given)
    try:
        named(chosen_values.parts)
        chosen(chosen_values.only)
    except ValueError as error:
        parser.error(str(error))
    if chosen_values.only and chosen_values.out == PAGE:
        parser.error("--only leaves contenders out, so its results are not for the documentation: give --out as well")
    return chosen_values


def main(given: list[str]) -> None:
    """Run the parts, keep each one's results, and write the pages."""
    asked = arguments(given)
    options = Options(asked.rows, asked.repetitions, asked.warmups, tuple(asked.only))
    for part in () if asked.pages else named(asked.parts):
        began_with = facts(KAFKA_4, SPARK_SINK)
        measured = Measured(began_with, part.run(options))
        print(store(folder_of(asked.out), part.name, measured), flush=True)
    for page in write_pages(PARTS, asked.out):
        print(page)


if __name__ == "__main__":
    main(sys.argv[1:])
