"""Partitions of rows without keys: runs of a batch's worth of bytes. Ids: spec kafka_producer.md §6, PT and HI."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_producer.errors import ConfigError
from spark_producer.partitioner import StickyPartitioner


def sizes(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


def sticky(batch_size: int, seed: int = 1) -> StickyPartitioner:
    return StickyPartitioner(batch_size, random.Random(seed))


def runs(partitions: np.ndarray) -> list[tuple[int, int]]:
    """(partition, length) of each run."""
    found: list[tuple[int, int]] = []
    for partition in partitions.tolist():
        if found and found[-1][0] == partition:
            found[-1] = (partition, found[-1][1] + 1)
        else:
            found.append((partition, 1))
    return found


def test_pt1_a_partition_keeps_the_rows_until_it_has_a_batch_of_bytes() -> None:
    made = sticky(3)
    partitions = made.assign("t", sizes(*[1] * 12), (0, 1, 2))
    assert [length for _, length in runs(partitions)] == [3, 3, 3, 3]


def test_pt1_a_run_goes_on_where_the_last_call_ended() -> None:
    together = sticky(10).assign("t", sizes(*[3] * 40), (0, 1, 2, 3))
    made = sticky(10)
    pieces = [made.assign("t", sizes(*[3] * count), (0, 1, 2, 3)) for count in (1, 2, 7, 0, 30)]
    assert np.concatenate(pieces).tolist() == together.tolist()


def test_the_row_that_fills_a_batch_still_belongs_to_it() -> None:
    partitions = sticky(100).assign("t", sizes(60, 60, 1000, 10, 100, 1), (0, 1))
    assert [length for _, length in runs(partitions)] == [2, 1, 2, 1]


def test_hi1_the_next_partition_is_another_one() -> None:
    found = runs(sticky(5).assign("t", sizes(*[5] * 500), (0, 1, 2, 3)))
    assert len(found) == 500
    assert Counter(partition for partition, _ in found).keys() == {0, 1, 2, 3}


def test_pt1_a_topic_of_one_partition_has_no_choice() -> None:
    assert set(sticky(5).assign("t", sizes(*[5] * 20), (0,)).tolist()) == {0}


def test_pt2_only_available_partitions_are_chosen() -> None:
    assert set(sticky(5).assign("t", sizes(*[5] * 200), (1, 4)).tolist()) == {1, 4}


def test_pt2_a_partition_that_lost_its_leader_is_left_before_it_is_full() -> None:
    made = sticky(1000)
    (first,) = set(made.assign("t", sizes(1, 1), (0, 1)).tolist())
    assert made.assign("t", sizes(1), (1 - first,)).tolist() == [1 - first]


def test_topics_stick_each_by_itself() -> None:
    made = sticky(1000)
    first = made.assign("a", sizes(*[400] * 2), (0, 1, 2)).tolist()
    made.assign("b", sizes(*[400] * 9), (0, 1, 2))
    assert made.assign("a", sizes(400), (0, 1, 2)).tolist() == first[:1]


def test_producers_start_on_different_partitions() -> None:
    starts = {StickyPartitioner(1000).assign("t", sizes(1), range(64)).item() for _ in range(20)}
    assert len(starts) > 5


def test_every_partition_gets_its_share() -> None:
    partitions = sticky(100, seed=5).assign("t", sizes(*[10] * 60_000), tuple(range(6)))
    counts = Counter(partitions.tolist())
    assert min(counts.values()) > 0.8 * 10_000
    assert max(counts.values()) < 1.2 * 10_000


@given(st.lists(st.integers(1, 50), max_size=200), st.integers(1, 120), st.integers(1, 5), st.randoms())
def test_every_run_but_the_last_holds_at_least_a_batch_and_not_a_row_more(
    row_sizes: list[int], batch_size: int, count: int, choose: random.Random
) -> None:
    partitions = StickyPartitioner(batch_size, choose).assign("t", sizes(*row_sizes), range(count))
    assert len(partitions) == len(row_sizes)
    start = 0
    for _, length in runs(partitions)[:-1]:
        if count > 1:
            assert sum(row_sizes[start : start + length]) >= batch_size
            assert sum(row_sizes[start : start + length - 1]) < batch_size
        start += length


def test_pt5_a_batch_size_below_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 1, not 0"):
        StickyPartitioner(0)
    assert len(runs(sticky(1).assign("t", sizes(*[5] * 20), (0, 1)))) == 20
