"""The limits of a micro-batch, with the numbers of Spark's source."""

from __future__ import annotations

import pytest

from spark_producer.common.cluster import TopicPartition
from spark_producer.datasource.read.driver.rate_limit import TriggerDelay, limited_ends

A, B, C = (TopicPartition("t", number) for number in range(3))


@pytest.mark.covers("RD10")
def test_a_limit_is_divided_by_what_each_partition_has() -> None:
    assert limited_ends(10, {A: 100, B: 0}, {A: 190, B: 10}) == {A: 109, B: 1}
    assert limited_ends(10, {A: 0, B: 0, C: 0}, {A: 1000, B: 1, C: 0}) == {A: 9, B: 1, C: 0}, (
        "a small one does not starve"
    )
    assert limited_ends(100, {A: 0, B: 0}, {A: 3, B: 4}) == {A: 3, B: 4}, "never after the end"
    assert limited_ends(10, {A: 5}, {A: 5}) == {A: 5}
    assert limited_ends(1, {A: 7}, {A: 5}) == {A: 5}, "what went backwards is no size"


def test_a_batch_waits_for_enough_offsets_or_long_enough() -> None:
    delay = TriggerDelay(10, 60.0)
    assert not delay.waits({A: 0}, {A: 1}, 1000.0), "the first one never waits"
    assert delay.waits({A: 1}, {A: 9, B: 1}, 1001.0)
    assert not delay.waits({A: 1}, {A: 9, B: 2}, 1002.0), "a new partition counts from 0"
    assert delay.waits({A: 9}, {A: 10}, 1061.9)
    assert not delay.waits({A: 9}, {A: 9}, 1062.0)
