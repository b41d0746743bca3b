"""A part of the benchmarks: what is measured together, so that its ratios hold, and kept as a file until it is measured again.

Owns: what a part is made of, and the files of results. Must not know: any particular part, or how pages are put together.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.headlines import Headline

Results = Mapping[str, Any]
"""what a part has measured, as JSON has it"""


@dataclass(frozen=True)
class Options:
    """What the command line asks of every part. None leaves a number to the part."""

    rows: int = 4_000_000
    """of the bulk scenes with small values; other parts have their own sizes"""
    repetitions: int | None = None
    warmups: int | None = None
    only: tuple[str, ...] = ()
    """contenders of the bulk scenes; all where empty"""


@dataclass(frozen=True)
class Part:
    """How a part is measured and told. `page` gives Markdown without a title, its headings from `##` (sister) or `###` on."""

    name: str
    title: str
    run: Callable[[Options], Results]
    page: Callable[[Results], str]
    headlines: Callable[[Results], list[Headline]]
    draw: Callable[[Results, Path], None] | None = None
    """makes a picture, which stands before `page`"""
    notes: str = ""
    """how to read its tables; said once for neighbours that share it"""
    sister: str = ""
    """file of a page of its own, beside the main page; without one the part is a section of the main page"""


@dataclass(frozen=True)
class Measured:
    """The results of a part, and on what it was measured."""

    facts: Mapping[str, str]
    results: Results


def store(folder: Path, name: str, measured: Measured) -> Path:
    """Write the results of part `name`; returns the file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    content = {"facts": dict(measured.facts), "results": dict(measured.results)}
    half = path.with_suffix(".part")  # who is interrupted leaves what was there before
    half.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    half.replace(path)
    return path


def load(folder: Path, name: str) -> Measured | None:
    """What was stored of part `name`, if anything was.

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
