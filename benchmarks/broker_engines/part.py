"""The broker's engines as a part of the benchmarks: both take turns in each round, and the page has medians and ratios."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.broker_engines.scenes import SCENES, Figures, Scene
from benchmarks.part import Options, Part, Results
from spark_producer.broker.settings import STORAGE_ENGINES

ROUNDS: Final = 5
SEGMENTS, TIERED = STORAGE_ENGINES
_USED: Final = {"disk": ("Disk used", "× written"), "memory": ("Memory, at most", "MiB")}
"""Figures that are no rates: their names, and what they count."""

_NOTE: Final = (
    "Each scene has a broker process of its own, with a new directory. Medians of {rounds} rounds; × is the median of each "
    "round's ratio. CPU is the broker's, in µs for each Produce, or in ms for each MiB and start. Waits are those of a producer "
    "with five requests in flight. Disk is read right after the last acknowledgement; memory is the broker's process (VmHWM)."
)


def measure(scenes: Sequence[Scene], rounds: int, warmups: int, share: float) -> dict[str, dict[str, list[Figures]]]:
    """Return scene → engine → its figures in each round."""
    found: dict[str, dict[str, list[Figures]]] = {scene.name: {SEGMENTS: [], TIERED: []} for scene in scenes}
    for number in range(warmups + rounds):
        for scene in scenes:
            for engine in (SEGMENTS, TIERED) if number % 2 else (TIERED, SEGMENTS):
                with TemporaryDirectory(prefix="pyproducer-bench-") as folder:
                    figures = scene.play(engine, Path(folder), share)
                if number >= warmups:
                    found[scene.name][engine].append(figures)
    return found


def run(options: Options, share: float = 1.0) -> Results:
    """Measure all scenes; `share` shortens them."""
    rounds = ROUNDS if options.repetitions is None else options.repetitions
    warmups = 0 if options.warmups is None else options.warmups
    return {"rounds": rounds, "scenes": measure(list(SCENES.values()), rounds, warmups, share)}


def middle(runs: Sequence[Mapping[str, float]], name: str) -> float:
    """Return the median of a figure."""
    return statistics.median(figures[name] for figures in runs)


def ratio(found: Mapping[str, Sequence[Mapping[str, float]]], name: str) -> float:
    """Return how many times the figure of segments that of tiered is: the median over the rounds, not a number
    if that of segments is 0, since the clock of a process is coarse."""
    pairs = zip(found[TIERED], found[SEGMENTS], strict=True)
    ratios = [ours[name] / theirs[name] for ours, theirs in pairs if theirs[name]]
    return statistics.median(ratios) if ratios else math.nan


def page(results: Results) -> str:
    """Return the tables: rates with CPU, and waits."""
    scenes = results["scenes"]
    lines = [
        "× is tiered ÷ segments. [Which engine to take](embedded_broker.md#two-storage-engines).", "",
        "| | | tiered | segments | × | CPU tiered | segments | × |", "|---|---|--:|--:|--:|--:|--:|--:|",
    ]  # fmt: skip
    lines += [_rate_row(SCENES[name], found) for name, found in scenes.items()]
    for figure, (title, unit) in _USED.items():
        lines += [
            _used_row(f"{title}: {SCENES[name].title}", unit, figure, found)
            for name, found in scenes.items()
            if figure in found[TIERED][0]  # results of earlier versions have none
        ]
    lines += [
        "",
        "| waits, ms | tiered p50 | segments p50 | tiered p99 | segments p99 | × p99 |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name, found in scenes.items():
        if "p99" in found[TIERED][0]:
            cells = [f"{middle(found[engine], each):.1f}" for each in ("p50", "p99") for engine in (TIERED, SEGMENTS)]
            lines.append(f"| {SCENES[name].title} | {' | '.join(cells)} | {ratio(found, 'p99'):.2f} |")
    return "\n".join([*lines, "", "## How it is made", "", _NOTE.format(rounds=results["rounds"])]) + "\n"


def _rate_row(scene: Scene, found: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    cells = [f"{middle(found[engine], 'rate'):,.0f}" for engine in (TIERED, SEGMENTS)]
    cells.append(f"{ratio(found, 'rate'):.2f}")
    if "cpu" in found[TIERED][0]:
        cells += [f"{middle(found[engine], 'cpu'):,.2f}" for engine in (TIERED, SEGMENTS)]
        cells.append(f"{ratio(found, 'cpu'):.2f}")
    else:
        cells += ["", "", ""]
    return f"| {scene.title} | {scene.unit} | {' | '.join(cells)} |"


def _used_row(title: str, unit: str, figure: str, found: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    cells = [f"{middle(found[engine], figure):,.2f}" for engine in (TIERED, SEGMENTS)]
    return f"| {title} | {unit} | {' | '.join(cells)} | {ratio(found, figure):.2f} | | | |"


PART: Final = Part("broker", "The embedded broker's storage engines", run, page, sister="benchmarks_broker.md")
