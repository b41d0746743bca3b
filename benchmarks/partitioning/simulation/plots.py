"""The tables and plots of the partitioners' comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.partitioning.simulation.recorded import PERCENTILES, Measured, Spread
from benchmarks.partitioning.simulation.scenes import SLOW_NODE, Comparison
from benchmarks.partitioning.simulation.simulator import Outcome

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def kip_794_table(outcomes: Mapping[str, Outcome]) -> str:
    """Return the table of the simulated slow broker, with one row per rule."""
    lines = [
        "| partitioner | MB/s | mean ms | p50 | p95 | p99 | p99.9 | bytes on the slow broker |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, outcome in outcomes.items():
        shares = [f"{1000 * outcome.percentile(share):.0f}" for share in (0.5, 0.95, 0.99, 0.999)]
        megabytes = sum(outcome.bytes_by_node.values()) / outcome.seconds / (1 << 20)
        cells = [name, f"{megabytes:.2f}", f"{1000 * outcome.mean:.0f}", *shares, f"{outcome.share_of(SLOW_NODE):.0%}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def kip_480_table(comparisons: Sequence[Comparison]) -> str:
    """Return the table of round robin beside sticky, simulated, with one row per scene."""
    lines = [
        "| partitions | linger ms | records per batch | requests per second | p99 ms | p99 ratio |",
        "|---|---|---|---|---|---|",
    ]
    for found in comparisons:
        pairs = [
            (side.records / side.batches, side.requests / side.seconds, 1000 * side.percentile(0.99))
            for side in found[3:]
        ]
        (batch, requests, wait), (batch_2, requests_2, wait_2) = pairs
        lines.append(
            f"| {found.partitions} | {1000 * found.linger:.0f} | {batch:.1f} → {batch_2:.1f} | "
            f"{requests:.0f} → {requests_2:.0f} | {wait:.1f} → {wait_2:.1f} | {found.p99_ratio:.1f} |"
        )
    return "\n".join(lines) + "\n"


def slow_broker_table(runs: Sequence[Measured]) -> str:
    """Return the table of the measured slow broker, with one row per run."""
    lines = [
        "| partitioner | producer | MB/s | mean ms | p50 | p95 | p99 | p99.9 | records on the slow broker, and the others |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for run in runs:
        waits = [f"{run.percentiles[name]:.0f}" for name in PERCENTILES]
        shares = " ".join(f"{share:.0%}" for share in run.shares)
        cells = [run.variant, run.producer, f"{run.megabytes:.2f}", f"{run.mean:.0f}", *waits, shares]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def spread_table(runs: Sequence[Spread]) -> str:
    """Return the table of round robin beside sticky, measured, with one row per scene and producer, in the order of the runs."""
    lines = [
        "| partitions | linger ms | producer | records per batch | requests per second | p99 ms | p99 ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    sides: dict[tuple[int, int, bool], list[Spread]] = {}
    for run in runs:
        sides.setdefault((run.linger_ms, run.partitions, run.measured.producer == "pyproducer"), []).append(run)
    for (linger, partitions, ours), (spread, stuck) in sides.items():
        waits = [side.measured.percentiles["p99"] for side in (spread, stuck)]
        cells = [
            f"{partitions}",
            f"{linger}",
            "pyproducer" if ours else "Kafka",
            f"{spread.records_per_batch:.1f} → {stuck.records_per_batch:.1f}",
            f"{spread.requests_per_second:.0f} → {stuck.requests_per_second:.0f}",
            f"{waits[0]:.0f} → {waits[1]:.0f}",
            f"{waits[0] / max(1.0, waits[1]):.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def draw_kip_794(outcomes: Mapping[str, Outcome], path: Path | None = None) -> Figure:
    """Draw the latency by percentile, and the share of each broker. Write `path` if given, and return the figure."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.2), layout="constrained")
    waits, shares = figure.subplots(1, 2, width_ratios=[3, 2])
    for name, outcome in outcomes.items():
        step = max(1, outcome.records // 2000)
        points = outcome.latencies[::step]
        waits.plot([at / len(points) for at in range(len(points))], 1000 * points, label=name)
    waits.set(yscale="log", xlabel="share of the records", ylabel="latency, ms", title="How long records wait")
    left = [0.0] * len(outcomes)
    for node in (0, 1, 2):
        widths = [outcome.share_of(node) for outcome in outcomes.values()]
        shares.barh(
            list(outcomes), widths, left=left, label="slow broker" if node == SLOW_NODE else f"broker {node + 1}"
        )
        left = [before + width for before, width in zip(left, widths, strict=True)]
    shares.axvline(1 / 3, color="black", linewidth=0.8, linestyle=":")
    shares.set(xlabel="share of the bytes", title="Where they go", xlim=(0, 1))
    shares.invert_yaxis()
    # The legends belong to the figure: those of a panel may be wider than it, and would be cut at the edge of the picture.
    figure.legend(*waits.get_legend_handles_labels(), fontsize=8, ncols=3, loc="outside lower left")
    figure.legend(*shares.get_legend_handles_labels(), fontsize=8, ncols=3, loc="outside lower right")
    if path is not None:
        figure.savefig(path, metadata={"Date": None})
    return figure


def draw_slow_broker(runs: Sequence[Measured], path: Path | None = None) -> Figure:
    """Draw both producers' latencies, mean and p99, and the slow broker's share, by rule. Return the figure."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(run.variant for run in runs))
    figure = Figure(figsize=(11, 1.2 + 0.6 * len(names)), layout="constrained")
    waits, shares = figure.subplots(1, 2, width_ratios=[3, 2], sharey=True)
    for shift, ours, label, color in ((-0.2, False, "Kafka's", "tab:orange"), (0.2, True, "pyproducer", "tab:blue")):
        side = [run for run in runs if (run.producer == "pyproducer") == ours]
        rows = [names.index(run.variant) + shift for run in side]
        waits.barh(rows, [run.percentiles["p99"] for run in side], 0.36, color=color, alpha=0.35, label=f"{label}, p99")
        means = waits.barh(rows, [run.mean for run in side], 0.36, color=color, label=f"{label}, mean")
        waits.bar_label(means, fmt="%.0f", label_type="center", fontsize=8, color="white")
        shares.barh(rows, [run.shares[0] for run in side], 0.36, color=color)
    waits.set(xscale="log", xlabel="latency, ms", title="How long records wait", xlim=(1, None))
    waits.set_yticks(range(len(names)), names)
    waits.invert_yaxis()
    shares.axvline(1 / 3, color="black", linewidth=0.8, linestyle=":")
    shares.set(xlabel="share of the bytes", title="What the slow broker gets", xlim=(0, 1))
    figure.legend(*waits.get_legend_handles_labels(), fontsize=8, ncols=4, loc="outside lower center")
    if path is not None:
        figure.savefig(path, metadata={"Date": None})
    return figure


def draw_kip_480(comparisons: Sequence[Comparison], path: Path | None = None) -> Figure:
    """Draw the p99 of round robin and sticky by partition count, with one panel per linger. Return the figure."""
    from matplotlib.figure import Figure

    lingers = sorted({found.linger for found in comparisons})
    figure = Figure(figsize=(11, 3.8), layout="constrained")
    for panel, linger in zip(figure.subplots(1, len(lingers), squeeze=False)[0], lingers, strict=True):
        chosen = [found for found in comparisons if found.linger == linger]
        places = range(len(chosen))
        sides = {"round robin": [found.round_robin for found in chosen], "sticky": [found.sticky for found in chosen]}
        for shift, (name, outcomes) in zip((-0.2, 0.2), sides.items(), strict=True):
            waits = [1000 * outcome.percentile(0.99) for outcome in outcomes]
            bars = panel.bar([place + shift for place in places], waits, 0.4, label=name)
            panel.bar_label(bars, fmt="%.1f", fontsize=8)
        panel.set_xticks(list(places), [f"{found.partitions} partitions" for found in chosen])
        panel.set(ylabel="p99 latency, ms", title=f"linger.ms {1000 * linger:.0f}")
        panel.legend(fontsize=8)
    if path is not None:
        figure.savefig(path, metadata={"Date": None})
    return figure
