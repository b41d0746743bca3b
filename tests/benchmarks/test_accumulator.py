"""The benchmark of the accumulator runs, and every stage of it costs something."""

from __future__ import annotations

from benchmarks.accumulator import measure


def test_every_stage_is_measured() -> None:
    for partitions, active in ((1, 1), (50, 50), (50, 1)):
        assert all(microseconds > 0 for microseconds in measure(partitions, 200, active))
