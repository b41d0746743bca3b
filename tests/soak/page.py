"""The page of a soak, and its plots: what was done, what was seen, and whether processes grew.

    python -m tests.soak.page [RECORD]

Owns: docs/soak.md, made of docs/results/soak.json, or of another record. Must not know: how a run is played.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.soak.samples import GROWTH, JUDGED_SECONDS, MEASURES, ROLES, SLACK, Sample, trend
from tests.soak.streams import PLANS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "soak.md"
BEFORE = "          - The nemesis: nemesis.md\n"
ENTRY = "          - The soak: soak.md\n"
"""The line of the site's navigation, and the one before it: a page without is an error, and so is one that does not exist."""
COLORS = {plan.name: color for plan, color in zip(PLANS, ("#1f6feb", "#2e7d32", "#c62828"), strict=True)}
KINDS = "tab20"
"""The colours of the kinds of fault, of which there are more than ten."""
HEAD = """# The soak

`make soak` plays this, and writes this page from what it has recorded; do not edit.

Three streams run side by side on three nodes of Kafka, over TLS with certificates of both sides: one at least once, one exactly
once, and one from Kafka to Kafka, which reads the second and writes exactly once. Random faults hit nodes and their disks,
drivers, Python workers and queries; topics get more partitions, certificates are replaced. A reader of committed rows
(librdkafka) counts each row while retention removes it. *Accounted*: each row of each committed micro-batch was seen, and those
of the exactly-once streams once; the rows of a key were in order in the first of them; no transaction is open at the end; each
stream has brought rows within any five minutes; no node has ended but by a fault. Tasks of the stream *exactly
once* have transactions of their own, the copy's rows are sent by its driver.
"""


def write(record: Mapping[str, Any], page: Path = PAGE) -> None:
    """Write the page, its plots and the record."""
    folder = page.with_name("results")
    folder.mkdir(parents=True, exist_ok=True)
    samples = [Sample(*each) for each in record["samples"]]
    (folder / f"{page.stem}.json").write_text(json.dumps(record) + "\n", encoding="utf-8")
    draw_events(record, folder / f"{page.stem}_events.svg")
    draw_samples(samples, folder / f"{page.stem}_processes.svg")
    page.write_text(render(record, samples, page.stem), encoding="utf-8")
    if page == PAGE:
        enter(ROOT / "mkdocs.yml")
    print(page)


def enter(site: Path) -> None:
    """Enter the page into the navigation of the site, if it is not there yet."""
    text = site.read_text(encoding="utf-8")
    if ENTRY not in text:
        site.write_text(text.replace(BEFORE, BEFORE + ENTRY), encoding="utf-8")


