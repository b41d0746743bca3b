"""E5: what acknowledgements wait for if the journal has a disk of its own, and if it shares one with the entry logs."""

from __future__ import annotations

import tempfile
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.broker_memory.devices import Device, DeviceFiles, Speed, User, on_one_device, on_two_devices
from benchmarks.broker_memory.experiments import MB, Sizes
from benchmarks.broker_memory.section import BLUE, ORANGE, Section, new_figure
from benchmarks.broker_memory.stand import Stand, stand

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SPEED: Final = Speed(force_s=0.001, bytes_per_s=250 * MB)
"""A disk as clouds rent them out: a millisecond for each force, and 250 MB/s."""

ARTICLE: Final = (
    "reads and writes of a bookie go to different disks, the journal to one of its own. It gives no number for it."
)


class Acknowledgements:
    """The wait of each entry from its admission until it was confirmed."""

    def __init__(self, opened: Stand) -> None:
        """Watch all entries that are written from now on."""
        self.waits: list[tuple[float, float]] = []
        """For each entry, in the order of confirmation: the time of its confirmation and the length of its wait, in seconds."""
        self._logs, self._records = opened.logs, opened.records
        self._waiting = [deque[tuple[int, float]]() for _ in opened.logs]
        self._ends = [log.high_watermark for log in opened.logs]
        self._begin = time.monotonic()
        opened.before_write = self._written
        opened.storage.watch(self._confirmed, lambda: None)

    def _written(self, partition: int) -> None:
        self._ends[partition] += self._records
        self._waiting[partition].append((self._ends[partition], time.monotonic()))

    def _confirmed(self, _: str, partition: int) -> None:
        """Called by the journal's threads, one at a time."""
        now, safe = time.monotonic(), self._logs[partition].high_watermark
        waiting = self._waiting[partition]
        while waiting and waiting[0][0] <= safe:
            self.waits.append((now - self._begin, now - waiting.popleft()[1]))

    def milliseconds(self, part: float) -> float:
        """Return the wait that this part of the entries did not exceed."""
        ordered = sorted(seconds for _, seconds in self.waits)
        return 1000 * ordered[min(int(len(ordered) * part), len(ordered) - 1)]


@dataclass(frozen=True)
class Placing:
    """The measurements of one placement of the files.

    journal_forces: of the journal; journal_waits: how many of them found a force of the entry logs or the index under way.
    """

    name: str
    seconds: float
    written: int
    flushes: int
    journal_forces: int
    journal_waits: int
    longest_force_s: float
    acknowledged: Acknowledgements = field(repr=False)


def place(name: str, sizes: Sizes, devices: dict[User, Device]) -> Placing:
    """Write at the rate of tail readers for some seconds, and wait for every acknowledgement."""
    with tempfile.TemporaryDirectory(prefix="pyproducer-experiment-") as directory:
        where = (Path(directory), sizes.options, sizes.partitions, sizes.entry_bytes, sizes.records)
        with stand(*where, sync=True, files=DeviceFiles(devices)) as opened:
            acknowledged = Acknowledgements(opened)
            for _ in opened.paced(sizes.seconds, sizes.tail_rate, sizes.clock):
                pass
            opened.settle()
            device = devices[User.JOURNAL]
            half = sizes.options.write_cache_bytes // 2
            return Placing(
                name, sizes.seconds, opened.written, opened.counters.flush.count,
                device.forces[User.JOURNAL], device.waits[User.JOURNAL], device.speed.seconds(half), acknowledged,
            )  # fmt: skip


def one_and_two(sizes: Sizes, speed: Speed = SPEED) -> list[Placing]:
    """E5: the same load on one device, and on two."""
    return [
        place("one device", sizes, on_one_device(speed)),
        place("journal on its own", sizes, on_two_devices(speed)),
    ]


def faults(found: Sequence[Placing]) -> list[str]:
    """Return what contradicts that a journal with a device of its own does not wait."""
    one, two = found
    wrong = [
        f"{each.name}: {len(each.acknowledged.waits)} of {each.written} entries were acknowledged"
        for each in found
        if len(each.acknowledged.waits) != each.written
    ]
    wrong += [f"{each.name}: nothing was flushed" for each in found if not each.flushes]
    if two.journal_waits:
        wrong.append(f"the journal waited {two.journal_waits} times for others on a device of its own")
    if one.flushes and not one.journal_waits:
        wrong.append("on one device the journal has never waited for the entry logs")
    return wrong


def section(sizes: Sizes, speed: Speed = SPEED) -> Section:
    """Run it, and return the part of the page."""
    found = one_and_two(sizes, speed)
    half = sizes.options.write_cache_bytes // 2
    return Section(
        "E5",
        "journal and entry logs on one disk or on two",
        ARTICLE,
        table(found),
        [
            "**The disks are simulated**: a device is a lock that a force holds for "
            f"{1000 * speed.force_s:g} ms, and for one second for each {speed.bytes_per_s / MB:,.0f} MB written since the last "
            f"one. A flush holds its device for {1000 * speed.seconds(half):,.0f} ms, and on one device acknowledgements wait "
            "for that. The picture shows what waits for what, not how long it takes on real disks.",
        ],
        lambda: picture(found),
        faults(found),
    )


def table(found: Sequence[Placing]) -> list[str]:
    """Return the rows."""
    lines = [
        "| | batches/s | flushes | forces of the journal | of which waited for entry logs "
        "| acknowledged within, ms: median | p99 | longest |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for each in found:
        cells = [each.name, f"{each.written / each.seconds:,.0f}", f"{each.flushes:,}", f"{each.journal_forces:,}"]
        cells += [
            f"{each.journal_waits:,}",
            *(f"{each.acknowledged.milliseconds(part):,.1f}" for part in (0.5, 0.99, 1.0)),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def picture(found: Sequence[Placing]) -> Figure:
    """Draw the longest wait of each fiftieth of a second over time."""
    figure = new_figure(3.0)
    axes = figure.subplots()
    for each, colour in zip(found, (ORANGE, BLUE), strict=True):
        longest: dict[int, float] = {}
        for moment, seconds in each.acknowledged.waits:
            longest[int(moment * 50)] = max(longest.get(int(moment * 50), 0.0), 1000 * seconds)
        axes.plot([at / 50 for at in longest], list(longest.values()), color=colour, linewidth=1.2, label=each.name)
    axes.set_xlabel("seconds")
    axes.set_ylabel("ms until an acknowledgement")
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return figure
