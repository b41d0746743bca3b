"""A producer at its bounds: more partitions than buffers, invalid names, failure in mid-append."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from spark_producer import Producer
from spark_producer.accumulator import batch as producer_batch
from spark_producer.broker import LocalBroker
from spark_producer.errors import DeliveryTimeout, PyProducerError, RecordError, SchemaError
from spark_producer.kernel.arrays import BytesArray
from spark_producer.kernel.column_views import PIECE_BYTES
from spark_producer.partitioner import PartitionFunction
from spark_producer.producer import parts_of
from tests.support.read_confluent import end_offsets

ROWS = 20_000

pytestmark = pytest.mark.usefixtures("short_partition_grace")


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker() as made:
        yield made


def producer_to(broker: LocalBroker, partitioner: PartitionFunction | None = None, **options: object) -> Producer:
    given = {name.replace("_", "."): value for name, value in options.items()}
    return Producer({"bootstrap.servers": broker.bootstrap_servers} | given, partitioner=partitioner)


def test_more_partitions_than_full_batches_fit_still_get_batches_of_many_rows(broker: LocalBroker, topic: str) -> None:
    """64 partitions, a pool of eight batches: each gets a share, instead of a few rows at a time."""
    broker.create_topic(topic, 64)
    rows = pa.record_batch({"value": ["x" * 100] * ROWS, "key": [f"key {number}" for number in range(ROWS)]})
    with producer_to(broker, batch_size=65536, buffer_memory=8 * 65536, linger_ms=10_000) as producer:
        for first in range(0, ROWS, 1000):  # some 15 rows for each partition at a time
            producer.send_batch(rows.slice(first, 1000), topic=topic)
        producer.flush()
        report = parts_of(producer).take_report()
    assert report.records == ROWS
    # Eight full batches for 64 partitions would each end with the rows of one slice; how many slices a share takes depends on
    # how fast the broker answers.
    assert report.records / report.batches > 1000 / 64
    assert sum(end_offsets(broker.bootstrap_servers, topic).values()) == ROWS


class Pieces:
    """A partitioner that notes the bytes of the values in each piece that it is shown."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, keys: object, values: BytesArray, topic: str, partitions: int) -> list[int]:
        self.sizes.append(sum(len(value.as_py()) for value in values))
        return [0] * len(values)


def test_a_large_table_is_sent_in_pieces(broker: LocalBroker, topic: str) -> None:
    pieces = Pieces()
    with producer_to(broker, pieces) as producer:
        producer.send_table(pa.table({"value": ["x" * 10_000] * 4000}), topic=topic)
        producer.flush()
        assert parts_of(producer).take_report().records == 4000
    assert sum(pieces.sizes) == 40_000_000
    assert len(pieces.sizes) == 5
    assert max(pieces.sizes) <= PIECE_BYTES


