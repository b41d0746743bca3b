"""`send_many` against `send` of the same records: the same partitions, records and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_producer import MockProducer, Producer
from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import RecordError, TransactionAbortable
from spark_producer.metrics import OffsetRange
from spark_producer.record import send_sequences
from spark_producer.record.send_sequences import Sequences, record_batches
from tests.fakes.scripted_cluster import ScriptedCluster

Start = Callable[..., Producer]
fields = st.one_of(st.none(), st.binary(max_size=12), st.text(max_size=5))
headers = st.one_of(
    st.none(), st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=9))), max_size=2)
)
records = st.tuples(fields, fields, headers, st.one_of(st.none(), st.integers(0, 4)), st.integers(0, 2**41))


@given(st.lists(records, max_size=30))
@settings(max_examples=200)
def test_records_are_those_of_single_sends(rows: list[tuple[Any, ...]]) -> None:
    many, single = MockProducer(partitions={"t": 5}), MockProducer(partitions={"t": 5})
    values, keys, given_headers, partitions, timestamps = ([row[column] for row in rows] for column in range(5))
    future = many.send_many(
        "t", values, keys=keys, headers=given_headers, timestamps_ms=timestamps, partitions=partitions
    )
    for value, key, entries, partition, timestamp in rows:
        single.send("t", value, key=key, headers=entries or (), partition=partition, timestamp_ms=timestamp)
    assert many.history == single.history
    assert future.result(0).records == len(rows)


def test_the_future_gives_the_ranges_of_the_partitions(cluster: ScriptedCluster, start_small: Start) -> None:
    cluster.topics = {"t": 2}
    producer = start_small()
    future = producer.send_many("t", [f"v{number}" for number in range(5000)], partitions=[0, 1] * 2500)
    producer.flush()
    assert future.result(0).ranges == {
        ("t", 0): (OffsetRange(0, 2499, 2500),),
        ("t", 1): (OffsetRange(0, 2499, 2500),),
    }
    assert set(cluster.log[TopicPartition("t", 0)]) == {f"v{number}".encode() for number in range(0, 5000, 2)}
    assert producer.send_many("t", []).result(20).records == 0


def test_records_without_a_timestamp_get_the_time_of_the_call() -> None:
    mock = MockProducer()
    mock.send_many("t", ["a", "b"], timestamps_ms=[None, 5])
    mock.send_many("t", ["c"])
    first, second, third = (record.timestamp for record in mock.history)
    assert second == 5
    assert 0 <= third - first < 60_000


@pytest.mark.parametrize(
    ("given_arguments", "message"),
    [
        ({"values": "abc"}, "values is of type str. Give a list with an entry for each record"),
        ({"values": (each for each in "ab")}, "values is of type generator"),
        ({"values": ["a"], "keys": b"k"}, "keys is of type bytes"),
        ({"values": ["a"], "keys": ["k", "l"]}, "keys has 2 entries, but values has 1. Give one entry for each record"),
        ({"values": ["a", 1]}, r"values\[1\] cannot be written: Expected bytes"),
        ({"values": ["a", "\ud800"]}, r"values\[1\] cannot be written: 'utf-8' codec"),
        ({"values": ["a"], "headers": [[(None, b"")]]}, r"headers\[0\] cannot be written"),
        ({"values": ["a"], "headers": ["ab"]}, r"headers\[0\] cannot be written"),
        ({"values": ["a", "b"], "partitions": [0, 1.0]}, r"partitions\[1\] cannot be written: expected integers, got"),
        ({"values": ["a"], "partitions": [True]}, r"partitions\[0\] cannot be written: expected integers, got bool"),
        ({"values": ["a"], "partitions": [2**31]}, r"partitions\[0\] cannot be written"),
        ({"values": ["a"], "partitions": [-1]}, "partition -1 is negative"),
        ({"values": ["a"], "timestamps_ms": [-1]}, "the timestamp is -1 ms, before 1970"),
        ({"values": ["a"], "timestamps_ms": [1.5]}, r"timestamps_ms\[0\] cannot be written: expected integers"),
    ],
)
def test_what_cannot_be_written_is_one_error(given_arguments: dict[str, Any], message: str) -> None:
    mock = MockProducer(partitions={"t": 5})
    with pytest.raises(RecordError, match=message):
        mock.send_many("t", **given_arguments)
    assert mock.history == []


def test_a_number_with_a_fraction_is_no_partition_of_a_single_record_either() -> None:
    mock = MockProducer(partitions={"t": 5})
    odd: Any = 1.5
    with pytest.raises(RecordError, match="expected integers, got double"):
        mock.send("t", "v", partition=odd)
    with pytest.raises(RecordError, match="expected integers, got double"):
        mock.send("t", "v", timestamp_ms=odd)


@pytest.mark.parametrize("size", [10, 100_000])
def test_batches_are_bounded_in_rows_and_bytes(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(send_sequences, "PIECE_BYTES", 1_000_000)
    values: list[bytes | str | None] = [b"v" * size] * 2000
    batches = list(record_batches(Sequences(values, None, None, None, None), 0))
    assert sum(batch.num_rows for batch in batches) == 2000
    assert [batch.num_rows for batch in batches] == ([1024, 976] if size == 10 else [1024, *[9] * 108, 4])


def test_a_transaction_with_an_entry_of_a_wrong_type_cannot_be_committed(
    cluster: ScriptedCluster, start: Start
) -> None:
    producer = start(transactional_id="t-1")
    producer.init_transactions()
    producer.begin_transaction()
    values: list[Any] = ["v"] * 2000 + [1]
    with pytest.raises(RecordError, match=r"values\[2000\]"):
        producer.send_many("t", values)
    with pytest.raises(TransactionAbortable):
        producer.commit_transaction()
    producer.abort_transaction()
    assert cluster.topics
