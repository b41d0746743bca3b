"""The benchmark of many topics runs and counts; figures are not judged here."""

from __future__ import annotations

from benchmarks.topics import broker, in_one_batch, one_after_the_other


def test_both_scenes_of_new_topics_are_measured() -> None:
    with broker() as servers:
        together = in_one_batch(20, "together", servers)
        single = one_after_the_other(10, "single", servers)
    assert (together.topics, together.asked, single.asked) == (20, 20, 11)
    assert together.seconds > 0
    assert single.kept_bytes > 0
