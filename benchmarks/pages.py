"""The pages of all parts: the main page, which begins with the headlines of all of them, and sister pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks import headlines
from benchmarks.headlines import Headline
from benchmarks.part import Measured, Part, load

MADE_BY = "Made by `make bench`; do not edit."

_ABOUT = (
    "Each part was measured in one run, in which the contenders took turns; ratios are always within one part. Parts are "
    "measured again one by one (`make bench ARGS='--parts NAME'`), so the line under each says with which commit and on which "
    "machine. Absolute figures differ between machines: the ratios are what to look at."
)


def folder_of(page: Path) -> Path:
    """Return the folder of the results from which a main page is made."""
    return page.with_suffix("")


def write_pages(parts: Sequence[Part], page: Path) -> list[Path]:
    """Write the main page, the sister pages and all pictures from the stored results, and return the files."""
    stored = [(part, load(folder_of(page), part.name)) for part in parts]
    found = [(part, measured) for part, measured in stored if measured is not None]
    written = []
    for part, measured in found:
        if part.sister:
            written.append(_write(page.with_name(part.sister), _sister(part, measured, page)))
    return [*written, _write(page, _main(found, page))]


def _write(path: Path, text: str) -> Path:
    path.write_text(text.rstrip() + "\n", encoding="utf-8")
    return path


def _main(found: Iterable[tuple[Part, Measured]], page: Path) -> str:
    told: list[Headline] = []
    sections: list[str] = []
    others: list[str] = []
    notes = ""
    for part, measured in found:
        told += part.headlines(measured.results)
        if part.sister:
            others.append(f"- [{part.title}]({part.sister})")
        else:
            sections += [part.notes, ""] if part.notes not in ("", notes) else []
            notes = part.notes
            sections += [f"## {part.title}", "", *_body(part, measured, page), ""]
    lines = ["# Benchmarks", "", MADE_BY, ""]
    if told:
        picture = page.with_name(f"{page.stem}_headlines.svg")
        headlines.draw(told, picture)
        lines += [f"![{headlines.alternative(told)}]({picture.name})", ""]
        lines += [*map(headlines.sentence, told), ""]
    return "\n".join([*lines, _ABOUT, "", *others, *[""] * bool(others), *sections])


def _sister(part: Part, measured: Measured, page: Path) -> str:
    back = f"The whole: [Benchmarks]({page.name})."
    return "\n".join([f"# {part.title}", "", f"{MADE_BY} {back}", "", *_body(part, measured, page)])


def _body(part: Part, measured: Measured, page: Path) -> list[str]:
    facts = ", ".join(f"{name} {value}" for name, value in measured.facts.items())
    lines = [part.page(measured.results).strip(), "", f"<sub>Measured with {facts}.</sub>"]
    if part.draw is None:
        return lines
    picture = page.with_name(part.sister or f"{page.stem}_{part.name}").with_suffix(".svg")
    part.draw(measured.results, picture)
    return [f"![{part.title}]({picture.name})", "", *lines]
