"""The part of the benchmarks about the broker's engines: each scene plays to both, and the page compares them."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.broker_engines import part
from benchmarks.broker_engines.load import full_batch
from benchmarks.broker_engines.scenes import SCENES
from benchmarks.part import Options
from spark_producer.broker.log.validation import check_records
from spark_producer.broker.settings import STORAGE_ENGINES
from spark_producer.record.batch_v2 import read_header

TINY = 0.01


@pytest.mark.parametrize("size", [1024, 32 * 1024])
def test_a_batch_of_the_load_is_one_that_brokers_take(size: int) -> None:
    batch = full_batch(size)
    assert size - 2 <= len(batch) <= size
    header = read_header(batch)
    assert header.size == len(batch)
    check_records(header, batch)


@pytest.mark.parametrize("engine", STORAGE_ENGINES)
@pytest.mark.parametrize(
    "name", ["durable-slow", "catch-up", "start", "restart", "restart-killed", "restart-killed-durable"]
)
def test_each_scene_plays_to_both_engines(name: str, engine: str, tmp_path: Path) -> None:
    figures = SCENES[name].play(engine, tmp_path, TINY)
    assert figures["rate"] > 0
    assert all(value >= 0 for value in figures.values())


def test_the_page_has_medians_and_the_median_of_the_ratios_of_each_round() -> None:
    others = {"cpu": 1.0, "p50": 1.0, "p99": 4.0}
    rounds = {
        "segments": [{"rate": rate, **others} for rate in (10.0, 10.0, 40.0)],
        "tiered": [{"rate": 20.0, "cpu": 3.0, "p50": 2.0, "p99": 2.0}] * 3,
    }
    text = part.page({"rounds": 3, "scenes": {"small": rounds, "tail": {name: [{"rate": 5.0}] * 3 for name in rounds}}})
    assert "Medians of 3 rounds" in text
    assert "| Produces of 1 KiB, one producer | Produces/s | 20 | 10 | 2.00 | 3.00 | 1.00 | 3.00 |" in text
    assert "| Produces of 1 KiB, one producer | 2.0 | 1.0 | 2.0 | 4.0 | 0.50 |" in text
    assert "| Reading the end, Fetches of 1 MiB, batches of 32 KiB | MiB/s | 5 | 5 | 1.00 |  |  |  |" in text


def test_the_page_has_the_disk_and_the_memory_where_they_were_measured() -> None:
    rounds = {
        "segments": [{"rate": 1.0, "disk": 1.0, "memory": 50.0}],
        "tiered": [{"rate": 1.0, "disk": 2.0, "memory": 75.0}],
    }
    text = part.page({"rounds": 1, "scenes": {"unsynced": rounds}})
    assert "| Disk used: 32 KiB, 8 producers, not forced | × written | 2.00 | 1.00 | 2.00 | | | |" in text
    assert "| Memory, at most: 32 KiB, 8 producers, not forced | MiB | 75.00 | 50.00 | 1.50 | | | |" in text


def test_both_engines_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[str] = []

    def play(engine: str, directory: Path, share: float) -> dict[str, float]:
        assert directory.is_dir()
        assert share == TINY
        played.append(engine)
        return {"rate": 1.0}

    monkeypatch.setattr(part, "SCENES", {"tail": SCENES["tail"].__class__("tail", "", "", play)})
    results = part.run(Options(repetitions=2, warmups=1), TINY)
    assert played == ["tiered", "segments", "segments", "tiered", "tiered", "segments"]
    assert {name: len(runs) for name, runs in results["scenes"]["tail"].items()} == {"segments": 2, "tiered": 2}
