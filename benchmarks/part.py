"""A part of the benchmarks: it is measured in one go, so that its ratios hold, and its results are a file until the next time."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.headlines import Headline

Results = Mapping[str, Any]
"""The results of a part, as JSON values."""


@dataclass(frozen=True)
class Options:
    """The options of the command line for every part. With None the part chooses the number."""

    rows: int = 4_000_000
    """The rows of the bulk scenes with small values; other parts have their own sizes."""
    repetitions: int | None = None
    warmups: int | None = None
    only: tuple[str, ...] = ()
    """The contenders of the bulk scenes; all if it is empty."""


def no_headlines(_: Results) -> list[Headline]:
    """Return no headline: the tables of the part say it."""
    return []


@dataclass(frozen=True)
class Part:
    """A part of the benchmarks: its measurement and its page."""

    name: str
    title: str
    run: Callable[[Options], Results]
    page: Callable[[Results], str]
    headlines: Callable[[Results], list[Headline]] = no_headlines
    draw: Callable[[Results, Path], None] | None = None
    """Draws a picture, which stands before `page`."""
    notes: str = ""
    """Explains its tables. Neighbouring parts with the same notes show them once."""
    ratios: Callable[[Results], list[str]] | None = None
    """Returns rows of the main page's table of ratios."""
    sister: str = ""
    """The file of its own page beside the main page; without one the part is a section of the main page."""


@dataclass(frozen=True)
class Measured:
    """The results of a part, and the facts about the machine on which it was measured."""

    facts: Mapping[str, str]
    results: Results


def store(folder: Path, name: str, measured: Measured) -> Path:
    """Write the results of part `name`, and return the file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    content = {"facts": dict(measured.facts), "results": dict(measured.results)}
    half = path.with_suffix(".part")  # an interrupted write leaves the old file
    half.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    half.replace(path)
    return path


def load(folder: Path, name: str) -> Measured | None:
    """Return what was stored for part `name`, if anything was.

    Raises:
        ValueError: the file is damaged.
    """
    path = folder / f"{name}.json"
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Measured(dict(content["facts"]), dict(content["results"]))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is damaged ({type(error).__name__}: {error}): take it away, or measure the part again with "
            f"`python -m benchmarks --parts {name}`"
        ) from error
