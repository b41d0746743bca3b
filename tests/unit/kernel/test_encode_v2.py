"""V2 records from columns by the portable kernel, judged by golden bytes and by kafka-python's decoder.

The compiled kernel is judged by the portable one: see test_compiled.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords

from spark_producer.kernel import BinaryColumn, RecordColumns, portable
from spark_producer.kernel.arrays import Int64Array
from spark_producer.kernel.column_views import PIECE_BYTES
from spark_producer.kernel.portable import (  # two ways to the same bytes, an internal difference
    ArrangedRows,
    _encode_joined,
    _encode_uniform,
    encode_headers,
    encode_v2,
    group_rows,
    record_sizes,
)
from spark_producer.record.batch_v2 import HEADER_SIZE, write_header

Header = tuple[str, bytes | None]
Row = tuple[bytes | None, bytes | None, int, list[Header]]


def binary(values: list[bytes | None], large: bool = False) -> BinaryColumn:
    return BinaryColumn(pa.array(values, pa.large_binary() if large else pa.binary()))


def columns_of(rows: list[Row], large: bool = False) -> RecordColumns:
    headers = None
    if any(row[3] for row in rows):
        entries = [header for row in rows for header in row[3]]
        headers = encode_headers(
            np.array([len(row[3]) for row in rows]),
            BinaryColumn(pa.array([key for key, _ in entries], pa.string()).cast(pa.binary())),
            binary([value for _, value in entries], large),
        )
    times = np.array([row[2] for row in rows], dtype=np.int64)
    same = bool(len(rows)) and bool((times == times[0]).all())
    return RecordColumns(
        binary([row[1] for row in rows], large),
        None if all(row[0] is None for row in rows) else binary([row[0] for row in rows], large),
        headers,
        int(times[0]) if same else times,
    )


def encode(columns: RecordColumns, order: np.ndarray, first: int = 0, size: int = 1 << 22) -> tuple[int, bytes]:
    out = memoryview(bytearray(size))
    base = columns.timestamp_at(int(order[first]))
    arranged = ArrangedRows(columns, order)
    following, end, latest = encode_v2(arranged, first, len(order), 0, base, out, HEADER_SIZE, size)
    write_header(out[:end], records_count=following - first, base_timestamp=base, max_timestamp=latest)
    return following, bytes(out[:end])


def shuffled(count: int, random: Random) -> Int64Array:
    return np.array(random.sample(range(count), count), dtype=np.int64)


def decode(batch: bytes) -> list[Row]:
    records = MemoryRecords(batch)
    found: list[Row] = []
    while (foreign := records.next_batch()) is not None:
        assert foreign.validate_crc()
        found += [(r.key, r.value, r.timestamp, [(k, v) for k, v in r.headers]) for r in foreign]
    return found


small = st.one_of(st.none(), st.binary(max_size=20))
header_lists = st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=9))), max_size=3)
row_lists = st.lists(st.tuples(small, small, st.integers(0, 2**41), header_lists), min_size=1, max_size=150)


@given(row_lists, st.booleans(), st.randoms())
def test_foreign_decoder_reads_what_was_encoded(rows: list[Row], large: bool, random: Random) -> None:
    order = shuffled(len(rows), random)
    following, batch = encode(columns_of(rows, large), order)
    assert following == len(rows)
    assert decode(batch) == [rows[row] for row in order]


@given(
    st.integers(1, 300), st.integers(0, 130), st.one_of(st.none(), st.integers(1, 9)), st.integers(1, 140),
    st.sampled_from([0, 1, 62, 63, 64, 8190, 8191, 8192]), st.integers(200, 5000), st.integers(-70, 9000),
)  # fmt: skip
def test_both_paths_give_equal_bytes(
    count: int, skip: int, key_size: int | None, value_size: int, delta: int, max_bytes: int, time_delta: int
) -> None:
    random = np.random.default_rng(count)
    keys = None if key_size is None else [random.bytes(key_size) for _ in range(count + skip)]
    values = [random.bytes(value_size) for _ in range(count + skip)]
    key = None if keys is None else BinaryColumn(pa.array(keys, pa.binary())[skip:])
    columns = RecordColumns(BinaryColumn(pa.array(values, pa.binary())[skip:]), key, None, 100_000 + time_delta)
    assert columns.uniform
    order = random.permutation(count)
    first = encode_all(_encode_uniform, columns, order, delta, max_bytes)
    assert first == encode_all(_encode_joined, columns, order, delta, max_bytes)


def encode_all(
    path: Callable[..., tuple[int, int, int]], columns: RecordColumns, order: Int64Array, delta: int, max_bytes: int
) -> tuple[int, int, int, bytes]:
    out, position, done, latest = memoryview(bytearray(max_bytes)), 0, 0, -1
    arranged = ArrangedRows(columns, order)
    while done < len(order):
        count, position, newest = path(arranged, done, len(order), delta + done, 100_000, out, position, max_bytes)
        if not count:
            break
        done, latest = done + count, max(latest, newest)
    return done, position, latest, bytes(out)


@given(row_lists, st.integers(70, 600))
def test_stops_before_the_first_record_that_does_not_fit(rows: list[Row], size: int) -> None:
    columns, order = columns_of(rows), np.arange(len(rows))
    _, whole = encode(columns, order)
    out = memoryview(bytearray(size + 50))
    arranged = ArrangedRows(columns, order)
    following, end, _ = encode_v2(arranged, 0, len(order), 0, columns.timestamp_at(0), out, HEADER_SIZE, size)
    assert end <= size
    assert bytes(out[HEADER_SIZE:end]) == whole[HEADER_SIZE:end]
    assert not any(out[size:])
    if following < len(rows):
        _, longer = encode(columns, order[: following + 1])
        assert len(longer) > size


def test_golden_g1_two_records_with_headers() -> None:
    rows: list[Row] = [
        (b"key", b"value", 1700000000000, []),
        (None, b"v2", 1700000000005, [("h", b"x"), ("n", None)]),
    ]
    _, batch = encode(columns_of(rows), np.arange(2))
    golden = bytes.fromhex(
        "0000000000000000000000500000000002ce90982d0000000000010000018bcfe568000000018bcfe56805ffffffffffffffffffff"
        "ffffffff000000021c000000066b65790a76616c7565001e000a02010476320402680278026e01"
    )
    assert batch[:12] == golden[:12]
    assert batch[12:16] == b"\xff\xff\xff\xff", "a producer leaves the leader epoch at -1"
    assert batch[16:] == golden[16:]


def test_offset_deltas_of_three_varint_bytes_and_large_timestamp_deltas() -> None:
    rows: list[Row] = [(b"k", str(i).encode(), 1_600_000_000_000 + i * 86_400_000, []) for i in range(9000)]
    following, batch = encode(columns_of(rows), np.arange(9000))
    assert following == 9000
    assert decode(batch) == rows


def test_nulls_and_empties_differ() -> None:
    rows: list[Row] = [(None, None, 5, []), (b"", b"", 5, []), (None, b"", 5, []), (b"", None, 5, [])]
    _, batch = encode(columns_of(rows), np.arange(4))
    assert decode(batch) == rows


def test_record_sizes_bound_the_encoded_size() -> None:
    rows: list[Row] = [(b"k" * 70, b"v" * n, 2**41 - n, [("h", b"x")]) for n in range(0, 20000, 997)]
    columns = columns_of(rows)
    bounds = record_sizes(columns)
    for row in range(len(rows)):
        _, batch = encode(columns, np.array([row]))
        assert len(batch) - HEADER_SIZE <= bounds[row] <= len(batch) - HEADER_SIZE + 20


@given(st.lists(st.integers(0, 6), max_size=300))
def test_group_rows_is_stable_and_complete(slots: list[int]) -> None:
    rows, bounds = group_rows(np.array(slots, dtype=np.int32), 7)
    assert math.prod(bounds.shape) == 8
    for slot in range(7):
        assert rows[bounds[slot] : bounds[slot + 1]].tolist() == [i for i, s in enumerate(slots) if s == slot]


@pytest.mark.parametrize("slot_count", [3, 1 << 16, (1 << 16) + 1])
def test_group_rows_of_many_slots(slot_count: int) -> None:
    slots = np.array([slot_count - 1, 0, slot_count - 1], dtype=np.int32)
    rows, bounds = group_rows(slots, slot_count)
    assert rows.tolist() == [1, 0, 2]
    assert bounds[-2:].tolist() == [1, 3]


# --- large columns --------------------------------------------------------------------------------------------------

BEYOND = 2300
"""Values of a million bytes: more than small offsets reach. They are never written, so they take no memory."""


def far_column() -> pa.Array[Any]:
    """A large column whose last values, `a` and `bc`, lie beyond 2 GiB."""
    data = np.zeros(BEYOND * 1_000_000 + 3, dtype=np.uint8)
    data[-3:] = np.frombuffer(b"abc", dtype=np.uint8)
    ends = [*range(0, BEYOND * 1_000_000 + 1, 1_000_000), BEYOND * 1_000_000 + 1, BEYOND * 1_000_000 + 3]
    offsets = np.array(ends, dtype=np.int64)
    return pa.Array.from_buffers(
        pa.large_binary(), BEYOND + 2, [None, pa.py_buffer(offsets.data), pa.py_buffer(data.data)]
    )


def test_a_batch_of_more_than_two_gib_is_encoded_a_part_at_a_time() -> None:
    columns = RecordColumns(BinaryColumn(far_column()))
    usual = pa.default_memory_pool()
    watched = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(watched)
    try:
        following, batch = encode(columns, np.arange(BEYOND + 2))
        assert following == 4
        assert [len(row[1] or b"") for row in decode(batch)] == [1_000_000] * 4
        assert [row[1] for row in decode(encode(columns, np.array([BEYOND, BEYOND + 1]))[1])] == [b"a", b"bc"]
    finally:
        pa.set_memory_pool(usual)
    peak = watched.max_memory()
    assert peak is not None
    assert peak < 4 * PIECE_BYTES


def test_headers_beyond_two_gib_of_their_columns() -> None:
    entries = BinaryColumn(far_column()[BEYOND:])
    blocks = encode_headers(np.array([1, 0, 1]), entries, binary([None, b"x"]))
    assert blocks.array.to_pylist() == [b"\x02\x02a\x01", b"\x00", b"\x02\x04bc\x02x"]


@given(row_lists, st.randoms())
def test_header_blocks_too_long_for_small_offsets(rows: list[Row], random: Random) -> None:
    """The test runs as if small offsets reached only up to 30 bytes."""
    order = shuffled(len(rows), random)
    expected = encode(columns_of(rows), order)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(portable, "MAX_BINARY_BYTES", 30)  # else 2 GiB
        assert encode(columns_of(rows), order) == expected


@given(row_lists, st.booleans(), st.integers(1, 500), st.integers(100, 400), st.randoms())
def test_what_is_gathered_at_a_time_does_not_change_a_byte(
    rows: list[Row], large: bool, at_once: int, size: int, random: Random
) -> None:
    """Holds also where a run ends in the middle of the gathered rows, and where one is asked for again, or before."""
    order = shuffled(len(rows), random)
    columns = columns_of(rows, large)
    starts = [random.randrange(len(rows)) for _ in range(5)]
    expected = [encode(columns, order, first, size) for first in starts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(portable, "PIECE_BYTES", at_once)  # else 8 MiB
        arranged = ArrangedRows(columns, order)
        for first, (following, batch) in zip(starts, expected, strict=True):
            out, base = memoryview(bytearray(size)), columns.timestamp_at(int(order[first]))
            found, end, _ = encode_v2(arranged, first, len(order), 0, base, out, HEADER_SIZE, size)
            assert (found, bytes(out[HEADER_SIZE:end])) == (following, batch[HEADER_SIZE:])
