"""The results as a Markdown page and a picture, with their medians and ratios."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.contenders import Contender
from benchmarks.measure import Run
from benchmarks.scenes import Scene

_HEADER = "| | M records/s | × Spark's sink | Python | JVM | broker | worker peak MiB | log B |"
_RULE = "|---|--:|--:|--:|--:|--:|--:|--:|"
_SECURED = ("pyproducer-ssl", "pyproducer-sasl-ssl")
_COMPARED = ("pyproducer", "pyproducer-exactly-once", "pyproducer-lz4", "pyproducer-zstd", "pyproducer-ssl")
_FAR = 3.0
NOTES = (
    "A cached DataFrame of binary keys (9 bytes) and values is written with acks=all to one real Kafka, which shares the cores "
    "with Spark (`local[2]`, 4 input partitions). Each run has its own topic, whose rows are counted. Rates are medians, "
    "followed by the lowest and the highest. *Python*, *JVM* and *broker* are CPU seconds per million records; the first two "
    "together are [the client](benchmarks_client_cpu.md). *log B* is a record's bytes in the log. *× Spark's sink* compares with "
    "its defaults and the same codec."
)


@dataclass
class Result:
    """All measured runs of one contender in one scene."""

    contender: Contender
    runs: list[Run] = field(default_factory=list)

    def median(self, figure: Callable[[Run], float]) -> float:
        """Return the median of one figure over the runs."""
        return median(figure(run) for run in self.runs)


@dataclass
class SceneResults:
    """All results of one scene."""

    scene: Scene
    results: list[Result]

    def find(self, name: str) -> Result | None:
        """Return the result of a contender, or None if it did not take part."""
        return next((result for result in self.results if result.contender.name == name and result.runs), None)


def section(results: SceneResults, warmups: int) -> str:
    """Return the section of a scene, without its title."""
    repetitions = max((len(result.runs) for result in results.results), default=0)
    lines = [results.scene.about, ""] if results.scene.about else []
    lines += [f"{repetitions} rounds, after {warmups} to warm up.", "", _HEADER, _RULE]
    lines += [_row(result, results.find(result.contender.base)) for result in results.results if result.runs]
    prices = _price_of_tls(results) if results.scene.secured else _price_of_exactly_once(results)
    return "\n".join([*lines, "", *prices])


def _row(result: Result, base: Result | None) -> str:
    contender, rates = result.contender, [run.rate / 1e6 for run in result.runs]
    peak = result.median(lambda run: run.worker_peak)
    ratio = f"{rate(result) / rate(base):.2f}" if base is not None and contender.reaches_kafka else ""
    cells = [
        contender.label,
        f"{median(rates):.2f}; {min(rates):.2f}–{max(rates):.2f}",
        ratio,
        f"{result.median(lambda run: run.per_million(run.python_cpu)):.2f}",
        f"{result.median(lambda run: run.per_million(run.jvm_cpu)):.2f}",
        f"{result.median(lambda run: run.per_million(run.broker_cpu)):.2f}" if contender.reaches_kafka else "",
        f"{peak / 2**20:.0f}" if peak else "",
        f"{result.median(lambda run: run.log_size / run.rows):.1f}" if contender.reaches_kafka else "",
    ]
    return f"| {' | '.join(cells)} |"


RATIOS = (
    "| pyproducer ÷ | Spark's sink | Spark's sink, tuned | confluent-kafka over Arrow |",
    "|---|--:|--:|--:|",
)
"""The head of the table of ratios."""


def ratios(results: SceneResults) -> list[str]:
    """Return the rows of the table of ratios: records per second, and client CPU in brackets, of ours ÷ others."""
    rows = []
    for own in map(results.find, _COMPARED):
        if own is None or (results.scene.secured and own.contender.protocol == "PLAINTEXT"):
            continue
        ending = own.contender.name.removeprefix("pyproducer") if own.contender.base != "spark" else ""
        others = [results.find(f"{name}{ending}") for name in ("spark", "spark-tuned", "confluent-batches")]
        kind = own.contender.label.removeprefix("pyproducer").removeprefix(", ")
        title = ", ".join(filter(None, [results.scene.title, kind]))
        rows.append(f"| {title} | {' | '.join(_ratio(own, other) for other in others)} |")
    return rows


def _ratio(own: Result, other: Result | None) -> str:
    return "" if other is None else f"**{rate(own) / rate(other):.2f}×** ({_client(own) / _client(other):.2f}×)"


def _price_of_tls(results: SceneResults) -> list[str]:
    """Return the price beside the same sink without TLS, in the runs of the same rounds.

    The CPU is that of the Python workers, since the JVM passes rows on and knows nothing of TLS.
    """
    plain, found = results.find("pyproducer"), []
    for own in map(results.find, _SECURED):
        if own is None or plain is None:
            continue
        rounds = list(zip(own.runs, plain.runs, strict=False))
        slower = median(secured.rate / bare.rate for secured, bare in rounds)
        cpu = median((secured.python_cpu - bare.python_cpu) * 1e9 / secured.log_size for secured, bare in rounds)
        found.append(
            f"- {own.contender.label} ÷ {plain.contender.label}: **{slower:.2f}×** the rate, {cpu:+.2f} ns of Python's CPU a byte"
        )
    return found


def _price_of_exactly_once(results: SceneResults) -> list[str]:
    """Return the price beside the same sink without transactions, in the runs of the same rounds; nothing where none ran."""
    plain, own = results.find("pyproducer"), results.find("pyproducer-exactly-once")
    if plain is None or own is None:
        return []
    rounds = list(zip(own.runs, plain.runs, strict=False))
    slower = median(once.rate / bare.rate for once, bare in rounds)
    later = median(once.seconds - bare.seconds for once, bare in rounds)
    return [
        f"- {own.contender.label} ÷ {plain.contender.label}: **{slower:.2f}×** the rate, {later * 1000:+.0f} ms for the write"
    ]


def rate(result: Result) -> float:
    """Return the median of records per second."""
    return result.median(lambda run: run.rate)


def _client(result: Result) -> float:
    return result.median(lambda run: run.client_per_million)


def draw(results: SceneResults, path: Path) -> None:
    """Draw rates (one dot per run) and client CPU of all contenders that reach Kafka."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "pyproducer"
    from matplotlib import pyplot as plt

    shown = [result for result in reversed(results.results) if result.runs and result.contender.reaches_kafka]
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, len(shown) * 0.45 + 1), layout="constrained")
    labels = [result.contender.label for result in shown]
    colours = ["tab:blue" if name.startswith("pyproducer") else "tab:gray" for name in labels]
    left.barh(labels, [rate(result) / 1e6 for result in shown], color=colours, alpha=0.6)
    for place, result in enumerate(shown):
        left.plot([run.rate / 1e6 for run in result.runs], [place] * len(result.runs), "k.", markersize=4)
    left.set_title(results.scene.title, loc="left", fontsize=10)
    left.set_xlabel("million records per second")
    _draw_cpu(right, shown)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _draw_cpu(axes: Any, shown: Sequence[Result]) -> None:
    """Draw stacked bars. One that is far longer than the rest is broken off, with a mark, and has its number before it."""
    jvm = [result.median(lambda run: run.per_million(run.jvm_cpu)) for result in shown]
    python = [result.median(lambda run: run.per_million(run.python_cpu)) for result in shown]
    totals = [_client(result) for result in shown]  # as in the table, it is not always the sum of the two medians
    places = range(len(shown))
    axes.barh(places, jvm, color="tab:orange", label="JVM")
    axes.barh(places, python, left=jvm, color="tab:green", label="Python")
    edge = 1.25 * max((total for total in totals if total <= _FAR * median(totals)), default=1.0)
    for place, total in enumerate(totals):
        if total < 0.85 * edge:
            axes.text(
                jvm[place] + python[place] + 0.01 * edge, place, f"{total:.2f}", va="center", ha="left", color="black"
            )
        else:
            axes.text(0.9 * edge, place, f"{total:.2f}", va="center", ha="right", color="white", weight="bold")
            # The bar's end is drawn under the mark, whichever part of the bar the mark is in; it is Python's if Python fills it.
            stub = 0.05 * edge
            end = axes.barh(place, stub, left=edge - stub, color="tab:green" if python[place] > stub else "tab:orange")
            end[0].set_gid(f"end-{place}")
            _break_off(axes, edge - stub, place, 0.012 * edge)
    axes.set_xlim(0, edge)
    axes.set_yticks([])
    axes.set_xlabel("client CPU, seconds per million records")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)


def _break_off(axes: Any, where: float, place: int, width: float) -> None:
    """Draw two slanted strokes with a gap between them, which mark a bar that is longer than drawn."""
    bottom, top = place - 0.5, place + 0.5
    for left in (where - width, where + width):
        axes.plot([left - width / 2, left + width / 2], [bottom, top], color="black", linewidth=1, zorder=4)
    corners = [
        (where - 1.5 * width, bottom),
        (where - width / 2, top),
        (where + 1.5 * width, top),
        (where + width / 2, bottom),
    ]
    axes.fill(*zip(*corners, strict=True), color="white", zorder=3, gid=f"broken-off-{place}")
