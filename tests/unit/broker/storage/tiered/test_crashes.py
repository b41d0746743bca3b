"""The tiered engine after its death at every kind of moment, on a simulated disk that tears what was not forced."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.unit.broker.storage.tiered import crash_seeds
from tests.unit.broker.storage.tiered.crash_seeds import CHUNK, RUNS, Progress, play

CASES = 25
SEEDS = 20


@pytest.mark.covers("W7")
@pytest.mark.slow
@pytest.mark.parametrize("case", range(CASES))
def test_what_was_acknowledged_is_recovered_after_every_death(case: int) -> None:
    """500 seeds in all, which take some 20 seconds of a processor; `make crash-seeds` plays 100,000."""
    for seed in range(case * SEEDS, (case + 1) * SEEDS):
        assert play(seed) == RUNS


def test_many_seeds_go_on_where_they_were_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "below" / "kept.json"
    first = Progress(kept)
    first.add(0)
    assert Progress(kept).done == {0}
    assert crash_seeds.main(["--seeds", str(CHUNK), "--kept", str(kept)]) == 0
    assert "100 seeds were played before" in capsys.readouterr().out
    monkeypatch.setattr(crash_seeds, "digest", lambda: "of other code")
    assert Progress(kept).done == set()
    assert json.loads(kept.read_text())["done"] == [0]


def test_a_seed_that_fails_is_named_and_played_again_the_next_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept.json"
    monkeypatch.setattr(crash_seeds, "ProcessPoolExecutor", lambda *_: ThreadPoolExecutor(1))
    monkeypatch.setattr(crash_seeds, "play", failing_seed)
    assert crash_seeds.main(["--seeds", str(2 * CHUNK), "--kept", str(kept)]) == 1
    assert "\nseed 7: AssertionError('lost" in capsys.readouterr().out
    assert Progress(kept).done == {CHUNK}


def failing_seed(seed: int) -> None:
    assert seed != 7, "lost"
