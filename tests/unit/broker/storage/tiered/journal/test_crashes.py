"""Seeded runs of a journal that end with a power failure: all confirmed records are found again. Ids (tests/ids.md): J."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from spark_producer.broker.storage.tiered.journal import Journal, LastMark, Mark
from tests.support.sampling import Sample
from tests.unit.broker.storage.tiered.journal.journals import (
    DEADLINE,
    ON_DEMAND,
    Callbacks,
    append,
    new_disk,
    replayed,
    start,
)

LEDGERS = Path("/ledgers")
LIVES = 3
FEW = 300
"""Seeds of every run."""


class DataDirectory:
    """A journal through several lives: the numbers of the records that it must have, in order, and of the next record."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = new_disk()
        self.disk.make_directory(LEDGERS)
        self.sync = self.rng.random() < 0.8
        self.settings = replace(
            ON_DEMAND,
            alignment=self.rng.choice((512, 4096)),
            preallocated=self.rng.choice((0, 8192, 65536)),
            max_file_bytes=self.rng.choice((1, 6000, 10**9)),
            unsynced_force_ms=3_600_000,
        )
        self.kept: list[int] = []
        self.next = 0

    def live(self) -> None:
        """Write groups of which the first are safe, lose the power, and look what is left."""
        callbacks = Callbacks()
        journal = start(self.disk, self.settings, callbacks, sync=self.sync)
        try:
            written = self._groups(journal)
            assert journal.force_now(DEADLINE)
            assert not self.sync or callbacks.of("forced") == written
            if self._checkpoint(journal):
                self.kept, written = [], []
            safe = len(written)
            with self.disk.script.blocked("force", "*.txn"):
                if self.settings.max_file_bytes > 10**6:  # a roll waits for the force
                    written += self._groups(journal)
                after = self.disk.crash(self.rng.randrange(2**32))
        finally:
            journal.close(DEADLINE)
        self.disk = after
        found = [int(batch[:8]) for _, batch in replayed(after, LastMark([LEDGERS], after).latest)]
        must, may = self.kept + written[:safe], self.kept + written
        assert found[: len(must)] == must, "records that were safe are lost"
        assert found == may[: len(found)], "there is a gap, or what was never written"
        self.kept = found

    def _groups(self, journal: Journal) -> list[int]:
        first = self.next
        for _ in range(self.rng.randrange(4)):
            count = self.rng.randrange(1, 6)
            ticket = append(journal, range(self.next, self.next + count), self.rng.choice((20, 500, 3000)))
            self.next += count
            assert journal.wait_written(ticket, DEADLINE)
        return list(range(first, self.next))

    def _checkpoint(self, journal: Journal) -> bool:
        """Sometimes move the mark to the end, as if all records were flushed."""
        if self.rng.random() < 0.7:
            return False
        mark = cast(Mark, journal.mark())
        LastMark([LEDGERS], self.disk).advance(mark)
        if self.rng.random() < 0.5:
            journal.drop_before(mark)
        return True


def play(seed: int) -> int:
    """Live and die some times; how many records were kept to the end."""
    directory = DataDirectory(seed)
    try:
        for _ in range(LIVES):
            directory.live()
    except Exception as error:
        raise AssertionError(f"seed {seed}") from error
    return len(directory.kept)


@pytest.mark.covers("J5", "J6", "J7", "J8")
def test_what_was_forced_survives_a_loss_of_power_without_a_gap(sample: Sample) -> None:
    seeds = sample(range(FEW))
    assert sum(play(seed) for seed in seeds) > len(seeds), "so little was kept that nothing was shown"


@pytest.mark.covers("J5", "J6", "J7", "J8")
@pytest.mark.campaign
@pytest.mark.parametrize("thousand", range(1, 21))
def test_what_was_forced_survives_many_losses_of_power(thousand: int) -> None:
    seeds = range(1000 * thousand, 1000 * thousand + 1000)
    assert sum(play(seed) for seed in seeds) > len(seeds), "so little was kept that nothing was shown"
