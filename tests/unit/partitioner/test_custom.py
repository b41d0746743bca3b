"""Functions of users: found by name, called by the column, and not trusted."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_producer import Producer
from spark_producer.config import producer_config
from spark_producer.errors import ConfigError, PartitionerError, RecordError
from spark_producer.partitioner import Assignment, Partitioner, TopicPartitions, make_partitioner
from spark_producer.partitioner.custom import CustomPartitioner, load_function
from spark_producer.record.columns import CheckedColumns, read_columns
from tests.fakes.partitioner_fakes import columns_of, topic_of

HERE = "tests.unit.partitioner.test_custom"


def by_first_byte(keys: Any, values: Any, topic: str, partition_count: int) -> np.ndarray:
    """A partition for each first byte of the value."""
    return np.array([value.as_py()[0] % partition_count for value in values], dtype=np.int32)


class Shards:
    """A partitioner with a state and a method."""

    def __init__(self, shift: int) -> None:
        self.shift = shift

    def __call__(self, keys: Any, values: Any, topic: str, partition_count: int) -> np.ndarray:
        return (np.arange(len(keys)) + self.shift) % partition_count

    @staticmethod
    def always_last(keys: Any, values: Any, topic: str, partition_count: int) -> pa.Int32Array:
        return pa.array([partition_count - 1] * len(values), pa.int32())


not_a_function = 3


def place(columns: CheckedColumns, function: Callable[..., Any], *topics: TopicPartitions) -> Assignment:
    return Partitioner(None, CustomPartitioner(function)).assign(columns, topics or [topic_of(4)])


def test_it_gets_the_columns_the_topic_and_the_count() -> None:
    seen: list[tuple[Any, ...]] = []

    def function(*given: Any) -> list[int]:
        seen.append(given)
        return [3, 0]

    columns = columns_of(value=["a", None], key=[None, "k"])
    assert place(columns, function).slots.tolist() == [3, 0]
    ((keys, values, topic, count),) = seen
    assert (keys.to_pylist(), values.to_pylist(), topic, count) == ([None, b"k"], [b"a", None], "t", 4)


def test_no_key_column_is_a_column_of_nulls() -> None:
    assert place(columns_of(value=["a"] * 3), lambda keys, *_: [keys.null_count] * 3).slots.tolist() == [3, 3, 3]


def test_an_explicit_partition_goes_before_it_and_it_goes_before_the_key() -> None:
    columns = columns_of(value=["a", "b", "c"], key=["key"] * 3, partition=pa.array([None, 3, None], pa.int32()))
    slots = place(columns, by_first_byte).slots.tolist()
    assert slots == [ord("a") % 4, 3, ord("c") % 4]


def test_each_topic_is_asked_for_by_itself() -> None:
    batch = pa.record_batch({"value": ["a", "b", "c"], "topic": ["x", "y", "x"]})
    columns = read_columns(batch, topic=None, now_ms=0).or_raise()
    slots = place(columns, by_first_byte, topic_of(4, "x"), topic_of(3, "y")).slots.tolist()
    assert slots == [97 % 4, 4 + 98 % 3, 99 % 4]


@pytest.mark.parametrize(
    ("returned", "complaint"),
    [
        ([0, 1], "returned 2 partitions for 3 rows"),
        (np.zeros((3, 1), dtype=np.int32), r"returned an array of shape \(3, 1\) for 3 rows"),
        (0, r"returned an array of shape \(\) for 3 rows"),
        ([0, 1, 4], r"returned partition 4 \(topic 't', row 12 of the task\); the topic has the partitions 0 to 3"),
        ([0, -1, 0], r"returned partition -1 \(topic 't', row 11 of the task\)"),
        ([0.0, 1.0, 2.0], "returned list of float64, not of integers"),
        ([True, False, True], "returned list of bool, not of integers"),
        ([0, None, 1], "returned list of object, not of integers"),
        (None, "returned NoneType of object, not of integers"),
        ("abc", "not of integers"),
        ([[1], [2, 3], []], "not an array"),
        (pa.array([0, None, 1], pa.int32()), "returned 1 nulls"),
        (pa.chunked_array([pa.array([0, 1]), pa.array([None], pa.int64())]), "returned 1 nulls"),
        (np.ma.array([0, 1, 2], mask=[False, True, False]), "returned 1 nulls"),
        (np.array([0, 1, 2], dtype="m8[s]"), "returned ndarray of timedelta64.*, not of integers"),
        (
            pa.UnionArray.from_sparse(pa.array([0] * 3, pa.int8()), [pa.array([0, 1, 2])]),
            "returned .*UnionArray, which is not an array",
        ),
        (np.array([0, 1, 2**40]), "returned partition 1099511627776"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_is_not_one_partition_per_row_is_refused(returned: Any, complaint: str) -> None:
    columns = columns_of(value=["a"] * 3, first_row=10)
    with pytest.raises(PartitionerError, match=complaint) as raised:
        place(columns, lambda *_: returned)
    assert "for topic 't'" in str(raised.value)
    assert "one partition per row" in str(raised.value)
    assert pickle.loads(pickle.dumps(raised.value)).topic == "t"


@pytest.mark.parametrize(
    "returned",
    [
        pa.array([0, 1, 3], pa.int8()),
        pa.chunked_array([pa.array([0, 1]), pa.array([3])]),
        np.array([0, 1, 3], dtype=np.uint64),
        np.ma.array([0, 1, 3], mask=False),
        (0, 1, 3),
    ],
    ids=lambda value: type(value).__name__,
)
def test_integers_of_every_kind_will_do(returned: Any) -> None:
    slots = place(columns_of(value=["a"] * 3), lambda *_: returned).slots
    assert slots.dtype == np.int32
    assert slots.tolist() == [0, 1, 3]


def test_its_exception_is_reported_with_its_name() -> None:
    def hopeless(*_: Any) -> None:
        raise KeyError("no such shard")

    with pytest.raises(PartitionerError, match=r"hopeless' raised KeyError: 'no such shard', for topic 't'") as raised:
        place(columns_of(value=["a"]), hopeless)
    assert isinstance(raised.value.__cause__, KeyError)
    assert not isinstance(raised.value, RecordError)


def test_it_travels_as_its_function_does() -> None:
    columns = columns_of(value=["a"] * 3)
    for function in (by_first_byte, Shards(2)):
        travelled = pickle.loads(pickle.dumps(CustomPartitioner(function)))
        assert Partitioner(None, travelled).assign(columns, [topic_of(4)]).slots.tolist() == (
            place(columns, function).slots.tolist()
        )


def test_a_function_by_name() -> None:
    assert load_function(f"{HERE}:by_first_byte") is by_first_byte
    assert load_function(f"{HERE}:Shards.always_last") is Shards.always_last
    config = producer_config({"bootstrap.servers": "h:1", "partitioner.class": f"{HERE}:Shards.always_last"})
    assert make_partitioner(config).assign(columns_of(value=["a"] * 2), [topic_of(4)]).slots.tolist() == [3, 3]


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("no_such_module:f", "ModuleNotFoundError: No module named 'no_such_module'"),
        (f"{HERE}:no_such_function", "AttributeError: .*no_such_function"),
        (f"{HERE}:", "AttributeError"),
        (":f", "ValueError: Empty module name"),
        (f"{HERE}:not_a_function", "is int, not a function"),
    ],
)
def test_a_name_that_leads_nowhere(name: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as raised:
        load_function(name)
    assert name in str(raised.value)


def test_a_module_that_cannot_be_imported_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_partitioner.py").write_text("raise RuntimeError('half installed')", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=r"RuntimeError: half installed.*importable on the driver and on the workers"):
        Producer({"bootstrap.servers": "h:1", "partitioner.class": "broken_partitioner:f"})
    assert "broken_partitioner" not in sys.modules
