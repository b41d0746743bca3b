"""Runs of the tiered engine that end at random moments, by seed: `make crash-seeds` plays 100,000 of them.

It goes on where it was stopped, as long as neither the engine nor its double was changed, and says how far it is. What it has
played it keeps in `build/`. It ends with 1 if a seed has failed, and names it; `play(seed)` plays that one again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import random
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from tests.support.simulated_disk import SimulatedDisk
from tests.unit.broker.storage.tiered.crash_runs import EngineRun, Expected, killed

ROOT = Path(__file__).resolve().parents[5]
MAX_REPORTS = ROOT / "build" / "crash_seeds.json"
CODE = ("spark_producer/broker", "spark_producer/record", "tests/support", "tests/unit/broker/storage/tiered")
ENGINE = "spark_producer.broker.storage.tiered"
REBUILT = "the index is rebuilt"
"""The engine says so when rows of its index are gone that had been flushed. No death may have that effect."""

RUNS = 4
CHUNK = 100
"""Seeds that one process plays at a time."""


class CapturedLogs(logging.Handler):
    """Collects the log messages of the engine."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@contextmanager
def captured_logs() -> Iterator[CapturedLogs]:
    """Capture the log messages of the engine during the `with` block."""
    captured, engine = CapturedLogs(), logging.getLogger(ENGINE)
    engine.addHandler(captured)
    engine.propagate = False
    try:
        yield captured
    finally:
        engine.propagate = True
        engine.removeHandler(captured)


def play(seed: int) -> int:
    """Play some runs on one disk. Each ends with a power failure or the death of the process, some while the disk fails.

    Returns: the number of runs that were completed and checked.
    """
    completed = 0
    rng = random.Random(seed)
    disk, expected, sync = SimulatedDisk(), dict[int, Expected](), rng.random() < 0.7
    directories = rng.choice([0, 0, 2, 3])
    with captured_logs() as captured:
        for number in range(RUNS):
            run = EngineRun(disk, rng, expected, sync=sync, directories=directories)
            try:
                disk = run_and_crash(run, seed * RUNS + number)
                completed += 1
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, run {number}: {error}") from error
            finally:
                run.end()
    assert not any(REBUILT in text for text in captured.texts), f"seed {seed}: rows that had been flushed are gone"
    return completed


def run_and_crash(run: EngineRun, seed: int) -> SimulatedDisk:
    """Check the data of the previous run, do random operations, and crash; return the disk for the next run."""
    rng = run.rng
    run.check()
    if rng.random() < 0.7:
        run.run_until_failure(rng.randrange(60))
    else:
        run.run_steps(rng.randrange(60))
    run.acknowledge()
    if rng.random() >= 0.6:
        return killed(run.disk)
    disk = run.disk.crash(seed)
    if not run.sync:
        run.expect_no_more_than_a_prefix()
    return disk


def play_chunk(first: int) -> list[str]:
    """Play a chunk of seeds, from `first` on; return what was wrong."""
    wrong = []
    for seed in range(first, first + CHUNK):
        try:
            play(seed)
        except Exception as error:  # any error: the seed is reported, and the others are played
            wrong.append(f"seed {seed}: {error!r}")
    return wrong


def digest() -> str:
    """Return a digest of the code: results of other code do not count."""
    files = sorted(path for folder in CODE for path in (ROOT / folder).rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


class Progress:
    """The chunks that were played without a fault, kept in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._digest = digest()
        kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        self.done: set[int] = set(kept["done"]) if kept.get("digest") == self._digest else set()

    def add(self, first: int) -> None:
        """Note that a chunk is done."""
        self.done.add(first)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps({"digest": self._digest, "done": sorted(self.done)}), encoding="utf-8")
        fresh.replace(self._path)


def play_all(seeds: int, processes: int, progress: Progress) -> list[str]:
    """Play the missing ones of the first seeds; return the failures."""
    chunks = [first for first in range(0, seeds, CHUNK) if first not in progress.done]
    before = -(-seeds // CHUNK) - len(chunks)
    if before:
        print(f"{before * CHUNK:,} seeds were played before", flush=True)
    begin, wrong = time.monotonic(), list[str]()
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        playing = {pool.submit(play_chunk, first): first for first in chunks}
        for number, ended in enumerate(as_completed(playing), 1):
            found = ended.result()
            if not found:
                progress.add(playing[ended])
            wrong += found
            left = (time.monotonic() - begin) / number * (len(chunks) - number)
            print(
                f"{(before + number) * CHUNK:,} of {seeds:,} seeds, {len(wrong)} failed, {left / 60:.0f} min left",
                flush=True,
            )
            for each in found:
                print(each, flush=True)
    return wrong


def main(given: list[str]) -> int:
    """Play, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.unit.broker.storage.tiered.crash_seeds", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100_000, help=f"in whole chunks of {CHUNK} (%(default)s)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="(%(default)s)")
    parser.add_argument(
        "--kept", type=Path, default=MAX_REPORTS, help="the file that says what was played (%(default)s)"
    )
    chosen = parser.parse_args(given)
    wrong = play_all(chosen.seeds, chosen.processes, Progress(chosen.kept))
    print(f"{len(wrong)} seeds failed" if wrong else "what was acknowledged was recovered with every seed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
