"""The figures that a user cares about, beside those of others, as sentences and one picture for the head of a page."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_COLUMNS = 2
_NAME, _TITLE = 27, 42  # characters of a line of a name, and of a title: a longer one would be cut at the edge
_WIDTH, _BAR, _FRAME = 11.0, 0.34, 0.7  # inches: the picture, a bar, the rest of a panel
_OURS, _OTHERS = "#1f6feb", "#c9ced6"
_MOST_FOR_OTHERS = 4.0
"""A bar may be at most so many times as long as the longest of the others; a longer one is cut, and its number says how long
it is."""


@dataclass(frozen=True)
class Headline:
    """One figure of pyproducer, `ours`, and the same figure of `others` by their names, all measured in one run."""

    title: str
    unit: str
    ours: float
    others: dict[str, float]
    lower_is_better: bool


def sentence(headline: Headline) -> str:
    """Return a line of Markdown: the figure, and its ratio to each of the others."""
    compared = [
        f"{headline.ours / value:.2f}× {name} ({shown(value)})" for name, value in headline.others.items() if value
    ]
    less = ", less is better" * headline.lower_is_better
    own = f"**{shown(headline.ours)} {headline.unit}**{less}"
    return f"- {headline.title}: {own}{': ' * bool(compared)}{', '.join(compared)}"


def shown(value: float) -> str:
    """Return a number with three digits, or with all digits before the point."""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f}"


def draw(headlines: Sequence[Headline], path: Path) -> None:
    """Draw a small panel for each headline: bars, numbers, and the ratio of our figure to each of the others."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "pyproducer"
    from matplotlib import pyplot as plt

    lines = [headlines[first : first + _COLUMNS] for first in range(0, len(headlines), _COLUMNS)]
    bars = [max(1 + len(headline.others) for headline in line) for line in lines]
    heights = [_FRAME + _BAR * count for count in bars]
    figure, axes = plt.subplots(
        len(lines), _COLUMNS, figsize=(_WIDTH, sum(heights)), squeeze=False, layout="constrained", height_ratios=heights
    )
    for line, count, panels in zip(lines, bars, axes, strict=True):
        for place, panel in enumerate(panels):
            if place < len(line):
                _draw_panel(panel, line[place], count)
            else:
                panel.set_visible(False)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=110)
    plt.close(figure)


def _draw_panel(panel: Any, headline: Headline, count: int) -> None:
    """Draw our bar on top; behind each bar stand its number and the ratio of ours to it. There is room for `count` bars."""
    names = ["pyproducer", *headline.others]
    values = [headline.ours, *headline.others.values()]
    edge = min(max(values), _MOST_FOR_OTHERS * max([*values[1:], 0.0]) or max(values)) or 1.0
    places = range(len(values))
    bars = panel.barh(places, [min(value, edge) for value in values], height=0.72, color=_OTHERS)
    bars[0].set_color(_OURS)
    for place, value in enumerate(values):
        text = shown(value) + " (bar cut)" * (value > edge)
        text += f"   ours is {headline.ours / value:.2f}×" if place and value else ""
        panel.text(
            min(value, edge) + 0.02 * edge, place, text, va="center", fontsize=9, weight="normal" if place else "bold"
        )
    panel.set_yticks(places, [textwrap.fill(name, _NAME) for name in names], fontsize=9)
    panel.set_ylim(count - 0.5, -0.5)
    panel.set_xlim(0, 1.7 * edge)
    panel.set_xticks([])
    panel.tick_params(left=False)
    panel.spines[["top", "right", "bottom", "left"]].set_visible(False)
    better = "less is better" if headline.lower_is_better else "more is better"
    panel.set_title(textwrap.fill(headline.title, _TITLE), loc="left", fontsize=10, weight="bold", pad=17)
    panel.annotate(
        f"{headline.unit}, {better}", (0, 1), (0, 5), xycoords="axes fraction", textcoords="offset points", fontsize=9
    )
