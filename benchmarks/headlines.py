"""The figures that a user cares about, beside those of others, as sentences and one picture for the head of a page."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_COLUMNS = 2
_NAME, _TITLE = 27, 42  # characters of a line of a name, and of a title: a longer one would be cut at the edge
_WIDTH, _BAR, _FRAME = 11.0, 0.34, 0.7  # inches: the picture, a bar, the rest of a panel
_OURS, _OTHERS, _INK = "#1f6feb", "#c9ced6", "#1f2328"
_IN_THE_DARK = {_OURS: "#58a6ff", _OTHERS: "#57606a", _INK: "#e6edf3"}
"""The colours on the dark ground of a page: the picture itself has none."""
_AS_FAST = 1.05
"""Up to this ratio two figures count as the same."""


@dataclass(frozen=True)
class Headline:
    """One figure of pyproducer, `ours`, and the same figure of `others` by their names, all measured in one run."""

    title: str
    unit: str
    ours: float
    others: dict[str, float]
    lower_is_better: bool


def table(headlines: Sequence[Headline]) -> list[str]:
    """Return the lines of a table: each figure, and how much faster or slower that is than each of the others."""
    return ["| | pyproducer | beside others |", "|---|--:|---|", *map(_row, headlines)]


def _row(headline: Headline) -> str:
    compared = [
        f"{comparison(headline, value)} {name} ({shown(value)})" for name, value in headline.others.items() if value
    ]
    return f"| {headline.title} | **{shown(headline.ours)} {headline.unit}** | {', '.join(compared)} |"


def comparison(headline: Headline, value: float) -> str:
    """Return `2.2× faster than`, `1.9× slower than` or `as fast as`: our figure beside another one."""
    ratio = headline.ours / value
    faster = 1 / ratio if headline.lower_is_better else ratio
    factor = max(faster, 1 / faster)
    if factor < _AS_FAST:
        return "as fast as"
    return f"{factor:.{0 if factor >= 10 else 1}f}× {'faster' if faster > 1 else 'slower'} than"


def shown(value: float) -> str:
    """Return a number with three digits, or with all digits before the point."""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f}"


def draw(headlines: Sequence[Headline], path: Path) -> None:
    """Draw a small panel for each headline: bars, numbers, and how our figure compares with each of the others."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "pyproducer"
    mpl.rcParams.update({"text.color": _INK, "ytick.color": _INK, "axes.titlecolor": _INK})
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
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=110, transparent=True)
    plt.close(figure)
    if path.suffix == ".svg":
        path.write_text(with_dark_colours(path.read_text(encoding="utf-8"), _IN_THE_DARK), encoding="utf-8")


def with_dark_colours(svg: str, colours: Mapping[str, str]) -> str:
    """Return a picture of matplotlib's with other colours where the reader's are dark: those on the right of `colours`."""
    rules = "".join(
        f'[style*="{what}: {light}"]{{{what}:{dark}!important}}'
        for light, dark in colours.items()
        for what in ("fill", "stroke")
    )
    head, end, rest = svg.partition("<defs>")
    return f"{head}<style>@media (prefers-color-scheme: dark){{{rules}}}</style>\n {end}{rest}"


def _draw_panel(panel: Any, headline: Headline, count: int) -> None:
    """Draw our bar on top; after each bar stand its number and how ours compares with it. There is room for `count` bars."""
    names = ["pyproducer", *headline.others]
    values = [headline.ours, *headline.others.values()]
    edge = max(values) or 1.0
    places = range(len(values))
    bars = panel.barh(places, values, height=0.72, color=_OTHERS)
    bars[0].set_color(_OURS)
    for place, value in enumerate(values):
        text = shown(value)
        if place and value:
            text += f"   pyproducer is {comparison(headline, value).removesuffix(' than').removesuffix(' as')}"
        panel.text(value + 0.02 * edge, place, text, va="center", fontsize=9, weight="normal" if place else "bold")
    panel.set_yticks(places, [textwrap.fill(name, _NAME) for name in names], fontsize=9)
    panel.set_ylim(count - 0.5, -0.5)
    panel.set_xlim(0, 2.6 * edge)  # the rest is for the text after the longest bar
    panel.set_xticks([])
    panel.tick_params(left=False)
    panel.spines[["top", "right", "bottom", "left"]].set_visible(False)
    better = "less is better" if headline.lower_is_better else "more is better"
    panel.set_title(textwrap.fill(headline.title, _TITLE), loc="left", fontsize=10, weight="bold", pad=17)
    panel.annotate(
        f"{headline.unit}, {better}", (0, 1), (0, 5), xycoords="axes fraction", textcoords="offset points", fontsize=9
    )
