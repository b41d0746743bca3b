"""Draws docs/packages.svg: the packages of `spark_producer`, from the import contracts in pyproject.toml, for `docs/update.py`.

The lines, and the packages that may use sockets, threads, the clock or pyspark, are those that `lint-imports` enforces. The text
of a package is the first sentence of its docstring. So the picture cannot say anything that the code does not.
"""

from __future__ import annotations

import ast
import re
import textwrap
import tomllib
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "spark_producer"

OUTSIDE = {"pyspark": "pyspark", "socket": "sockets", "ssl": "TLS", "threading": "threads", "time": "clock"}
"""What only some packages may import, and its name in the picture."""

WIDTH, MARGIN, GAP = 1000, 12, 10
LEFT = 40
"""of the boxes: the arrow stands before them"""
NAME_HEIGHT, LINE_HEIGHT, TAG_HEIGHT, PADDING = 20, 15, 20, 10
CHARACTER = 6.3
"""Width of a character of the small font, on the safe side."""

STYLE = """
  .page { fill: #ffffff; } .line { fill: #f1f4f8; } .box { fill: #ffffff; stroke: #7f8ea3; }
  text { font-family: "DejaVu Sans", Verdana, sans-serif; font-size: 11px; fill: #3a4656; }
  .name { font-size: 14px; font-weight: bold; fill: #10243e; } .tag { fill: #8a3b12; font-weight: bold; }
  .arrow { stroke: #7f8ea3; stroke-width: 2; fill: none; } .tip { fill: #7f8ea3; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; } .line { fill: #161d27; } .box { fill: #0d1117; stroke: #5b6b82; }
    text { fill: #c3cedb; } .name { fill: #ffffff; } .tag { fill: #ffa657; }
    .arrow { stroke: #5b6b82; } .tip { fill: #5b6b82; }
  }
"""


class Package(NamedTuple):
    """A folder or module at the top of the package, what it is, and what only it and few others may use."""

    name: str
    sentence: str
    uses: tuple[str, ...]


def packages() -> list[list[Package]]:
    """The lines of the layout, top to bottom."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts: list[dict[str, Any]] = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    lines = next(found["layers"] for found in contracts if found["type"] == "layers" and found.get("exhaustive"))
    refused = {
        OUTSIDE[found["forbidden_modules"][0]]: {module.partition(".")[2] for module in found["source_modules"]}
        for found in contracts
        if found["type"] == "forbidden" and found["forbidden_modules"][0] in OUTSIDE
    }
    return [
        [
            Package(name, _sentence(name), tuple(thing for thing, by in refused.items() if name not in by))
            for name in re.findall(r"\w+", line)
        ]
        for line in lines
    ]


def _sentence(package: str) -> str:
    """The first sentence of a package's docstring, without marks of code and without its full stop."""
    folder = ROOT / PACKAGE / package
    source = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    docstring = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    first = " ".join(docstring.partition("\n\n")[0].split())
    return re.split(r"\.(?= [A-Z]|$)", first.replace("`", ""))[0]


def packages_picture() -> str:
    """The whole of docs/packages.svg."""
    parts: list[str] = []
    top = MARGIN
    for line in packages():
        drawn, height = _line(line, top)
        parts += drawn
        top += height + GAP
    bottom = top - GAP + MARGIN
    arrow = [
        f'<path class="arrow" d="M 20 {MARGIN} V {bottom - MARGIN - 8}"/>',
        f'<path class="tip" d="M 14 {bottom - MARGIN - 10} h 12 l -6 10 z"/>',
        f'<text transform="translate(15 {bottom / 2 + 30:g}) rotate(-90)">imports</text>',
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{bottom}" viewBox="0 0 {WIDTH} {bottom}">'
    title = "<title>The packages of spark_producer, top to bottom in the order of imports</title>"
    page = f'<rect class="page" width="{WIDTH}" height="{bottom}"/>'
    return "\n".join([head, title, f"<style>{STYLE}</style>", page, *parts, *arrow, "</svg>"]) + "\n"


def _line(line: list[Package], top: int) -> tuple[list[str], int]:
    """One line of packages side by side, and its height."""
    inner = WIDTH - LEFT - MARGIN - GAP * (len(line) + 1)
    width = inner // len(line)
    texts = [textwrap.wrap(package.sentence, int((width - 2 * PADDING) / CHARACTER)) for package in line]
    tags = TAG_HEIGHT if any(package.uses for package in line) else 0
    height = 2 * PADDING + NAME_HEIGHT + LINE_HEIGHT * max(map(len, texts)) + tags
    parts = [
        f'<rect class="line" x="{LEFT}" y="{top}" width="{WIDTH - LEFT - MARGIN}" height="{height + 2 * GAP}" rx="6"/>'
    ]
    for place, (package, text) in enumerate(zip(line, texts, strict=True)):
        left = LEFT + GAP + place * (width + GAP)
        parts += _box(package, text, left, top + GAP, width, height)
    return parts, height + 2 * GAP


def _box(package: Package, text: list[str], left: int, top: int, width: int, height: int) -> list[str]:
    x, y = left + PADDING, top + PADDING + 12
    parts = [
        f'<rect class="box" x="{left}" y="{top}" width="{width}" height="{height}" rx="4"/>',
        f'<text class="name" x="{x}" y="{y}">{escape(package.name)}</text>',
    ]
    for number, part in enumerate(text):
        parts.append(f'<text x="{x}" y="{y + NAME_HEIGHT + number * LINE_HEIGHT}">{escape(part)}</text>')
    if package.uses:
        parts.append(f'<text class="tag" x="{x}" y="{top + height - PADDING}">{", ".join(package.uses)}</text>')
    return parts
