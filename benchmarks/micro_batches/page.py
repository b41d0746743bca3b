"""The cost of micro-batches as a Markdown page, a picture, and the figures for the first page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from benchmarks.headlines import Headline
from benchmarks.micro_batches.streams import CONTENDERS, TASKS, VALUE_BYTES, Batch, StreamResult
from benchmarks.part import Results

_OWN = "pyproducer"
_AGAINST = ("spark", "spark-tuned")
_MANY = 10_000
"""Minimum rows of a micro-batch that does not depend much on its fixed cost."""
_COLUMNS = "| | trigger ms | × Spark's sink | × tuned | `addBatch` ms | × Spark's sink | × tuned |"
_RULE = "|---|--:|--:|--:|--:|--:|--:|"
_KINDS = {False: "TCP, Spark's default", True: "Unix sockets"}


@dataclass
class Scene:
    """One size of micro-batch, in a session whose Python workers talk with the JVM in one of two ways."""

    rows: int
    unix_sockets: bool
    results: list[StreamResult]

    @property
    def title(self) -> str:
        """The title for people."""
        return f"{self.rows:,} rows, {_KINDS[self.unix_sockets]}"

    def kept(self) -> dict[str, Any]:
        """Return the scene as JSON values."""
        batches = {result.contender.name: [[b.trigger, b.add_batch] for b in result.batches] for result in self.results}
        return {"rows": self.rows, "unix_sockets": self.unix_sockets, "batches": batches}

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> Scene:
        """Return the scene that was `kept`."""
        batches = kept["batches"]
        results = [StreamResult(c, [Batch(*each) for each in batches[c.name]]) for c in CONTENDERS if c.name in batches]
        return cls(kept["rows"], kept["unix_sockets"], results)

    def median(self, name: str, figure: Callable[[Batch], float]) -> float | None:
        """Return the median of one contender's figure, in ms; None when it did not take part."""
        found = [figure(batch) for result in self.results if result.contender.name == name for batch in result.batches]
        return median(found) if found else None


def trigger(batch: Batch) -> float:
    """Return the time of the whole micro-batch."""
    return batch.trigger


def add_batch(batch: Batch) -> float:
    """Return the time of planning, tasks and commit of the write."""
    return batch.add_batch


def page(results: Results) -> str:
    """Return the page, which says what was measured and has a table for each scene."""
    scenes, rounds, warmups = scenes_of(results), results["rounds"], results["warmups"]
    counted = max(len(result.batches) for scene in scenes for result in scene.results)
    lines = [
        "Medians, and the middle 80 %. *trigger* is `triggerExecution` of the query's progress, the whole micro-batch with "
        "Spark's checkpoint; *addBatch* is the sink's part of it. *Only counted*: a Python sink that sends nothing: the "
        "cost of PySpark itself. *Our settings*: in its tasks too sockets acknowledge at once "
        "([0701](decisions/0701-a-worker-acknowledges-the-jvm-s-bytes-at-once.md)), and imports are frozen "
        "([0702](decisions/0702-a-worker-freezes-its-imports-when-its-second-task-begins.md)). "
        "[What it means for a query](streaming.md).",
    ]
    made = [
        "",
        "## How it is made",
        "",
        f"The source `rate-micro-batch` brings that many rows in every micro-batch, in {TASKS} tasks on `local[2]`, to {TASKS} "
        f"partitions: a key and a value of {VALUE_BYTES} B. Each micro-batch begins when the last one is done. Contenders take "
        f"turns, with {rounds} queries each. The first {warmups} micro-batches of a query warm up ({3 * warmups} of the first "
        f"one), and {counted} of each contender are measured. *Unix sockets*: `spark.python.unix.domain.socket.enabled`, which "
        "matters to Python sinks alone.",
    ]
    for scene in scenes:
        lines += ["", f"## {scene.title}", "", _COLUMNS, _RULE]
        lines += [_row(scene, result) for result in scene.results]
        lines += _price_of_exactly_once(scene)
    return "\n".join([*lines, *made])


def scenes_of(results: Results) -> list[Scene]:
    """Return the scenes of the stored results."""
    return [Scene.of(kept) for kept in results["scenes"]]


def _row(scene: Scene, result: StreamResult) -> str:
    cells = [result.contender.label]
    for figure in (trigger, add_batch):
        found = [figure(batch) for batch in result.batches]
        cells.append(f"{median(found):.0f}; {_spread(found)}")
        for base in (scene.median(name, figure) for name in _AGAINST):
            cells.append(f"{median(found) / base:.2f}" if base and result.contender.reaches_kafka else "")
    return f"| {' | '.join(cells)} |"


def _price_of_exactly_once(scene: Scene) -> list[str]:
    plain, own = scene.median(_OWN, add_batch), scene.median("pyproducer-exactly-once", add_batch)
    if plain is None or own is None:
        return []
    return ["", f"Exactly once: **{own - plain:+.0f} ms** of `addBatch`."]


def _spread(found: Sequence[float]) -> str:
    tenths = quantiles(found, n=10) if len(found) > 1 else [found[0], found[0]]
    return f"{max(tenths[0], min(found)):.0f}–{min(tenths[-1], max(found)):.0f}"


def headlines(scenes: Sequence[Scene]) -> list[Headline]:
    """Return the wait of few rows with Spark's defaults, for the first page. Many rows wait much as long as in bulk."""
    found = []
    for scene in scenes:
        if scene.unix_sockets or scene.rows >= _MANY:  # the sockets are off by default
            continue
        own = scene.median(_OWN, add_batch)
        labels = {result.contender.name: result.contender.label for result in scene.results}
        others = {labels[name]: value for name in _AGAINST if (value := scene.median(name, add_batch)) is not None}
        if own is not None:
            title = f"The write in a micro-batch of {scene.rows:,} rows"
            found.append(Headline(title, "ms", own, others, lower_is_better=True))
    return found


def draw(scenes: Sequence[Scene], path: Path) -> None:
    """Draw a bar for each contender: the trigger, and in it, darker, `addBatch`."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "pyproducer"
    from matplotlib import pyplot as plt

    height = sum(len(scene.results) for scene in scenes) * 0.4 + len(scenes)
    figure, axes = plt.subplots(len(scenes), 1, figsize=(10, height), squeeze=False, layout="constrained", sharex=True)
    longest = max(median(map(trigger, result.batches)) for scene in scenes for result in scene.results)
    for (plot,), scene in zip(axes, scenes, strict=True):
        shown = list(reversed(scene.results))
        labels = [result.contender.label for result in shown]
        colours = ["tab:blue" if name.startswith(_OWN) else "tab:gray" for name in labels]
        whole = [median(map(trigger, result.batches)) for result in shown]
        inner = [median(map(add_batch, result.batches)) for result in shown]
        plot.barh(labels, whole, color=colours, alpha=0.35)
        plot.barh(labels, inner, color=colours, alpha=0.8)
        for place, (outer, part) in enumerate(zip(whole, inner, strict=True)):
            plot.text(outer, place, f" {outer:.0f}, addBatch {part:.0f}", va="center")
        plot.set_xlim(0, 1.25 * longest)
        plot.tick_params(labelbottom=True)
        plot.set_title(scene.title, loc="left", fontsize=10)
        plot.set_xlabel("milliseconds of a micro-batch; darker: addBatch")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
