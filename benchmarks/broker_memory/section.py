"""A part of the page beside the tiers: an experiment of its own kind, with its table and its picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, RED = "#4878a8", "#e0b040", "#4c9f70", "#b05050"
PAGE_WIDTH = 9
"""Inches of a picture."""


@dataclass(frozen=True)
class Section:
    """The results of one experiment.

    name: with which it is asked for, e.g. `E4`.
    article: what the article says of it, and what numbers it has.
    table: lines of Markdown.
    notes: how to read them, as lines of Markdown.
    picture: makes the picture.
    faults: what contradicts the article.
    """

    name: str
    title: str
    article: str
    table: Sequence[str]
    notes: Sequence[str]
    picture: Callable[[], Figure]
    faults: Sequence[str]

    def draw(self, page: Path) -> str:
        """Draw the picture into `results` beside the page; return its path from there."""
        import matplotlib as mpl

        mpl.rcParams["svg.hashsalt"] = "pyproducer"
        path = page.with_name("results") / f"{page.stem}_{self.name.lower()}.svg"
        path.parent.mkdir(exist_ok=True)
        self.picture().savefig(path, metadata={"Date": None})
        return str(path.relative_to(page.parent))

    def lines(self, picture: str) -> list[str]:
        """Return the part of the page."""
        return [
            f"## {self.name}: {self.title}",
            "",
            f"**The article**: {self.article}",
            "",
            f"![{self.title}]({picture})",
            "",
            *self.table,
            "",
            *self.notes,
        ]


def new_figure(height: float) -> Figure:
    """Return an empty picture as wide as a page."""
    from matplotlib.figure import Figure

    return Figure(figsize=(PAGE_WIDTH, height), layout="constrained")
