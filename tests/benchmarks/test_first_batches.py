"""The benchmark of first batches runs; figures are not judged here."""

from __future__ import annotations

from benchmarks.first_batches import LATER, line, measure


def test_first_and_later_writes_are_measured() -> None:
    (writes,) = measure(partitions=3, megabytes=1, rounds=1)
    assert len(writes.later) == LATER
    assert all(seconds > 0 and requests > 0 for seconds, requests in (writes.first, *writes.later))
    assert "3 partitions" in line(3, [writes])
