"""Batches with dictionaries are read in pieces that stay small: every way to encode a column, no row lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_producer.errors import RecordTooLarge, SchemaError
from spark_producer.record.byte_columns import take_column
from spark_producer.record.columns import CheckedColumns
from spark_producer.record.dictionary_slices import BatchPieces
from spark_producer.record.rejected import RowErrorKind

LIMIT = 100
NO_LIMIT = 1 << 40
BYTES = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]


def pieces_of(batch: pa.RecordBatch, largest: int = NO_LIMIT, **more: Any) -> list[CheckedColumns]:
    return list(BatchPieces(batch, LIMIT, largest, "t", 0, **more).or_raise())


def copies_of(value: Any, count: int, kind: Any = None) -> Any:
    """A dictionary of one value that all rows have."""
    return pa.DictionaryArray.from_arrays(np.zeros(count, np.int8), pa.array([value], kind))


def header_blocks(pieces: list[CheckedColumns]) -> list[bytes | None]:
    """The headers of each row, encoded."""
    blocks = [piece.records.headers for piece in pieces]
    return [block for column in blocks if column is not None for block in column.array.to_pylist()]


def header_batch(keys: Any, values: Any, counts: list[int]) -> pa.RecordBatch:
    ends = pa.array(np.cumsum([0, *counts]), pa.int32())
    lists = pa.ListArray.from_arrays(ends, pa.StructArray.from_arrays([keys, values], ["key", "value"]))
    return pa.record_batch({"value": pa.nulls(len(counts)), "headers": lists})


@pytest.mark.parametrize("kind", BYTES)
@pytest.mark.parametrize("name", ["key", "value"])
def test_what_is_decoded_at_a_time_is_bounded(name: str, kind: Any) -> None:
    batch = pa.record_batch({"value": ["v"] * 99} | {name: copies_of("x" * 30, 99, kind)})
    pieces = pieces_of(batch, first_row=1000)
    assert [len(piece.records) for piece in pieces] == [3] * 33
    assert [piece.first_row for piece in pieces] == list(range(1000, 1099, 3))
    assert all(len(getattr(piece.records, name).data) <= LIMIT for piece in pieces)


small = st.one_of(st.none(), st.binary(max_size=60))


@given(st.lists(st.tuples(small, small), max_size=60), st.integers(0, 5), st.booleans())
def test_no_row_is_lost_or_moved(rows: list[tuple[bytes | None, bytes | None]], skip: int, both: bool) -> None:
    keys, values = (pa.array([row[side] for row in rows], pa.binary()) for side in (0, 1))
    batch = pa.record_batch({"key": keys.dictionary_encode(), "value": values.dictionary_encode() if both else values})
    found = []
    for piece in pieces_of(batch.slice(skip)):
        records = piece.records
        keys_found = [None] * len(records) if records.key is None else records.key.array.to_pylist()
        found += list(zip(keys_found, records.value.array.to_pylist(), strict=True))
        assert len(records) == 1 or sum(len(key or b"") for key in keys_found) <= LIMIT
    assert found == rows[skip:]


def test_headers_count_too() -> None:
    batch = header_batch(copies_of("k" * 5, 40), copies_of(b"v" * 20, 40), [1, 3, 0, 5, 1, 30])
    pieces = pieces_of(batch)
    assert [len(piece.records) for piece in pieces] == [3, 1, 1, 1]  # 100, 125, 25 and 750 bytes of headers
    plain = header_batch(pa.array(["k" * 5] * 40), pa.array([b"v" * 20] * 40), [1, 3, 0, 5, 1, 30])
    assert header_blocks(pieces) == header_blocks(pieces_of(plain))
    assert len(pieces_of(batch, with_headers=False)) == 1


def test_headers_in_a_map_and_in_null_lists() -> None:
    keys, values = pa.array(["k"] * 6), copies_of(b"v" * 60, 6)
    lists = pa.MapArray.from_arrays(pa.array([0, 1, 1, 3, 6], pa.int64()), keys, values)
    batch = pa.record_batch({"value": ["a", "b", "c", "d"], "headers": lists})
    assert [len(piece.records) for piece in pieces_of(batch)] == [2, 1, 1]
    hidden = pa.ListArray.from_arrays(
        pa.array([0, 4, 5, 6], pa.int32()),
        pa.StructArray.from_arrays([keys, values], ["key", "value"]),
        mask=pa.array([True, False, False]),
    )
    batch = pa.record_batch({"value": ["a", "b", "c"], "headers": hidden})
    assert [len(piece.records) for piece in pieces_of(batch)] == [2, 1]


def test_without_dictionaries_nothing_is_cut_and_nothing_copied() -> None:
    values = pa.array([b"x" * 1000] * 10, pa.binary())
    (piece,) = pieces_of(pa.record_batch({"value": values}))
    data = values.buffers()[2]
    assert data is not None
    assert piece.records.value.data.ctypes.data == data.address
    assert pieces_of(pa.record_batch({"value": values[:0]})) == []


def test_a_row_that_is_too_large_is_named_before_anything_is_decoded() -> None:
    batch = header_batch(pa.array(["k"] * 10), copies_of(b"v" * 50, 10), [1, 0, 9])
    with pytest.raises(
        RecordTooLarge, match="row 7 of the task takes 450 bytes with its dictionaries decoded, more than the 449"
    ):
        pieces_of(batch, 449, first_row=5)
    assert len(pieces_of(batch, 450)) == 2


def test_rows_that_are_too_large_are_in_no_piece() -> None:
    batch = header_batch(pa.array(["k"] * 12), copies_of(b"v" * 50, 12), [1, 9, 1, 1, 0])
    pieces = BatchPieces(batch, LIMIT, 449, "t", 0, 5)
    assert len(pieces) == 2
    assert [[columns.row_number(row) for row in range(len(columns.records))] for columns in pieces_read(pieces)] == [
        [5, 7],
        [8, 9],
    ]
    (expected,) = pieces.rejected
    assert (expected.row, expected.kind, expected.topic, expected.size) == (6, RowErrorKind.SIZE, "t", 450)


def pieces_read(pieces: BatchPieces) -> list[CheckedColumns]:
    return [piece.columns for piece in pieces]


def test_dictionaries_of_other_types_are_refused_as_they_are() -> None:
    """Decoding first, and complaining then, would take what all rows take: here 10 MB."""
    wide = pa.array([b"x" * 10_000], pa.binary(10_000))
    batch = pa.record_batch({"value": pa.DictionaryArray.from_arrays(np.zeros(1000, np.int8), wide)})
    usual = pa.default_memory_pool()
    watched = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(watched)
    try:
        with pytest.raises(
            SchemaError, match=r"column 'value' must be string or binary, not fixed_size_binary.*\. Cast it"
        ):
            pieces_of(batch)
    finally:
        pa.set_memory_pool(usual)
    peak = watched.max_memory()
    assert peak is not None
    assert peak < 1 << 20


@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view()])
def test_views_of_the_same_bytes_are_cut_like_dictionaries(kind: Any) -> None:
    views: Any = pa.array(["before", None, "x" * 30, "y" * 30, "z"], pa.string()).cast(kind).slice(1)
    chosen = take_column(views, np.array([0, *[1] * 96, 2, 3]))
    headers = pa.array([[{"key": "k", "value": "v" * 9}]] * 99, pa.list_(pa.struct([("key", kind), ("value", kind)])))
    batch = pa.record_batch({"value": chosen, "key": chosen, "headers": headers})
    pieces = pieces_of(batch.slice(1))
    assert [len(piece.records) for piece in pieces[:3]] == [1, 1, 1]
    found = [each for piece in pieces for each in piece.records.value.array.to_pylist()]
    assert found == [b"x" * 30] * 96 + [b"y" * 30, b"z"]
    with pytest.raises(RecordTooLarge, match="row 1 of the task takes 70 bytes"):
        pieces_of(batch, 69)
    kept = BatchPieces(batch, LIMIT, 69, "t", 0)
    assert len(kept.rejected) == 97
    assert [piece.columns.records.value.array.to_pylist() for piece in kept] == [[None, b"z"]]
