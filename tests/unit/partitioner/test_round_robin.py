"""One row to each partition in turn. Ids (tests/ids.md): RR and HI2."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from spark_producer.config import producer_config
from spark_producer.partitioner import describe_topic, make_partitioner
from spark_producer.partitioner.round_robin import RoundRobinPartitioner
from tests.fakes.partitioner_fakes import assign, columns_of, rows_of, topic_of


def from_zero() -> RoundRobinPartitioner:
    return RoundRobinPartitioner(random_start=False)


@pytest.mark.covers("RR1")
def test_partitions_without_a_leader_are_skipped_and_the_split_is_even() -> None:
    made = from_zero()
    placed = assign(made, describe_topic("t", (1, -1, 2)), rows_of(*[20] * 7))
    assert placed == [0, 2, 0, 2, 0, 2, 0]
    assert assign(made, describe_topic("t", (1, -1, 2)), rows_of(20, 20)) == [2, 0]


@pytest.mark.covers("RR1")
def test_all_of_them_when_none_has_a_leader() -> None:
    assert assign(from_zero(), describe_topic("t", (-1, -1)), rows_of(*[20] * 4)) == [0, 1, 0, 1]


@pytest.mark.covers("RR2")
def test_keys_play_no_part() -> None:
    config = producer_config({"bootstrap.servers": "h:1", "partitioner.class": "RoundRobinPartitioner"})
    columns = columns_of(value=["v"] * 30, key=["same"] * 30)
    slots = make_partitioner(config).assign(columns, [topic_of(3)]).slots
    assert Counter(slots.tolist()) == {0: 10, 1: 10, 2: 10}
    assert slots[:4].tolist() == [0, 1, 2, 0]


@pytest.mark.covers("RR2")
def test_the_default_up_to_2_3_hashes_keys() -> None:
    config = producer_config({"bootstrap.servers": "h:1", "partitioner.class": "round_robin_with_keys"})
    columns = columns_of(value=["v"] * 40, key=["key", None] * 20)
    slots = make_partitioner(config).assign(columns, [topic_of(12)]).slots
    assert set(slots[::2].tolist()) == {1}
    steps = np.diff(slots[1::2]) % 12
    assert set(steps.tolist()) == {1}


def test_each_topic_is_counted_by_itself_over_calls() -> None:
    made = from_zero()
    assert assign(made, topic_of(3, "a"), rows_of(20, 20)) == [0, 1]
    assert assign(made, topic_of(3, "b"), rows_of(20)) == [0]
    made.restart()
    assert assign(made, topic_of(3, "a"), rows_of(20, 20)) == [2, 0]


def test_the_start_is_random_if_asked_for() -> None:
    starts = {
        assign(RoundRobinPartitioner(random_start=True, choose=random.Random(seed)), topic_of(50), rows_of(20))[0]
        for seed in range(40)
    }
    assert len(starts) > 15


class AlmostAtTheEnd(random.Random):
    def getrandbits(self, k: int, /) -> int:
        return (1 << k) - 2


def test_the_count_stays_positive_when_it_wraps() -> None:
    made = RoundRobinPartitioner(random_start=True, choose=AlmostAtTheEnd())
    assert assign(made, topic_of(10), rows_of(*[20] * 4)) == [6, 7, 0, 1]


@pytest.mark.covers("HI2")
def test_counting_a_row_twice_leaves_half_of_an_even_number_of_partitions_out() -> None:
    """Kafka 2.4 to 3.9 asked again when a batch had to be made (KAFKA-9965), which skipped a partition each time: with
    a batch for every row and an even count, half of them get nothing. Asked by the column, every row counts once."""
    twice = from_zero()
    unlucky = {assign(twice, topic_of(4), rows_of(20, 20))[1] for _ in range(100)}
    assert unlucky == {1, 3}
    assert set(assign(from_zero(), topic_of(4), rows_of(*[20] * 100))) == {0, 1, 2, 3}
