"""The experiments on the embedded broker's memory, small: which tier serves whom, by counters alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.broker_memory import __main__ as command
from benchmarks.broker_memory import experiments
from benchmarks.broker_memory.experiments import Outcome, Scene, Sizes, faults
from benchmarks.broker_memory.page import draw, page, shares
from benchmarks.broker_memory.prediction import runs
from benchmarks.broker_memory.stand import virtual_clock
from spark_producer.broker.memory.sizes import KIB
from spark_producer.broker.storage.tiered import TieredOptions
from spark_producer.broker.storage.tiered.interfaces import Location

ENTRY = 512
OPTIONS = TieredOptions(
    write_cache_bytes=512 * KIB,
    read_cache_bytes=512 * KIB,
    tail_cache_bytes=64 * KIB,
    tail_ttl_ms=3_600_000,
    read_ahead_entries=127,
    flush_interval_s=3600.0,
)


def sizes(partitions: int, read_ahead: int = 127) -> Sizes:
    """An entry of all partitions each hundredth of a second, of a clock that does not wait."""
    rate = 100.0 * ENTRY * 8
    return Sizes(
        replace(OPTIONS, read_ahead_entries=read_ahead), partitions, ENTRY, 2, tail_rate=rate, backlog_rate=2 * rate,
        band_rate=rate, reader_rate=rate / 2, pause_s=2.5, seconds=2.4, lag=200, sync=False, clock=virtual_clock(),
    )  # fmt: skip


def forgetful(large: Sizes) -> Sizes:
    """The pause is longer than entries stay in the tail cache."""
    return replace(large, options=replace(large.options, tail_ttl_ms=1))


@pytest.mark.parametrize("partitions", [1, 4])
def test_e1_readers_at_the_end_read_the_tail_cache_alone(partitions: int) -> None:
    found = experiments.tail_read(sizes(partitions))
    assert faults(found) == []
    assert found.tail_hit == found.read == found.written > 1500
    assert found.tail_miss == found.write_cache == found.read_cache_miss == found.entry_log == 0


@pytest.mark.parametrize("partitions", [1, 4])
def test_e2_readers_after_a_pause_read_what_is_read_ahead(partitions: int) -> None:
    found = experiments.catch_up(forgetful(sizes(partitions)))
    assert faults(found) == []
    assert found.tail_hit == found.write_cache == 0
    assert found.read == found.read_cache_hit + found.read_cache_miss > 700
    assert found.expected_misses is not None
    assert abs(found.read_cache_miss - found.expected_misses) <= partitions
    assert found.hit_rate is not None
    assert found.hit_rate >= 0.99


def test_e2_with_less_read_ahead_misses_more() -> None:
    found = experiments.catch_up(forgetful(sizes(1, read_ahead=9)))
    assert found.read_cache_miss == found.expected_misses == -(-found.read // 10)
    assert faults(found) == [f"the read cache has {found.hit_rate} of what is read, which is less than 0.99"]


def test_e3_readers_in_between_read_the_write_cache() -> None:
    found = experiments.band_between(replace(sizes(4), options=replace(OPTIONS, write_cache_bytes=2048 * KIB)))
    assert faults(found) == []
    assert found.tail_hit == found.entry_log == found.read_cache_hit == 0
    assert found.write_cache == found.tail_miss == found.read > 1300


@pytest.mark.parametrize("partitions", [1, 4])
def test_e6_readers_far_from_the_end_take_nothing_from_those_at_the_end(partitions: int) -> None:
    found = experiments.both_readers(sizes(partitions))
    assert faults(found) == []
    assert found.tail_hit == found.tail_reader == found.written > 1500
    assert found.tail_miss == found.read_cache_hit + found.read_cache_miss > 700


def test_what_contradicts_the_article_is_named() -> None:
    good = Outcome("E2", 2, 1.0, 9, 9, 500, 500, 0, 0, 500, 0, 495, 5, 5, 495, expected_misses=5)
    assert faults(good) == []
    assert faults(good._replace(tail_hit=1)) == ["1 tail hits, and 0 entries were read at the end"]
    assert faults(good._replace(expected_misses=8)) == ["5 misses of the read cache instead of 8"]
    assert faults(good._replace(write_cache=1)) == ["1 reads of the write cache by a lagging reader"]
    near = good._replace(expected_misses=None, tail_reader=500, tail_hit=500)
    assert faults(near) == [
        "5 reads of entry logs by readers near the end",
        "500 reads of the storage instead of 0",
    ]


def test_runs_are_of_adjacent_entries_of_one_file() -> None:
    places = [(0, 1024), (0, 1140), (0, 1256), (0, 2000), (1, 2116)]
    assert runs(Location(number, number + 1, *place, 100) for number, place in enumerate(places)) == [3, 1, 1]
    assert runs(iter(())) == []


def test_the_page_has_a_row_for_each_experiment_and_a_picture(tmp_path: Path) -> None:
    small = sizes(4)
    near = Outcome("E1", 4, 2.0, 100, 62_000_000, 100, 62_000_000, 100, 100, 0, 0, 0, 0, 0, 0)
    far = Outcome("E2", 4, 2.0, 100, 69_000_000, 500, 10_400_000, 0, 0, 500, 0, 495, 5, 5, 495, expected_misses=5)
    ran = [(scene, far if "E2" in scene.title else near) for scene in experiments.scenes(small)]
    text = page(ran, small, "x.svg", [["## E9", "nothing"]])
    assert "\n## E9\nnothing\n" in text
    assert "| E1 tail | 4 | 31.0 / 31.0 | 100 / 0 | 0 | 0 / 0 |  | 0 | 0 | 31 MB/s in and out" in text
    assert "| E2 catch-up | 4 | 34.5 / 5.2 | 0 / 500 | 0 | 495 / 5 (99.00%) | 5 | 5 | 495 |" in text
    assert text.count("\n| E") == len(ran) == 7
    assert shares(far) == (0.0, 0.0, 0.99, 0.01)
    draw(ran, tmp_path / "x.svg")
    assert "read cache" in (tmp_path / "x.svg").read_text(encoding="utf-8")


def test_the_command_reports_what_contradicts_the_article(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    near = Outcome("E1", 8, 15.0, 100, 100, 100, 100, 100, 100, 0, 0, 0, 0, 0, 0)
    monkeypatch.setattr(command, "PARTS", ())
    for found, code in ((near, 0), (near._replace(tail_hit=99, write_cache=1), 1)):
        scene = Scene("E1 tail", lambda _, found=found: found, sizes(8))  # type: ignore[misc]
        monkeypatch.setattr(command, "scenes", lambda _, scene=scene: [scene])
        target = tmp_path / f"{code}.md"
        assert command.main(["--page", str(target), "--seconds", "1"]) == code
        assert target.exists() == (code == 0)
    assert "E1 tail: 99 tail hits, and 100 entries were read at the end" in capsys.readouterr().err
