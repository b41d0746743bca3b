"""Micro-batches as a part of the benchmarks, with the results of a run as JSON values."""

from __future__ import annotations

from pathlib import Path

from benchmarks.headlines import Headline
from benchmarks.micro_batches import page
from benchmarks.micro_batches.queries import Amount, run
from benchmarks.part import Options, Part, Results


def results_of(amount: Amount) -> Results:
    """Measure, and return the scenes and how much was measured."""
    scenes = run(amount)
    return {
        "rounds": amount.rounds,
        "warmups": amount.warmups,
        "scenes": [scene.kept() for scene in scenes],
    }


def _run(options: Options) -> Results:
    usual = Amount()
    rounds = usual.rounds if options.repetitions is None else options.repetitions
    warmups = usual.warmups if options.warmups is None else options.warmups
    return results_of(Amount(rounds=rounds, warmups=warmups))


def _headlines(results: Results) -> list[Headline]:
    return page.headlines(page.scenes_of(results))


def _draw(results: Results, path: Path) -> None:
    page.draw(page.scenes_of(results), path)


PART = Part(
    "micro-batches", "What a micro-batch costs", _run, page.page, _headlines, _draw, sister="benchmarks_streaming.md"
)
