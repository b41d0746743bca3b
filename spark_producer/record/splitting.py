"""Splits a batch in two, if a broker finds it too large (KIP-126)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spark_producer.kernel import (
    ArrangedRows,
    BinaryColumn,
    Limits,
    RecordColumns,
    V2Batch,
    encode_headers,
    encode_v2,
    record_sizes,
)
from spark_producer.kernel.arrays import numbers, view_of
from spark_producer.record.batch_v2 import CODEC_MASK, HEADER_SIZE, read_header, write_header
from spark_producer.record.codecs import Codec, Compressor, decompress

_NO_LIMIT = 1 << 62
"""The limit of decompressed bytes; none is needed, since we compressed them."""


_MAX_OFFSET_DELTA = (1 << 31) - 1
_COLUMNS = frozenset({"timestamp", "key", "value", "headers"})


class SplitPoint(NamedTuple):
    """The position at which records were split.

    `records` is the number of records in the first part, `cut` its end, and `end` the end of the second part. `head_latest` and
    `tail_latest` are the largest timestamp deltas of the two parts.
    """

    records: int
    cut: int
    end: int
    head_latest: int
    tail_latest: int


def cut_in_half(buffer: memoryview, first: int, end: int, records_count: int) -> SplitPoint:
    """Cut the `records_count` (two or more) records in `buffer[first:end]` near the middle of their bytes.

    The second part is rewritten in place so that its offset deltas count from 0, which never makes a record longer. Its
    timestamp deltas keep their base.
    """
    columns = columns_of(buffer[first:end], records_count)
    ends = np.cumsum(record_sizes(columns))
    records = min(int(np.searchsorted(ends, ends[-1] // 2)) + 1, records_count - 1)
    rows = ArrangedRows(columns, np.arange(records_count, dtype=np.int64))
    # The columns are a copy, so both parts can be written over what was read.
    _, cut, _ = encode_v2(rows, 0, records, 0, 0, buffer, first, end)
    _, end, _ = encode_v2(rows, records, records_count, 0, 0, buffer, cut, end)
    deltas = np.asarray(columns.timestamps)
    return SplitPoint(records, cut, end, int(deltas[:records].max()), int(deltas[records:].max()))


def halve(data: bytes | bytearray | memoryview) -> tuple[bytes, bytes]:
    """Return two batches that hold the records of one V2 batch of two or more, which bears no producer.

    Each half is compressed with the codec of the batch at its default level, or not at all if that makes it no smaller.
    """
    header = read_header(data)
    codec = Codec(header.codec)
    records = memoryview(bytearray(decompress(codec, memoryview(data)[HEADER_SIZE:], _NO_LIMIT)))
    count, cut, end, head_latest, tail_latest = cut_in_half(records, 0, len(records), header.records_count)

    def sealed(part: memoryview, records_count: int, latest: int) -> bytes:
        packed = Compressor(codec).compress(part)
        smaller = len(packed) < len(part)
        batch = memoryview(bytearray(HEADER_SIZE) + (packed if smaller else part))
        base = header.base_timestamp
        attributes = header.attributes if smaller else header.attributes & ~CODEC_MASK
        write_header(
            batch, records_count=records_count, base_timestamp=base, max_timestamp=base + latest, attributes=attributes
        )
        return bytes(batch)

    return sealed(records[:cut], count, head_latest), sealed(
        records[cut:end], header.records_count - count, tail_latest
    )


def columns_of(data: memoryview, count: int) -> RecordColumns:
    """Return the records in `data` as columns, with timestamp deltas instead of timestamps."""
    from spark_producer.kernel import decode_v2  # only here: few writers ever split a batch

    batch = V2Batch(data, count, base_offset=0, last_offset_delta=_MAX_OFFSET_DELTA, base_timestamp=0)
    found = decode_v2([batch], _COLUMNS, Limits(count, len(data), len(data)))
    assert found.keys is not None
    assert found.values is not None
    assert found.timestamps is not None
    assert found.headers is not None
    ends, header_keys, header_values = found.headers
    headers = None
    if len(header_keys):
        counts = np.diff(view_of(ends, np.dtype(np.int32))).astype(np.int64)
        headers = encode_headers(counts, BinaryColumn(header_keys), BinaryColumn(header_values))
    return RecordColumns(BinaryColumn(found.values), BinaryColumn(found.keys), headers, numbers(found.timestamps))
