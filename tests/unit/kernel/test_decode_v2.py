"""Decoding V2 records by the column: records of every mixture of lengths, and damage; both twins, always, with equal results."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_producer.kernel import MAX_HEADERS, DecodedV2, Limits, V2Batch, compiled_decode
from spark_producer.kernel.arrays import MAX_BINARY_BYTES, numbers, view_of
from spark_producer.kernel.decode import decode_v2
from spark_producer.kernel.decoded_v2 import COLUMNS
from spark_producer.kernel.record_walk import MIN_RUN, WINDOW
from tests.support.sampling import Sample

NO_LIMITS = Limits(1 << 20, 1 << 20, 1 << 28)
Row = tuple[int, bytes | None, bytes | None, list[tuple[bytes, bytes | None]]]


def varint(value: int, width: int = 0) -> bytes:
    """Zigzag; with `width`, in at least `width` bytes, which every reader accepts although no writer does it."""
    rest, out = (value << 1) ^ (value >> 63), bytearray()
    while rest >= 0x80 or len(out) + 1 < width:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


def sized(content: bytes | None) -> bytes:
    return b"\x01" if content is None else varint(len(content)) + content


def record(row: Row, delta: int, width: int = 0) -> bytes:
    timestamp, key, value, headers = row
    body = b"\0" + varint(timestamp) + varint(delta) + sized(key) + sized(value) + varint(len(headers))
    body += b"".join(sized(name) + sized(content) for name, content in headers)
    return varint(len(body), width) + body


def batch(data: bytes, count: int, **fields: Any) -> V2Batch:
    """A batch that claims `count` records, whose offsets and timestamps are their deltas."""
    fields = {"base_offset": 0, "last_offset_delta": 2**31 - 1, "base_timestamp": 0} | fields
    return V2Batch(memoryview(data), count, **fields)


def decode(*batches: V2Batch, columns: frozenset[str] = COLUMNS, limits: Limits = NO_LIMITS) -> DecodedV2:
    """Return the portable decoder's result, after a comparison with the compiled one, to the last byte."""
    found, twin = (decoder(batches, columns, limits) for decoder in (decode_v2, compiled_decode.decode_v2))
    assert found[:6] == twin[:6]
    for name, ours, other in zip(DecodedV2._fields[6:10], found[6:10], twin[6:10], strict=True):
        assert (ours is None) == (other is None) == (name[:-1] not in columns), name
        assert bytes_of(ours) == bytes_of(other), name
    assert (found.headers is None) == (twin.headers is None) == ("headers" not in columns)
    if found.headers is not None and twin.headers is not None:
        assert [bytes_of(column) for column in found.headers] == [bytes_of(column) for column in twin.headers]
    return found


def bytes_of(column: Any) -> bytes:
    """The memory of a column, checked, as Arrow would send it: validity, offsets and data."""
    if column is None or isinstance(column, pa.Buffer):
        return bytes(column or b"")
    column.validate(full=True)
    assert not column.offset
    return bytes(pa.RecordBatch.from_arrays([column], ["column"]).serialize())


def rows_of(decoded: DecodedV2) -> list[Row]:
    assert decoded.timestamps is not None
    assert decoded.keys is not None
    assert decoded.values is not None
    assert decoded.headers is not None
    ends = view_of(decoded.headers.ends, np.dtype(np.int32)).tolist()
    assert len(ends) == decoded.rows + 1
    entries: list[Any] = list(zip(*(column.to_pylist() for column in decoded.headers[1:]), strict=True))
    headers = [entries[first:last] for first, last in itertools.pairwise(ends)]
    times = numbers(decoded.timestamps).tolist()
    return list(zip(times, decoded.keys.to_pylist(), decoded.values.to_pylist(), headers, strict=True))


def offsets_of(decoded: DecodedV2) -> list[int]:
    assert decoded.offsets is not None
    return [int(offset) for offset in numbers(decoded.offsets)]


contents = st.none() | st.binary(max_size=5) | st.binary(min_size=50, max_size=200)
some_rows = st.tuples(
    st.integers(-(2**63), 2**63 - 1) | st.integers(-70, 70),
    contents,
    contents,
    st.lists(st.tuples(st.binary(max_size=4), contents), max_size=3),
)


