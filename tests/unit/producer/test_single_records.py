"""Single sends against `send_batch` of the same rows: same partitions, same bytes, same complaints, in both kernels."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_producer import MockProducer, Producer
from spark_producer.common.cluster import TopicPartition
from spark_producer.config import producer_config
from spark_producer.errors import PyProducerError, RecordError, RecordTooLarge
from spark_producer.kernel import ArrangedRows, compiled_single, single_record
from spark_producer.partitioner import describe_topic, make_partitioner
from spark_producer.partitioner.by_name import CHOICES
from spark_producer.record import send_arguments
from spark_producer.record.codecs import Codec
from spark_producer.record.columns import read_columns
from spark_producer.record.send_arguments import read_record
from spark_producer.sender import ProducerLoad
from tests.fakes.accumulator_fakes import AccumulatorFakes, accumulator_fakes
from tests.fakes.scripted_cluster import ScriptedCluster

Start = Callable[..., Producer]
TOPIC = describe_topic("t", (1, 1, 2, 1, 2))
fields = st.one_of(st.none(), st.binary(max_size=12), st.text(max_size=5), st.integers(60, 900).map(lambda n: b"v" * n))
headers = st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=9))), max_size=2)
row = st.tuples(fields, fields, headers, st.one_of(st.none(), st.integers(0, 4)), st.integers(0, 2**41))


def own(keys: Any, values: Any, _: str, count: int) -> Any:
    lengths = [len(key.as_py() or b"") + len(value.as_py() or b"") for key, value in zip(keys, values, strict=True)]
    return np.array(lengths) % count


def row_of(value: Any, key: Any, given: Any, partition: int | None, timestamp: int) -> pa.RecordBatch:
    entry = pa.struct([("key", pa.string()), ("value", pa.binary())])
    columns = {
        "value": pa.array([value], pa.binary()),
        "key": pa.array([key], pa.binary()),
        "headers": pa.array([[{"key": name, "value": content} for name, content in given]], pa.list_(entry)),
        "partition": pa.array([partition], pa.int32()),
        "timestamp": pa.array([timestamp], pa.int64()),
    }
    return pa.record_batch(columns)


class Side:
    """A partitioner and an accumulator of its own, without sender or network."""

    def __init__(self, name: str, seed: int, codec: Codec) -> None:
        self.fakes: AccumulatorFakes = accumulator_fakes(batch_size=1024, codec=codec)
        load = ProducerLoad(self.fakes.accumulator, SimpleNamespace(stalled=frozenset()))  # type: ignore[arg-type]
        config = producer_config({"bootstrap.servers": "b:1", "batch.size": 1024})
        self.partitioner = make_partitioner(config, load, own if name == "own" else CHOICES[name], random.Random(seed))

    def send_row(self, value: Any, key: Any, given: Any, partition: int | None, timestamp: int) -> None:
        columns = read_columns(row_of(value, key, given, partition, timestamp), topic="t", now_ms=0).or_raise()
        (slot,) = self.partitioner.assign(columns, [TOPIC]).slots.tolist()
        rows = ArrangedRows(columns.records, np.zeros(1, dtype=np.int64))
        self.fakes.accumulator.append(TopicPartition("t", slot), rows, 0, 1)
        self._close_full()

    def send(self, value: Any, key: Any, given: Any, partition: int | None, timestamp: int) -> None:
        record, asked = read_record("t", value, key, given, partition, timestamp)
        chosen = self.partitioner.assign_one(TOPIC, record, asked)
        self.fakes.accumulator.append_one(TopicPartition("t", chosen), record)
        self._close_full()

    def _close_full(self) -> None:
        for topic, partition, size in self.partitioner.take_full():
            self.fakes.accumulator.close_full(TopicPartition(topic, partition), size)

    def batches(self) -> list[tuple[int, list[bytes]]]:
        """Return the written batches by partition."""
        found = []
        for (_, partition), queue in sorted(self.fakes.incomplete.queues.items()):
            for batch in queue.batches:
                batch.write_header()
            found.append((partition, [bytes(batch.data) for batch in queue.batches]))
        return found


@pytest.mark.slow
@pytest.mark.parametrize("twin", [single_record, compiled_single], ids=["portable", "compiled"])
@pytest.mark.parametrize("name", [*CHOICES, "own"])
@settings(max_examples=25, deadline=None)
@given(rows=st.lists(row, max_size=30), seed=st.integers(0, 99), codec=st.sampled_from([Codec.NONE, Codec.LZ4]))
def test_single_sends_are_byte_equal_with_rows(twin: Any, name: str, rows: list[Any], seed: int, codec: Codec) -> None:
    by_row, singly = Side(name, seed, codec), Side(name, seed, codec)
    for one in rows:
        by_row.send_row(*one)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(send_arguments, "SingleRecord", twin.SingleRecord)
        for one in rows:
            singly.send(*one)
    assert singly.batches() == by_row.batches()


BAD = [
    {"value": 5},
    {"value": "\ud800"},
    {"value": b"v", "key": 1.5},
    {"value": b"v", "key": "\ud800"},
    {"value": b"v", "timestamp_ms": "noon"},
    {"value": b"v", "timestamp_ms": -1},
    {"value": b"v", "timestamp_ms": 1 << 63},
    {"value": b"v", "partition": -1},
    {"value": b"v", "partition": 1 << 40},
    {"value": b"v", "headers": None},
    {"value": b"v", "headers": [("a",)]},
    {"value": b"v", "headers": [(None, b"v")]},
    {"value": b"v", "headers": [("a", 3)]},
    {"value": b"v", "headers": [("\ud800", b"v")]},
]


@pytest.mark.parametrize("given", BAD, ids=lambda given: repr(given)[:40])
def test_the_error_for_an_invalid_record_is_that_of_the_columns(
    cluster: ScriptedCluster, start: Start, given: dict[str, Any]
) -> None:
    complete = {"key": None, "headers": (), "partition": None, "timestamp_ms": 5} | given
    with pytest.raises(RecordError) as columnar:
        # Arrow's own errors have the text of the function.
        read_columns(send_arguments._row("t", **complete), topic="t", now_ms=0).or_raise()
    for made in (start(), MockProducer()):
        with pytest.raises(RecordError) as raised:
            made.send("t", **given)
        assert str(raised.value) == str(columnar.value)
    assert cluster.log == {}


@pytest.mark.parametrize(
    "given",
    [
        {"value": bytearray(b"v")},
        {"value": "ü", "key": "ß", "headers": [("é", "text")]},
        {"value": b"v", "headers": [["a", b"1"]]},
        {"value": b"v", "timestamp_ms": np.int64(7), "partition": np.int32(0)},
    ],
)
def test_what_columns_take_a_send_takes_too(cluster: ScriptedCluster, start: Start, given: dict[str, Any]) -> None:
    found = start().send("t", **given).result(20)
    assert found.offset == 0
    if "timestamp_ms" in given:
        assert found.timestamp == 7


def test_a_record_that_is_too_large_is_named_as_a_row_is(cluster: ScriptedCluster, start: Start) -> None:
    producer = start(max_request_size=2048, batch_size=1024)
    with pytest.raises(RecordTooLarge) as raised:
        producer.send("t", b"x" * 3000)
    with pytest.raises(RecordTooLarge) as columnar:
        producer.send_batch(pa.record_batch({"value": pa.array([b"x" * 3000], pa.binary())}), topic="t")
    assert str(raised.value) == str(columnar.value)


def test_a_partition_that_is_not_there_is_named_as_for_a_row() -> None:
    side = Side("uniform_sticky", 0, Codec.NONE)
    with pytest.raises(PyProducerError) as raised:
        side.send(b"v", None, (), 5, 0)
    with pytest.raises(PyProducerError) as columnar:
        side.send_row(b"v", None, (), 5, 0)
    assert str(raised.value) == str(columnar.value)


def test_only_what_changes_the_io_threads_plans_wakes_it() -> None:
    fakes = accumulator_fakes(linger=0.010)
    fakes.incomplete.sleeps(fakes.clock.now + 0.010)
    fakes.append_one(b"a")
    assert fakes.wakeups == [], "it wakes in time anyway"
    fakes.incomplete.sleeps(None)
    fakes.check()
    fakes.append_one(b"b")
    assert fakes.wakeups == [], "the batch was there before"
    fakes.append_one(b"x" * 1000)
    assert len(fakes.wakeups) == 1, "a batch is full"
    fakes.incomplete.wakes()
    fakes.append_one(b"x" * 1000)
    assert len(fakes.wakeups) == 1, "it is awake"


def test_the_largest_record_is_counted_whatever_comes_after(cluster: ScriptedCluster, start: Start) -> None:
    producer = start()
    for size in (10, 500, 20):
        producer.send("t", b"x" * size).result(20)
    (largest,) = [value for (_, name, _), value in producer.metrics().items() if name == "record-bytes-max"]
    assert 500 < largest < 540
