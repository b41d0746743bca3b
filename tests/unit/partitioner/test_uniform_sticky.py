"""Runs of one to two batches' worth of bytes, ended at batch edges. Ids (tests/ids.md): PT and RA."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_producer.errors import ConfigError
from spark_producer.partitioner import describe_topic
from spark_producer.partitioner.batch_size_estimate import RECORD_FRAME
from spark_producer.partitioner.topic import LoadView
from spark_producer.partitioner.uniform_sticky import UniformStickyPartitioner
from tests.fakes.partitioner_fakes import FakeLoad, FakeQueues, ScriptedRandom, assign, rows_of, runs, topic_of


def uniform(batch_size: int, seed: int = 1, load: LoadView | None = None) -> UniformStickyPartitioner:
    return UniformStickyPartitioner(batch_size, load=load, choose=random.Random(seed))


def scripted(batch_size: int, load: LoadView, *numbers: int) -> UniformStickyPartitioner:
    return UniformStickyPartitioner(batch_size, load=load, choose=cast(random.Random, ScriptedRandom(*numbers)))


@pytest.mark.covers("PT1")
def test_a_partition_keeps_the_rows_until_it_has_a_batch_of_bytes_and_not_longer() -> None:
    """Each batch of 200 takes 139 bytes of records: two of 50. Three visits of two batches: 4 rows each."""
    found = runs(assign(uniform(200, seed=3), topic_of(3), rows_of(*[50] * 24)))
    assert {length % 4 for _, length in found} == {0}


@pytest.mark.covers("PT1")
def test_a_topic_of_one_partition_has_no_choice() -> None:
    assert set(assign(uniform(100), topic_of(1), rows_of(*[50] * 40))) == {0}


@pytest.mark.covers("PT1")
def test_a_run_goes_on_where_the_last_call_ended() -> None:
    sizes = [30] * 400
    together = assign(uniform(300, load=FakeQueues(300)), topic_of(4), rows_of(*sizes))
    queues = FakeQueues(300)
    made, pieces, at = uniform(300, load=queues), [], 0
    for count in (1, 2, 7, 90, 300):
        piece = assign(made, topic_of(4), rows_of(*sizes[at : at + count]))
        queues.append(piece, sizes[at : at + count])
        pieces += piece
        at += count
    assert pieces == together


@pytest.mark.covers("RA25")
def test_the_switch_is_deferred_to_a_batch_edge() -> None:
    """Batch size 1024: a small row, then rows larger than a batch, one call each. The second still goes to the first
    partition: the switch is due but the batch is open. Then each fills a batch of its own."""
    queues = FakeQueues(1024)
    made = scripted(1024, queues, 1, 2, 3, 1)
    found = []
    for size in (100, 1024, 1024, 1024, 1024):
        placed = assign(made, topic_of(4), rows_of(size))
        queues.append(placed, [size])
        found += placed
    assert found == [1, 1, 2, 3, 1]


@pytest.mark.covers("RA25")
def test_a_batch_that_was_sent_is_an_edge_too() -> None:
    queues = FakeQueues(1024)
    made = scripted(1024, queues, 0, 1)
    queues.append(assign(made, topic_of(2), rows_of(900)), [900])
    queues.append(assign(made, topic_of(2), rows_of(200)), [200])
    assert assign(made, topic_of(2), rows_of(10)) == [0], "1,100 bytes, but the batch is open"
    queues.drain()
    assert assign(made, topic_of(2), rows_of(10)) == [1]


def test_a_partition_is_left_at_twice_the_size_though_its_batch_stays_open() -> None:
    load = FakeLoad()
    load.free_by_partition = {0: 1 << 20}
    placed = assign(scripted(1000, load, 0, 1), topic_of(2), rows_of(*[100] * 25))
    assert placed == [0] * 20 + [1] * 5


@pytest.mark.covers("RA27")
@pytest.mark.parametrize("size", range(16, 120, 7))
def test_no_fractions_of_batches_at_low_rates(size: int) -> None:
    """Two thirds of a batch arrive between two sends: every batch that is sent is at least half full (KAFKA-14156)."""
    batch_size = 512
    queues = FakeQueues(batch_size)
    made = uniform(batch_size, seed=size, load=queues)
    for _ in range(40):
        sizes = [size] * (batch_size * 2 // 3 // size)
        for one in sizes:
            queues.append(assign(made, topic_of(5), rows_of(one)), [one])
        sent = queues.drain()
        assert all(61 + records >= batch_size // 2 for _, records in sent), sent


@pytest.mark.covers("PT2")
def test_only_partitions_with_a_leader_are_chosen() -> None:
    topic = describe_topic("t", (-1, 7, -1, -1, 8))
    assert set(assign(uniform(100), topic, rows_of(*[50] * 400))) == {1, 4}


@pytest.mark.covers("PT2")
def test_all_of_them_when_none_has_a_leader() -> None:
    topic = describe_topic("t", (-1, -1, -1))
    made = uniform(100)
    assert set(assign(made, topic, rows_of(*[50] * 400))) == {0, 1, 2}
    assert topic.may_keep(2)


@pytest.mark.covers("PT2")
def test_a_partition_that_lost_its_leader_is_left_before_it_is_full() -> None:
    made = uniform(10_000)
    (first,) = assign(made, topic_of(2), rows_of(50))
    leaders = tuple(-1 if partition == first else partition for partition in range(2))
    assert assign(made, describe_topic("t", leaders), rows_of(50)) == [1 - first]


def test_a_partition_that_is_gone_is_left() -> None:
    made = UniformStickyPartitioner(10_000, choose=cast(random.Random, ScriptedRandom(5)))
    assert assign(made, topic_of(8), rows_of(50)) == [5]
    assert assign(made, topic_of(3), rows_of(50)) == [2]


def test_partitions_that_are_new_are_used() -> None:
    made = uniform(100)
    assign(made, topic_of(2), rows_of(*[50] * 10))
    assert set(assign(made, topic_of(6), rows_of(*[50] * 1000))) == set(range(6))


def test_topics_stick_each_by_itself() -> None:
    made = uniform(10_000)
    first = assign(made, topic_of(50, "a"), rows_of(50, 50))
    assign(made, topic_of(50, "b"), rows_of(*[50] * 900))
    assert assign(made, topic_of(50, "a"), rows_of(50)) == first[:1]


def test_after_a_restart_rows_begin_anywhere() -> None:
    made = uniform(10_000)
    starts = []
    for _ in range(64):
        starts += assign(made, topic_of(16), rows_of(50))
        made.restart()
    assert len(set(starts)) > 10


def test_producers_start_on_different_partitions() -> None:
    starts = {assign(UniformStickyPartitioner(1000), topic_of(64), rows_of(50))[0] for _ in range(20)}
    assert len(starts) > 5


def test_64_small_tasks_cover_16_partitions_evenly() -> None:
    """Each task is a worker of its own with fewer rows than a batch. Chi-square of the counts of tasks, 15 degrees of
    freedom: 37.7 is passed once in a thousand even draws; the seeds are fixed."""
    counts = Counter(
        assign(uniform(131072, seed=seed), topic_of(16), rows_of(*[100] * 20))[0] for seed in range(64 * 50)
    )
    expected = 64 * 50 / 16
    assert sum((counts[partition] - expected) ** 2 / expected for partition in range(16)) < 37.7


def test_every_partition_gets_its_share() -> None:
    counts = Counter(assign(uniform(200, seed=5), topic_of(6), rows_of(*[20] * 60_000)))
    assert 0.85 * 10_000 < min(counts.values()) <= max(counts.values()) < 1.15 * 10_000


@given(
    st.lists(st.integers(9, 90), min_size=1, max_size=150),
    st.integers(1, 400),
    st.integers(2, 5),
    st.lists(st.integers(0, 149), max_size=6),
    st.integers(0, 2**32),
)
def test_every_visit_gets_between_one_and_two_batches_of_bytes(
    sizes: list[int], batch_size: int, count: int, cuts: list[int], seed: int
) -> None:
    """However the rows come in, and whenever batches are sent in between; the last visit may be shorter."""
    queues, script = FakeQueues(batch_size), random.Random(seed)
    made = UniformStickyPartitioner(batch_size, load=queues, choose=cast(random.Random, Steps(count)))
    bounds = sorted({0, len(sizes), *(cut for cut in cuts if cut < len(sizes))})
    placed: list[int] = []
    for first, stop in itertools.pairwise(bounds):
        piece = assign(made, topic_of(count), rows_of(*sizes[first:stop]))
        queues.append(piece, sizes[first:stop])
        placed += piece
        if script.random() < 0.3:
            queues.drain()
    start = 0
    for _, length in runs(placed)[:-1]:
        visit = sizes[start : start + length]
        assert sum(visit) + 61 * length >= batch_size, "headers of batches count too, at most one for each row"
        assert sum(visit[:-1]) < 2 * batch_size
        start += length


class Steps:
    """A random source that never gives the same partition twice running, so that visits can be counted."""

    def __init__(self, count: int) -> None:
        self._count, self._next = count, -1

    def getrandbits(self, bits: int) -> int:
        self._next += 1
        return self._next % self._count


@pytest.mark.covers("PT5")
def test_a_batch_size_below_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 1, not 0"):
        UniformStickyPartitioner(0)
    steps = UniformStickyPartitioner(1, choose=cast(random.Random, Steps(2)))
    assert len(runs(assign(steps, topic_of(2), rows_of(*[50] * 20)))) == 20


def test_statistics_are_asked_for_once_per_visit() -> None:
    load = FakeLoad()
    assign(uniform(1000, load=load), topic_of(4), rows_of(*[10] * 10_000))
    assert 40 < load.asked <= 100_000 / 1000


def test_without_adaptive_the_queues_play_no_part() -> None:
    load = FakeLoad({0: 100})
    made = UniformStickyPartitioner(100, adaptive=False, load=load, choose=random.Random(2))
    counts = Counter(assign(made, topic_of(2), rows_of(*[50] * 10_000)))
    assert load.asked == 0
    assert counts[0] == pytest.approx(5000, rel=0.1)


def test_only_the_rows_asked_for_are_placed() -> None:
    columns = rows_of(*[15] * 20)
    made = scripted(100, FakeLoad(), 0, 1, 2, 3)
    found = made.assign(topic_of(4), columns, np.arange(0, 20, 2))
    assert found.tolist() == [0] * 4 + [1] * 4 + [2] * 2


@pytest.mark.covers("RA25")
def test_a_batch_left_at_its_edge_is_full_and_one_left_at_twice_the_size_is_not() -> None:
    """Rows of 30 bytes (35 with their frame): one does not fit into a batch of 2,000 bytes any more, or the visit ends in it."""
    queues = FakeQueues(2000)
    made = scripted(2000, queues, 0, 1, 2, 3, 0)
    columns = rows_of(*[30] * 300)
    assign(made, topic_of(4), columns)
    size = int(columns.records.body_sizes[0]) + RECORD_FRAME
    full = list(made.take_full())
    assert full
    assert {(left.topic, left.size) for left in full} == {("t", size)}
    assert list(made.take_full()) == []
    endless = FakeLoad()
    endless.free_by_partition = dict.fromkeys(range(4), 1 << 20)
    open_ended = scripted(2000, endless, 0, 1, 2, 3, 0)
    assign(open_ended, topic_of(4), columns)
    assert list(open_ended.take_full()) == []


def test_the_end_of_the_rows_is_no_edge() -> None:
    made = uniform(2000, load=FakeLoad())
    assign(made, topic_of(4), rows_of(*[30] * 50))
    assert list(made.take_full()) == []
