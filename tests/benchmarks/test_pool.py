"""The benchmark of the pool runs and measures every scene; figures are not judged here."""

from __future__ import annotations

from benchmarks.pool import SCENES, measure


def test_every_scene_of_the_pool_is_measured() -> None:
    results = measure(1, share=0.01)
    assert set(results) == set(SCENES)
    assert all(nanoseconds > 0 for nanoseconds in results.values())
