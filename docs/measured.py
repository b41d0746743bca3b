"""The table of measured figures in docs/sizing.md, which is taken from docs/benchmarks.md; `docs/update.py` writes it.

So a figure of the page is always one that `make bench` has measured, and `make docs` brings it up to date.
"""

from __future__ import annotations

import re
from typing import NamedTuple

BEGIN, END = "<!-- made by make docs -->\n", "<!-- end of what is made -->"


class Scene(NamedTuple):
    """A row of the table: the part of the benchmarks, its heading there, the contender, and the text for the rows."""

    part: str
    heading: str
    contender: str
    rows: str


SCENES = (
    Scene("small", "100 B values, 4 partitions", "pyproducer", "100 B, to 4 partitions"),
    Scene("many-partitions", "100 B values, 200 partitions", "pyproducer", "100 B, to 200 partitions"),
    Scene("thousand-partitions", "100 B values, 1,000 partitions", "pyproducer", "100 B, to 1,000 partitions"),
    Scene("large", "1,000 B values, 4 partitions", "pyproducer", "1,000 B, to 4 partitions"),
    Scene("tls", "100 B values over TLS, 4 partitions", "pyproducer, SSL", "100 B, to 4 partitions, over TLS"),
    Scene(
        "compressed",
        "JSON of about 200 B, compressed, 4 partitions",
        "pyproducer, lz4",
        "JSON of 200 B, to 4 partitions, `lz4`",
    ),
    Scene(
        "compressed",
        "JSON of about 200 B, compressed, 4 partitions",
        "pyproducer, zstd",
        "JSON of 200 B, to 4 partitions, `zstd`",
    ),
)

COLUMNS = ("M records/s", "Python", "JVM", "worker peak MiB", "log B")
"""Of the tables of the benchmarks, by the beginnings of their names."""


def figures(benchmarks: str, scene: Scene) -> list[str]:
    """Return what a scene has in `COLUMNS`; of the rates only the median.

    Raises:
        LookupError: the page of the benchmarks has no such scene any more.
    """
    section = benchmarks.partition(f"\n## {scene.heading}\n")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*\|$", section, re.MULTILINE)
    ]
    found = next((row for row in rows if row[0] == scene.contender), None)
    if found is None:
        raise LookupError(f"docs/benchmarks.md has no {scene.contender!r} under {scene.heading!r}")
    places = [next(at for at, name in enumerate(rows[0]) if name.startswith(column)) for column in COLUMNS]
    return [found[place].partition(";")[0] for place in places]


def measured_table(benchmarks: str) -> str:
    """Return the table, from the text of docs/benchmarks.md."""
    lines = [
        "| values of | million records/s | CPU s for a million: Python | JVM | worker, MiB | bytes in the log | part |",
        "|---|--:|--:|--:|--:|--:|---|",
    ]
    for scene in SCENES:
        lines.append(f"| {' | '.join([scene.rows, *figures(benchmarks, scene), f'`{scene.part}`'])} |")
    return "\n".join(lines) + "\n"


def with_measured_table(page: str, benchmarks: str) -> str:
    """Return docs/sizing.md with the table as it is now."""
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n{measured_table(benchmarks)}\n{END}{after}"
