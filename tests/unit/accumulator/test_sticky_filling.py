"""The sticky rules beside a real accumulator: where rows go while batches fill, wait and leave. Ids: RA25 to RA27."""

from __future__ import annotations

import random
from collections import Counter
from typing import cast

import numpy as np
import pyarrow as pa
import pytest

from spark_producer.common.cluster import TopicPartition
from spark_producer.kernel import ArrangedRows
from spark_producer.partitioner import LoadStatistics, describe_topic
from spark_producer.partitioner.adaptive import PartitionChooser
from spark_producer.partitioner.sticky import StickyPartitioner
from spark_producer.partitioner.topic import LoadView, RowRule
from spark_producer.partitioner.uniform_sticky import UniformStickyPartitioner
from spark_producer.record.codecs import Codec
from spark_producer.record.compression_ratio import REMEMBERED
from tests.fakes.accumulator_fakes import NODE, TP, AccumulatorFakes, accumulator_fakes
from tests.fakes.partitioner_fakes import ScriptedRandom, assign, columns_of, rows_of, runs, topic_of


class QueuesOf(LoadView):
    """The accumulator's load for a producer's partitioner; all nodes but those named take ready batches."""

    def __init__(self, fakes: AccumulatorFakes, stalled: frozenset[int] = frozenset()) -> None:
        self._bench = fakes
        self._stalled = stalled

    def statistics(self, topic: str) -> LoadStatistics:
        return LoadStatistics(self._bench.accumulator.queue_lengths(topic), self._stalled)

    def free_bytes(self, topic: str, partition: int) -> int:
        return self._bench.accumulator.free_bytes(topic, partition)

    def full_size(self, topic: str, batch_size: int) -> int:
        return max(batch_size, self._bench.accumulator.full_size(topic))


def send(fakes: AccumulatorFakes, rule: RowRule, size: int, count: int) -> int:
    """Append one row of `size` bytes without a key; return its partition."""
    columns = rows_of(size)
    (partition,) = assign(rule, topic_of(count, TP.topic), columns)
    row = ArrangedRows(columns.records, np.zeros(1, dtype=np.int64))
    fakes.accumulator.append(TopicPartition(TP.topic, partition), row, 0, 1)
    return partition


@pytest.mark.covers("RA25")
def test_small_and_large_rows_and_the_switch_at_the_edge_of_a_batch() -> None:
    """Batches of 1024. The first large row is due elsewhere only when it has opened a batch of its own."""
    fakes = accumulator_fakes(batch_size=1024, linger=1000)
    choose = cast(random.Random, ScriptedRandom(1, 2, 3, 1))
    made = UniformStickyPartitioner(1024, load=QueuesOf(fakes), adaptive=False, choose=choose)
    assert [send(fakes, made, size, 4) for size in (100, 1024, 1024, 1024, 1024)] == [1, 1, 2, 3, 1]
    assert fakes.accumulator.queue_lengths(TP.topic) == {1: 3, 2: 1, 3: 1}


@pytest.mark.covers("RA25")
def test_a_switch_that_is_due_waits_until_the_open_batch_is_taken() -> None:
    fakes = accumulator_fakes(batch_size=1024, linger=0)
    choose = cast(random.Random, ScriptedRandom(0, 1))
    made = UniformStickyPartitioner(1024, load=QueuesOf(fakes), adaptive=False, choose=choose)
    assert [send(fakes, made, size, 2) for size in (900, 200, 10)] == [0, 0, 0], "1,100 bytes, but the batch is open"
    fakes.complete(fakes.take())
    fakes.complete(fakes.take())
    assert send(fakes, made, 10, 2) == 1


@pytest.mark.covers("RA26", "PT3")
@pytest.mark.parametrize(
    ("lengths", "frequencies"), [((1, 7, 2), (7, 1, 6)), ((5, 0, 3, 0, 1), (1, 6, 3, 6, 5)), ((0, 3, 1), (4, 1, 3))]
)
def test_the_longer_a_queue_the_less_it_gets(lengths: tuple[int, ...], frequencies: tuple[int, ...]) -> None:
    fakes = accumulator_fakes(linger=1000)
    for partition, length in enumerate(lengths):
        for _ in range(length):
            fakes.append(b"x" * 900, tp=TopicPartition(TP.topic, partition))
    load, chooser = QueuesOf(fakes), PartitionChooser()
    topic, total = topic_of(len(lengths), TP.topic), sum(frequencies)
    found = Counter(chooser.choose(topic, load.statistics(TP.topic), number) for number in range(3 * total))
    assert found == {partition: 3 * frequency for partition, frequency in enumerate(frequencies)}


