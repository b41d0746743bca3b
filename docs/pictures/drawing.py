"""Pictures of boxes, arrows and texts as SVG, which are readable on a light page and on a dark one.

Texts are measured with the widths of DejaVu Sans, which is wider than the fonts of most browsers. A text that is wider than its
box is an error, so no picture can be written in which a text leaves its box.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

WIDTHS = (
    318, 401, 460, 838, 636, 950, 780, 275, 390, 390, 500, 838, 318, 361, 318, 337, 636, 636, 636, 636, 636, 636, 636, 636, 636,
    636, 337, 337, 838, 838, 838, 531, 1000, 684, 686, 698, 770, 632, 575, 775, 752, 295, 295, 656, 557, 863, 748, 787, 603, 787,
    695, 635, 611, 732, 684, 989, 685, 611, 685, 390, 337, 390, 838, 500, 500, 613, 635, 550, 635, 615, 352, 635, 634, 278, 278,
    579, 278, 974, 634, 612, 635, 635, 411, 521, 392, 634, 592, 818, 592, 592, 525, 636, 337, 636, 838,
)  # fmt: skip
"""Of the characters from space to tilde, in thousandths of the size of the font."""

BOLD = 1.15
"""Factor by which bold text is wider, on the safe side."""

SIZES = {"name": 14, "head": 15, "note": 11, "step": 12}
SIZE = 12
"""Font size of all kinds that are not in `SIZES`."""

BOLD_KINDS = ("name", "head", "step")
LINE = 16
"""Pixels from one line of text to the next."""

PADDING = 10
_HEAD_LENGTH, _HEAD_WIDTH = 9, 4.5

STYLE = """
  .page { fill: #ffffff; } text { font-family: "DejaVu Sans", Verdana, sans-serif; font-size: 12px; fill: #3a4656; }
  .name { font-size: 14px; font-weight: bold; fill: #10243e; } .head { font-size: 15px; font-weight: bold; fill: #10243e; }
  .note { font-size: 11px; fill: #5d6b7c; } .step { font-weight: bold; fill: #ffffff; } .dot { fill: #10243e; }
  .frame { fill: #f6f8fa; stroke: #c5ceda; } .back { fill: #f6f8fa; }
  .outer { fill: #eceff3; stroke: #8793a3; } .plain { fill: #ffffff; stroke: #8793a3; }
  .task { fill: #ddeafc; stroke: #2f6fbf; } .io { fill: #d9f2e3; stroke: #2c8a57; } .memory { fill: #fdf3d7; stroke: #b98a1d; }
  .driver { fill: #eee5fb; stroke: #7b52b9; }
  .free { fill: #ffffff; stroke: #a3aebb; } .open { fill: #cfe1fa; stroke: #2f6fbf; } .waiting { fill: #fbe3a9; stroke: #b98a1d; }
  .flying { fill: #bfe8cf; stroke: #2c8a57; }
  .arrow { stroke: #55657a; stroke-width: 1.8; fill: none; } .thin { stroke: #8793a3; stroke-width: 1.2; fill: none; }
  .dashed { stroke: #8793a3; stroke-width: 1.4; stroke-dasharray: 5 4; fill: none; } .tip { fill: #55657a; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; } text { fill: #c3cedb; } .name, .head { fill: #ffffff; } .note { fill: #98a5b5; }
    .step { fill: #0d1117; } .dot { fill: #e6edf3; }
    .frame { fill: #141a22; stroke: #36414f; } .back { fill: #141a22; }
    .outer { fill: #1d2530; stroke: #647387; } .plain { fill: #0d1117; stroke: #647387; }
    .task { fill: #12294a; stroke: #5b9bea; } .io { fill: #11352a; stroke: #4fb886; } .memory { fill: #37290c; stroke: #d4a72c; }
    .driver { fill: #2a1d45; stroke: #a481e0; }
    .free { fill: #0d1117; stroke: #596677; } .open { fill: #1c4378; stroke: #5b9bea; }
    .waiting { fill: #5f4712; stroke: #d4a72c; } .flying { fill: #1b5b42; stroke: #4fb886; }
    .arrow { stroke: #9fb0c3; } .thin, .dashed { stroke: #647387; } .tip { fill: #9fb0c3; }
  }
"""


class Written(NamedTuple):
    """A line of text in a picture, with its position and size in pixels."""

    text: str
    left: float
    top: float
    width: float
    height: float


def width_of(text: str, kind: str = "") -> float:
    """Return the width of a text in the font of `kind`, in pixels."""
    thousandths = sum(WIDTHS[ord(one) - 32] if " " <= one <= "~" else 1000 for one in text)
    return thousandths / 1000 * SIZES.get(kind, SIZE) * (BOLD if kind in BOLD_KINDS else 1)


def wrapped(text: str, max_width: float, kind: str = "") -> list[str]:
    """Return a text in lines of at most `max_width` pixels.

    Raises:
        ValueError: a part without a space is wider.
    """
    lines: list[str] = []
    for part in text.split():
        longer = f"{lines[-1]} {part}" if lines else part
        if width_of(part, kind) > max_width:
            raise ValueError(f"{part!r} is wider than {max_width:g}")
        if lines and width_of(longer, kind) <= max_width:
            lines[-1] = longer
        else:
            lines.append(part)
    return lines


class Picture:
    """A drawing of `width` by `height` pixels, to which things are added from back to front."""

    def __init__(self, title: str, width: int, height: int) -> None:
        self.title, self.width, self.height = title, width, height
        self.written: list[Written] = []
        self._parts: list[str] = []

    def svg(self) -> str:
        """Return the whole file."""
        size = f'width="{self.width}" height="{self.height}" viewBox="0 0 {self.width} {self.height}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n<title>{escape(self.title)}</title>'
        page = f'<rect class="page" width="{self.width}" height="{self.height}"/>'
        return "\n".join([head, f"<style>{STYLE}</style>", page, *self._parts, "</svg>"]) + "\n"

    def block(self, kind: str, x: float, y: float, width: float, height: float, corner: float = 6) -> None:
        """Add a rectangle."""
        place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
        self._parts.append(f'<rect class="{kind}" {place} rx="{corner:g}"/>')

    def label(self, x: float, y: float, text: str, *, anchor: str = "start") -> None:
        """Add a note that hides the lines below it; `y` is its base line."""
        width = width_of(text, "note")
        left = x - (width / 2 if anchor == "middle" else 0)
        self.block("back", left - 3, y - 11, width + 6, 14, 2)
        self.text(x, y, text, "note", anchor=anchor)

    def text(
        self, x: float, y: float, text: str, kind: str = "", *, anchor: str = "start", max_width: float = 0
    ) -> None:
        """Add a line of text with the base line `y`, at most `max_width` pixels wide (0: up to the edges of the picture).

        Raises:
            ValueError: the text is wider.
        """
        width, size = width_of(text, kind), SIZES.get(kind, SIZE)
        left = x - {"start": 0.0, "middle": width / 2, "end": width}[anchor]
        if (max_width and width > max_width) or left < 0 or left + width > self.width or y > self.height:
            raise ValueError(f"{text!r} does not fit: {width:.0f} pixels wide from {left:.0f} on")
        self.written.append(Written(text, left, y - size, width, size))
        kind_of, anchored = f' class="{kind}"' if kind else "", f' text-anchor="{anchor}"' if anchor != "start" else ""
        self._parts.append(f'<text{kind_of} x="{x:g}" y="{y:g}"{anchored}>{escape(text)}</text>')

    def lines(self, x: float, y: float, text: str, max_width: float, kind: str = "", *, anchor: str = "start") -> float:
        """Add a text in lines of at most `max_width` pixels, the first at base line `y`; return the next base line."""
        for line in wrapped(text, max_width, kind):
            self.text(x, y, line, kind, anchor=anchor)
            y += LINE - (kind == "note")
        return y

    def box(self, kind: str, x: float, y: float, width: float, height: float, name: str, text: str = "") -> None:
        """Add a rectangle with a name and a text below it.

        Raises:
            ValueError: they do not fit.
        """
        self.block(kind, x, y, width, height)
        max_width = width - 2 * PADDING
        self.text(x + PADDING, y + PADDING + 12, name, "name", max_width=max_width)
        end = self.lines(x + PADDING, y + PADDING + 31, text, max_width) if text else y + PADDING + 12 + LINE
        if end - LINE + 6 > y + height:
            raise ValueError(f"the box {name!r} is {end - LINE + 6 - y - height:g} too low for its text")

    def step(self, x: float, y: float, number: int) -> None:
        """Add a number in a disc, whose middle is there."""
        self._parts.append(f'<circle class="dot" cx="{x:g}" cy="{y:g}" r="10"/>')
        self._parts.append(f'<text class="step" x="{x:g}" y="{y + 4.3:g}" text-anchor="middle">{number}</text>')

    def arrow(self, *points: tuple[float, float], kind: str = "arrow", both: bool = False) -> None:
        """Add a line through points, with a head at its end, or at both ends."""
        path = list(points)
        heads = [(points[-2], points[-1])] + ([(points[1], points[0])] if both else [])
        path[-1] = _before(*heads[0])
        if both:
            path[0] = _before(*heads[1])
        self.line(*path, kind=kind)
        for start, end in heads:
            self._parts.append(_tip(start, end))

    def line(self, *points: tuple[float, float], kind: str = "thin") -> None:
        """Add a line through points."""
        path = " L ".join(f"{x:g} {y:g}" for x, y in points)
        self._parts.append(f'<path class="{kind}" d="M {path}"/>')

    def bracket(self, x: float, y: float, width: float, text: str) -> None:
        """Add a bracket of `width` pixels with a text above it."""
        self.line((x, y), (x, y - 6), (x + width, y - 6), (x + width, y))
        self.text(x + width / 2, y - 12, text, "note", anchor="middle")


def _before(start: tuple[float, float], end: tuple[float, float]) -> tuple[float, float]:
    """Return the point at which the line to `end` stops, so that it does not show beyond the head."""
    length = math.dist(start, end)
    part = max(0.0, length - _HEAD_LENGTH + 1) / length
    return start[0] + (end[0] - start[0]) * part, start[1] + (end[1] - start[1]) * part


def _tip(start: tuple[float, float], end: tuple[float, float]) -> str:
    length = math.dist(start, end)
    along = (end[0] - start[0]) / length, (end[1] - start[1]) / length
    base = end[0] - along[0] * _HEAD_LENGTH, end[1] - along[1] * _HEAD_LENGTH
    sides: Sequence[tuple[float, float]] = [
        (base[0] - along[1] * side, base[1] + along[0] * side) for side in (_HEAD_WIDTH, -_HEAD_WIDTH)
    ]
    points = " L ".join(f"{x:.1f} {y:.1f}" for x, y in (end, *sides))
    return f'<path class="tip" d="M {points} z"/>'
