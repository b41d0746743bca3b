"""The experiments on the embedded broker's memory: `python -m benchmarks.broker_memory` prints a table of what was counted.

The article's numbers stand beside. `--page` writes the page and its picture. It ends with 1 if a count contradicts the article.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchmarks.broker_memory import back_pressure, group_commit, two_devices
from benchmarks.broker_memory.experiments import REFERENCE, Scene, Sizes, faults, scenes
from benchmarks.broker_memory.page import Ran, draw, page, table
from benchmarks.broker_memory.section import Section
from spark_producer.broker.memory.plan import plan_memory
from spark_producer.broker.memory.sizes import parse_size
from spark_producer.broker.storage.tiered.options import options_of

Part = tuple[str, Callable[[Sizes], Section]]
PARTS: tuple[Part, ...] = (
    ("E4", lambda _: group_commit.section(group_commit.Load())),
    ("E5", two_devices.section),
    ("E7", lambda _: back_pressure.section(back_pressure.Pressure())),
)
"""The experiments that are no rows of the table of tiers, by their names."""


def main(given: list[str]) -> int:
    """Run the experiments, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.broker_memory", description=__doc__)
    parser.add_argument("--memory", default="512M", help="both budgets together, of all but E4 and E7 (%(default)s)")
    parser.add_argument("--seconds", type=float, default=REFERENCE.seconds, help="of each experiment (%(default)s)")
    parser.add_argument("--pause", type=float, default=REFERENCE.pause_s, help="seconds before it (%(default)s)")
    parser.add_argument("--only", action="append", metavar="E1", help="the experiments whose names begin so")
    parser.add_argument("--page", type=Path, help="the page to write, with pictures beside it; it has all experiments")
    chosen = parser.parse_args(given)
    if chosen.page is not None and chosen.only:
        parser.error("--page writes all experiments, --only runs some")
    options = options_of(plan_memory(parse_size("--memory", chosen.memory)))
    sizes = replace(REFERENCE, options=options, seconds=chosen.seconds, pause_s=chosen.pause)
    only = tuple(chosen.only or ("",))
    tiers = [scene for scene in scenes(sizes) if scene.title.startswith(only)]
    return _run(sizes, tiers, [part for part in PARTS if part[0].startswith(only)], chosen.page)


def _run(sizes: Sizes, tiers: list[Scene], parts: list[Part], target: Path | None) -> int:
    ran, wrong = _run_tiers(tiers)
    if ran:
        print(table(ran))
    found: list[Section] = []
    for name, run in parts:
        print(f"{name} ...", file=sys.stderr, flush=True)
        found.append(run(sizes))
        print("\n".join(["", f"{name} {found[-1].title}", "", *found[-1].table]), flush=True)
        wrong += [f"{name}: {fault}" for fault in found[-1].faults]
    for fault in wrong:
        print(fault, file=sys.stderr)
    if target is not None and not wrong:
        picture = (target.with_name("results") / target.name).with_suffix(".svg")
        picture.parent.mkdir(exist_ok=True)
        draw(ran, picture)
        target.write_text(
            page(ran, sizes, f"results/{picture.name}", [part.lines(part.draw(target)) for part in found]), "utf-8"
        )
    return 1 if wrong else 0


def _run_tiers(tiers: list[Scene]) -> tuple[list[Ran], list[str]]:
    """Return what was counted in each, and what contradicts the article."""
    ran: list[Ran] = []
    wrong: list[str] = []
    for scene in tiers:
        print(f"{scene.title}, {scene.sizes.partitions} partitions ...", file=sys.stderr, flush=True)
        found = scene.run(scene.sizes)
        ran.append((scene, found))
        wrong += [f"{scene.title}: {fault}" for fault in faults(found, scene.least_hit_rate)]
    return ran, wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
