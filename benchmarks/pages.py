"""The pages of all parts: the main page, which begins with the headlines of all of them, and sister pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import headlines, report
from benchmarks.contenders import CONTENDERS
from benchmarks.headlines import Headline
from benchmarks.part import Measured, Part, load

MADE_BY = "Made by `make bench`; do not edit."

_MEANING = """## What they mean

* **Bulk.** Small rows are faster than with Spark's sink, tuned or not, with less CPU, the more so the more partitions. With rows
  of 1,000 B, or headers, the tuned sink is as fast or faster: both move the same bytes.
* **Micro-batches.** Handing rows to Python costs tens of milliseconds each time. A stream of few rows waits longer than with
  Spark's sink; 100,000 rows in a micro-batch are even ([streaming](streaming.md)).
* **The first write of a session** takes seconds, since Spark starts Python processes.
* **Exactly once** costs a tenth of the rate in bulk, and tens of milliseconds in a micro-batch."""

_ABOUT = (
    "Each part was measured in one run, in which the contenders took turns; ratios are within one part. The line under a part "
    "has its commit, and what differs from the list below. Figures differ between machines: look at the ratios."
)


def folder_of(page: Path) -> Path:
    """Return the folder of results and pictures beside a main page."""
    return page.with_name("results")


def write_pages(parts: Sequence[Part], page: Path) -> list[Path]:
    """Write the main page, the sister pages and all pictures from the stored results, and return the files."""
    stored = [(part, load(folder_of(page), part.name)) for part in parts]
    found = [(part, measured) for part, measured in stored if measured is not None]
    written = []
    for part, measured in found:
        if part.sister:
            written.append(_write(page.with_name(part.sister), _sister(part, measured, page, _common(found))))
    return [*written, _write(page, _main(found, page))]


def _write(path: Path, text: str) -> Path:
    path.write_text(text.rstrip() + "\n", encoding="utf-8")
    return path


def _main(found: Sequence[tuple[Part, Measured]], page: Path) -> str:
    all_headlines: list[Headline] = []
    ratios: list[str] = []
    sections: list[str] = []
    others: list[str] = []
    notes: list[str] = []
    same = _common(found)
    for part, measured in found:
        all_headlines += part.headlines(measured.results)
        ratios += part.ratios(measured.results) if part.ratios is not None else []
        notes += [part.notes, ""] if part.notes and part.notes not in notes else []
        if part.sister:
            others.append(f"* [{part.title}]({part.sister})")
        else:
            sections += [f"## {part.title}", "", *_body(part, measured, page, same), ""]
    lines = ["# Benchmarks", ""]
    if all_headlines:
        picture = folder_of(page) / f"{page.stem}_headlines.svg"
        headlines.draw(all_headlines, picture)
        link = picture.relative_to(page.parent)
        lines += [f"![The figures below, as bars]({link})", "", *headlines.table(all_headlines), ""]
    if ratios:
        lines += ["Records per second, and in brackets the client's CPU:", "", *report.RATIOS, *ratios, ""]
    lines += [_MEANING, "", *others, *[""] * bool(others), *sections]
    made = [MADE_BY, "", _ABOUT, "", *notes, *_settings(), "", f"Measured with {_facts(same)}."]
    return "\n".join([*lines, "## How they are made", "", *made])


def _common(found: Sequence[tuple[Part, Measured]]) -> dict[str, str]:
    """Return the facts that most parts of the main page share."""
    shown = [measured.facts for part, measured in found if not part.sister]
    names = dict.fromkeys(name for facts in shown for name in facts if name != "pyproducer")
    return {name: Counter(facts[name] for facts in shown if name in facts).most_common(1)[0][0] for name in names}


def _settings() -> list[str]:
    """Return the table of contenders and their settings, without those whose labels say them."""
    shown = [one for one in CONTENDERS if one.protocol == "PLAINTEXT" and not one.compressed]
    rows = dict.fromkeys(f"| {one.label} | {one.settings} |" for one in shown)
    return ["| contender | settings (others: defaults and what the name says) |", "|---|---|", *rows]


def _facts(facts: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items())


def _sister(part: Part, measured: Measured, page: Path, known: Mapping[str, str]) -> str:
    back = f"{MADE_BY} All else as in [Benchmarks]({page.name})."
    return "\n".join([f"# {part.title}", "", *_body(part, measured, page, known), "", back])


def _body(part: Part, measured: Measured, page: Path, known: Mapping[str, str]) -> list[str]:
    """Return the text of a part, its picture, and those facts that are not `known`."""
    facts = {name: value for name, value in measured.facts.items() if known.get(name) != value}
    lines = [part.page(measured.results).strip(), "", f"<sub>Measured with {_facts(facts)}.</sub>"]
    if part.draw is None:
        return lines
    picture = (folder_of(page) / (part.sister or f"{page.stem}_{part.name}")).with_suffix(".svg")
    part.draw(measured.results, picture)
    return [f"![{part.title}]({picture.relative_to(page.parent)})", "", *lines]
