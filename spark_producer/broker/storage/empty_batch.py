"""Batches without records, which stand for offsets whose records are gone: a log has no gaps."""

from __future__ import annotations

from spark_producer.broker.storage.base import LEADER_EPOCH
from spark_producer.record.batch_v2 import (
    HEADER_SIZE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    write_header,
)


def empty_batch(first_offset: int, last_offset: int, like: BatchHeader | None = None) -> bytes:
    """Return a batch without records for the offsets from `first_offset` to `last_offset`.

    With `like` it has that batch's producer and sequence numbers. It belongs to no transaction: a log that is opened would take
    it for the start of one.
    """
    batch = bytearray(HEADER_SIZE)
    if like is None:
        write_header(
            memoryview(batch),
            records_count=0,
            base_timestamp=NO_TIMESTAMP,
            max_timestamp=NO_TIMESTAMP,
            base_offset=first_offset,
            last_offset_delta=last_offset - first_offset,
            leader_epoch=LEADER_EPOCH,
        )
    else:
        write_header_like(batch, like, 0, like.max_timestamp, like.max_timestamp, like.attributes & TIMESTAMP_TYPE_BIT)
    return bytes(batch)


def write_header_like(
    out: bytearray, header: BatchHeader, count: int, base_timestamp: int, max_timestamp: int, attributes: int
) -> None:
    """Write the header of a batch of `count` records that replaces the one with `header`. The records are already in `out`."""
    write_header(
        memoryview(out),
        records_count=count,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        attributes=attributes,
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        leader_epoch=header.partition_leader_epoch,
    )
