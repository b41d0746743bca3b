"""The compiled kernel against the portable one: equal results for every shape, and no way out of its buffers."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_producer.kernel import BinaryColumn, RecordColumns, compiled, compiled_murmur2, portable
from spark_producer.kernel.arrays import BytesType
from spark_producer.kernel.portable_murmur2 import murmur2

BASE = 1_700_000_000_000
small = st.one_of(st.none(), st.binary(max_size=20), st.binary(min_size=60, max_size=200))
kinds = st.sampled_from([pa.binary(), pa.large_binary()])
header_lists = st.lists(st.tuples(st.binary(max_size=70), st.one_of(st.none(), st.binary(max_size=9))), max_size=3)
times = st.one_of(st.integers(0, 2**41), st.integers(BASE - 200, BASE + 200))
row_lists = st.lists(st.tuples(small, small, times, header_lists), min_size=1, max_size=100)


def column(values: list[bytes | None], kind: BytesType, skip: int) -> BinaryColumn:
    """A column of `values`, as the slice of an array that begins earlier and ends later."""
    return BinaryColumn(pa.array([b"before"] * skip + values + [b"after"] * skip, kind)[skip : skip + len(values)])


def headers_of(kernel: Any, rows: list[Any], kind: BytesType, skip: int) -> BinaryColumn:
    entries = [entry for row in rows for entry in row[3]]
    counts = np.array([len(row[3]) for row in rows], dtype=np.int64)
    keys, values = column([key for key, _ in entries], kind, skip), column([value for _, value in entries], kind, skip)
    blocks: BinaryColumn = kernel.encode_headers(counts, keys, values)
    return blocks


def columns_of(rows: list[Any], kind: BytesType, skip: int, *, keyed: bool, headed: bool) -> RecordColumns:
    stamps = np.array([row[2] for row in rows], dtype=np.int64)
    return RecordColumns(
        column([row[1] for row in rows], kind, skip),
        column([row[0] for row in rows], kind, skip) if keyed else None,
        headers_of(portable, rows, kind, skip) if headed else None,
        int(stamps[0]) if bool((stamps == stamps[0]).all()) else stamps,
    )


@given(row_lists, kinds, st.integers(0, 3), st.booleans(), st.booleans(), st.sampled_from([0, 63, 8100]),
       st.integers(0, 6000), st.randoms())  # fmt: skip
def test_encodes_the_same_bytes_and_stops_at_the_same_row(
    rows: list[Any], kind: BytesType, skip: int, keyed: bool, headed: bool, delta: int, max_bytes: int, random: Random
) -> None:
    columns = columns_of(rows, kind, skip, keyed=keyed, headed=headed)
    order = np.array(random.sample(range(len(rows)), len(rows)), dtype=np.int64)
    results = []
    for twin in (portable, compiled):
        out = memoryview(bytearray(max_bytes + 20))
        arranged = twin.ArrangedRows(columns, order)
        step = twin.encode_v2(arranged, 0, len(rows), delta, BASE, out, 10, max(10, max_bytes))
        bounds = [arranged.size_at(position) for position in range(len(rows))]
        stamps = [arranged.timestamp_at(position) for position in range(len(rows))]
        results.append((step, bytes(out), bounds, stamps, len(arranged)))
    assert results[0] == results[1]
    assert portable.record_sizes(columns).tolist() == compiled.record_sizes(columns).tolist()
    assert portable.largest_record(columns) == compiled.largest_record(columns)


@given(row_lists, kinds, st.integers(0, 3))
def test_headers_and_hashes_are_the_same(rows: list[Any], kind: BytesType, skip: int) -> None:
    blocks = [headers_of(twin, rows, kind, skip).array.to_pylist() for twin in (portable, compiled)]
    assert blocks[0] == blocks[1]
    keys = column([row[0] for row in rows], kind, skip)
    assert murmur2(keys).tolist() == compiled_murmur2.murmur2(keys).tolist()


@given(st.lists(st.integers(0, 6), max_size=300), st.sampled_from([np.int32, np.int64, np.uint16]))
def test_groups_are_the_same(slots: list[int], kind: type) -> None:
    expected, found = (twin.group_rows(np.array(slots, dtype=kind), 7) for twin in (portable, compiled))
    assert [part.tolist() for part in expected] == [part.tolist() for part in found]


def test_no_rows_at_all() -> None:
    empty = BinaryColumn(pa.array([], pa.binary()))
    columns = RecordColumns(empty, empty, None, np.zeros(0, dtype=np.int64))
    arranged = compiled.ArrangedRows(columns, np.zeros(0, dtype=np.int64))
    assert compiled.encode_v2(arranged, 0, 0, 0, 0, memoryview(bytearray(5)), 3, 5) == (0, 3, -1)
    assert (
        len(compiled_murmur2.murmur2(empty))
        == len(compiled.record_sizes(columns))
        == len(compiled.group_rows(np.zeros(0, dtype=np.int32), 3)[0])
        == 0
    )
    assert compiled.encode_headers(np.zeros(2, dtype=np.int64), empty, empty).array.to_pylist() == [b"\0", b"\0"]
    assert portable.largest_record(columns) == compiled.largest_record(columns) == (0, 0)
    assert portable.largest_record(RecordColumns(empty)) == compiled.largest_record(RecordColumns(empty)) == (0, 0)


far_times = st.sampled_from([-(2**63), -(2**62) - 1, -1, 0, 2**62, 2**63 - 1])


@given(st.lists(far_times, min_size=1, max_size=9), far_times, st.booleans(), st.booleans())
def test_differences_of_times_are_taken_in_64_bits(stamps: list[int], base: int, alike: bool, nulls: bool) -> None:
    """Callers check that they fit; if not, the twins write the same bytes, and no more than the maximum of a row."""
    values = BinaryColumn(pa.array([None if nulls else b"x"] * len(stamps), pa.binary()))
    columns = RecordColumns(values, None, None, stamps[0] if alike else np.array(stamps, dtype=np.int64))
    results = []
    for twin in (portable, compiled):
        out, order = memoryview(bytearray(400)), np.arange(len(stamps))
        results.append(
            (twin.encode_v2(twin.ArrangedRows(columns, order), 0, len(stamps), 0, base, out, 0, 400), bytes(out))
        )
    assert results[0] == results[1]
    assert results[0][0][1] <= portable.record_sizes(columns).sum()


# --- damaged input --------------------------------------------------------------------------------------------------


def damaged(offsets: list[int], data: bytes = b"abcdef", kind: type = np.int32, **changes: Any) -> Any:
    """Return a column as `BinaryColumn` shows it, whose offsets are not checked."""
    view = SimpleNamespace(
        offsets=np.array(offsets, dtype=kind), data=np.frombuffer(data, dtype=np.uint8), valid=None, **changes
    )

    class Column(SimpleNamespace):
        def __len__(self) -> int:
            return len(view.offsets) - 1

    return Column(**vars(view))


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("offsets", [[0, 7], [0, 40], [3, 2], [-1, 2], [0, 2**31 - 1], [-(2**31), 2**31 - 1]])
def test_offsets_outside_of_the_data_are_refused(offsets: list[int], kind: type) -> None:
    bad = damaged(offsets, kind=kind)
    good = BinaryColumn(pa.array([b"x"], pa.binary()))
    one, rows, out = np.ones(1, dtype=np.int64), np.zeros(1, dtype=np.int64), memoryview(bytearray(100))
    for columns in (RecordColumns(bad), RecordColumns(good, bad), RecordColumns(good, None, bad)):
        arranged = compiled.ArrangedRows(columns, rows)
        for call in (
            lambda arranged=arranged: compiled.encode_v2(arranged, 0, 1, 0, 0, out, 0, 100),
            lambda arranged=arranged: arranged.size_at(0),
            lambda columns=columns: compiled.record_sizes(columns),
            lambda columns=columns: compiled.largest_record(columns),
        ):
            with pytest.raises(ValueError, match="offsets point out of its data"):
                call()
    others: tuple[Callable[[], object], ...] = (
        lambda: compiled_murmur2.murmur2(bad),
        lambda: compiled.encode_headers(one, bad, good),
        lambda: compiled.encode_headers(one, good, bad),
    )
    for other in others:
        with pytest.raises(ValueError, match="offsets point out of its data"):
            other()


@pytest.mark.parametrize("row", [-1, 1, 2**40])
def test_rows_and_slots_outside_of_the_columns_are_refused(row: int) -> None:
    columns = RecordColumns(BinaryColumn(pa.array([b"x"], pa.binary())))
    arranged = compiled.ArrangedRows(columns, np.array([row]))
    for call in (
        lambda: compiled.encode_v2(arranged, 0, 1, 0, 0, memoryview(bytearray(50)), 0, 50),
        lambda: arranged.size_at(0),
        lambda: arranged.timestamp_at(0),
        lambda: arranged.size_at(row),
    ):
        with pytest.raises(ValueError, match="lies outside of the columns"):
            call()
    with pytest.raises(ValueError, match="lies outside of the columns"):
        compiled.group_rows(np.array([min(row, 2**20)], dtype=np.int32), 1)


@pytest.mark.parametrize("row", [-1, 2**40, -(2**40), 2**63 - 1, -(2**63)])
def test_rows_that_are_only_looked_at_ahead_may_be_anything(row: int) -> None:
    columns = RecordColumns(BinaryColumn(pa.array([b"value"] * 100, pa.binary())))
    out = memoryview(bytearray(1000))
    for place in range(1, 40):
        order = np.arange(100)[::-1].copy()
        order[place] = row
        arranged = compiled.ArrangedRows(columns, order)
        assert compiled.encode_v2(arranged, 0, place, 0, 0, out, 0, 1000)[0] == place


@pytest.mark.parametrize(("first", "stop", "position", "limit"), [
    (-1, 1, 0, 9), (0, 2, 0, 9), (1, 0, 0, 9), (0, 1, -1, 9), (0, 1, 0, 10), (0, 1, 5, 4),
])  # fmt: skip
def test_spaces_outside_of_the_buffer_are_refused(first: int, stop: int, position: int, limit: int) -> None:
    arranged = compiled.ArrangedRows(
        RecordColumns(BinaryColumn(pa.array([b"x"], pa.binary()))), np.zeros(1, dtype=np.int64)
    )
    with pytest.raises(ValueError, match="outside"):
        compiled.encode_v2(arranged, first, stop, 0, 0, memoryview(bytearray(9)), position, limit)
    with pytest.raises((ValueError, BufferError)):
        compiled.encode_v2(arranged, 0, 1, 0, 0, memoryview(bytes(9)), 0, 9)


@pytest.mark.parametrize("counts", [[-1], [2], [1, 1], [2**62, 2**62]])
def test_counts_of_headers_beyond_the_entries_are_refused(counts: list[int]) -> None:
    entry = BinaryColumn(pa.array([b"x"], pa.binary()))
    with pytest.raises(ValueError, match="lies outside of the columns"):
        compiled.encode_headers(np.array(counts), entry, entry)


def test_columns_of_unequal_lengths_are_refused() -> None:
    one, two = (BinaryColumn(pa.array([b"x"] * count, pa.binary())) for count in (1, 2))
    stamps = np.zeros(1, dtype=np.int64)
    for columns in (RecordColumns(two, one), RecordColumns(two, None, one), RecordColumns(two, timestamps=stamps)):
        with pytest.raises(ValueError, match="as long as value"):
            compiled.record_sizes(columns)
    with pytest.raises(ValueError, match="equally many"):
        compiled.encode_headers(np.zeros(1, dtype=np.int64), one, two)
