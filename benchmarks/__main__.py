"""The benchmarks: `python -m benchmarks` (or `make bench`) measures the parts, keeps each one's results, and writes the pages."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.contenders import CONTENDERS, chosen
from benchmarks.machine import facts
from benchmarks.pages import folder_of, write_pages
from benchmarks.part import Measured, Options, Part, store
from benchmarks.parts import BULK, PARTS, named
from benchmarks.session import ROOT, SPARK_SINK
from tests.support.kafka_node import KAFKA_4

PAGE = ROOT / "docs" / "benchmarks.md"


def arguments(given: list[str], parts: Sequence[Part] = PARTS) -> argparse.Namespace:
    """Parse and check the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rows", type=int, default=Options().rows, help="rows of the bulk scenes with small values")
    parser.add_argument("--repetitions", type=int, help="measured rounds, where a part should not have its own number")
    parser.add_argument("--warmups", type=int, help="rounds before them, the same")
    parser.add_argument(
        "--parts", action="append", default=[], help=f"{BULK}, {', '.join(part.name for part in parts)}; default: all"
    )
    parser.add_argument("--only", action="append", default=[], help=", ".join(item.name for item in CONTENDERS))
    parser.add_argument("--pages", action="store_true", help="measure nothing: write the pages from what is stored")
    parser.add_argument(
        "--out", type=Path, default=PAGE, help="the main page; the others and all results lie beside it"
    )
    chosen_values = parser.parse_args(given)
    try:
        named(chosen_values.parts, parts)
        chosen(chosen_values.only)
    except ValueError as error:
        parser.error(str(error))
    if chosen_values.only and chosen_values.out == PAGE:
        parser.error("--only leaves contenders out, so its results are not for the documentation: give --out as well")
    return chosen_values


def machine() -> dict[str, str]:
    """Return the facts about this machine and what is compared on it."""
    return facts(KAFKA_4, SPARK_SINK)


def main(
    given: list[str], parts: Sequence[Part] = PARTS, conditions: Callable[[], Mapping[str, str]] = machine
) -> None:
    """Run those of `parts` that are asked for, keep each one's results and conditions, and write the pages."""
    asked = arguments(given, parts)
    options = Options(asked.rows, asked.repetitions, asked.warmups, tuple(asked.only))
    for part in () if asked.pages else named(asked.parts, parts):
        began_with = conditions()
        measured = Measured(began_with, part.run(options))
        print(store(folder_of(asked.out), part.name, measured), flush=True)
    for page in write_pages(parts, asked.out):
        print(page)


if __name__ == "__main__":
    main(sys.argv[1:])
