"""Decoding V2 records by the column: records of every mixture of lengths, and damage; both twins, always, with equal results."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_producer.kernel import DecodedV2, compiled_decode
from spark_producer.kernel.decode import HEADERS_AT_ONCE, MAX_HEADERS, MIN_RUN, WINDOW, decode_v2

Row = tuple[int, bytes | None, bytes | None, list[tuple[bytes, bytes | None]]]


def varint(value: int, width: int = 0) -> bytes:
    """Zigzag; with `width`, in at least so many bytes, which no writer does and every reader takes."""
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


def decode(data: bytes, *batches: tuple[int, int, int], headers_at_once: int = HEADERS_AT_ONCE) -> DecodedV2:
    """What the portable decoder finds, after the compiled one has found the same."""
    positions, ends, counts = (np.array(column, dtype=np.int64) for column in zip(*batches, strict=True))
    content = np.frombuffer(data, dtype=np.uint8)
    found, twin = (
        decoder(content, positions, ends, counts, headers_at_once) for decoder in (decode_v2, compiled_decode.decode_v2)
    )
    assert (found.stop, found.full) == (twin.stop, twin.full)
    for name, column, other in zip(DecodedV2._fields[2:], found[2:], twin[2:], strict=True):
        assert column.tolist() == other.tolist(), name
    return found


def rows_of(data: bytes, decoded: DecodedV2) -> list[Row]:
    def cut(start: int, length: int) -> bytes | None:
        return None if length < 0 else data[start : start + length]

    entries = [
        (cut(*entry[:2]) or b"", cut(*entry[2:]))
        for entry in zip(*(column.tolist() for column in decoded[9:]), strict=True)
    ]
    rows, entry = [], 0
    for time, _, *fields, count in zip(*(column.tolist() for column in decoded[2:9]), strict=True):
        rows.append((time, cut(*fields[:2]), cut(*fields[2:]), entries[entry : entry + count]))
        entry += count
    return rows


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
    framed = b"\xff" * 7 + data + b"\xff" * 9
    decoded = decode(framed, (7, 7 + len(data), len(written)))
    assert decoded.stop == -1
    assert rows_of(framed, decoded) == [row for row, _ in written]
    assert decoded.offset_deltas.tolist() == list(range(first_delta, first_delta + len(written)))


@pytest.mark.parametrize("size", [1, 60, 100, 9000, WINDOW - 3, 3 * WINDOW])
def test_records_larger_and_smaller_than_the_window(size: int) -> None:
    chance = random.Random(size)
    count = max(2 * MIN_RUN, 3 * WINDOW // size // 4) if size < WINDOW else 2 * MIN_RUN
    rows: list[Row] = [(0, None, bytes(chance.randrange(size + 1)), []) for _ in range(count)]
    data = b"".join(record(row, place) for place, row in enumerate(rows))
    decoded = decode(data, (0, len(data), count))
    assert decoded.stop == -1
    assert decoded.value_lengths.tolist() == [len(row[2] or b"") for row in rows]


def test_several_batches_with_other_bytes_between_them() -> None:
    first, second = record((1, b"a", b"b", []), 0) + record((2, None, b"c", []), 1), record((3, b"d", None, []), 0)
    data = first + b"between" + second
    batches = [(0, len(first), 2), (len(first) + 3, len(first) + 3, 0), (len(first) + 7, len(data), 1)]
    decoded = decode(data, *batches)
    assert decoded.stop == -1
    assert rows_of(data, decoded) == [(1, b"a", b"b", []), (2, None, b"c", []), (3, b"d", None, [])]


@pytest.mark.parametrize("count", [0, 1, 3, 5, 2**31 - 1])
def test_a_count_that_is_not_that_of_the_records_stops_there(count: int) -> None:
    one = record((0, None, b"value", []), 0)
    decoded = decode(one * 4, (0, 4 * len(one), count))
    assert len(decoded.offset_deltas) == min(count, 4)
    assert decoded.stop == min(count, 4) * len(one)


def test_a_malformed_record_anywhere_ends_the_columns_before_it() -> None:
    rows: list[Row] = [(place, b"k" * (place % 5), b"v" * 40, [(b"h", b"x")] * (place % 3)) for place in range(60)]
    pieces = [record(row, place) for place, row in enumerate(rows)]
    for bad in range(0, 60, 3):
        header_count_without_end = pieces[bad][:-1] + b"\xff"
        data = b"".join([*pieces[:bad], header_count_without_end, *pieces[bad + 1 :]])
        decoded = decode(data, (0, len(data), 60))
        assert rows_of(data, decoded) == rows[:bad]
        assert decoded.stop == sum(map(len, pieces[:bad]))


@pytest.mark.parametrize("rows", [1, 40])
def test_headers_one_by_one_and_by_the_column_find_the_same_damage(rows: int) -> None:
    good = record((0, None, b"v", [(b"h", b"x")]), 0)
    for entry in (b"\x01\x01", b"\x02a\x03", b"\x0ca\x01", b"\x80\x80", b"\x02a\x00\x00"):
        body = b"\0\0\0\x01\x02v\x02" + entry
        data = good * (rows - 1) + varint(len(body)) + body + good * 3
        decoded = decode(data, (0, len(data), rows + 3))
        assert decoded.stop == len(good) * (rows - 1)
        assert len(decoded.header_key_starts) == rows - 1


def test_one_record_with_very_many_headers() -> None:
    headers: list[tuple[bytes, bytes | None]] = [(b"%d" % place, None) for place in range(20_000)]
    data = record((0, None, None, headers), 0) + record((0, None, None, headers[:30]), 1)
    assert [row[3] for row in rows_of(data, decode(data, (0, len(data), 2)))] == [headers, headers[:30]]


@pytest.mark.parametrize("rows", [1, 30], ids=["row by row", "by the column"])
def test_more_headers_than_one_record_may_have_are_not_looked_at(rows: int) -> None:
    """2 bytes each: they would cost their columns 16 times the memory."""
    for count in (MAX_HEADERS, MAX_HEADERS + 1):
        body = b"\0\0\0\x01\x01" + varint(count) + bytes(2 * count)
        whole = varint(len(body)) + body
        small = record((0, None, None, [(b"h", b"x")]), 0)
        data = small * (rows - 1) + whole
        decoded = decode(data, (0, len(data), rows))
        assert (decoded.stop, decoded.full) == (-1 if count == MAX_HEADERS else len(data) - len(whole), False)
        assert len(decoded.header_key_starts) == rows - 1 + (count if count == MAX_HEADERS else 0)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.integers(0, 20), st.booleans())
def test_a_call_decodes_some_headers_and_returns_where_to_continue(
    counts: list[int], at_once: int, damaged: bool
) -> None:
    """Call after call finds every row once; a call that is full has as many headers as fit, or those of its first row."""
    rows: list[Row] = [(0, None, b"v", [(b"h", b"x")] * count) for count in counts]
    pieces = [record(row, place) for place, row in enumerate(rows)]
    data = b"".join(pieces) + (b"\xff" if damaged else b"")
    found: list[Row] = []
    at, asked = 0, len(rows) + damaged
    while True:
        decoded = decode(data, (at, len(data), asked), headers_at_once=at_once)
        new = rows_of(data, decoded)
        found += new
        if not decoded.full:
            break
        headers = len(decoded.header_key_starts)
        assert 0 < headers <= max(at_once, next(count for count in counts[len(found) - len(new) :] if count))
        assert headers + counts[len(found)] > at_once
        at, asked = decoded.stop, asked - len(new)
    assert found == rows
    assert decoded.stop == (len(data) - 1 if damaged else -1)


@pytest.mark.parametrize("field", range(4), ids=["timestamp delta", "offset delta", "key length", "value length"])
def test_dr_varints_end_and_fit_their_width(field: int) -> None:
    """Bits beyond 32 (64 for the timestamp) would be lost, and with them what the writer meant."""
    longest, last = (10, 0x01) if field == 0 else (5, 0x0F)
    for ending, good in ((bytes([last]), field < 2), (bytes([last + 1]), False), (b"\x80\x00", False)):
        fields = [b"\0", b"\0", b"\x01", b"\x01"]
        fields[field] = b"\xff" * (longest - 1) + ending
        body = b"\0" + b"".join(fields) + b"\0"
        data = varint(len(body)) + body
        assert decode(data, (0, len(data), 1)).stop == (-1 if good else 0)


def test_both_twins_stop_at_the_same_damage() -> None:
    """Bytes changed, cut out and put in, anywhere; `decode` compares the twins."""
    chance = random.Random(11)
    stops = 0
    for _ in range(4_000):
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
        stops += decode(bytes(data), (0, len(data), len(rows))).stop >= 0
    assert 2_000 < stops < 4_000


@pytest.mark.parametrize("batch", [(-1, 3, 1), (2, 1, 1), (0, 6, 1), (0, 5, -1), (2**62, 2**62, 1)])
def test_the_compiled_twin_refuses_spaces_outside_of_the_data(batch: tuple[int, int, int]) -> None:
    position, end, count = (np.array([number], dtype=np.int64) for number in batch)
    with pytest.raises(ValueError, match="batch 0 lies outside of the data"):
        compiled_decode.decode_v2(np.zeros(5, dtype=np.uint8), position, end, count)
    with pytest.raises(ValueError, match="equally long"):
        compiled_decode.decode_v2(np.zeros(5, dtype=np.uint8), position, end, np.zeros(2, dtype=np.int64))
