"""Arrow columns of every accepted type, and every complaint about a column or a row."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords

from spark_producer.errors import RecordError, SchemaError
from spark_producer.kernel import MAX_HEADERS, ArrangedRows, encode_v2
from spark_producer.record.batch_v2 import HEADER_SIZE, write_header
from spark_producer.record.columns import CheckedColumns, read_columns

NOW = 1_700_000_000_000
HEADER_ENTRY = pa.struct([("key", pa.string()), ("value", pa.binary())])
BYTES = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]
Row = tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]


def read(option: str | None = "t", /, *, first_row: int = 0, with_headers: bool = True, **given: Any) -> CheckedColumns:
    return read_batch(given, option, first_row=first_row, with_headers=with_headers)


def read_batch(
    given: Mapping[str, Any], option: str | None = "t", *, first_row: int = 0, with_headers: bool = True
) -> CheckedColumns:
    batch = pa.record_batch(list(given.values()), names=list(given))
    return read_columns(batch, topic=option, now_ms=NOW, first_row=first_row, with_headers=with_headers).or_raise()


def array(values: list[Any], kind: Any) -> Any:
    return pa.array(values, kind)


def foreign(columns: CheckedColumns) -> list[Row]:
    """(key, value, timestamp, headers) of every row, encoded by us and read by kafka-python."""
    records = columns.records
    out = memoryview(bytearray(1 << 20))
    rows = ArrangedRows(records, np.arange(len(records)))
    base = records.timestamp_at(0)
    following, end, latest = encode_v2(rows, 0, len(records), 0, base, out, HEADER_SIZE, len(out))
    assert following == len(records)
    write_header(out[:end], records_count=following, base_timestamp=base, max_timestamp=latest)
    batch = MemoryRecords(bytes(out[:end])).next_batch()
    assert batch.validate_crc()
    return [(record.key, record.value, record.timestamp, list(record.headers)) for record in batch]


# --- keys and values ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BYTES)
def test_keys_and_values_may_be_text_or_bytes_small_or_large(kind: Any) -> None:
    columns = read(value=array(["v", None, "日本語"], kind), key=array([None, "k", ""], kind))
    assert foreign(columns) == [
        (None, b"v", NOW, []),
        (b"k", None, NOW, []),
        (b"", "日本語".encode(), NOW, []),
    ]


@pytest.mark.parametrize("kind", BYTES)
def test_a_slice_of_a_column_is_read_as_such(kind: Any) -> None:
    whole = pa.record_batch(
        {"value": array(["a", "b", None, "d", "e"], kind), "key": array(["1", None, "3", "4", "5"], kind)}
    )
    columns = read_columns(whole.slice(1, 3), topic="t", now_ms=NOW).or_raise()
    assert [row[:2] for row in foreign(columns)] == [(None, b"b"), (b"3", None), (b"4", b"d")]


def test_dictionaries_are_decoded() -> None:
    values = array(["x", "y", "x", None], pa.string()).dictionary_encode()
    assert [row[1] for row in foreign(read(value=values, key=values))] == [b"x", b"y", b"x", None]


def test_a_column_of_nulls_only_has_nulls() -> None:
    columns = read(value=pa.nulls(2), key=pa.nulls(2))
    assert columns.records.key is None
    assert foreign(columns) == [(None, None, NOW, [])] * 2


def test_bytes_are_not_copied() -> None:
    values = array([b"x" * 1000] * 10, pa.binary())
    assert read(value=values).records.value.data.ctypes.data == values.buffers()[2].address


@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view()])
def test_views_are_taken_as_bytes(kind: Any) -> None:
    """Short ones are within the 16 bytes of a view, long ones beside it; rows of a slice and below a null."""
    texts = ["", "a", None, "é" * 100, "twelve bytes", "thirteen byte"]
    views = array(["before", *texts], pa.string()).cast(kind).slice(1)
    headers = array(
        [[{"key": "h", "value": each}] for each in texts], pa.list_(pa.struct([("key", kind), ("value", kind)]))
    )
    columns = read(
        None, value=views, key=views, headers=headers, topic=array(["t\u00e9, a long topic"] * 6, pa.string_view())
    )
    contents = [None if each is None else each.encode() for each in texts]
    assert [(key, value, own) for key, value, _, own in foreign(columns)] == [
        (each, each, [("h", each)]) for each in contents
    ]
    assert columns.topics == ("t\u00e9, a long topic",)


@pytest.mark.parametrize("name", ["value", "key"])
@pytest.mark.parametrize("kind", [pa.int32(), pa.list_(pa.binary()), pa.bool_(), pa.binary(4)])
def test_other_types_are_refused_with_what_to_do(name: str, kind: Any) -> None:
    sample = {pa.int32(): 1, pa.bool_(): True, pa.binary(4): b"abcd"}.get(kind, [b"x"])
    columns = {"value": array(["v"], pa.string()), name: array([sample], kind)}
    with pytest.raises(SchemaError, match=rf"column '{name}' must be string or binary, not .*\. Cast it"):
        read(**columns)


def test_the_value_is_needed_and_other_columns_are_refused() -> None:
    with pytest.raises(SchemaError, match="column 'value' is missing"):
        read(key=array(["k"], pa.string()))
    with pytest.raises(SchemaError, match=r"unknown column 'offset': the columns are value, key, topic, partition"):
        read(value=array(["v"], pa.string()), offset=array([1], pa.int64()))


# --- partitions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32()])
def test_partitions_are_small_integers_and_null_leaves_the_choice(kind: Any) -> None:
    columns = read(value=array(["v"] * 3, pa.string()), partition=array([5, None, 0], kind))
    assert columns.partitions is not None
    assert columns.partitions.tolist() == [5, -1, 0]
    assert columns.partitions.dtype == np.int32


def test_a_partition_column_of_nulls_only_makes_no_choice() -> None:
    assert read(value=array(["v"], pa.string()), partition=array([None], pa.int32())).partitions is None


@pytest.mark.covers("KP15")
@pytest.mark.parametrize("partition", [-1, -7, -(2**31)])
def test_a_negative_partition_is_named_by_topic_and_row(partition: int) -> None:
    with pytest.raises(
        RecordError, match=rf"partition {partition} is negative \(topic 't', row 12 of the task\)\. Null"
    ):
        read(first_row=10, value=array(["v"] * 3, pa.string()), partition=array([0, None, partition], pa.int32()))


@pytest.mark.parametrize(("value", "kind"), [(1, pa.int64()), ("1", pa.string()), (1.0, pa.float64())])
def test_partitions_of_another_type_are_refused(value: object, kind: Any) -> None:
    with pytest.raises(SchemaError, match=rf"column 'partition' must be an int, not {kind}\. Cast it"):
        read(value=array(["v"], pa.string()), partition=array([value], kind))


# --- timestamps -----------------------------------------------------------------------------------------------------


def test_rows_without_a_timestamp_column_get_the_time_of_writing() -> None:
    assert read(value=array(["v"], pa.string())).records.timestamps == NOW


@pytest.mark.parametrize(("unit", "factor"), [("s", 0.001), ("ms", 1), ("us", 1000), ("ns", 1_000_000)])
def test_timestamps_of_every_unit_become_milliseconds(unit: Literal["s", "ms", "us", "ns"], factor: float) -> None:
    times = [0, 1_000, NOW - NOW % 1000, 4_102_444_800_000]
    column = array([int(time * factor) for time in times], pa.int64()).cast(pa.timestamp(unit, tz="Europe/Paris"))
    columns = read(value=array(["v"] * 4, pa.string()), timestamp=column)
    assert [row[2] for row in foreign(columns)] == times


def test_timestamps_are_cut_to_the_millisecond_below() -> None:
    column = array([1_999, 2_000, 2_001], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    assert [row[2] for row in foreign(read(value=array(["v"] * 3, pa.string()), timestamp=column))] == [1, 2, 2]


def test_a_long_is_milliseconds_and_equal_ones_are_one_number() -> None:
    assert read(value=array(["v"] * 2, pa.string()), timestamp=array([7, 7], pa.int64())).records.timestamps == 7
    found = read(value=array(["v"] * 2, pa.string()), timestamp=array([9, 7], pa.int64())).records.timestamps
    assert isinstance(found, np.ndarray)
    assert found.tolist() == [9, 7]


def test_a_null_timestamp_is_named_by_topic_and_row() -> None:
    with pytest.raises(RecordError, match=r"the timestamp is null \(topic 't', row 6 of the task\)\. Fill it, or drop"):
        read(first_row=5, value=array(["v"] * 2, pa.string()), timestamp=array([1, None], pa.int64()))


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (array([5, -1], pa.int64()), -1),
        (array([5, -1], pa.int64()).cast(pa.timestamp("us", tz="UTC")), -1),
        (array([datetime.datetime(1969, 7, 20, tzinfo=datetime.UTC)] * 2, pa.timestamp("ms", tz="UTC")), -14256000000),
    ],
    ids=["long", "a microsecond before", "moon landing"],
)
def test_a_time_before_1970_is_named_by_topic_and_row(column: Any, expected: int) -> None:
    row = 0 if expected < -1 else 1
    with pytest.raises(
        RecordError, match=rf"timestamp is {expected} ms, before 1970 \(topic 't', row {row} of the task\)"
    ):
        read(value=array(["v"] * 2, pa.string()), timestamp=column)


@pytest.mark.parametrize("seconds", [2**63 - 1, -(2**62), -(2**63) + 1, -9223372036854777])
def test_seconds_that_are_no_milliseconds_are_refused(seconds: int) -> None:
    column = pa.array([5, seconds]).view(pa.timestamp("s", "UTC"))
    with pytest.raises(RecordError, match=rf"is {seconds} s, more than fits into milliseconds \(topic 't', row 1 of"):
        read(value=array(["v"] * 2, pa.string()), timestamp=column)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("key", pa.int32()), ("partition", pa.string()), ("headers", pa.list_(pa.int32())), ("headers", pa.int32())],
)
def test_a_column_of_a_wrong_type_is_refused_even_if_it_is_empty(name: str, kind: Any) -> None:
    with pytest.raises(SchemaError, match=f"column '{name}'.*Cast it"):
        read_batch({"value": array(["v"], pa.string()), name: pa.nulls(1, kind)})
    assert read_batch({"value": array(["v"], pa.string()), name: pa.nulls(1)}).partitions is None


def test_a_header_with_two_keys_is_refused() -> None:
    entry = pa.struct([("key", pa.string()), ("value", pa.binary()), ("key", pa.string())])
    with pytest.raises(SchemaError, match="an entry of column 'headers' must be a struct"):
        read(value=array(["v"], pa.string()), headers=pa.nulls(1, pa.list_(entry)))


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.date32(), pa.int32(), pa.string()])
def test_other_types_of_timestamps_are_refused(kind: Any) -> None:
    """A timestamp without a zone is no moment."""
    with pytest.raises(
        SchemaError,
        match=r"column 'timestamp' must be a timestamp with a time zone, or a long of .* 1970, not .*\. Cast it",
    ):
        read(value=array(["v"], pa.string()), timestamp=pa.nulls(1).cast(kind).fill_null(_SAMPLES[kind]))


_SAMPLES: dict[Any, Any] = {
    pa.timestamp("us"): pa.scalar(1, pa.timestamp("us")),
    pa.date32(): pa.scalar(1, pa.date32()),
    pa.int32(): 1,
    pa.string(): "2024-01-01",
}


# --- headers --------------------------------------------------------------------------------------------------------

HEADERS: list[Any] = [
    [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
    None,
    [],
    [{"key": "日本", "value": b""}],
]
EXPECTED: list[list[tuple[str, bytes | None]]] = [[("a", b"1"), ("a", None)], [], [], [("日本", b"")]]


def headers_of(rows: list[Row]) -> list[list[tuple[str, bytes | None]]]:
    return [row[3] for row in rows]


@pytest.mark.parametrize("value_kind", BYTES)
@pytest.mark.parametrize("list_kind", [pa.list_, pa.large_list])
def test_headers_are_lists_of_key_and_value(list_kind: Any, value_kind: Any) -> None:
    kind = list_kind(pa.struct([("key", pa.string()), ("value", value_kind)]))
    columns = read(value=array(["v"] * 4, pa.string()), headers=array(HEADERS, kind))
    assert headers_of(foreign(columns)) == EXPECTED


def test_headers_may_be_maps() -> None:
    pairs = [None if row is None else [(entry["key"], entry["value"]) for entry in row] for row in HEADERS]
    columns = read(value=array(["v"] * 4, pa.string()), headers=array(pairs, pa.map_(pa.string(), pa.binary())))
    assert headers_of(foreign(columns)) == EXPECTED


@pytest.mark.parametrize("as_map", [False, True])
def test_headers_of_a_slice(as_map: bool) -> None:
    rows = [[("x", b"0")], *([(entry["key"], entry["value"]) for entry in row or []] for row in HEADERS), [("y", b"9")]]
    kind = pa.map_(pa.string(), pa.binary()) if as_map else pa.list_(HEADER_ENTRY)
    given_rows = rows if as_map else [[{"key": key, "value": value} for key, value in row] for row in rows]
    batch = pa.record_batch({"value": array(["v"] * 6, pa.string()), "headers": array(given_rows, kind)})
    columns = read_columns(batch.slice(1, 4), topic="t", now_ms=NOW).or_raise()
    assert headers_of(foreign(columns)) == EXPECTED


def test_the_order_of_the_entrys_fields_does_not_matter() -> None:
    kind = pa.list_(pa.struct([("value", pa.string()), ("key", pa.string())]))
    columns = read(value=array(["v"], pa.string()), headers=array([[{"key": "k", "value": "x"}]], kind))
    assert headers_of(foreign(columns)) == [[("k", b"x")]]


def test_more_headers_than_the_reader_takes_are_refused() -> None:
    ends = np.cumsum([0, 1, MAX_HEADERS, MAX_HEADERS + 1])
    entries = pa.repeat(pa.scalar({"key": "k", "value": b"x"}, HEADER_ENTRY), int(ends[-1]))
    values, headers = array(["v"] * 3, pa.string()), pa.ListArray.from_arrays(pa.array(ends, pa.int32()), entries)
    with pytest.raises(
        RecordError,
        match=r"a row has 100001 headers \(topic 't', row 42 of the task\). A record may have 100000 at most",
    ):
        read(first_row=40, value=values, headers=headers)
    assert read(value=values[:2], headers=headers[:2]).records.headers is not None


def test_headers_can_be_left_out() -> None:
    headers = array([[{"key": None, "value": b"x"}]], pa.list_(HEADER_ENTRY))
    assert read(with_headers=False, value=array(["v"], pa.string()), headers=headers).records.headers is None


def test_no_headers_in_any_row_cost_nothing() -> None:
    for headers in (array([[], None], pa.list_(HEADER_ENTRY)), pa.nulls(2)):
        assert read(value=array(["v"] * 2, pa.string()), headers=headers).records.headers is None


@pytest.mark.parametrize("entry", [{"key": None, "value": b"x"}, None], ids=["null key", "null entry"])
@pytest.mark.parametrize("first", [False, True], ids=["second in its row", "first in its row"])
def test_a_null_header_key_is_named_by_topic_and_row(entry: object, first: bool) -> None:
    good = {"key": "k", "value": b"x"}
    rows = [[good, good], None, [], [entry, good] if first else [good, entry], [entry]]
    with pytest.raises(RecordError, match=r"a header key is null \(topic 't', row 23 of the task\), which Kafka"):
        read(first_row=20, value=array(["v"] * 5, pa.string()), headers=array(rows, pa.list_(HEADER_ENTRY)))


@pytest.mark.parametrize("key_kind", [pa.binary(), pa.large_binary(), pa.string()])
def test_a_header_key_that_is_no_text_is_named_by_topic_and_row(key_kind: Any) -> None:
    """Consumers decode the keys: kafka-python's ends for good at one that it cannot."""
    keys = array([b"good", "ü".encode(), b"\xff", b"\xfe"], pa.binary())
    keys = keys.view(key_kind) if key_kind == pa.string() else keys.cast(key_kind)
    entries = pa.StructArray.from_arrays([keys, array([b"x"] * 4, pa.binary())], ["key", "value"])
    headers = pa.ListArray.from_arrays(array([0, 1, 1, 3, 4], pa.int32()), entries)
    batch = pa.record_batch({"value": array(["v"] * 4, pa.string()), "headers": headers})
    with pytest.raises(RecordError, match=r"a header key is not UTF-8 \(topic 't', row 22 of the task\)"):
        read_columns(batch, topic="t", now_ms=NOW, first_row=20).or_raise()
    assert read_columns(batch.slice(0, 2), topic="t", now_ms=NOW).or_raise().records.headers is not None


