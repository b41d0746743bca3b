"""Run the fuzzer: `make fuzz`.

    make fuzz                                              # ten seconds for each target
    make fuzz ARGS='--inputs 10000000 --note'              # ten million inputs for each, noted in docs/fuzzing.md; hours, resumes
    make fuzz ARGS='--seconds 600 batches avro'

A run with `--note` goes on after the inputs that are noted already. A finding is kept in tests/fuzz/corpus, shown,
and ends its target; the exit code is then 1.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from tests.fuzz import campaign, page
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS

SEED = 35
FOREVER = 10**15
PIECE = 200_000
"""Inputs after which a run with `--note` writes what it has counted."""


def arguments() -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Give every decoder damaged bytes.")
    parser.add_argument("targets", nargs="*", choices=[*TARGETS, []], metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--inputs", type=int, help="inputs of each target, those that are noted included (with --note)")
    parser.add_argument(
        "--seconds", type=float, help="seconds for each target (default: 10, without --inputs no limit)"
    )
    parser.add_argument("--seed", type=int, default=SEED, help="which inputs are made (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="targets at a time (default: %(default)s)")
    parser.add_argument(
        "--note", action="store_true", help="add the counts to docs/results/fuzz.json and docs/fuzzing.md"
    )
    return parser.parse_args()


def fuzz(target: Target, chosen: argparse.Namespace, counts: dict[str, Any]) -> bool:
    """Run one target up to its number of inputs or its seconds; return whether there was a finding."""
    first = counts.get(target.name, {}).get("inputs", 0) if chosen.note else 0
    wanted = chosen.inputs or FOREVER
    left = chosen.seconds or (FOREVER if chosen.inputs else 10.0)
    done, spent = 0, 0.0
    while first + done < wanted and spent < left:
        piece = min(PIECE, wanted - first - done)
        outcome = campaign.run(target, seed=chosen.seed, first=first + done, count=piece, seconds=left - spent)
        done, spent = done + outcome.inputs, spent + outcome.seconds
        if chosen.note:
            page.add(counts, target, outcome, datetime.datetime.now(datetime.UTC).date().isoformat())
            page.write(counts, TARGETS)
        if outcome.finding:
            place = campaign.keep(target, outcome.input)
            print(f"{target.name}: input {first + done}, kept as {place}\n{outcome.finding}", flush=True)
            return True
    print(
        f"{target.name}: {done:,} inputs in {spent:,.1f} s, {done / max(spent, 0.001):,.0f}/s, none failed", flush=True
    )
    return False


def main() -> int:
    """Run the chosen targets; return 1 if one has a finding."""
    chosen = arguments()
    counts = page.load()
    with ThreadPoolExecutor(chosen.jobs) as pool:
        run = partial(fuzz, chosen=chosen, counts=counts)
        found = list(pool.map(run, [TARGETS[name] for name in chosen.targets or TARGETS]))
    return int(any(found))


if __name__ == "__main__":
    sys.exit(main())
