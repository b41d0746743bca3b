"""E4: what a group commit gives. It is measured by `benchmarks.journal`; here it becomes a part of the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.broker_memory.section import BLUE, ORANGE, Section, new_figure
from benchmarks.journal import Result, measure
from spark_producer.broker.memory.sizes import KIB
from spark_producer.broker.storage.tiered.journal import JournalSettings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MIN_GAIN: Final = 5.0
"""Minimum batches of 8 writers in a force, where one by one they have 1."""
ASKED_WRITERS: Final = 8

ARTICLE: Final = (
    "the heap of a bookie holds the queue of the journal's group commit. It gives no number; BookKeeper waits 2 ms for a group, "
    "Pulsar's settings say 1 ms, as ours do."
)


@dataclass(frozen=True)
class Load:
    """The amount of data. A force takes `force_s` seconds longer than the disk of the machine needs."""

    writers: Sequence[int] = (1, 8, 32)
    appends: int = 200
    entry_bytes: int = 32 * KIB
    force_s: float = 0.005


class Commit(NamedTuple):
    """The measurements of some writers in groups, and with a force of its own for each batch."""

    writers: int
    groups: Result
    alone: Result

    @property
    def gain(self) -> float:
        """Return the ratio of batches a second in groups to those one by one."""
        return self.groups.rate / self.alone.rate


def group_commit(load: Load) -> list[Commit]:
    """E4: the same writers both ways."""
    return [
        Commit(writers, *measure(JournalSettings(), writers, load.force_s, load.appends, load.entry_bytes))
        for writers in load.writers
    ]


def faults(found: Sequence[Commit]) -> list[str]:
    """Return what contradicts that writers share forces. It is counted: on a busy machine times say little."""
    wrong = []
    for each in found:
        if each.alone.per_force != 1:
            wrong.append(f"{each.writers} writers alone have {each.alone.per_force:.1f} batches in a force, not 1")
        if each.writers == ASKED_WRITERS and each.groups.per_force < MIN_GAIN:
            wrong.append(
                f"{each.writers} writers have {each.groups.per_force:.1f} batches in a force, not {MIN_GAIN:g}"
            )
    return wrong


def section(load: Load) -> Section:
    """Run it, and return the part of the page."""
    found = group_commit(load)
    return Section(
        "E4",
        "group commit",
        ARTICLE,
        table(found),
        [
            f"Each writer appends a batch of {load.entry_bytes:,} bytes, waits until it is forced, and appends the next one. A "
            f"force takes {1000 * load.force_s:g} ms longer than this disk needs, like a network disk.",
        ],
        lambda: picture(found),
        faults(found),
    )


def table(found: Sequence[Commit]) -> list[str]:
    """Return the rows."""
    lines = [
        "| writers | in groups: batches a force | batches/s | median, ms | p99, ms | one force each: batches a force | batches/s "
        "| median, ms | p99, ms | times as many batches |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for each in found:
        cells = [f"{each.writers}"]
        for result in (each.groups, each.alone):
            cells += [f"{result.per_force:.1f}", f"{result.rate:,.0f}", f"{result.median:.1f}", f"{result.p99:.1f}"]
        lines.append(f"| {' | '.join([*cells, f'{each.gain:.1f}'])} |")
    return lines


def picture(found: Sequence[Commit]) -> Figure:
    """Draw batches a second and batches a force, by the number of writers."""
    figure = new_figure(3.0)
    rates, forces = figure.subplots(1, 2)
    places = range(len(found))
    names = [f"{each.writers} writer{'s' * (each.writers > 1)}" for each in found]
    measured: tuple[tuple[Axes, str, Callable[[Result], float]], ...] = (
        (rates, "batches that are safe, a second", lambda result: result.rate),
        (forces, "batches a force", lambda result: result.per_force),
    )
    for panel, title, values in measured:
        for shift, label, colour, results in (
            (-0.2, "group commit", BLUE, [each.groups for each in found]),
            (0.2, "one force each", ORANGE, [each.alone for each in found]),
        ):
            bars = panel.bar(
                [at + shift for at in places], [values(each) for each in results], 0.38, color=colour, label=label
            )
            panel.bar_label(bars, fmt="{:,.0f}", fontsize=8)
        panel.set_title(title, fontsize=10)
        panel.set_xticks(list(places), names)
        panel.spines[["top", "right"]].set_visible(False)
    forces.legend(loc="upper left", frameon=False)
    return figure
