"""Explicit partition before key before sticky, by the column. Ids (tests/ids.md): KY and PT."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from spark_producer.errors import RecordError
from spark_producer.kernel import BinaryColumn
from spark_producer.partitioner import Assignment, Partitioner, TopicPartitions
from spark_producer.partitioner.key_hash import JAVA
from spark_producer.partitioner.uniform_sticky import UniformStickyPartitioner
from spark_producer.record.columns import CheckedColumns, read_columns
from tests.fakes.partitioner_fakes import columns_of

HASHES_MOD_12 = {b"": 9, b"a": 4, b"key": 1, b"kafka": 4, b"test": 11}


def topic_of(name: str, count: int, available: tuple[int, ...] | None = None) -> TopicPartitions:
    return TopicPartitions(name, count, tuple(range(count)) if available is None else available)


def assign(columns: CheckedColumns, *topics: TopicPartitions, batch_size: int = 1 << 20, seed: int = 3) -> Assignment:
    sticky = UniformStickyPartitioner(batch_size, choose=random.Random(seed))
    return Partitioner(JAVA, sticky).assign(columns, topics)


@pytest.mark.covers("KY1")
def test_keys_choose_among_all_partitions_also_those_without_a_leader() -> None:
    columns = columns_of(value=["v"] * 5, key=list(HASHES_MOD_12))
    assert assign(columns, topic_of("t", 12, available=(0,))).slots.tolist() == list(HASHES_MOD_12.values())


@pytest.mark.covers("KY1")
def test_the_hash_is_made_positive_by_a_mask_not_by_its_absolute_value() -> None:
    """murmur2(b"21") is negative: -973932308 & 0x7fffffff = 1173551340."""
    column = BinaryColumn(pa.array([b"21"], pa.binary()))
    assert JAVA.partitions(column, np.int32(1000)).tolist() == [340]
    assert JAVA.partitions(column, np.int32(2**31 - 1)).tolist() == [1173551340]


def test_equal_keys_of_different_types_and_layouts_go_to_one_partition() -> None:
    kinds = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]
    found = [
        assign(columns_of(value=["v"], key=pa.array(["日本語"], kind)), topic_of("t", 97)).slots.item()
        for kind in kinds
    ]
    assert set(found) == {(1431860170 & 0x7FFFFFFF) % 97}


def test_an_explicit_partition_goes_before_the_key_and_null_leaves_it_to_the_key() -> None:
    columns = columns_of(value=["v"] * 3, key=["key", "key", "a"], partition=pa.array([7, None, 0], pa.int32()))
    assert assign(columns, topic_of("t", 12)).slots.tolist() == [7, 1, 0]


def test_rows_without_key_and_partition_stick_and_the_others_do_not_move_them() -> None:
    keys = ["key", None] * 50
    columns = columns_of(value=["v" * 100] * 100, key=keys)
    slots = assign(columns, topic_of("t", 12), batch_size=1000).slots
    assert set(slots[::2].tolist()) == {1}
    alone = assign(columns_of(value=["v" * 100] * 50, key=[None] * 50), topic_of("t", 12), batch_size=1000)
    assert slots[1::2].tolist() == alone.slots.tolist()
    assert len(set(slots[1::2].tolist())) > 1


def test_an_empty_key_is_a_key() -> None:
    assert assign(columns_of(value=["v"] * 2, key=["", ""]), topic_of("t", 12)).slots.tolist() == [9, 9]


def test_only_the_rows_left_open_fill_the_sticky_partition() -> None:
    columns = columns_of(value=["v" * 80] * 80, partition=pa.array([0, None] * 40, pa.int32()))
    slots = assign(columns, topic_of("t", 9, available=tuple(range(1, 9))), batch_size=1000).slots[1::2]
    changes = np.flatnonzero(np.diff(slots)) + 1
    assert changes.tolist() == [20], "90 bytes a row: ten rows make a batch, and a visit ends with the second"


@pytest.mark.covers("PT2")
def test_sticky_rows_go_to_partitions_with_a_leader() -> None:
    columns = columns_of(value=["v" * 100] * 200)
    assert set(assign(columns, topic_of("t", 9, available=(2, 5)), batch_size=300).slots.tolist()) == {2, 5}


def test_several_topics_have_slots_of_their_own() -> None:
    batch = pa.record_batch({"value": ["v"] * 5, "key": ["key"] * 5, "topic": ["a", "b", "a", "c", "b"]})
    columns = read_columns(batch, topic=None, now_ms=0).or_raise()
    assigned = assign(columns, topic_of("a", 12), topic_of("b", 3), topic_of("c", 1))
    key_hash = -1079937367 & 0x7FFFFFFF
    expected = {"a": key_hash % 12, "b": 12 + key_hash % 3, "c": 15}
    assert assigned.slots.tolist() == [expected[topic] for topic in ("a", "b", "a", "c", "b")]
    assert (assigned.bases, assigned.slot_count) == ((0, 12, 15), 16)
    assert assigned.topic_partitions(np.array([1, 12, 13, 15])) == ([0, 1, 1, 2], [1, 0, 1, 0])


def test_each_topic_sticks_by_itself() -> None:
    batch = pa.record_batch({"value": ["v"] * 60, "topic": ["a", "b"] * 30})
    columns = read_columns(batch, topic=None, now_ms=0).or_raise()
    slots = assign(columns, topic_of("a", 5), topic_of("b", 5)).slots
    assert len(set(slots[::2].tolist())) == len(set(slots[1::2].tolist())) == 1
    assert slots[0] < 5 <= slots[1]


@pytest.mark.covers("KP6")
@pytest.mark.parametrize(
    ("count", "partition", "there"),
    [(3, 3, "the 3 partitions 0 to 2"), (1, 1, "only partition 0"), (3, 2**31 - 1, "the 3 partitions 0 to 2")],
)
def test_a_partition_that_the_topic_lacks_is_named_with_its_row(count: int, partition: int, there: str) -> None:
    columns = columns_of(first_row=100, value=["v"] * 3, partition=pa.array([0, None, partition], pa.int32()))
    with pytest.raises(RecordError) as raised:
        assign(columns, topic_of("t", count))
    for part in (f"partition {partition} does not exist", "topic 't', row 102", f"the topic has {there}"):
        assert part in str(raised.value)


@pytest.mark.covers("KP6")
def test_the_range_is_that_of_the_rows_own_topic() -> None:
    batch = pa.record_batch(
        {"value": ["v"] * 3, "topic": ["a", "b", "b"], "partition": pa.array([4, 1, 2], pa.int32())}
    )
    columns = read_columns(batch, topic=None, now_ms=0).or_raise()
    with pytest.raises(RecordError, match=r"partition 2 does not exist \(topic 'b', row 2 of the task\).* 0 to 1"):
        assign(columns, topic_of("a", 5), topic_of("b", 2))


def test_the_columns_partitions_are_not_written_to() -> None:
    columns = columns_of(value=["v"] * 3, partition=pa.array([1, None, 2], pa.int32()))
    assert columns.partitions is not None
    before = columns.partitions.tolist()
    assign(columns, topic_of("t", 5))
    assert columns.partitions.tolist() == before
