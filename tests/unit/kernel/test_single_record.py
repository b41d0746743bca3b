"""One record at a time against the same record as a column: equal bytes, sizes and hashes, in both twins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_producer.kernel import (
    BUFFER_FULL,
    NO_HEADERS,
    BinaryColumn,
    RecordColumns,
    compiled_murmur2,
    compiled_single,
    header_block,
    murmur2,
    portable,
    single_record,
)
from spark_producer.kernel.hashes import fnv1a, fnv1a_one
from spark_producer.kernel.portable_murmur2 import murmur2_one

TWINS = pytest.mark.parametrize("twin", [single_record, compiled_single], ids=["portable", "compiled"])
field = st.one_of(st.none(), st.binary(max_size=20), st.integers(50, 9000).map(lambda size: b"x" * size))
header_lists = st.lists(st.tuples(st.binary(max_size=70), st.one_of(st.none(), st.binary(max_size=9))), max_size=3)
times = st.one_of(st.integers(0, 2**41), st.integers(2**62, 2**63 - 1))
deltas = st.one_of(st.integers(0, 200), st.sampled_from([63, 64, 8191, 8192, 2**31 - 1]))


def column(values: list[bytes | None]) -> BinaryColumn:
    return BinaryColumn(pa.array(values, pa.binary()))


@TWINS
@given(field, field, header_lists, times, times, deltas, st.integers(-3, 30))
def test_a_record_has_the_bytes_of_a_row(
    twin: Any,
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[bytes, bytes | None]],
    timestamp: int,
    base: int,
    delta: int,
    spare: int,
) -> None:
    block = None
    if headers:
        names, contents = column([name for name, _ in headers]), column([content for _, content in headers])
        block = portable.encode_headers(np.array([len(headers)], dtype=np.int64), names, contents)
    columns = RecordColumns(column([value]), None if key is None else column([key]), block, timestamp)
    rows = portable.ArrangedRows(columns, np.zeros(1, dtype=np.int64))
    size = portable.largest_record(columns)[1]
    expected = memoryview(bytearray(size + 40))
    _, end, _ = portable.encode_v2(rows, 0, 1, delta, base, expected, 7, len(expected))
    record = twin.SingleRecord(key, value, header_block(headers) if headers else NO_HEADERS, timestamp)
    assert record.size == size
    out = memoryview(bytearray(size + 40))
    limit = min(max(end + spare, 7), len(out))
    assert record.encode(out, 7, limit, delta, base) == (end if limit >= end else BUFFER_FULL)
    assert out == (expected if limit >= end else bytearray(size + 40))


@TWINS
def test_nothing_is_written_outside_of_the_space(twin: Any) -> None:
    record = twin.SingleRecord(b"k", b"v", NO_HEADERS, 0)
    for position, limit in ((-1, 50), (0, 101), (51, 50)):
        with pytest.raises(ValueError, match="lie outside of a buffer of 100 bytes"):
            record.encode(memoryview(bytearray(100)), position, limit, 0, 0)
    with pytest.raises((TypeError, BufferError)):
        record.encode(memoryview(bytes(100)), 0, 100, 0, 0)


@given(st.binary(max_size=40))
def test_a_key_alone_has_the_hash_that_it_has_in_a_column(key: bytes) -> None:
    keys = column([key])
    (expected,) = murmur2(keys).tolist()
    assert murmur2_one(key) == compiled_murmur2.murmur2_one(key) == expected
    assert fnv1a_one(key) == fnv1a(keys).tolist()[0]
