"""The experiments on the embedded broker's memory: `python -m benchmarks.broker_memory` prints a table of what was counted.

The article's numbers stand beside. `--page` writes the page and its picture. It ends with 1 if a count contradicts the article.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from benchmarks.broker_memory.experiments import REFERENCE, Sizes, faults, scenes
from benchmarks.broker_memory.page import draw, page, table
from spark_producer.broker.memory_plan import plan_memory
from spark_producer.broker.sizes import size
from spark_producer.broker.storage.tiered.options import options_of


def main(given: list[str]) -> int:
    """Run the experiments, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.broker_memory", description=__doc__)
    parser.add_argument("--memory", default="512M", help="both budgets together (%(default)s)")
    parser.add_argument("--seconds", type=float, default=REFERENCE.seconds, help="of each experiment (%(default)s)")
    parser.add_argument("--pause", type=float, default=REFERENCE.pause_s, help="seconds before it (%(default)s)")
    parser.add_argument("--only", action="append", metavar="E1", help="the experiments whose names begin so")
    parser.add_argument("--page", type=Path, help="the page to write, with a picture beside it")
    chosen = parser.parse_args(given)
    options = options_of(plan_memory(size("--memory", chosen.memory)))
    sizes = replace(REFERENCE, options=options, seconds=chosen.seconds, pause_s=chosen.pause)
    return _run(sizes, tuple(chosen.only or ("",)), chosen.page)


def _run(sizes: Sizes, only: tuple[str, ...], target: Path | None) -> int:
    ran, wrong = [], []
    for scene in scenes(sizes):
        if scene.title.startswith(only):
            print(f"{scene.title}, {scene.sizes.partitions} partitions ...", file=sys.stderr, flush=True)
            found = scene.run(scene.sizes)
            ran.append((scene, found))
            wrong += [f"{scene.title}: {fault}" for fault in faults(found, scene.least_hit_rate)]
    print(table(ran))
    for fault in wrong:
        print(fault, file=sys.stderr)
    if target is not None and not wrong:
        picture = target.with_suffix(".svg")
        draw(ran, picture)
        target.write_text(page(ran, sizes, picture.name), encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
