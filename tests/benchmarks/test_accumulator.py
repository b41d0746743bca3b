"""The benchmark of the accumulator runs, and every stage of it costs something."""

from __future__ import annotations

from pathlib import Path

from benchmarks import accumulator


def test_every_stage_of_every_scene_is_measured() -> None:
    costs, idle = accumulator.measure(1, 80)
    assert len(costs) == len(idle) == len(accumulator.SCENES)
    assert all(microseconds > 0 for cost in costs for microseconds in cost)
    assert all(microseconds > 0 for microseconds in idle)


def test_the_page_has_a_row_for_every_scene(tmp_path: Path) -> None:
    out = tmp_path / "page.md"
    accumulator.main(["--rounds", "1", "--batches", "80", "--out", str(out)])
    page = out.read_text(encoding="utf-8")
    for scene in accumulator.SCENES:
        assert f"| {scene.name} |" in page
