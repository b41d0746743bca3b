"""Decodes fetched batches into the rows of an offset range."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from spark_producer.common.cluster import TopicPartition
from spark_producer.consumer.offset_range import OffsetRange
from spark_producer.consumer.settings import ALL_COLUMNS
from spark_producer.errors import ConfigError, CorruptRecord
from spark_producer.kernel.arrays import numbers
from spark_producer.protocol import decoded_records
from spark_producer.protocol.messages import FetchPartitionResponse
from spark_producer.record.batch_v2 import HEADER_SIZE, MAGIC
from spark_producer.record.log_entries import end_of
from spark_producer.record.reading import read_records

NO_BYTES = memoryview(b"")

_MAGIC_AT = 16
"""The position of the magic in a batch of every format."""


class FetchedBatches(NamedTuple):
    """Whole batches as they are in the log of a partition. The first may begin before `start`, the last may end after `end`.

    aborted: (producer id, first offset) of the transactions whose records must be left out.
    next_offset: the offset after the last batch; `start` if there is no batch.
    lag: the offsets from there to the end of the partition that the reader may see.
    """

    topic_partition: TopicPartition
    start: int
    end: int
    next_offset: int
    data: memoryview
    aborted: tuple[tuple[int, int], ...] = ()
    lag: int = 0

    @classmethod
    def from_response(cls, wanted: OffsetRange, row: FetchPartitionResponse, *, first: bool) -> FetchedBatches:
        """Return the whole batches of a response for the range `wanted`, up to the one that reaches its end.

        `first`: whether the partition was the first in the request.

        Raises:
            CorruptRecord: the bytes are not batches, their offsets do not increase, or the first partition has
            no whole batch (KIP-74).
        """
        data = decoded_records(row.records) or NO_BYTES
        try:
            size, next_offset = end_of(data, wanted.end)
            if first and len(data) and not size:
                raise CorruptRecord(f"{len(data)} bytes without a whole batch")
        except CorruptRecord as error:  # an offset in these bytes may be as wrong as they are
            raise corrupt(wanted.topic_partition, wanted.start, str(error)) from error
        aborted = tuple((each.producer_id, each.first_offset) for each in row.aborted_transactions or ())
        return cls(*wanted, max(wanted.start, next_offset), data[:size], aborted)


def decode(fetched: FetchedBatches, columns: frozenset[str], *, check_crcs: bool) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `fetched` from `start` to `end`, with the columns that `columns` names.

    Raises:
        CorruptRecord: the bytes are damaged; it names topic-partition and offset. The rows before are yielded first.
        ConfigError: the package of a codec is missing.
    """
    whole = fetched.start <= _first_offset(fetched.data) and fetched.next_offset <= fetched.end
    decoded = columns if whole and columns else columns | {"offset"}
    names = [name for name in ALL_COLUMNS if name in columns]
    try:
        for batch in read_records(fetched.data, verify_crc=check_crcs, aborted=fetched.aborted, columns=decoded):
            if whole:
                yield batch.select(names)
                continue
            first, end = np.searchsorted(numbers(batch.column("offset")), [fetched.start, fetched.end])
            if first < end:
                yield batch.slice(first, end - first).select(names)
    except CorruptRecord as error:
        offset = getattr(error, "offset", fetched.start)
        raise corrupt(fetched.topic_partition, offset, str(error)) from error
    except ConfigError as error:
        raise ConfigError(f"reading {fetched.topic_partition} failed: {error}") from error


def _first_offset(data: memoryview) -> int:
    """Return the first offset of batches, or -1 if it is not known, as in a wrapper of V0 or V1."""
    if len(data) < HEADER_SIZE or data[_MAGIC_AT] != MAGIC:
        return -1
    return int.from_bytes(data[:8], "big")


def corrupt(topic_partition: TopicPartition, offset: int, reason: str) -> CorruptRecord:
    """Return the error for fetched bytes that are damaged."""
    return CorruptRecord(
        f"reading {topic_partition} failed at offset {offset}: {reason}. What to do: read again; if it "
        "fails at this offset again, start after it, or restore the log.",
        offset=offset,
        topic_partition=topic_partition,
    )
