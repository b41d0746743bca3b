"""The benchmark of dead letters runs, and its page has a row for every scene. Ids: COM7."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import dead_letters


@pytest.mark.covers("COM7")
def test_every_scene_is_measured_and_has_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "ROWS", 2000)  # else it takes half a minute
    monkeypatch.setattr(dead_letters, "BATCH_ROWS", 1000)
    out = tmp_path / "page.md"
    dead_letters.main(["--rounds", "1", "--out", str(out)])
    page = out.read_text(encoding="utf-8")
    for scene in dead_letters.SCENES:
        assert f"| {scene.name} | " in page
