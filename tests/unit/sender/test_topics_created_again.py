"""Seeded schedules in which the topic is deleted and created again under the producer, among cuts, moves and refusals.

Each record that was acknowledged is in one of the topic's logs. Their order is not looked at, since until the producer hears of
the new topic its log takes whichever batch comes first (decision 0416).
"""

from __future__ import annotations

import pytest

from tests.unit.sender.test_simulation import Run, run


def check(schedule: Run) -> int:
    """The number of times that the topic was created again."""
    made, cluster = schedule.made, schedule.cluster
    lives = [*cluster.former, cluster.logs]
    assert made.fakes.incomplete.error is None
    assert made.fakes.pool.available == made.fakes.pool.total
    written = [{number for life in lives for number in life[partition].records} for partition in range(3)]
    for one in schedule.written_records:
        assert one.future.done()
        if one.future.exception(0) is None:
            assert one.number in written[one.partition], "acknowledged and lost"
    return len(cluster.former)


@pytest.mark.slow
@pytest.mark.parametrize("ids", [True, False], ids=["with topic ids", "without"])
@pytest.mark.parametrize("first", range(0, 400, 100))
def test_no_schedule_loses_a_record_of_a_topic_that_is_created_again(first: int, ids: bool) -> None:
    lives = 0
    for seed in range(first, first + 100):
        try:
            lives += check(run(seed, recreated=0.03, with_ids=ids))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error
    assert lives > 100
