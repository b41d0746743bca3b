"""Lives of the tiered engine that end at every kind of moment, by seed: `make crash-seeds` plays 100,000 of them.

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
from tests.unit.broker.storage.tiered.lives import Expected, Life, killed

ROOT = Path(__file__).resolve().parents[5]
KEPT = ROOT / "build" / "crash_seeds.json"
CODE = ("spark_producer/broker", "spark_producer/record", "tests/support", "tests/unit/broker/storage/tiered")
ENGINE = "spark_producer.broker.storage.tiered"
REBUILT = "the index is rebuilt"
"""The engine says so when rows of its index are gone that had been flushed. No death may have that effect."""

LIVES = 4
CHUNK = 100
"""Seeds that one process plays at a time."""


class Heard(logging.Handler):
    """Keeps what the engine has said."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@contextmanager
def heard() -> Iterator[Heard]:
    """Hear what the engine says during the `with` block; nobody else does."""
    ears, engine = Heard(), logging.getLogger(ENGINE)
    engine.addHandler(ears)
    engine.propagate = False
    try:
        yield ears
    finally:
        engine.propagate = True
        engine.removeHandler(ears)


def play(seed: int) -> int:
    """Some lives on one disk. Each ends with a loss of power or of the process alone, some of them while the disk fails.

    Returns: the lives that were lived and found right.
    """
    lived = 0
    rng = random.Random(seed)
    disk, expected, sync = SimulatedDisk(), dict[int, Expected](), rng.random() < 0.7
    directories = rng.choice([0, 0, 2, 3])
    with heard() as ears:
        for number in range(LIVES):
            life = Life(disk, rng, expected, sync=sync, directories=directories)
            try:
                disk = live_and_die(life, seed * LIVES + number)
                lived += 1
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, life {number}: {error}") from error
            finally:
                life.end()
    assert not any(REBUILT in text for text in ears.texts), f"seed {seed}: rows that had been flushed are gone"
    return lived


def live_and_die(life: Life, seed: int) -> SimulatedDisk:
    """Look what the life before has left, do something, and die; return the disk for the next life."""
    rng = life.rng
    life.check()
    if rng.random() < 0.7:
        life.die(rng.randrange(60))
    else:
        life.live(rng.randrange(60))
    life.acknowledge()
    if rng.random() >= 0.6:
        return killed(life.disk)
    disk = life.disk.crash(seed)
    if not life.sync:
        life.expect_no_more_than_a_prefix()
    return disk


def play_chunk(first: int) -> list[str]:
    """Play a chunk of seeds, from `first` on; return what was wrong."""
    wrong = []
    for seed in range(first, first + CHUNK):
        try:
            play(seed)
        except Exception as error:  # of whatever kind: the seed is told, and the others are played
            wrong.append(f"seed {seed}: {error!r}")
    return wrong


def digest() -> str:
    """Return what tells this code from any other: results of other code count for nothing."""
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
    """Play what is missing of the first so many seeds; return what was wrong."""
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
    parser.add_argument("--kept", type=Path, default=KEPT, help="the file that says what was played (%(default)s)")
    chosen = parser.parse_args(given)
    wrong = play_all(chosen.seeds, chosen.processes, Progress(chosen.kept))
    print(f"{len(wrong)} seeds failed" if wrong else "what was acknowledged was recovered with every seed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
