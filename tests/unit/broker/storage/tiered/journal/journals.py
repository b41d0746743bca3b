"""A journal on a simulated disk, its callbacks, and helpers to write and read it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from spark_producer.broker.storage.tiered.journal import Journal, JournalRecord, JournalSettings, Mark, replay
from tests.support.simulated_disk import SimulatedDisk

DIRECTORY = Path("/journal")
DEADLINE = 30.0
SMALL = JournalSettings(max_group_wait_ms=0, alignment=512, preallocated=0)
"""Every record is written at once; blocks are small, and nothing is written ahead."""
ON_DEMAND = JournalSettings(max_group_wait_ms=3_600_000, alignment=512, preallocated=8192)
"""Records are written when a test waits for them, so the test decides the groups."""


class Callbacks:
    """The callbacks of a journal in order: ("written" or "forced", base offset of a record), or ("failed", name of the error)."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int | str]] = []
        self.forced_calls = 0

    def written(self, records: Sequence[JournalRecord], by_caller: bool) -> None:
        self.events += [("written", record.base_offset) for record in records]

    def forced(self, records: Sequence[JournalRecord]) -> None:
        self.forced_calls += 1
        self.events += [("forced", record.base_offset) for record in records]

    def failed(self, error: BaseException) -> None:
        self.events.append(("failed", type(error).__name__))

    def of(self, kind: str) -> list[int | str]:
        return [what for event, what in self.events if event == kind]


def new_disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(DIRECTORY)
    return disk


def start(disk: SimulatedDisk, settings: JournalSettings, callbacks: Callbacks, *, sync: bool = True,
          clock: Callable[[], float] | None = None) -> Journal:  # fmt: skip
    return Journal(
        DIRECTORY, disk, settings, sync=sync, written=callbacks.written, forced=callbacks.forced, failed=callbacks.failed,
        clock=clock or time.monotonic,
    )  # fmt: skip


@contextmanager
def opened(
    disk: SimulatedDisk, settings: JournalSettings = SMALL, *, sync: bool = True
) -> Iterator[tuple[Journal, Callbacks]]:
    """A journal that is closed at the end, and its callbacks."""
    callbacks = Callbacks()
    journal = start(disk, settings, callbacks, sync=sync)
    try:
        yield journal, callbacks
    finally:
        journal.close(DEADLINE)


def record(number: int, size: int = 40) -> JournalRecord:
    """A record that knows its number: its log, its offset and its bytes follow from it."""
    return JournalRecord(number % 3, number, number + 1, memoryview(payload(number, size)))


def payload(number: int, size: int = 40) -> bytes:
    """Bytes that differ between records, and do not end with a zero."""
    return (b"%08d" % number + b"\0\0" + b"-" * size)[: max(size, 1) - 1] + b"!"


def append(journal: Journal, numbers: Sequence[int], size: int = 40) -> int:
    """Append these records; return the last ticket."""
    return [journal.append(record(number, size)) for number in numbers][-1]


def write_group(journal: Journal, numbers: Sequence[int], size: int = 40) -> None:
    """Write these records (with `ON_DEMAND`: as one group)."""
    assert journal.wait_written(append(journal, numbers, size), DEADLINE)


def replayed(disk: SimulatedDisk, mark: Mark | None = None) -> list[tuple[int, bytes]]:
    return list(replay(DIRECTORY, disk, mark))


def expected(numbers: Sequence[int], size: int = 40) -> list[tuple[int, bytes]]:
    """Return the result of `replay` for these records."""
    return [(number % 3, payload(number, size)) for number in numbers]
