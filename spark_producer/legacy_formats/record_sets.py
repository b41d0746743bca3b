"""Writes record sets in a chosen message format, for archives and for tools that know only the older formats.

Formats are chosen by the names of Kafka's `message.format.version`. The output is the same as in the segment files of a
broker of that version, and as Produce 0 to 2 carry. A producer has no such option: every broker that it can talk to takes
V2, and those since 4.0 take nothing else (KIP-724).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from spark_producer.errors import ConfigError, CorruptRecord, SchemaError
from spark_producer.kernel import ArrangedRows
from spark_producer.kernel.column_views import PIECE_BYTES
from spark_producer.legacy_formats.batch_format import BatchFormat
from spark_producer.legacy_formats.builder import MemoryRecordsBuilder
from spark_producer.legacy_formats.down_conversion import ConversionLoss, down_convert
from spark_producer.record.batch_v2 import MAGIC, NO_TIMESTAMP, TimestampType, read_header
from spark_producer.record.codecs import Codec, Compressor
from spark_producer.record.columns import CheckedColumns
from spark_producer.record.decoded_columns import MAX_DATA_BYTES, RECORD_SCHEMA
from spark_producer.record.dictionary_slices import BatchPieces
from spark_producer.record.log_entries import BatchEntry, entries
from spark_producer.record.reading import read_records

BATCH_BYTES = 262_144
"""The bytes of records in a batch or message set before compression: old readers hold a whole one in memory."""

_VERSION = re.compile(r"(\d+)\.(\d+)(\.\d+)*(-IV\d+)?", re.ASCII)
_FIRST_WITH = ((0, 8), (0, 10), (0, 11))
"""The versions of Kafka that introduced V0, V1 (KIP-32) and V2 (KIP-98)."""

_NO_ROWS = pa.RecordBatch.from_pylist([], RECORD_SCHEMA)


def magic_of(message_format_version: str) -> int:
    """Return the magic of a format, given a version of Kafka as in its `message.format.version`.

    0.9.0 → 0, 0.10.2 → 1, 0.11.0 and all later ones → 2; `0.10.2-IV0` is 0.10.2.

    Raises:
        ConfigError: There is no such version.
    """
    found = _VERSION.fullmatch(message_format_version) if isinstance(message_format_version, str) else None
    version = (int(found[1]), int(found[2])) if found else (0, 0)
    if version < _FIRST_WITH[0]:
        raise ConfigError(
            f"message.format.version {message_format_version!r} is not a version of Kafka from 0.8.0 on; "
            "0.9.0 stands for format V0, 0.10.0 for V1, 0.11.0 for V2"
        )
    return max(magic for magic, first in enumerate(_FIRST_WITH) if version >= first)


def encode_table(
    table: pa.Table,
    *,
    message_format_version: str,
    compression_type: str = "none",
    base_offset: int = 0,
    batch_bytes: int = BATCH_BYTES,
) -> Iterator[bytes]:
    """Yield a `pyarrow.Table` as batches (message sets in V0 and V1), one after the other, with offsets from `base_offset` on.

    Its columns are those of the sink without topic and partition: value, key, headers, timestamp. Records have no timestamp
    (-1) if there is no such column.

    Raises:
        ConfigError: There is no such version or codec, or the batch size is out of range; raised at once.
        SchemaError: A column is missing, unknown, of a wrong type, or is not in the format.
        RecordError: There is a null header key, a timestamp that is null or before 1970, or a row too large for any record.
        RecordBatchError: The format is older than V2, and the codec is zstd or the table has headers.
    """
    magic, compressor = magic_of(message_format_version), _compressor(compression_type)
    if not 0 < batch_bytes <= MAX_DATA_BYTES:
        raise ConfigError(f"batch_bytes {batch_bytes} is not from 1 to {MAX_DATA_BYTES}")
    _check_format(magic, compressor)
    for name in ("topic", "partition", *(("timestamp",) if magic == 0 else ())):
        if name in table.schema.names:
            raise SchemaError(f"a record set of format V{magic} has no column {name!r}. Drop it")
    return _encoded(table, magic, compressor, base_offset, batch_bytes)


def _encoded(
    table: pa.Table, magic: int, compressor: Compressor, base_offset: int, batch_bytes: int
) -> Iterator[bytes]:
    buffer = np.empty(batch_bytes, dtype=np.uint8).data
    for columns in _columns_of(table):
        count = len(columns.records)
        rows, first = ArrangedRows(columns.records, np.arange(count, dtype=np.int64)), 0
        while first < count:
            batch_format = BatchFormat(magic=magic, base_offset=base_offset, timestamp_type=_timestamp_type(magic))
            builder = MemoryRecordsBuilder(buffer, batch_format, compressor=compressor)
            following = builder.append_rows(rows, first, count)
            yield bytes(builder.close())
            base_offset, first = base_offset + following - first, following


def _columns_of(table: pa.Table) -> Iterator[CheckedColumns]:
    """Yield a table as columns, in pieces if decoded dictionaries would be too large."""
    first_row = 0
    for batch in table.to_batches():
        yield from BatchPieces(batch, PIECE_BYTES, MAX_DATA_BYTES, "", NO_TIMESTAMP, first_row).or_raise()
        first_row += batch.num_rows


def convert(
    data: bytes | bytearray | memoryview, *, message_format_version: str, compression_type: str = "none"
) -> Iterator[tuple[bytes, ConversionLoss]]:
    """Yield a log, such as a broker's segment file, in one of the older formats: set after set, with the losses of each.

    `data` holds batches of any formats and codecs. Records keep their offsets; sets have `BATCH_BYTES`, so a batch may become
    several sets. Control batches yield no bytes, and records of aborted transactions become like any others, as in the
    conversion that brokers did for old consumers (KIP-98).

    Raises:
        ConfigError: There is no such version or codec, or the version is one of V2; raised at once, as the next error is.
        RecordBatchError: The codec is zstd, which the older formats do not have; or a timestamp is below -1, which V1 refuses.
        CorruptRecord: After the batches before the damage; an incomplete batch at the end is damage too.
    """
    magic, compressor = magic_of(message_format_version), _compressor(compression_type)
    if magic == MAGIC:
        raise ConfigError(f"message.format.version {message_format_version!r} is format V2; only V0 and V1 are written")
    _check_format(magic, compressor)
    return _converted(memoryview(data).cast("B"), magic, compressor)


def _converted(view: memoryview, magic: int, compressor: Compressor) -> Iterator[tuple[bytes, ConversionLoss]]:
    position = 0
    for entry in entries(view, MAX_DATA_BYTES):
        if isinstance(entry, BatchEntry):
            header, start, position = read_header(view, entry.position), entry.position, entry.end
        else:
            header, start, position = None, int(entry.starts[0]), int(entry.starts[-1])
        pieces = read_records(view[start:position])
        for rows in itertools.chain([next(pieces, _NO_ROWS)], pieces):
            yield from down_convert(rows, magic, set_bytes=BATCH_BYTES, header=header, compressor=compressor)
    if position < len(view):
        raise CorruptRecord(f"the last {len(view) - position} bytes, from byte {position} on, hold no whole batch")


def _check_format(magic: int, compressor: Compressor) -> None:
    BatchFormat(magic=magic, timestamp_type=_timestamp_type(magic)).check_codec(compressor.codec)


def _timestamp_type(magic: int) -> TimestampType:
    return TimestampType.CREATE_TIME if magic else TimestampType.NONE


def _compressor(compression_type: str) -> Compressor:
    if not isinstance(compression_type, str) or compression_type.upper() not in Codec.__members__:
        known = ", ".join(codec.name.lower() for codec in Codec)
        raise ConfigError(f"unknown compression.type {compression_type!r}: the codecs are {known}")
    return Compressor(Codec[compression_type.upper()])
