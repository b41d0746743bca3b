"""The tiered engine after its death at every kind of moment, on a simulated disk that tears what was not forced."""

from __future__ import annotations

import random

import pytest

from tests.support.simulated_disk import SimulatedDisk
from tests.unit.broker.storage.tiered.lives import Expected, Life, killed

CASES = 10
SEEDS = 20
LIVES = 4


@pytest.mark.parametrize("case", range(CASES))
def test_w7_what_was_acknowledged_is_recovered_after_every_death(case: int, caplog: pytest.LogCaptureFixture) -> None:
    for seed in range(case * SEEDS, (case + 1) * SEEDS):
        live_and_die(seed)
        assert "the index is rebuilt" not in caplog.text, f"seed {seed}: rows that had been flushed are gone"


def live_and_die(seed: int) -> None:
    """Some lives on one disk. Each ends with a loss of power or of the process alone, some of them while the disk fails."""
    rng = random.Random(seed)
    disk, expected, sync = SimulatedDisk(), dict[int, Expected](), rng.random() < 0.7
    directories = rng.choice([0, 0, 2, 3])
    for number in range(LIVES):
        life = Life(disk, rng, expected, sync=sync, directories=directories)
        try:
            life.check()
            if rng.random() < 0.7:
                life.die(rng.randrange(60))
            else:
                life.live(rng.randrange(60))
            life.acknowledge()
            loses_power = rng.random() < 0.6
            disk = disk.crash(seed * LIVES + number) if loses_power else killed(disk)
            if loses_power and not sync:
                life.expect_no_more_than_a_prefix()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, life {number}: {error}") from error
        finally:
            life.end()