@given(
    st.lists(st.tuples(some_rows, st.integers(1, 45), st.sampled_from([0, 0, 0, 3])), max_size=12), st.integers(0, 9000)
)
def test_every_mixture_of_runs_and_single_records(parts: list[tuple[Row, int, int]], first_delta: int) -> None:
    """Each row is repeated some times, so that runs of equal lengths begin and end anywhere."""
    written = [(row, width) for row, times, width in parts for _ in range(times)]
    data = b"".join(record(row, first_delta + place, width) for place, (row, width) in enumerate(written))
    framed = memoryview(b"\xff" * 7 + data + b"\xff" * 9)[7 : 7 + len(data)]
    decoded = decode(batch(data, len(written))._replace(records=framed))
    assert stop_of(decoded) == (1, 0, 0)
    assert rows_of(decoded) == [row for row, _ in written]
    assert offsets_of(decoded) == list(range(first_delta, first_delta + len(written)))


def rest_of(batch: V2Batch, decoded: DecodedV2) -> V2Batch:
    records, count = batch.records[decoded.position :], batch.records_count - decoded.row
    return batch._replace(records=records, records_count=count, previous=decoded.previous)


def stop_of(decoded: DecodedV2) -> tuple[int, int, int]:
    return decoded.batch, decoded.row, decoded.position


@given(
    st.lists(st.lists(some_rows, max_size=30), max_size=5), st.sampled_from([1, 3, 1000]), st.sampled_from([0, 2, 1000]),
    st.sampled_from([1, 50, 300, 100_000]), st.sets(st.sampled_from(sorted(COLUMNS))),
)  # fmt: skip
def test_call_after_call_with_any_limits_and_columns_finds_every_row_once(
    batches: list[list[Row]], rows: int, headers: int, size: int, columns: set[str]
) -> None:
    encoded = [b"".join(record(row, 2 * place) for place, row in enumerate(rows)) for rows in batches]
    rest = [batch(data, len(rows), base_offset=len(data)) for data, rows in zip(encoded, batches, strict=True)]
    whole = decode(*rest, columns=frozenset(columns))
    pieces = []
    while rest:
        piece = decode(*rest, columns=frozenset(columns), limits=Limits(rows, headers, size))
        assert 0 < piece.rows <= rows or piece.batch == len(rest)
        pieces.append(piece)
        rest = rest[piece.batch :]
        if rest:
            assert piece.full
            rest[0] = rest_of(rest[0], piece)
    assert sum(piece.rows for piece in pieces) == whole.rows == sum(map(len, batches))
    columns_of: list[Any] = [piece[6:10] for piece in [whole, *pieces]]
    for expected, *found in zip(*columns_of, strict=True):
        assert expected is None or not found or pa.concat_arrays(found).equals(expected)
    if columns == COLUMNS:
        assert [row for piece in pieces for row in rows_of(piece)] == rows_of(whole)


