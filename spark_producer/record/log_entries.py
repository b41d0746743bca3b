"""Divides a log into its entries: batches of V2, and runs of messages of V0 and V1.

All formats have the offset, the size and the magic at the same positions (Kafka's ByteBufferLogInputStream).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from spark_producer.errors import CorruptRecord
from spark_producer.kernel.arrays import Int64Array
from spark_producer.kernel.decode_messages import message_starts
from spark_producer.record.batch_v2 import HEADER_SIZE, LOG_OVERHEAD, MAGIC, read_header

_FIELDS = struct.Struct(">qi4xb")
"""The offset, the size of the bytes after it, four bytes that differ by format, and the magic."""

_MIN_SIZE = {0: 14, 1: 22, MAGIC: HEADER_SIZE - LOG_OVERHEAD}
"""Minimum bytes after the offset and the size, by format."""


MAX_OFFSET = (1 << 63) - 1


class BatchEntry(NamedTuple):
    """One V2 batch, which is `data[position:end]`."""

    position: int
    end: int


class MessagesEntry(NamedTuple):
    """A run of V0 and V1 messages: `starts` holds the position of each, and the position after the last one."""

    starts: Int64Array


def entries(data: memoryview, max_size: int) -> Iterator[BatchEntry | MessagesEntry]:
    """Yield the complete batches and messages of `data` in order; an incomplete one at the end is left out.

    Raises:
        CorruptRecord: A size is too small for its format or above `max_size`, or a magic is unknown.
    """
    position = 0
    while len(data) - position >= _FIELDS.size:
        offset, size, magic = _FIELDS.unpack_from(data, position)
        end = position + LOG_OVERHEAD + size
        if magic not in _MIN_SIZE:
            raise CorruptRecord(
                f"record batch at byte {position} has magic {magic}; 0, 1 and 2 are known", offset=offset
            )
        if not _MIN_SIZE[magic] + LOG_OVERHEAD <= end - position <= max_size:
            raise CorruptRecord(
                f"record batch at byte {position}, offset {offset}, claims {size} bytes after its length; format V{magic} "
                f"has {_MIN_SIZE[magic]} or more, and {max_size - LOG_OVERHEAD} are allowed",
                offset=offset,
            )
        if end > len(data):
            return
        if magic == MAGIC:
            yield BatchEntry(position, end)
        else:
            starts = message_starts(data, position, max_size)
            yield MessagesEntry(starts)
            end = int(starts[-1])
        position = end


def end_of(data: memoryview, until: int = MAX_OFFSET) -> tuple[int, int]:
    """Return (bytes, next offset) of the complete batches and messages in `data`; the next offset is -1 if there are none.

    Those after the first one that reaches offset `until` are left out.

    Raises:
        CorruptRecord: The same errors as in `entries`; or offsets do not increase, although they do in every log.
    """
    end, next_offset = 0, -1
    for entry in entries(data, 1 << 31):
        if next_offset >= until:
            break
        if isinstance(entry, BatchEntry):
            end = entry.end
            header = read_header(data, entry.position)
            if header.last_offset_delta < 0:
                raise CorruptRecord(
                    f"record batch at offset {header.base_offset}: its last offset delta is {header.last_offset_delta}",
                    offset=header.base_offset,
                )
            _check_order(header.base_offset, next_offset)
            next_offset = header.last_offset + 1
        else:
            end = int(entry.starts[-1])
            next_offset = _next_offset(data, entry.starts, next_offset)
    return end, next_offset


def _next_offset(data: memoryview, starts: Int64Array, after: int) -> int:
    """Return the offset after a run of messages, which follow the offsets before `after`."""
    octets = np.frombuffer(data, np.uint8)[starts[:-1, None] + np.arange(8)]
    offsets = octets.view(">i8")[:, 0].astype(np.int64)
    wrong = np.flatnonzero(offsets[1:] <= offsets[:-1])
    _check_order(int(offsets[0]), after)
    if len(wrong):
        _check_order(int(offsets[wrong[0] + 1]), int(offsets[wrong[0]]) + 1)
    return int(offsets[-1]) + 1


def _check_order(offset: int, minimum: int) -> None:
    if offset < minimum:
        raise CorruptRecord(f"record batch at offset {offset} follows offset {minimum - 1}", offset=offset)
