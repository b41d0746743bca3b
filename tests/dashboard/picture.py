"""Draws the panels of one row of the dashboard from Prometheus' answers, for a light page and a dark one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.headlines import with_dark_colours

INK, GRID = "#1f2328", "#d8dee4"
LINES = ("#1f6feb", "#bc4c00", "#1a7f37", "#8250df", "#bf3989", "#9a6700")
DARK = {
    INK: "#e6edf3", GRID: "#30363d", "#1f6feb": "#58a6ff", "#bc4c00": "#f0883e", "#1a7f37": "#3fb950", "#8250df": "#bc8cff",
    "#bf3989": "#f778ba", "#9a6700": "#d29922",
}  # fmt: skip
"""Colour → the colour where the reader's page is dark: the picture has no ground of its own."""
UNITS = {"cps": "per second", "percentunit": "%", "s": "ms", "ms": "ms", "bytes": "MiB", "Bps": "KiB/s", "short": ""}
SCALES = {"percentunit": 100.0, "s": 1000.0, "bytes": 2.0**-20, "Bps": 2.0**-10}


class Line(NamedTuple):
    """A series in a panel: seconds since the begin of the picture, and values."""

    name: str
    seconds: Sequence[float]
    values: Sequence[float]


class Panel(NamedTuple):
    """A panel with its lines; the unit is Grafana's."""

    title: str
    unit: str
    lines: Sequence[Line]


def picture_name(row: str) -> str:
    """Return the name of the file of a row of panels."""
    return f"dashboard_{re.sub(r'[^a-z]+', '-', row.lower()).strip('-')}.svg"


def draw(panels: Sequence[Panel], path: Path) -> None:
    """Draw the panels of a row, two side by side."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "pyproducer"
    mpl.rcParams.update({"text.color": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK})
    mpl.rcParams.update({"axes.edgecolor": GRID, "axes.titlecolor": INK, "font.size": 9})
    from matplotlib import pyplot as plt

    rows = (len(panels) + 1) // 2
    figure, axes = plt.subplots(rows, 2, figsize=(11, 2.7 * rows), squeeze=False, layout="constrained")
    for plot, panel in zip(axes.flat, panels, strict=False):
        _draw_panel(plot, panel)
    for plot in list(axes.flat)[len(panels) :]:
        plot.set_visible(False)
    figure.savefig(path, metadata={"Date": None}, transparent=True)
    plt.close(figure)
    path.write_text(with_dark_colours(path.read_text(encoding="utf-8"), DARK), encoding="utf-8")


def _draw_panel(plot: Any, panel: Panel) -> None:
    scale = SCALES.get(panel.unit, 1.0)
    for line, colour in zip(panel.lines, LINES * 4, strict=False):
        plot.plot(line.seconds, [value * scale for value in line.values], color=colour, linewidth=1.6, label=line.name)
    unit = UNITS[panel.unit]
    plot.set_title(panel.title + (f", {unit}" if unit else ""), loc="left", fontsize=10, weight="bold")
    plot.set_ylim(bottom=0)
    plot.margins(x=0)
    plot.grid(axis="y", color=GRID, linewidth=0.8)
    plot.set_axisbelow(True)
    plot.spines[["top", "right", "left"]].set_visible(False)
    plot.tick_params(length=0)
    plot.set_xlabel("seconds")
    plot.legend(loc="upper left", bbox_to_anchor=(0, -0.22), ncols=3, frameon=False, fontsize=8, borderaxespad=0)
