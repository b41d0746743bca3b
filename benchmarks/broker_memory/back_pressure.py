"""E7: what a broker does whose producers are faster than its disk. It takes what the disk takes, and no more memory."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.broker_memory.experiments import MB
from benchmarks.broker_memory.flood import Flood
from benchmarks.broker_memory.section import BLUE, GREEN, ORANGE, Section, new_figure
from benchmarks.broker_memory.slow_broker import TOPIC, Slow, State, as_argument
from spark_producer.broker.memory.plan import MemoryPlan
from spark_producer.broker.memory.sizes import MIB
from spark_producer.errors import KafkaTimeout
from tests.support.processes import ChildProcess

if TYPE_CHECKING:
    from matplotlib.figure import Figure

START_S: Final = 60.0

GIVEN: Final = {"broker.publish.buffer.bytes": "8M", "journal.max.memory.bytes": "16M"}
"""By the formulas the journal's memory, a twentieth, is full long before the publish buffer, whose effect would not show."""

ARTICLE: Final = (
    "the broker keeps what producers send until a bookie has it. If that is more than the publish buffer, half of its direct "
    "memory, it reads no more from them. In a burst it may run out of memory all the same, in the 30 s until a write times out."
)


@dataclass(frozen=True)
class Pressure:
    """The size of the experiment.

    memory: of both budgets. flush_s: what a slow disk takes to force an entry log.
    """

    memory: int = 128 * MIB
    given: dict[str, str] = field(default_factory=lambda: dict(GIVEN))
    producers: int = 8
    records: int = 600
    flush_s: float = 0.5
    seconds: float = 8.0
    stuck_s: float = 4.0


@dataclass(frozen=True)
class Pressed:
    """The measurements of one disk. Sizes are in bytes, moments in seconds of one clock.

    expected: the batches a second that half of the write cache and the time of a flush allow; None if nothing was flushed.
    bound: what unanswered Produces may take: the publish buffer, and one frame of each producer.
    budgets: what the process may take: both budgets, and one frame of each producer.
    """

    name: str
    slow: Slow
    states: list[State]
    accepted: list[tuple[float, int]]
    refused: int
    sent: int
    bound: int
    budgets: int
    half: int
    begin: float

    @property
    def last(self) -> State:
        """The state of the broker at the end."""
        return self.states[-1]

    @property
    def total(self) -> int:
        """The bytes of batches that were acknowledged."""
        return self.accepted[-1][1]

    @property
    def flush_s(self) -> float | None:
        """The mean seconds of a flush."""
        return self.last.flush_us / 1e6 / self.last.flushes if self.last.flushes else None

    @property
    def expected(self) -> float | None:
        """Half of the write cache ÷ the time of a flush."""
        return None if self.flush_s is None else self.half / self.flush_s

    @property
    def rate(self) -> float:
        """The bytes a second that were acknowledged between the ends of the first and of the last flush, or in all the time."""
        ends = [
            after.at
            for before, after in zip(self.states, self.states[1:], strict=False)
            if after.flushes > before.flushes
        ]
        first, last = (ends[0], ends[-1]) if len(ends) > 1 else (self.begin, self.states[-1].at)
        return (self._accepted_by(last) - self._accepted_by(first)) / (last - first)

    def _accepted_by(self, moment: float) -> int:
        return max(size for at, size in self.accepted if at <= moment)

    @property
    def growth(self) -> int:
        """The bytes by which the process has grown at most."""
        return max(each.resident for each in self.states) - self.states[0].resident


class ReportingBroker:
    """A broker in a process of its own, which reports its state."""

    def __init__(self, home: Path, slow: Slow) -> None:
        command = [sys.executable, "-m", "benchmarks.broker_memory.slow_broker", as_argument(slow)]
        self._process = ChildProcess(command, home / "broker.log")
        self.kill = self._process.kill
        deadline = time.monotonic() + START_S
        while len(self._lines()) < 2:
            if self._process.exit_code is not None or time.monotonic() > deadline:
                raise KafkaTimeout(f"the broker has not begun: {self._process.tail()}")
            time.sleep(0.02)
        self.port = int(self._lines()[0])

    def _lines(self) -> list[str]:
        text = self._process.output.read_text(encoding="utf-8")
        return text[: text.rfind("\n") + 1].splitlines()

    def states(self) -> list[State]:
        """Return all states that it has reported."""
        return [State(*json.loads(line)) for line in self._lines()[1:]]


@contextmanager
def reporting_broker(pressure: Pressure, **disk: float | bool) -> Iterator[tuple[ReportingBroker, Slow]]:
    """Start a broker on such a disk, and kill it in the end."""
    with tempfile.TemporaryDirectory(prefix="pyproducer-experiment-") as home:
        slow = Slow(f"{home}/data", pressure.memory, pressure.given, pressure.producers, **disk)  # type: ignore[arg-type]
        broker = ReportingBroker(Path(home), slow)
        try:
            yield broker, slow
        finally:
            broker.kill()


def press(name: str, pressure: Pressure, seconds: float, **disk: float | bool) -> Pressed:
    """Flood a broker on such a disk for some seconds."""
    with reporting_broker(pressure, **disk) as (broker, slow):
        before = len(broker.states())
        flood = Flood(broker.port, TOPIC, pressure.producers, pressure.records)
        begin = time.monotonic()
        try:
            flood.run(seconds)
        finally:
            flood.close()
        states = broker.states()[before - 1 :]
    frames = pressure.producers * flood.frame_bytes
    plan = slow.plan
    return Pressed(
        name, slow, states, flood.accepted, flood.refused, flood.sent, plan.publish_buffer + frames,
        plan.broker_budget + plan.storage_budget + frames, plan.half, begin,
    )  # fmt: skip


