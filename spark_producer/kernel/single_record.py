"""The portable encoder of single records, for `Producer.send`.

As columns a record of any size would cost some 100 µs, for the Arrow arrays around it. Here only its bytes are made.
"""

from __future__ import annotations

from collections.abc import Sequence

from spark_producer.kernel.portable import RECORD_OVERHEAD
from spark_producer.kernel.varint import encode_varint

BUFFER_FULL = -1
"""The result of `encode` for a record that does not fit."""

NO_HEADERS = b"\x00"
"""The header block of a record without headers."""

_ONE_BYTE, _TWO_BYTES = 1 << 6, 1 << 13
"""Numbers below these take one byte, or two, as a zigzag varint."""
_SHORT = tuple(encode_varint(number) for number in range(-1, _ONE_BYTE))


class SingleRecord:
    """A record ready to be encoded. `headers` is its encoded header block; `timestamp` is in milliseconds and not negative.

    `size` is an upper bound of its encoded bytes in any batch, as in `portable.largest_record`.
    """

    __slots__ = ("headers", "key", "size", "timestamp", "value")

    def __init__(self, key: bytes | None, value: bytes | None, headers: bytes, timestamp: int) -> None:
        self.key = key
        self.value = value
        self.headers = headers
        self.timestamp = timestamp
        self.size = RECORD_OVERHEAD + 1 + _field_size(key) + _field_size(value) + len(headers)

    def encode(self, out: memoryview, position: int, limit: int, offset_delta: int, base_timestamp: int) -> int:
        """Write the record to `out` at `position`; return the position after it, or `BUFFER_FULL` if that would pass `limit`.

        Raises:
            ValueError: `position` or `limit` lies outside of `out`.
        """
        if not 0 <= position <= limit <= len(out):
            raise ValueError(f"bytes {position} to {limit} lie outside of a buffer of {len(out)} bytes")
        key, value = self.key, self.value
        body = b"".join(
            (
                b"\x00",  # attributes
                _varint(self.timestamp - base_timestamp),
                _varint(offset_delta),
                _SHORT[0] if key is None else _varint(len(key)) + key,
                _SHORT[0] if value is None else _varint(len(value)) + value,
                self.headers,
            )
        )
        length = _varint(len(body))
        end = position + len(length) + len(body)
        if end > limit:
            return BUFFER_FULL
        out[position:end] = length + body
        return end


def header_block(headers: Sequence[tuple[bytes, bytes | None]]) -> bytes:
    """Return the encoded headers of one record, preceded by their number."""
    parts = [_varint(len(headers))]
    for name, content in headers:
        parts += (_varint(len(name)), name, _SHORT[0] if content is None else _varint(len(content)), content or b"")
    return b"".join(parts)


def _varint(number: int) -> bytes:
    if 0 <= number < _ONE_BYTE:
        return _SHORT[number + 1]
    if 0 <= number < _TWO_BYTES:
        return bytes((number << 1 & 0x7F | 0x80, number >> 6))
    return encode_varint(number)


def _field_size(field: bytes | None) -> int:
    return 1 if field is None else len(_varint(len(field))) + len(field)
