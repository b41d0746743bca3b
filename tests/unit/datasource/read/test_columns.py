"""The columns of a read: schemas that the user gives, and the conversion of records."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import DataType, StructType

from spark_producer.common.cluster import TopicPartition
from spark_producer.config import SourceOptions
from spark_producer.datasource.read.columns import HEADERS, check_columns, default_columns
from spark_producer.datasource.read.planning import default_schema
from spark_producer.datasource.read.worker.spark_columns import MAX_TIMESTAMP, SparkColumns
from spark_producer.datasource.spark_compat import arrow_schema
from spark_producer.errors import ConfigError, RecordError, SchemaError
from spark_producer.record.decoded_columns import RECORD_SCHEMA

PLAIN, WITH_HEADERS = SourceOptions(subscribe="t"), SourceOptions(subscribe="t", include_headers=True)
AT = TopicPartition("töpic", 7)


def columns_of(*fields: tuple[str, DataType | str]) -> StructType:
    """A schema of nullable columns."""
    found = StructType()
    for name, kind in fields:
        found.add(name, kind)
    return found


class Stream(io.RawIOBase):
    """The file of a socket; it keeps the addresses of what is written."""

    def __init__(self) -> None:
        self.addresses = set[int]()

    def writable(self) -> bool:
        return True

    def write(self, piece: Any) -> int:
        self.addresses.add(pa.py_buffer(piece).address)
        return len(piece)


def test_the_columns_are_those_of_sparks_source() -> None:
    names = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert default_columns(PLAIN).fieldNames() == names
    assert default_columns(WITH_HEADERS).fieldNames() == [*names, "headers"]
    check_columns(default_columns(WITH_HEADERS), WITH_HEADERS)


@pytest.mark.covers("RD2")
def test_a_table_without_columns_is_refused() -> None:
    """Spark asks for its columns, with properties of the table among the options, but gives its options to no read."""
    options = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}
    assert default_schema(options).fieldNames()[:2] == ["key", "value"]
    with pytest.raises(ConfigError, match=r"CREATE TABLE without columns failed: .* Use CREATE TEMPORARY VIEW"):
        default_schema(options | {"owner": "root", "provider": "pyproducer", "option.subscribe": "t"})


@pytest.mark.covers("RD2", "RD17")
@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (
            columns_of(("value", "string")),
            r"column 'value' of the schema has type string, but is read as binary\. Read it so",
        ),
        (columns_of(("offset", "integer")), r"column 'offset' of the schema has type int, but is read as bigint"),
        (columns_of(("ofset", "long")), r"a read has no column 'ofset'\. Did you mean 'offset'\?"),
        (columns_of(("headers", HEADERS)), r"column 'headers' needs \.option\(\"includeHeaders\", \"true\"\)"),
        (
            StructType().add("value", "binary", False),
            r"column 'value' of the schema is NOT NULL, but records may have none",
        ),
        (columns_of(("value", "binary"), ("value", "binary")), "two columns have the same name"),
        (StructType(), "the schema of the read has no columns"),
    ],
)
def test_schemas_that_do_not_fit(schema: StructType, said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        check_columns(schema, PLAIN)


def records(**columns: Any) -> pa.RecordBatch:
    """Records of some columns, with those that a reader returns."""
    types = {field.name: field.type for field in RECORD_SCHEMA} | {"timestamp_type": pa.int32()}
    return pa.RecordBatch.from_pydict({name: pa.array(values, types[name]) for name, values in columns.items()})


@pytest.mark.covers("RD15")
def test_records_become_rows() -> None:
    columns = SparkColumns(default_columns(WITH_HEADERS))
    assert columns.needed == {"key", "value", "offset", "timestamp", "timestamp_type", "headers"}
    some = [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    batch = records(
        offset=[5, 6, 9], timestamp=[1, -1, 1700000000000], key=[b"k", None, b""], value=[None, b"v", b"\xff"],
        headers=[some, [], some[:1]], timestamp_type=[0, -1, 1],
    )  # fmt: skip
    rows = columns.convert(AT, batch)
    assert rows.schema.equals(arrow_schema(default_columns(WITH_HEADERS)), check_metadata=True)
    found = rows.to_pydict()
    assert [found[name] for name in ("key", "value", "offset")] == [[b"k", None, b""], [None, b"v", b"\xff"], [5, 6, 9]]
    assert (found["topic"], found["partition"], found["timestampType"]) == (["töpic"] * 3, [7] * 3, [0, -1, 1])
    assert [moment.timestamp() for moment in found["timestamp"]] == [0.001, -0.001, 1700000000.0]
    assert found["headers"] == [some, None, some[:1]], "null without headers, as in Spark's source"


def test_slices_of_records_become_rows_too() -> None:
    columns = SparkColumns(default_columns(WITH_HEADERS))
    entries = [[{"key": f"h{row}", "value": b"1"}] * (row % 3) for row in range(20)]
    batch = records(
        offset=range(20), timestamp=range(20), key=[None] * 20, value=[b"v%d" % row for row in range(20)], headers=entries,
        timestamp_type=[0] * 20,
    )  # fmt: skip
    rows = columns.convert(AT, batch.slice(3, 9)).to_pydict()
    assert rows["headers"] == [each or None for each in entries[3:12]]
    assert rows["offset"] == list(range(3, 12))
    assert [int(moment.timestamp() * 1000) for moment in rows["timestamp"]] == list(range(3, 12))
    assert len(columns.convert(TopicPartition("u", 0), batch)) == 20
    assert columns.convert(TopicPartition("u", 0), batch.slice(0, 0)).to_pydict()["topic"] == []


def test_values_are_not_copied_between_the_decoder_and_the_socket_of_spark() -> None:
    """Spark's serializer writes with Arrow's stream writer, which hands on the memory of columns."""
    columns = SparkColumns(columns_of(("value", "binary"), ("offset", "long")))
    batch = records(offset=range(1000), value=[b"v" * 1000] * 1000)
    stream = Stream()
    rows = columns.convert(AT, batch)
    with pa.ipc.new_stream(stream, rows.schema) as writer:
        writer.write_batch(rows)
    data = [batch.column(name).buffers()[-1] for name in ("value", "offset")]
    assert {each.address for each in data if each is not None} <= stream.addresses


def test_columns_that_are_the_same_in_all_rows_are_kept() -> None:
    columns = SparkColumns(columns_of(("topic", "string"), ("partition", "integer")))
    assert columns.needed == {"offset"}, "a RecordBatch without columns has no rows"
    large = columns.convert(AT, records(offset=range(1000)))
    small = columns.convert(AT, records(offset=range(10)))
    addresses = {
        None if data is None else data.address for one in (large, small) for data in one.column("topic").buffers()[1:]
    }
    assert len(addresses) == 2, "one for the ends, one for the bytes"
    other = columns.convert(TopicPartition("u", 1), records(offset=[1, 2]))
    assert other.to_pydict() == {"topic": ["u"] * 2, "partition": [1] * 2}


@pytest.mark.covers("RD15")
@pytest.mark.parametrize("timestamp", [MAX_TIMESTAMP + 1, -MAX_TIMESTAMP - 1])
def test_a_timestamp_that_spark_does_not_have(timestamp: int) -> None:
    columns = SparkColumns(columns_of(("timestamp", "timestamp")))
    columns.convert(AT, records(timestamp=[MAX_TIMESTAMP]))
    with pytest.raises(
        RecordError, match=rf"reading topic 'töpic', partition 7 failed: a record has timestamp {timestamp} ms"
    ):
        columns.convert(AT, records(timestamp=[0, timestamp]))
