"""The page of the nemesis: what each run did, the verdicts, and a picture of one run on its time line.

    python -m tests.matrix.nemesis_page

Owns: docs/nemesis.md and its picture, made of the records in build/nemesis. Must not know: how a run is played.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.matrix.nemesis import FOLDER, Record

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE, PICTURE = DOCS / "nemesis.md", DOCS / "results" / "nemesis.svg"
HEAD = """# The nemesis

`python -m tests.matrix.nemesis_page` makes this page from what `make nemesis` has recorded.

A streaming query writes exactly once to three nodes of Kafka for five minutes while two processes do random harm. One kills or
pauses nodes, cuts, delays or loses responses, or moves leaders. The other kills the driver or a Python worker, stops the query,
pauses the driver, or starts a second one meanwhile. Small and large batches take turns, so that rows are written by the driver
and by tasks ([both paths](exactly_once_explained.md#two-paths)). *Exact*: a reader during the run and one after it saw each row
once and in order, and no transaction is open.

"""


def load() -> list[Record]:
    """All records of exactly-once runs, by version and seed."""
    found = [Record(**json.loads(path.read_text())) for path in FOLDER.glob("*.json")]
    return sorted((record for record in found if record.once), key=lambda record: (record.version, record.seed))


def as_table(records: Sequence[Record]) -> str:
    """One line for each run."""
    head = ["Kafka", "seed", "faults", "drivers and queries", "batches", "rows", "verdict"]
    lines = ["| " + " | ".join(head) + " |", "|" + " --: |" * (len(head) - 1) + " --- |"]
    for record in records:
        verdict = (
            "exact" if record.verdict == "exact" else f"**{record.verdict}**: {record.loud or record.violations[0]}"
        )
        cells = [
            record.version,
            record.seed,
            len(record.faults),
            len(record.lives),
            record.batches,
        ]
        lines.append("| " + " | ".join(map(str, [*cells, f"{record.rows:,}", verdict])) + " |")
    kinds = Counter(f"{fault}" for record in records for _, _, _, fault in record.faults)
    reported = ", ".join(f"{fault} {count}×" for fault, count in kinds.most_common())
    verdicts = Counter(record.verdict for record in records)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    return "\n".join(lines) + f"\n\n{len(records)} runs: {counts}. Faults: {reported}.\n"


COLORS = {
    "killed": "#c62828", "paused": "#6a1b9a", "clients cut": "#ef6c00", "answers late": "#f9a825", "answers lost": "#ad1457",
    "leaders moved": "#00838f", "worker killed": "#ef6c00", "query stopped": "#2e7d32", "replaced while paused": "#4527a0",
}  # fmt: skip


def draw(record: Record, path: Path) -> None:
    """Lanes of nodes and of the driver, and below them the rows that a reader has seen."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "pyproducer"
    from matplotlib import pyplot as plt

    figure, (lanes, rows) = plt.subplots(
        2, 1, figsize=(11, 4.6), sharex=True, height_ratios=(3, 2), layout="constrained"
    )
    names = ["node 1", "node 2", "node 3", "driver"]
    for begin, end in record.lives:
        lanes.barh(
            3, max(end - begin, 0.4), left=begin, height=0.5, color="#c9d8ee", edgecolor="#7f8ea3", linewidth=0.5
        )
    reported: set[str] = set()
    for begin, end, lane, fault in record.faults:
        label = None if fault in reported else fault
        reported.add(fault)
        length = max(end - begin, record.seconds / 250)
        place = names.index(lane)
        lanes.barh(place, length, left=begin, height=0.8 if place < 3 else 0.3, color=COLORS[fault], label=label)
    _finish_lanes(lanes, names)
    times = [moment for moment, _ in record.visible]
    counts = [count for _, count in record.visible]
    rows.plot(times, counts, color="#1f6feb", linewidth=1.2)
    rows.set_ylabel("rows seen")
    rows.set_xlabel("seconds")
    rows.grid(alpha=0.3)
    for side in ("top", "right"):
        rows.spines[side].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _finish_lanes(lanes: Any, names: Sequence[str]) -> None:
    lanes.set_yticks(range(len(names)), names)
    lanes.invert_yaxis()
    lanes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=5, frameon=False, fontsize=8)
    for side in ("top", "right", "left"):
        lanes.spines[side].set_visible(False)


def write() -> None:
    """Write the page and the picture."""
    records = load()
    text = HEAD + as_table(records)
    if records:
        shown = max(records, key=lambda record: len(record.faults))
        draw(shown, PICTURE)
        caption = f"The run on Kafka {shown.version} with seed {shown.seed}: what was done to nodes and driver, and the rows seen"
        text += f"\n![{caption}](results/{PICTURE.name})\n\n{caption}. Light bars are runs of the query.\n"
    PAGE.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    write()
