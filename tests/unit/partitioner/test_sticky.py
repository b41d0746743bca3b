"""The sticky rule of KIP-480: another partition with every new batch. Ids (tests/ids.md): HI and PT."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from spark_producer.errors import ConfigError
from spark_producer.partitioner import describe_topic
from spark_producer.partitioner.sticky import StickyPartitioner
from spark_producer.partitioner.topic import LoadView
from tests.fakes.partitioner_fakes import FakeLoad, FakeQueues, assign, rows_of, runs, topic_of


def sticky(batch_size: int, seed: int = 1, load: LoadView | None = None) -> StickyPartitioner:
    return StickyPartitioner(batch_size, load=load, choose=random.Random(seed))


@pytest.mark.covers("HI1")
def test_every_new_batch_is_on_another_partition() -> None:
    """Batches of 261 bytes take two rows of 100."""
    found = runs(assign(sticky(261), topic_of(2), rows_of(*[100] * 1000)))
    assert [length for _, length in found] == [2] * 500


@pytest.mark.covers("HI1")
def test_all_partitions_are_used() -> None:
    counts = Counter(assign(sticky(261), topic_of(6), rows_of(*[100] * 60_000)))
    assert 0.9 * 10_000 < min(counts.values()) <= max(counts.values()) < 1.1 * 10_000


@pytest.mark.covers("HI1")
def test_a_batch_that_was_sent_moves_it_however_little_it_held() -> None:
    queues = FakeQueues(10_000)
    made, placed = sticky(10_000, load=queues), []
    for _ in range(50):
        one = assign(made, topic_of(3), rows_of(100, 100))
        queues.append(one, [100, 100])
        queues.drain()
        assert one[0] == one[1]
        placed += one[:1]
    assert all(before != after for before, after in itertools.pairwise(placed))


def test_an_open_batch_is_filled_on_the_way_and_not_left() -> None:
    load = FakeLoad()
    load.free_by_partition = {0: 150, 1: 150, 2: 150}
    found = runs(assign(sticky(261, load=load), topic_of(3), rows_of(100, 100, 100)))
    assert len(found) == 3, "each open batch takes one row; the next row moves on, into the next open batch"


def test_a_slow_partition_gets_more_than_a_fast_one() -> None:
    """The flaw that KIP-794 mends (KAFKA-10888): partition 0 is drained every 20 rows, the others after every row."""
    queues = FakeQueues(3000)
    made, counts = sticky(3000, load=queues), Counter[int]()
    for row in range(6000):
        placed = assign(made, topic_of(3), rows_of(100))
        queues.append(placed, [100])
        counts.update(placed)
        for partition in (0, 1, 2) if row % 20 == 0 else (1, 2):
            queues.free_by_partition.pop(partition, None)
    assert counts[0] > 3 * max(counts[1], counts[2])


@pytest.mark.covers("HI1")
def test_one_partition_has_no_choice() -> None:
    assert set(assign(sticky(200), topic_of(1), rows_of(*[100] * 20))) == {0}


@pytest.mark.covers("PT2")
def test_only_partitions_with_a_leader_are_chosen_unless_none_has_one() -> None:
    assert set(assign(sticky(200), describe_topic("t", (-1, 3, -1, 4)), rows_of(*[100] * 200))) == {1, 3}
    assert set(assign(sticky(200), describe_topic("t", (-1, -1)), rows_of(*[100] * 200))) == {0, 1}


def test_a_partition_that_lost_its_leader_is_left() -> None:
    load = FakeLoad()
    load.free_by_partition = {0: 1000, 1: 1000}
    made = sticky(2000, load=load)
    (first,) = assign(made, topic_of(2), rows_of(100))
    leaders = tuple(-1 if partition == first else partition for partition in range(2))
    assert assign(made, describe_topic("t", leaders), rows_of(100)) == [1 - first]


def test_a_row_larger_than_a_batch_has_one_for_itself() -> None:
    assert [length for _, length in runs(assign(sticky(200), topic_of(2), rows_of(500, 100, 500)))] == [1, 1, 1]


def test_a_batch_size_below_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 1, not 0"):
        StickyPartitioner(0)


def test_every_batch_that_is_left_is_full() -> None:
    made = sticky(1000, load=FakeLoad())
    placed = runs(assign(made, topic_of(4), rows_of(*[95] * 40)))
    assert [left.partition for left in made.take_full()] == [partition for partition, _ in placed[:-1]]
    assert list(made.take_full()) == []
