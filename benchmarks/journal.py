"""The gain of a group commit: `python -m benchmarks.journal` prints how many batches a second are safe, by the number of writers.

Each writer appends a batch, waits until it is forced to the disk, and appends the next one, as a producer does that may have one
request in flight. In the journal all of them share forces. Beside it each batch has a force of its own, one after another, as an
engine has it that forces after every append. A force takes `--force-ms` longer than the disk of this machine needs, so that the
figures depend little on it: 5 ms are those of a disk that is reached by a network.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from spark_producer.broker.storage.file_ops import SystemFiles
from spark_producer.broker.storage.tiered.journal import Journal, JournalRecord, JournalSettings

DEADLINE = 120.0
Append = Callable[[int, memoryview], None]
"""Appends a batch of a writer, and returns when it is on the disk."""


class SlowDisk(SystemFiles):
    """A disk whose forces take longer, and are counted."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.forces = 0

    def force(self, file: int) -> None:
        super().force(file)
        time.sleep(self.seconds)
        self.forces += 1


class Result(NamedTuple):
    """The results of the writers: batches of each second, milliseconds until a batch was safe, and batches for each force."""

    rate: float
    median: float
    p99: float
    per_force: float


def run(append: Append, disk: SlowDisk, writers: int, appends: int, size: int) -> Result:
    """Let each writer append `appends` batches of `size` bytes, one after another."""
    batch = memoryview(bytes(size))
    waits: list[float] = []

    def write(writer: int) -> None:
        for _ in range(appends):
            began = time.perf_counter()
            append(writer, batch)
            waits.append(time.perf_counter() - began)

    threads = [threading.Thread(target=write, args=[writer]) for writer in range(writers)]
    forces, began = disk.forces, time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    seconds = time.perf_counter() - began
    if len(waits) < writers * appends:
        raise RuntimeError("a writer has failed, or the disk has taken too long")
    waits.sort()
    return Result(
        rate=len(waits) / seconds,
        median=waits[len(waits) // 2] * 1000,
        p99=waits[len(waits) * 99 // 100] * 1000,
        per_force=len(waits) / (disk.forces - forces),
    )


def in_groups(
    directory: Path, settings: JournalSettings, seconds: float, writers: int, appends: int, size: int
) -> Result:
    """Append to a journal."""
    disk = SlowDisk(seconds)
    safe = [threading.Semaphore(0) for _ in range(writers)]
    one_at_a_time = threading.Lock()  # the broker has one thread that appends

    def forced(records: Sequence[JournalRecord]) -> None:
        for record in records:
            safe[record.log_id].release()

    def append(writer: int, batch: memoryview) -> None:
        with one_at_a_time:
            journal.append(JournalRecord(writer, 0, 1, batch))
        if not safe[writer].acquire(timeout=DEADLINE):
            raise TimeoutError("the journal did not force a batch")

    journal = Journal(directory, disk, settings, sync=True, written=lambda *_: None, forced=forced, failed=print)
    try:
        return run(append, disk, writers, appends, size)
    finally:
        journal.close(DEADLINE)


def one_by_one(directory: Path, seconds: float, writers: int, appends: int, size: int) -> Result:
    """Append to a file that is forced after every batch."""
    disk = SlowDisk(seconds)
    one_at_a_time = threading.Lock()
    file = disk.open(directory / "log", create=True)
    position = 0

    def append(writer: int, batch: memoryview) -> None:
        nonlocal position
        with one_at_a_time:
            disk.write(file, [batch], position)
            position += len(batch)
            disk.force(file)

    try:
        return run(append, disk, writers, appends, size)
    finally:
        disk.close(file)


def main(given: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.journal", description=__doc__)
    parser.add_argument("--force-ms", type=float, default=5.0, help="what a force takes beside the disk's own time")
    parser.add_argument("--writers", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--appends", type=int, default=200, help="of each writer")
    parser.add_argument("--bytes", type=int, default=32 * 1024, help="of each batch")
    parser.add_argument("--group-wait-ms", type=float, default=JournalSettings.max_group_wait_ms)
    chosen = parser.parse_args(given)
    settings = JournalSettings(max_group_wait_ms=chosen.group_wait_ms)
    print(
        "| writers | groups: batches/s | batches a force | median, ms | p99, ms "
        "| one force each: batches/s | median, ms | p99, ms | times as many |\n|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    )
    load = chosen.force_ms / 1000, chosen.appends, chosen.bytes
    for writers in chosen.writers:
        print(row(settings, writers, *load), flush=True)


def measure(settings: JournalSettings, writers: int, seconds: float, appends: int, size: int) -> tuple[Result, Result]:
    """Measure both ways with `writers` writers: in groups, and with a force of its own for each batch."""
    with TemporaryDirectory() as folder:
        groups = in_groups(Path(folder), settings, seconds, writers, appends, size)
        alone = one_by_one(Path(folder), seconds, writers, max(1, appends // writers), size)
    return groups, alone


def row(settings: JournalSettings, writers: int, seconds: float, appends: int, size: int) -> str:
    """Measure both ways with `writers` writers, and return a line of the table."""
    groups, alone = measure(settings, writers, seconds, appends, size)
    cells = [
        f"{writers}", f"{groups.rate:,.0f}", f"{groups.per_force:.1f}", f"{groups.median:.1f}", f"{groups.p99:.1f}",
        f"{alone.rate:,.0f}", f"{alone.median:.1f}", f"{alone.p99:.1f}", f"{groups.rate / alone.rate:.1f}",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