@pytest.mark.parametrize("size", [1, 60, 100, 9000, WINDOW - 3, 3 * WINDOW])
def test_records_larger_and_smaller_than_the_window(size: int) -> None:
    chance = random.Random(size)
    count = max(2 * MIN_RUN, 3 * WINDOW // size // 4) if size < WINDOW else 2 * MIN_RUN
    rows: list[Row] = [(0, None, bytes(chance.randrange(size + 1)), []) for _ in range(count)]
    data = b"".join(record(row, place) for place, row in enumerate(rows))
    for limit in (1 << 28, len(data) // 3, 10 * size, 1):
        decoded = decode(batch(data, count), limits=Limits(1 << 20, 1, limit))
        assert decoded.full == (limit < len(data))
        assert rows_of(decoded) == rows[: decoded.rows]
        assert decoded.position <= max(limit, len(record(rows[0], 0)))
        assert not decoded.full or decoded.position + len(record(rows[decoded.rows], decoded.rows)) > limit


def test_several_batches_each_with_its_own_offsets_and_times() -> None:
    first, second = record((1, b"a", b"b", []), 0) + record((2, None, b"c", []), 1), record((3, b"d", None, []), 0)
    decoded = decode(
        batch(first, 2, base_offset=70, base_timestamp=1000), batch(b"", 0),
        batch(second, 1, base_offset=90, base_timestamp=5, append_time=-1), batch(second, 1, append_time=8),
    )  # fmt: skip
    assert stop_of(decoded) == (4, 0, 0)
    assert offsets_of(decoded) == [70, 71, 90, 0]
    assert rows_of(decoded) == [
        (1001, b"a", b"b", []),
        (1002, None, b"c", []),
        (-1, b"d", None, []),
        (8, b"d", None, []),
    ]


@pytest.mark.parametrize("count", [0, 1, 3, 5, 2**31 - 1])
def test_a_count_that_is_not_that_of_the_records_stops_there(count: int) -> None:
    data = b"".join(record((0, None, b"value", []), place) for place in range(4))
    decoded = decode(batch(data, count))
    assert decoded.rows == min(count, 4)
    assert stop_of(decoded) == (0, min(count, 4), min(count, 4) * len(data) // 4)
    assert (decoded.full, decoded.previous) == (False, min(count, 4) - 1)


def test_a_malformed_record_anywhere_ends_the_columns_before_it() -> None:
    rows: list[Row] = [(place, b"k" * (place % 5), b"v" * 40, [(b"h", b"x")] * (place % 3)) for place in range(60)]
    pieces = [record(row, place) for place, row in enumerate(rows)]
    for bad in range(0, 60, 3):
        header_count_without_end = pieces[bad][:-1] + b"\xff"
        data = b"".join([*pieces[:bad], header_count_without_end, *pieces[bad + 1 :]])
        decoded = decode(batch(data, 60))
        assert rows_of(decoded) == rows[:bad]
        assert stop_of(decoded) == (0, bad, sum(map(len, pieces[:bad])))


@pytest.mark.parametrize(
    ("deltas", "right"),
    [([2, 3, 3], 2), ([2, 7, 6], 2), ([1, 2], 0), ([2, 7, 9], 3), ([2, 7, 10], 2), ([-1], 0), ([2, -(2**31)], 1)],
)
@pytest.mark.parametrize("before", [0, 2])
def test_offset_deltas_grow_within_the_batch(deltas: list[int], right: int, before: int) -> None:
    """The count goes from `previous` 1, that of the records decoded before, to 9; other batches before do not count."""
    one = record((0, None, None, []), 4)
    earlier = [batch(one, 1)] * before
    data = b"".join(record((0, None, None, []), delta) for delta in deltas)
    decoded = decode(*earlier, batch(data, len(deltas), base_offset=50, last_offset_delta=9, previous=1))
    assert offsets_of(decoded) == [4] * before + [50 + delta for delta in deltas[:right]]
    assert (decoded.rows, decoded.full) == (before + right, False)
    assert stop_of(decoded)[:2] == ((before, right) if right < len(deltas) else (before + 1, 0))
    if right < len(deltas):
        assert decoded.previous == [1, *deltas][right]


def test_timestamps_fit_into_64_bits() -> None:
    for base, delta, right in ((2**63 - 1, 0, True), (2**63 - 2, 2, False), (-5, -(2**63), False), (5, -(2**63), True)):
        data = record((delta, None, None, []), 0)
        for append_time in (None, 7):
            decoded = decode(batch(data, 1, base_timestamp=base, append_time=append_time))
            assert decoded.rows == right
            if right:
                assert rows_of(decoded)[0][0] == (base + delta if append_time is None else 7)


@pytest.mark.parametrize("rows", [1, 40])
def test_headers_one_by_one_and_by_the_column_find_the_same_damage(rows: int) -> None:
    def good(place: int) -> bytes:
        return record((0, None, b"v", [(b"h", b"x")]), place)

    for entry in (b"\x01\x01", b"\x02a\x03", b"\x0ca\x01", b"\x80\x80", b"\x02a\x00\x00"):
        body = b"\0\0" + varint(rows - 1) + b"\x01\x02v\x02" + entry
        before = b"".join(map(good, range(rows - 1)))
        data = before + varint(len(body)) + body + b"".join(map(good, range(rows, rows + 3)))
        decoded = decode(batch(data, rows + 3))
        assert stop_of(decoded) == (0, rows - 1, len(before))
        assert [len(row[3]) for row in rows_of(decoded)] == [1] * (rows - 1)


def test_one_record_with_very_many_headers() -> None:
    headers: list[tuple[bytes, bytes | None]] = [(b"%d" % place, None) for place in range(20_000)]
    data = record((0, None, None, headers), 0) + record((0, None, None, headers[:30]), 1)
    assert [row[3] for row in rows_of(decode(batch(data, 2)))] == [headers, headers[:30]]


@pytest.mark.parametrize("rows", [1, 30], ids=["row by row", "by the column"])
def test_more_headers_than_one_record_may_have_are_not_looked_at(rows: int) -> None:
    """2 bytes each: they would cost their columns several times the memory."""
    for count in (MAX_HEADERS, MAX_HEADERS + 1):
        body = b"\0\0" + varint(rows - 1) + b"\x01\x01" + varint(count) + bytes(2 * count)
        whole = varint(len(body)) + body
        before = b"".join(record((0, None, None, [(b"h", b"x")]), place) for place in range(rows - 1))
        decoded = decode(batch(before + whole, rows))
        right = count == MAX_HEADERS
        assert stop_of(decoded) == ((1, 0, 0) if right else (0, rows - 1, len(before)))
        assert not decoded.full
        assert sum(len(row[3]) for row in rows_of(decoded)) == rows - 1 + (count if right else 0)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.integers(0, 20), st.booleans())
def test_a_call_decodes_some_headers_and_returns_where_to_continue(
    counts: list[int], at_once: int, damaged: bool
) -> None:
    """Call after call finds every row once; a call that is full has as many headers as fit, or those of its first row."""
    rows: list[Row] = [(0, None, b"v", [(b"h", b"x")] * count) for count in counts]
    data = b"".join(record(row, place) for place, row in enumerate(rows)) + (b"\xff" if damaged else b"")
    found: list[Row] = []
    rest = batch(data, len(rows) + damaged)
    while True:
        decoded = decode(rest, limits=NO_LIMITS._replace(headers=at_once))
        new = rows_of(decoded)
        found += new
        if not decoded.full:
            break
        headers = sum(len(row[3]) for row in new)
        assert 0 < headers <= max(at_once, next(count for count in counts[len(found) - len(new) :] if count))
        assert headers + counts[len(found)] > at_once
        rest = rest_of(rest, decoded)
    assert found == rows
    assert stop_of(decoded)[0] == (0 if damaged else 1)


@pytest.mark.parametrize("field", range(4), ids=["timestamp delta", "offset delta", "key length", "value length"])
def test_dr_varints_end_and_fit_their_width(field: int) -> None:
    """Bits beyond 32 (64 for the timestamp) would be lost, and with them what the writer meant."""
    longest, last = (10, 0x01) if field == 0 else (5, 0x0F)
    first, base = (0xFE, 2**31 - 1) if field == 1 else (0xFF, 0)  # an even varint is positive
    for ending, good in ((bytes([last]), field < 2), (bytes([last + 1]), False), (b"\x80\x00", False)):
        fields = [b"\0", b"\0", b"\x01", b"\x01"]
        fields[field] = bytes([first]) + b"\xff" * (longest - 2) + ending
        body = b"\0" + b"".join(fields) + b"\0"
        data = varint(len(body)) + body
        decoded = decode(batch(data, 1))
        assert stop_of(decoded) == ((1, 0, 0) if good else (0, 0, 0))
        if good and base:
            assert offsets_of(decoded) == [base]


def test_both_twins_stop_at_the_same_damage(sample: Sample) -> None:
    """Bytes changed, cut out and put in, anywhere, in two batches and at every limit; `decode` compares the twins."""
    chance = random.Random(11)
    stops, cases = 0, sample(range(4_000))
    for _ in cases:
        lengths = [chance.choice((None, 0, 3, 40, 40, 70)) for _ in range(6)]
        rows: list[Row] = [
            (
                chance.choice((0, 5, -(2**40))),
                b"k" * chance.randrange(3),
                None if length is None else bytes(length),
                [(b"h", b"x")] * (length == 3),
            )
            for length in lengths
            for _ in range(chance.choice((1, 1, 9)))
        ]
        data = bytearray(b"".join(record(row, place) for place, row in enumerate(rows)))
        whole = batch(bytes(data), len(rows))
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(data))
            match chance.randrange(3):
                case 0:
                    data[at] = chance.randrange(256)
                case 1:
                    del data[at : at + chance.randrange(1, 9)]
                case 2:
                    data[at:at] = chance.randbytes(chance.randrange(1, 6))
            data = data or bytearray(b"\0")
        limits = Limits(chance.choice((1, 7, 1000)), chance.choice((0, 3, 1000)), chance.choice((1, 90, 400, 10_000)))
        decode(whole, batch(bytes(data), len(rows)), limits=limits)
        stops += decode(batch(bytes(data), len(rows))).batch == 0
    assert len(cases) / 2 < stops <= len(cases)


def test_the_compiled_twin_refuses_what_arrow_cannot_address() -> None:
    """The limits say how much memory is asked for, and columns of 32 bits have no more."""
    data = np.zeros(MAX_BINARY_BYTES + 2, dtype=np.uint8).data  # never written, so it takes no memory
    with pytest.raises(ValueError, match="2147483649 bytes of records are more than"):
        compiled_decode.decode_v2([batch(b"", 1)._replace(records=data)], COLUMNS, Limits(bytes=1 << 40))
    with pytest.raises(BufferError):
        compiled_decode.decode_v2([batch(b"", 1)._replace(records=memoryview(b"abcd")[::2])], COLUMNS, NO_LIMITS)
