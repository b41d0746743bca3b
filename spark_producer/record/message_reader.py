"""Converts messages of formats V0 and V1 to Arrow columns.

It checks their checksums, and decompresses wrapper messages with their offsets (Kafka's AbstractLegacyRecordBatch).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from spark_producer.errors import CorruptRecord
from spark_producer.kernel.arrays import ArrowArray, Int64Array, from_numbers
from spark_producer.kernel.binary_slices import binary_slices
from spark_producer.kernel.column_views import PIECE_BYTES
from spark_producer.kernel.decode_messages import DecodedMessages, decode_messages, message_starts
from spark_producer.record import codecs
from spark_producer.record.batch_v2 import CODEC_MASK, LOG_OVERHEAD, TIMESTAMP_TYPE_BIT, TimestampType
from spark_producer.record.decoded_columns import MAX_DATA_BYTES, int32_array, no_headers, record_batch

MESSAGES_AT_ONCE = 1 << 16
"""The number of messages that are decoded together, unless they have more than `PIECE_BYTES`. Both bounds keep the memory besides
the result small: the fields are copied, and their positions must fit into Arrow's 32 bits."""

_CRC_START = LOG_OVERHEAD + 4
_MIN_V1_SIZE = 22


class MessageRun:
    """Messages that follow each other in `data`; `starts` holds their positions, and the position after the last one."""

    def __init__(
        self, data: memoryview, starts: Int64Array, schema: pa.Schema, *, verify_crc: bool, limit: int
    ) -> None:
        self._data = data
        self._starts = starts
        self._verify_crc = verify_crc
        self._limit = limit
        self._schema = schema

    def decode(self) -> Iterator[pa.RecordBatch]:
        """Yield RecordBatches of the rows: those between two wrappers, and those of each wrapper.

        Raises:
            CorruptRecord: After the rows before the damage; in a wrapper, after the pieces before the damaged one.
        """
        for piece in self._pieces(self._data, self._starts):
            messages, begin = piece.messages, 0
            for wrapper in [*np.flatnonzero(messages.attributes & CODEC_MASK).tolist(), len(messages.offsets)]:
                if wrapper > begin:
                    yield piece.build(
                        self._schema, slice(begin, wrapper), messages.offsets, messages.timestamps, messages.attributes
                    )
                if wrapper < len(messages.offsets):
                    yield from self._unwrapped(piece, wrapper)
                begin = wrapper + 1
            piece.raise_damage()

    def _pieces(self, data: memoryview, starts: Int64Array) -> Iterator[_Messages]:
        """Yield the messages that are decoded together, one piece after the other; `starts` is as in `MessageRun`."""
        first, end = 0, len(starts) - 1
        while first < end:
            within = int(np.searchsorted(starts, starts[first] + PIECE_BYTES, side="right")) - 1
            stop = max(first + 1, min(within, first + MESSAGES_AT_ONCE))
            piece = starts[first : stop + 1]
            yield _Messages(data[piece[0] : piece[-1]], piece - piece[0], self._verify_crc)
            first = stop

    def _unwrapped(self, outer: _Messages, row: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows inside the wrapper message at `row`."""
        messages = outer.messages
        offset, magic, attributes = (
            int(column[row]) for column in (messages.offsets, messages.magics, messages.attributes)
        )
        try:
            content, starts = self._unpack(outer, row, magic, attributes & CODEC_MASK)
            last, previous = _offset_at(content, int(starts[-2])), -1
            shift = _shift_of_offsets(offset, last) if magic == 1 else 0
            for inner in self._pieces(content, starts):
                inner.raise_damage()
                _check_inner(inner.messages, magic, previous, last)
                offsets, timestamps = inner.messages.offsets, inner.messages.timestamps
                previous = int(offsets[-1])
                if magic == 1 and attributes & TIMESTAMP_TYPE_BIT:
                    timestamps = np.full(len(offsets), messages.timestamps[row])
                # The wrapper's attributes hold for the messages in it (Kafka's DeepRecordsIterator).
                yield inner.build(
                    self._schema, slice(None), offsets + shift, timestamps, np.full(len(offsets), attributes)
                )
        except CorruptRecord as error:
            raise CorruptRecord(f"wrapper message at offset {offset}: {error}", offset=offset) from error

    def _unpack(self, outer: _Messages, row: int, magic: int, codec: int) -> tuple[memoryview, Int64Array]:
        """Return the content of the wrapper at `row`, and the starts of the messages in it, at least one."""
        start, length = int(outer.messages.value_starts[row]), int(outer.messages.value_lengths[row])
        if length < 0:
            raise CorruptRecord("its value is null")
        if codec in codecs.ONLY_IN_V2:
            raise CorruptRecord(f"format V{magic} has no {codecs.Codec(codec).name.lower()}")
        packed = outer.data[start : start + length]
        content = codecs.decompress(codec, packed, self._limit, check_lz4_header=magic == 1)
        starts = message_starts(content, 0, MAX_DATA_BYTES)
        if starts[-1] != len(content) or len(starts) == 1:
            raise CorruptRecord(f"{len(content) - starts[-1]} of its {len(content)} bytes hold no whole message")
        return content, starts


def _shift_of_offsets(offset: int, last: int) -> int:
    """Return the number to add to the offsets in a V1 wrapper; the greatest of them, `last`, becomes its `offset`."""
    if 0 < offset < last:
        raise CorruptRecord(f"its offset is below {last}, the last relative offset of the messages in it")
    # An old version of librdkafka left the wrapper's offset at 0.
    return offset - last if offset else 0


def _check_inner(messages: DecodedMessages, magic: int, previous: int, last: int) -> None:
    """Raise if the messages cannot be in a wrapper whose last offset is `last`, after the offset `previous` (-1: none)."""
    if (messages.magics != magic).any():
        raise CorruptRecord(f"it has format V{magic}, but a message in it has another")
    if (messages.attributes & CODEC_MASK).any():
        raise CorruptRecord("a message in it is a wrapper too")
    offsets = messages.offsets
    if offsets[0] <= previous or offsets[-1] > last or (offsets[1:] <= offsets[:-1]).any():
        raise CorruptRecord("the offsets in it do not grow")


def _offset_at(data: memoryview, start: int) -> int:
    """Return the offset of the message at `start`."""
    return int(struct.unpack_from(">q", data, start)[0])


class _Messages:
    """Decoded messages whose checksums are right, and the error of the message after them."""

    def __init__(self, data: memoryview, starts: Int64Array, verify_crc: bool) -> None:
        self.data = data
        self._array = np.frombuffer(data, dtype=np.uint8)
        self._starts = starts
        self.messages: DecodedMessages = decode_messages(self._array, starts)
        self._damage: CorruptRecord | None = None
        good = len(self.messages.offsets)
        if good < len(starts) - 1:
            self._end_at(good, self._why_malformed(int(starts[good]), int(starts[good + 1])))
        negative = self.messages.offsets < 0
        if negative.any():
            self._end_at(int(negative.argmax()), "the offset is negative")
        if verify_crc:
            self._check_checksums()

    def _check_checksums(self) -> None:
        ends = self._starts[1:].tolist()
        data, crc32 = self.data, zlib.crc32
        found = [crc32(data[start + _CRC_START : end]) for start, end in zip(self._starts.tolist(), ends, strict=False)]
        wrong = self.messages.checksums != np.array(found[: len(self.messages.checksums)], dtype=np.int64)
        if wrong.any():
            row = int(wrong.argmax())
            self._end_at(row, f"CRC is {found[row]:#010x}, the message says {int(self.messages.checksums[row]):#010x}")

    def _end_at(self, row: int, reason: str) -> None:
        start = int(self._starts[row])
        offset = _offset_at(self.data, start)
        self.messages = DecodedMessages._make(column[:row] for column in self.messages)
        self._damage = CorruptRecord(f"message at offset {offset}: {reason}", offset=offset)

    def _why_malformed(self, start: int, end: int) -> str:
        magic, size = self.data[start + 16], end - start - LOG_OVERHEAD
        if magic == 1 and size < _MIN_V1_SIZE:
            return f"size is {size}, format V1 has {_MIN_V1_SIZE} or more"
        at = start + (26 if magic == 1 else 18)
        for field in ("key", "value"):
            if end - at < 4:
                return f"the message ends inside its {field} length"
            (length,) = struct.unpack_from(">i", self.data, at)
            at += 4
            if not -1 <= length <= end - at:
                return f"{field} length is {length}, {end - at} bytes are left"
            at += max(length, 0)
        return f"the message claims {end - at} bytes more than its fields have"

    def raise_damage(self) -> None:
        """Raise the error of the message after the decoded ones, if it has one.

        Raises:
            CorruptRecord: That message is damaged; the error names the offset and the reason.
        """
        if self._damage is not None:
            raise self._damage

    def build(
        self, schema: pa.Schema, rows: slice, offsets: Int64Array, timestamps: Int64Array, attributes: Int64Array
    ) -> pa.RecordBatch:
        """Return the RecordBatch of some rows."""
        messages = self.messages
        offsets = offsets[rows]

        def timestamp_types() -> ArrowArray:
            by_broker = (attributes[rows] & TIMESTAMP_TYPE_BIT) // TIMESTAMP_TYPE_BIT
            types = np.where(messages.magics[rows] == 0, TimestampType.NONE, by_broker)
            return int32_array(types.astype(np.int32))

        return record_batch(
            schema,
            {
                "offset": lambda: from_numbers(offsets),
                "timestamp": lambda: from_numbers(timestamps[rows]),
                "key": lambda: binary_slices(self._array, messages.key_starts[rows], messages.key_lengths[rows]),
                "value": lambda: binary_slices(self._array, messages.value_starts[rows], messages.value_lengths[rows]),
                "headers": lambda: no_headers(len(offsets)),
                "timestamp_type": timestamp_types,
            },
        )