@pytest.mark.parametrize(
    ("headers", "complaint"),
    [
        (array(["a"], pa.string()), "column 'headers' must be an array of struct.*not string"),
        (array([["a"]], pa.list_(pa.string())), "an entry of column 'headers' must be a struct.*not string"),
        (
            array([[{"key": "a"}]], pa.list_(pa.struct([("key", pa.string())]))),
            "an entry of column 'headers' must be a struct",
        ),
        (
            array([[{"key": "a", "value": 1}]], pa.list_(pa.struct([("key", pa.string()), ("value", pa.int32())]))),
            r"column 'headers\.value' must be string or binary, not int32",
        ),
    ],
)
def test_headers_of_another_shape_are_refused(headers: Any, complaint: str) -> None:
    with pytest.raises(SchemaError, match=complaint):
        read(value=array(["v"], pa.string()), headers=headers)


# --- everything at once ---------------------------------------------------------------------------------------------

some_bytes = st.one_of(st.none(), st.binary(max_size=30))
some_headers = st.lists(st.tuples(st.text(max_size=6), some_bytes), max_size=3)
some_rows = st.lists(st.tuples(some_bytes, some_bytes, st.integers(0, 2**42), some_headers), min_size=1, max_size=40)


@given(some_rows, st.sampled_from([pa.binary(), pa.large_binary()]), st.integers(0, 5))
def test_every_row_reaches_a_foreign_decoder(rows: list[Row], kind: Any, skipped: int) -> None:
    padded = [(b"skipped", b"skipped", 1, [("s", b"s")])] * skipped + rows
    entries = [[{"key": key, "value": value} for key, value in row[3]] for row in padded]
    batch = pa.record_batch(
        {
            "key": array([row[0] for row in padded], kind),
            "value": array([row[1] for row in padded], kind),
            "timestamp": array([row[2] for row in padded], pa.int64()),
            "headers": array(entries, pa.list_(HEADER_ENTRY)),
        }
    )
    assert foreign(read_columns(batch.slice(skipped), topic="t", now_ms=NOW).or_raise()) == rows


@pytest.mark.parametrize(
    "kind", [pa.list_(HEADER_ENTRY, 1), pa.list_view(HEADER_ENTRY), pa.list_(pa.string()), pa.string()], ids=str
)
def test_headers_of_another_type_are_refused_with_what_to_do(kind: Any) -> None:
    headers = pa.nulls(1, kind) if not pa.types.is_list(kind) else pa.array([["h"]], kind)
    with pytest.raises(SchemaError, match=r"column 'headers'.* struct<key: string, value: binary>.*, not .*\. Cast it"):
        read(value=array(["v"], pa.string()), headers=headers)