def disks(pressure: Pressure) -> list[Pressed]:
    """E7: a sound disk, one that is slow, and one that is stuck."""
    return [
        press("sound disk", pressure, pressure.seconds),
        press("slow disk", pressure, pressure.seconds, flush_s=pressure.flush_s),
        press("stuck disk", pressure, pressure.stuck_s, is_stuck=True),
    ]


def faults(found: Sequence[Pressed]) -> list[str]:
    """Return what contradicts the article, by counts of bytes alone."""
    sound, slow, stuck = found
    wrong = [
        f"{each.name}: {what}"
        for each in found
        for what, holds in (
            (
                f"{each.last.most_pending:,} bytes of Produces were unanswered, not {each.bound:,}",
                each.last.most_pending > each.bound,
            ),
            (f"the process has grown by {each.growth:,} bytes, more than {each.budgets:,}", each.growth > each.budgets),
            (f"{each.last.cached:,} bytes in a write cache of {2 * each.half:,}", each.last.cached > 2 * each.half),
            (f"{each.refused} batches were refused", each.refused > 0),
        )
        if holds
    ]
    flushed = slow.last.flushed / max(slow.last.flushes, 1)
    if not slow.half / 2 < flushed <= slow.half:
        wrong.append(f"slow disk: a flush had {flushed:,.0f} bytes instead of the {slow.half:,} of a half")
    if not slow.last.flushed <= slow.total <= slow.last.flushed + 2 * slow.half:
        wrong.append(f"slow disk: {slow.total:,} bytes were taken, and {slow.last.flushed:,} flushed")
    if not slow.last.pauses:
        wrong.append("slow disk: no producer was paused")
    if stuck.total:
        wrong.append(f"stuck disk: {stuck.total:,} bytes were acknowledged")
    if not sound.total > slow.total:
        wrong.append(f"sound disk: it has taken {sound.total:,} bytes, and a slow one {slow.total:,}")
    return wrong


def section(pressure: Pressure) -> Section:
    """Run it, and return the part of the page."""
    found = disks(pressure)
    plan = found[0].slow.plan
    return Section(
        "E7",
        "producers faster than the disk",
        ARTICLE,
        table(found),
        [_note(pressure, plan)],
        lambda: picture(found),
        faults(found),
    )


def _note(pressure: Pressure, plan: MemoryPlan) -> str:
    sizes = (plan.broker_budget, plan.publish_buffer, plan.journal_memory, plan.half)
    budget, publish, journal, half = (f"{each / MIB:g} MiB" for each in sizes)
    return (
        f"{pressure.producers} producers send without an end to a broker with two budgets of {budget}: a publish buffer of "
        f"{publish}, a journal that keeps {journal}, and a write cache of two halves of {half}. The disk is simulated: a force "
        f"of an entry log takes {pressure.flush_s:g} s on the slow one; one of the journal never ends on the stuck one. The rate "
        "is half of the write cache ÷ the time of a flush; unanswered Produces are at most the publish buffer and a frame of "
        "each producer."
    )


def table(found: Sequence[Pressed]) -> list[str]:
    """Return the rows."""
    lines = [
        "| | accepted, MB/s | half ÷ flush time, MB/s | flushes | mean flush, s | unanswered at most, MiB (bound) | pauses "
        "| refused | growth of the process, MiB (budgets) |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for each in found:
        cells = [
            each.name,
            f"{each.rate / MB:.1f}",
            "" if each.expected is None else f"{each.expected / MB:.1f}",
            f"{each.last.flushes:,}",
            "" if each.flush_s is None else f"{each.flush_s:.2f}",
            f"{each.last.most_pending / MIB:.1f} ({each.bound / MIB:.1f})",
            f"{each.last.pauses:,}",
            f"{each.refused:,}",
            f"{each.growth / MIB:.1f} ({each.budgets / MIB:.1f})",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def picture(found: Sequence[Pressed]) -> Figure:
    """Draw what was accepted, and what the process has grown by, over time."""
    figure = new_figure(3.2)
    accepted, grown = figure.subplots(1, 2)
    for each, colour in zip(found, (GREEN, BLUE, ORANGE), strict=True):
        end = each.states[-1].at - each.begin
        steps = [*((at - each.begin, size / MB) for at, size in each.accepted), (end, each.total / MB)]
        accepted.step([at for at, _ in steps], [size for _, size in steps], where="post", color=colour, label=each.name)
        grown.plot(
            [state.at - each.begin for state in each.states],
            [(state.resident - each.states[0].resident) / MIB for state in each.states],
            color=colour,
        )
    slow = found[1]
    if slow.expected is not None:
        seconds = slow.states[-1].at - slow.begin
        ahead = 2 * slow.half / MB
        line = [ahead, ahead + slow.expected * seconds / MB]
        accepted.plot([0, seconds], line, color="black", linestyle=":", label="half ÷ flush time")
        accepted.set_ylim(0, 2 * line[1])
    grown.axhline(slow.budgets / MIB, color="black", linestyle=":")
    grown.annotate(
        "both budgets, and a frame each",
        (0, slow.budgets / MIB),
        xytext=(4, -12),
        textcoords="offset points",
        fontsize=8,
    )
    grown.set_ylim(bottom=0)
    accepted.set_title("acknowledged, MB", fontsize=10)
    grown.set_title("growth of the broker's process, MiB", fontsize=10)
    for panel in (accepted, grown):
        panel.set_xlabel("seconds")
        panel.spines[["top", "right"]].set_visible(False)
    accepted.legend(loc="upper left", frameon=False, fontsize=8)
    return figure
