"""Converts record batches of every format to Arrow columns, and to single records for people.

For any bytes the only error is `CorruptRecord`, which names the offset and the reason; the rows before the damage
are yielded first. An incomplete batch at the end is left out, which is legal in Fetch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa

from spark_producer.errors import CorruptRecord
from spark_producer.record import codecs
from spark_producer.record.batch_decoder import BatchGroup
from spark_producer.record.batch_v2 import HEADER_SIZE, BatchHeader, check_crc, read_header
from spark_producer.record.committed_filter import AbortedTransactions
from spark_producer.record.decoded_columns import MAX_DATA_BYTES, record_schema
from spark_producer.record.log_entries import MessagesEntry, entries
from spark_producer.record.message_reader import MessageRun

DECOMPRESSED_LIMIT = 1 << 27
"""Default maximum of the decompressed bytes of one batch; data of a thousandth of this size can claim it."""


class ConsumerRecord(NamedTuple):
    """One record. `timestamp` is in milliseconds since 1970, or -1 if there is none; a null key or value is None."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def read_records(
    data: bytes | bytearray | memoryview,
    *,
    verify_crc: bool = True,
    limit: int = DECOMPRESSED_LIMIT,
    max_size: int = MAX_DATA_BYTES,
    aborted: Iterable[tuple[int, int]] = (),
    columns: frozenset[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of all complete batches in `data`, in order, as `pyarrow.RecordBatch`es of `RECORD_SCHEMA`.

    Header keys are text; bytes in them that are not UTF-8 become U+FFFD, as in Java's consumer.

    Args:
        data: The batches as in a log, of formats V0, V1 and V2 in any mixture, compressed or not.
        verify_crc: Whether each batch is compared with its checksum.
        limit: Maximum decompressed bytes of one batch, at most 2 GiB.
        max_size: Maximum bytes of one batch before it is decompressed, at most 2 GiB.
        aborted: (producer id, first offset) of each aborted transaction, as in a Fetch response with isolation level
            read_committed; their records are left out. Control batches are always left out.
        columns: The names of the columns to make, at least one: of `RECORD_SCHEMA`, or `timestamp_type` (`TIMESTAMP_TYPE_FIELD`).
            They come in that order. None makes those of `RECORD_SCHEMA`. Every field is checked all the same.

    Raises:
        CorruptRecord: The data are damaged; the error names the offset and the reason.
        ValueError: There is no such column.
    """
    view = memoryview(data).cast("B")
    limit, max_size = min(limit, MAX_DATA_BYTES), min(max_size, MAX_DATA_BYTES)
    for part in _parts(view, record_schema(columns), verify_crc, limit, max_size, AbortedTransactions(aborted)):
        yield from part.decode()


def _parts(
    view: memoryview, schema: pa.Schema, verify_crc: bool, limit: int, max_size: int, aborted: AbortedTransactions
) -> Iterator[BatchGroup | MessageRun]:
    """Yield the parts that are decoded together. The whole batches before any damage are yielded first."""
    group = BatchGroup(schema)
    try:
        for entry in entries(view, max_size):
            if isinstance(entry, MessagesEntry):
                if group.batches:
                    yield group
                    group = BatchGroup(schema)
                yield MessageRun(view, entry.starts, schema, verify_crc=verify_crc, limit=limit)
                continue
            header = read_header(view, entry.position)
            if verify_crc:
                check_crc(header, view[entry.position : entry.end])
            _check_header(header)
            records = _unpacked(header, view[entry.position + HEADER_SIZE : entry.end], limit)
            if not aborted.shows(header, records):
                continue
            if not group.fits(len(records)):
                yield group
                group = BatchGroup(schema)
            group.add(header, records)
    except CorruptRecord:
        if group.batches:
            yield group
        raise
    if group.batches:
        yield group


def _check_header(header: BatchHeader) -> None:
    if header.records_count < 0 or header.last_offset_delta < 0:
        raise _corrupt(
            header,
            f"the batch claims {header.records_count} records and last offset delta {header.last_offset_delta}",
        )
    if not 0 <= header.base_offset <= (1 << 63) - 1 - header.last_offset_delta:
        raise _corrupt(header, f"a batch with last offset delta {header.last_offset_delta} cannot start there")


def _unpacked(header: BatchHeader, records: memoryview, limit: int) -> memoryview:
    if not header.codec:
        return records
    try:
        return codecs.decompress(header.codec, records, limit)
    except CorruptRecord as error:
        raise _corrupt(header, str(error)) from error


def _corrupt(header: BatchHeader, reason: str) -> CorruptRecord:
    return CorruptRecord(f"record batch at offset {header.base_offset}: {reason}", offset=header.base_offset)


def single_records(batch: pa.RecordBatch) -> Iterator[ConsumerRecord]:
    """Yield the rows of a `pyarrow.RecordBatch` of `RECORD_SCHEMA` one by one: for people and tools, not for many rows."""
    for row in batch.to_pylist():
        headers = tuple((entry["key"], entry["value"]) for entry in row["headers"])
        yield ConsumerRecord(row["offset"], row["timestamp"], row["key"], row["value"], headers)