@pytest.mark.covers("RA26")
def test_a_stalled_node_is_left_out_whatever_the_queues_say() -> None:
    fakes = accumulator_fakes(linger=1000)
    for partition, length in enumerate((0, 2, 1, 0)):
        for _ in range(length):
            fakes.append(b"x" * 900, tp=TopicPartition(TP.topic, partition))
    topic = describe_topic(TP.topic, (9, NODE, NODE, 9))
    load, chooser = QueuesOf(fakes, frozenset({9})), PartitionChooser()
    assert Counter(chooser.choose(topic, load.statistics(TP.topic), number) for number in range(30)) == {
        1: 10,
        2: 20,
    }


@pytest.mark.covers("RA27")
@pytest.mark.parametrize("size", [*range(20, 130, 10), 200, 225])
def test_no_batch_is_a_fraction_though_linger_is_long(size: int) -> None:
    """Between two looks of the sender come two thirds of a batch (KAFKA-14156: a rule that leaves a partition by bytes
    alone makes a batch of a third, and then one of two thirds)."""
    batch_size = 512
    fakes = accumulator_fakes(batch_size=batch_size, linger=0.5)
    made = UniformStickyPartitioner(batch_size, load=QueuesOf(fakes), adaptive=False, choose=random.Random(size))
    taken = []
    for _ in range(60):
        for _ in range(-(-batch_size * 2 // 3 // size)):
            send(fakes, made, size, 5)
        fakes.clock.advance(0.5)
        fakes.check()
        for batch in fakes.drainer.drain(NODE, 1 << 30, fakes.clock.now):
            taken.append(batch.size)
            fakes.complete(batch)
    assert len(taken) > 30
    assert batch_size / 2 <= min(taken) <= max(taken) <= batch_size


@pytest.mark.covers("RA27")
@pytest.mark.parametrize("rule", [StickyPartitioner, UniformStickyPartitioner])
def test_batches_that_are_compressed_are_full_when_they_are_left(rule: type) -> None:
    """Records of a topic that shrink to a third: a visit brings three times the bytes. Placed by the column, as Spark
    brings them; the first batch is all that a batch of 1,024 leaves open."""
    fakes = accumulator_fakes(batch_size=1024, linger=1000, codec=Codec.ZSTD)
    for _ in range(REMEMBERED):
        fakes.ratios.observe(TP.topic, Codec.ZSTD, 1 / 3)
    full = fakes.accumulator.full_size(TP.topic)
    assert full > 2.5 * 1024
    made = rule(1024, load=QueuesOf(fakes), choose=random.Random(1))
    placed = runs(assign(made, topic_of(50, TP.topic), rows_of(*[20] * 4000)))
    assert all(full - 61 - 20 <= length * 20 <= 2 * full for _, length in placed[:-1])


@pytest.mark.covers("RA27")
def test_a_small_pool_bounds_what_a_visit_brings_but_not_below_a_batch() -> None:
    fakes = accumulator_fakes(memory=8192, batch_size=1024, codec=Codec.ZSTD)
    for _ in range(REMEMBERED):
        fakes.ratios.observe(TP.topic, Codec.ZSTD, 0.1)
    assert fakes.accumulator.full_size(TP.topic) == 4096
    assert fakes.accumulator.full_size(TP.topic, among=16) == 256
    assert accumulator_fakes(batch_size=1024).accumulator.full_size(TP.topic) == 1024


@pytest.mark.covers("RA27")
@pytest.mark.parametrize("rule", [StickyPartitioner, UniformStickyPartitioner])
def test_times_far_apart_leave_no_fractions_of_batches(rule: type) -> None:
    """Small rows of one day in any order: the deltas of their timestamps take four bytes each, a sixth of a record."""
    fakes = accumulator_fakes(memory=1 << 22, batch_size=4096, linger=1000)
    made, rows, day = rule(4096, load=QueuesOf(fakes), choose=random.Random(1)), 20_000, 86_400_000
    times = np.random.default_rng(1).integers(0, day, rows)
    columns = columns_of(topic=TP.topic, value=pa.array([b"v" * 10] * rows), timestamp=pa.array(times))
    arranged = ArrangedRows(columns.records, np.arange(rows, dtype=np.int64))
    first = 0
    for partition, length in runs(assign(made, topic_of(500, TP.topic), columns)):
        fakes.accumulator.append(TopicPartition(TP.topic, partition), arranged, first, first + length)
        first += length
    sizes = [batch.position for queue in fakes.incomplete.queues.values() for batch in queue.batches]
    assert sum(size < 2048 for size in sizes) <= 1, sorted(sizes)