def render(record: Mapping[str, Any], samples: Sequence[Sample], stem: str) -> str:
    """Return the page."""
    verdict = record["verdict"]
    planned, lasted = record["seconds"], record["lasted"]
    length = _length(planned) if lasted >= planned else f"{_length(lasted)} of {_length(planned)}"
    kinds = Counter(name for *_, name in record["faults"])
    faults = ", ".join(f"{name} {count}×" for name, count in kinds.most_common()) or "none"
    lines = [HEAD, f"{record['day']}, {length} on Kafka {record['version']}, seed {record['seed']}: **{verdict}**.", ""]
    lines += [f"* {reported}" for reported in (*record["violations"], record["loud"]) if reported]
    lines += [
        "",
        "| stream | queries | drivers | rows due | seen | missing | more than once |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for plan in PLANS:
        lives, balance = record["lives"].get(plan.name, []), record["final"].get(plan.name, {})
        cells = [f"{balance[key]:,}" if balance else "–" for key in ("due", "seen", "missing", "repeated")]
        drivers = len({life["driver"] for life in lives})
        lines.append(f"| {plan.name} | {len(lives)} | {drivers} | {' | '.join(cells)} |")
    lines += ["", f"Faults: {faults}. In between {record['balances']} balances were struck.", ""]
    effects = Counter(f"{name}: {said}" for _, name, said in record["effects"] if name != "topic grown")
    if effects:
        lines.append(f"Seen after faults: {', '.join(f'{said} {count}×' for said, count in effects.most_common())}.")
    lines += ["", *_of_retention(record), ""]
    lines += [f"![Faults, queries, and rows seen](results/{stem}_events.svg)", "", "## Processes", ""]
    lines += [*_of_growth(record), ""]
    lines += ["| stream | process | " + " | ".join(MEASURES) + " |", "|---|---|" + "--:|" * len(MEASURES)]
    for plan in PLANS:
        for role in ROLES:
            found = [trend(samples, plan.name, role, measure) for measure in MEASURES]
            cells = [f"{each.second:.0f} → {each.last:.0f} ({each.greatest:.0f})" if each else "–" for each in found]
            lines.append(f"| {plan.name} | {role} | {' | '.join(cells)} |")
    lines += ["", f"![Memory, threads and descriptors of drivers and workers](results/{stem}_processes.svg)", ""]
    return "\n".join(lines)


def _length(seconds: float) -> str:
    return f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{seconds / 60:.0f} minutes"


def _of_retention(record: Mapping[str, Any]) -> list[str]:
    firsts = {topic: sum(found.values()) for topic, found in record["first_offsets"].items()}
    removed = ", ".join(f"{count:,} of {topic}" for topic, count in firsts.items())
    return [f"Offsets that retention has removed: {removed}."] if firsts else []


def _of_growth(record: Mapping[str, Any]) -> list[str]:
    spared = next(plan.name for plan in PLANS if plan.spared)
    said = {True: "They are flat", False: "They have grown", None: "This run was too short to judge"}[record["flat"]]
    slack = ", ".join(f"{value:.0f} {measure}" for measure, value in SLACK.items())
    return [
        "Medians of the second → the last quarter of the longest life of a driver, and the greatest median of a minute. The",
        f"driver of *{spared}* is never killed. Its processes are flat if the last quarter has at most {GROWTH:g} times the",
        f"second, and {slack} more, in a life of {JUDGED_SECONDS / 60:.0f} minutes or longer. {said}.",
    ]


def draw_events(record: Mapping[str, Any], path: Path) -> None:
    """Lanes of what was hit, and of the queries; below them the rows that the reader has seen."""
    from matplotlib import colormaps

    figure, (lanes, rows) = _figure(2, height_ratios=(3, 2))
    names = [plan.name for plan in PLANS]
    names += sorted({hit for _, _, hits, _ in record["faults"] for hit in hits.split(", ")} - set(names))
    kinds = sorted({name for *_, name in record["faults"]})
    for stream, lives in record["lives"].items():
        for life in lives:
            length = max(life["end"] - life["begin"], 0.1)
            lanes.barh(names.index(stream), length / 60, left=life["begin"] / 60, height=0.5, color="#c9d8ee")
    colors = {kind: colormaps[KINDS](number) for number, kind in enumerate(kinds)}
    for begin, end, hits, name in record["faults"]:
        length = max(end - begin, record["lasted"] / 300)
        for hit in hits.split(", "):
            lanes.barh(names.index(hit), length / 60, left=begin / 60, height=0.7, color=colors[name])
    for kind in kinds:
        lanes.barh(0, 0, color=colors[kind], label=kind)
    lanes.set_yticks(range(len(names)), names)
    lanes.invert_yaxis()
    if kinds:
        lanes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=5, frameon=False, fontsize=8)
    for plan in PLANS:
        times = [moment / 60 for moment, _ in record["seen"]]
        rows.plot(
            times, [seen.get(plan.topic, 0) for _, seen in record["seen"]], label=plan.name, color=COLORS[plan.name]
        )
    rows.set_ylabel("rows seen")
    _save(figure, rows, path)


def draw_samples(samples: Sequence[Sample], path: Path) -> None:
    """One line for each stream: drivers' JVMs above, Python workers below; a column for each measure."""
    figure, axes = _figure(2, len(MEASURES))
    for row, role in zip(axes, ("JVM", "workers"), strict=True):
        for place, (measure, axis) in enumerate(zip(MEASURES, row, strict=True)):
            for plan in PLANS:
                found = [each for each in samples if (each.stream, each.role) == (plan.name, role)]
                values = [float(each[5 + place]) for each in found]
                axis.plot(
                    [each.moment / 60 for each in found],
                    values,
                    ".",
                    markersize=3,
                    color=COLORS[plan.name],
                    label=plan.name,
                )
            axis.set_title(f"{role}: {measure}", fontsize=9)
            axis.set_ylim(0, 1.05 * max((float(each[5 + place]) for each in samples if each.role == role), default=1))
    _save(figure, axes[1][0], path)


def _figure(rows: int, columns: int = 1, **more: Any) -> tuple[Any, Any]:
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "pyproducer"
    from matplotlib import pyplot as plt

    return plt.subplots(rows, columns, figsize=(11, 5.2), sharex=True, layout="constrained", **more)


def _save(figure: Any, legend: Any, path: Path) -> None:
    from matplotlib import pyplot as plt

    legend.legend(frameon=False, fontsize=8)
    for axis in figure.axes:
        axis.grid(alpha=0.3)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    figure.axes[-1].set_xlabel("minutes")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    kept = Path(sys.argv[1]) if sys.argv[1:] else PAGE.with_name("results") / "soak.json"
    write(json.loads(kept.read_text(encoding="utf-8")))