def copies_of(value: Any, count: int) -> Any:
    """A dictionary of one value that all rows have."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array([value]))


@pytest.mark.parametrize("whole", [True, False], ids=["table", "batch"])
def test_a_dictionary_is_decoded_in_pieces(broker: LocalBroker, topic: str, whole: bool) -> None:
    """`nbytes` counts its values once, but each row has one: 400 rows of 50 kB are no piece of 50 kB."""
    pieces = Pieces()
    batch = pa.record_batch({"value": copies_of(b"x" * 50_000, 400)})
    with producer_to(broker, pieces) as producer:
        if whole:
            assert producer.send_table(pa.Table.from_batches([batch]), topic=topic).result(20).records == 400
        else:
            producer.send_batch(batch, topic=topic)
        producer.flush()
        assert parts_of(producer).take_report().records == 400
    fitting = PIECE_BYTES // 50_000
    assert pieces.sizes == [50_000 * fitting, 50_000 * fitting, 50_000 * (400 - 2 * fitting)]


@pytest.mark.parametrize(
    ("name", "bad", "reason"),
    [
        ("partition", pa.array([0] * 399 + [7], pa.int32()), r"partition 7 does not exist .*row 399 of"),
        ("topic", pa.array(["bounds"] * 399 + [None]), "row 399 of the task has a null topic"),
        ("key", pa.array([""] * 399 + ["k" * 90_000]), "a record of 1.*row 399 of"),
    ],
    ids=["partition", "topic", "size"],
)
def test_nothing_of_a_batch_is_sent_if_a_row_of_its_last_piece_is_bad(
    broker: LocalBroker, topic: str, name: str, bad: Any, reason: str
) -> None:
    batch = pa.record_batch({"value": copies_of(b"x" * 50_000, 400), name: bad})
    assert 2 * PIECE_BYTES < 400 * 50_000
    with producer_to(broker, max_request_size=100_000, batch_size=50_000) as producer:
        with pytest.raises(RecordError, match=reason):
            producer.send_batch(batch, topic=None if name == "topic" else topic)
        producer.flush()
        assert parts_of(producer).take_report().records == 0


@pytest.mark.parametrize("name", ["\ud800", 5, "", "x" * 32_768, "é" * 20_000], ids=lambda name: repr(name)[:9])
def test_a_name_that_cannot_be_does_not_break_the_producer(broker: LocalBroker, topic: str, name: Any) -> None:
    with producer_to(broker, linger_ms=0) as producer:
        with pytest.raises(RecordError, match="is not a topic name") as refused:
            producer.send(name, "value")
        assert len(str(refused.value)) < 300
        assert producer.send(topic, "value").result(20).offset == 0


@pytest.mark.parametrize("given", [{"value": "\ud800"}, {"value": "v", "headers": ["a"]}, {"value": "v", "headers": 5}])
def test_what_cannot_be_a_record_has_one_root(broker: LocalBroker, topic: str, given: dict[str, Any]) -> None:
    with producer_to(broker) as producer, pytest.raises(PyProducerError, match="cannot be written"):
        producer.send(topic, **given)


def test_a_producer_that_ends_while_a_record_is_encoded_fails_its_future(
    broker: LocalBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = producer_to(broker, linger_ms=0)
    producer.send(topic, "first").result(20)
    encode = producer_batch.ProducerBatch.append_one

    def failing(self: producer_batch.ProducerBatch, *record: Any) -> Any:
        parts_of(producer).accumulator.close(DeliveryTimeout("as the I/O thread may at any moment"))
        return encode(self, *record)

    # Patched, since nothing that a user gives is called while the queue's lock is held.
    monkeypatch.setattr(producer_batch.ProducerBatch, "append_one", failing)
    assert isinstance(producer.send(topic, "second").exception(20), DeliveryTimeout)
    with pytest.raises(DeliveryTimeout, match="at any moment"):
        producer.send(topic, "third")
    producer.close(0)


def test_a_topic_column_that_is_not_utf8(broker: LocalBroker) -> None:
    column = pa.array([b"\xff", b"a"], pa.binary()).view(pa.string())
    with producer_to(broker) as producer, pytest.raises(RecordError, match="rows 7 to 8 of the task is not UTF-8"):
        producer.send_batch(pa.record_batch({"value": ["v", "w"], "topic": column}), first_row=7)


def test_two_columns_of_one_name(broker: LocalBroker) -> None:
    twice = pa.RecordBatch.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["value", "value"])
    with producer_to(broker) as producer, pytest.raises(SchemaError, match="two columns have the same name"):
        producer.send_batch(twice, topic="t")


def test_a_null_header_key_in_a_dictionary(broker: LocalBroker, topic: str) -> None:
    keys = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array([None, "a"]))
    entries = pa.StructArray.from_arrays([keys, pa.array([b"x", b"y"])], ["key", "value"])
    headers = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), entries)
    batch = pa.record_batch({"value": ["v", "w"], "headers": headers})
    with producer_to(broker) as producer, pytest.raises(RecordError, match=r"a header key is null .*row 0"):
        producer.send_batch(batch, topic=topic)
