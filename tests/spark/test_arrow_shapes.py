"""Arrow data in every shape that is legal: sliced, chunked, large, dictionary-encoded, nulls that cover bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_producer import Producer
from tests.conftest import Broker
from tests.support.read_back import Row, read_topic

ENTRY = pa.struct([("key", pa.string()), ("value", pa.binary())])
ROWS: list[dict[str, Any]] = [
    {
        "value": None if number % 5 == 0 else b"v%d" % number * (number % 4),
        "key": None if number % 7 == 0 else f"k{number % 11}",
        "headers": None if number % 3 == 0 else [{"key": f"h{n}", "value": b"%d" % n} for n in range(number % 4)],
        "timestamp": 1_356_998_400_000 + number,
        "partition": number % 2,
    }
    for number in range(60)
]
TYPES: dict[str, pa.DataType] = {
    "value": pa.binary(),
    "key": pa.string(),
    "headers": pa.list_(ENTRY),
    "timestamp": pa.int64(),
    "partition": pa.int32(),
}
SCHEMA = pa.schema(TYPES)


def whole() -> pa.Table:
    return pa.Table.from_pylist(ROWS, SCHEMA)


def sliced() -> pa.Table:
    """Rows that begin in the middle of every buffer, also in the middle of a byte of validity bits."""
    return pa.Table.from_pylist([*ROWS[40:53], *ROWS, *ROWS[:9]], SCHEMA).slice(13, len(ROWS))


def chunked() -> pa.Table:
    """Chunks of different lengths, one of them empty, each a slice of something longer."""
    table = sliced()
    return pa.concat_tables([table.slice(0, 1), table.slice(1, 0), table.slice(1, 30), table.slice(31)])


def chunks_that_do_not_match() -> pa.Table:
    """Columns that are cut at different rows."""
    table = whole()
    keys = pa.chunked_array([*table["key"].slice(0, 17).chunks, *table["key"].slice(17).chunks])
    return table.set_column(1, "key", keys)


def large() -> pa.Table:
    entry = pa.struct([("key", pa.large_string()), ("value", pa.large_binary())])
    types = TYPES | {"value": pa.large_binary(), "key": pa.large_string(), "headers": pa.large_list(entry)}
    return sliced().cast(pa.schema(types))


def dictionaries() -> pa.Table:
    table = sliced()
    for index, name in ((0, "value"), (1, "key")):
        table = table.set_column(index, name, table[name].dictionary_encode())
    return table


def nulls_that_cover_bytes() -> pa.Table:
    """Arrow lets a null value, and a null list, have a length; none of it may reach the topic."""

    def cover(array: Any) -> Any:
        mask = np.array([row is None for row in array.to_pylist()])
        full = pa.array(["covered" if hidden else row for row, hidden in zip(array.to_pylist(), mask, strict=True)])
        if pa.types.is_binary(array.type):
            full = pa.array(
                [b"covered" if hidden else row for row, hidden in zip(array.to_pylist(), mask, strict=True)]
            )
        validity = pa.array(~mask).buffers()[1]
        return pa.Array.from_buffers(array.type, len(array), [validity, *full.buffers()[1:]])

    table = whole()
    for index, name in ((0, "value"), (1, "key")):
        table = table.set_column(index, name, cover(table[name].combine_chunks()))
    rows = [row["headers"] if row["headers"] is not None else [{"key": "covered", "value": b"x"}] for row in ROWS]
    lists = pa.array(rows, pa.list_(ENTRY))
    assert isinstance(lists, pa.ListArray)
    validity = pa.array([row["headers"] is not None for row in ROWS]).buffers()[1]
    headers = pa.Array.from_buffers(lists.type, len(lists), [validity, lists.buffers()[1]], children=[lists.values])
    return table.set_column(2, "headers", headers)


def maps() -> pa.Table:
    table = sliced()
    rows = [
        None if row is None else [(entry["key"], entry["value"]) for entry in row]
        for row in table["headers"].to_pylist()
    ]
    longer = pa.array([[("before", b"")], *rows], pa.map_(pa.string(), pa.binary()))
    return table.set_column(2, "headers", longer.slice(1))


SHAPES: list[Callable[[], pa.Table]] = [
    whole,
    sliced,
    chunked,
    chunks_that_do_not_match,
    large,
    dictionaries,
    nulls_that_cover_bytes,
    maps,
]


def wanted(topic: str) -> list[Row]:
    """The rows as a foreign client should see them."""
    rows = []
    for partition in (0, 1):
        for offset, row in enumerate(row for row in ROWS if row["partition"] == partition):
            key = None if row["key"] is None else row["key"].encode()
            headers = [(entry["key"], entry["value"]) for entry in row["headers"] or []]
            rows.append(Row(topic, partition, offset, row["timestamp"], key, row["value"], headers))
    return rows


def test_every_shape_arrives(broker: Broker, topic: str) -> None:
    topics = {shape: f"{topic}-{shape.__name__}" for shape in SHAPES}
    with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        for shape, name in topics.items():
            broker.create_topic(name, 2)
            producer.send_table(shape(), topic=name)
    for name in topics.values():
        assert read_topic(broker.bootstrap_servers, name, client="confluent") == wanted(name)


@pytest.mark.parametrize(
    "kind", [pa.timestamp(unit, tz) for unit in ("s", "ms", "us", "ns") for tz in ("UTC", "Asia/Tokyo")], ids=str
)
def test_timestamps_of_every_unit(embedded_broker: Broker, topic: str, kind: Any) -> None:
    embedded_broker.create_topic(topic, 1)
    moments = pa.array([0, 1_356_998_400_000, 1_384_000_123_000], pa.int64())
    times = moments.cast(pa.timestamp("ms", "UTC")).cast(kind)
    table = pa.table({"value": pa.array(["a", "b", "c"]), "timestamp": times})
    with Producer({"bootstrap.servers": embedded_broker.bootstrap_servers}) as producer:
        producer.send_table(table, topic=topic)
    rows = read_topic(embedded_broker.bootstrap_servers, topic)
    assert [row.timestamp_ms for row in rows] == moments.to_pylist()
