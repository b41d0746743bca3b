"""The benchmark of micro-batches alone: `python -m benchmarks.micro_batches` prints its tables.

The page is written by `python -m benchmarks --parts micro-batches`.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.micro_batches.page import page
from benchmarks.micro_batches.part import results_of
from benchmarks.micro_batches.queries import ROWS, Amount
from benchmarks.micro_batches.streams import CONTENDERS


def amount(given: list[str]) -> Amount:
    """Parse the command line."""
    usual = Amount()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.micro_batches", description=__doc__)
    parser.add_argument("--rows", type=int, action="append", help=f"of a micro-batch ({', '.join(map(str, ROWS))})")
    names = [contender.name for contender in CONTENDERS]
    parser.add_argument("--only", action="append", choices=names, help="these contenders, instead of all")
    parser.add_argument("--rounds", type=int, default=usual.rounds, help="queries of each contender (%(default)s)")
    parser.add_argument(
        "--warmups", type=int, default=usual.warmups, help="micro-batches of each query before (%(default)s)"
    )
    parser.add_argument("--batches", type=int, default=usual.batches, help="measured in each query (%(default)s)")
    chosen = parser.parse_args(given)
    contenders = tuple(contender for contender in CONTENDERS if not chosen.only or contender.name in chosen.only)
    return Amount(tuple(chosen.rows or ROWS), chosen.rounds, chosen.warmups, chosen.batches, contenders)


if __name__ == "__main__":
    print(page(results_of(amount(sys.argv[1:]))))
