"""One V2 record, read field by field (Kafka's DefaultRecord): for control markers, and to explain why a record is malformed.

Rows are read as columns instead (`kernel.decode_v2`).
"""

from __future__ import annotations

from spark_producer.errors import CorruptRecord
from spark_producer.kernel import MAX_HEADERS

_VARINT_BYTES, _VARLONG_BYTES = 5, 10


def read_deltas(content: memoryview) -> tuple[int, int]:
    """Return the timestamp delta and the offset delta of the record at the start of `content`, which ends with its batch.

    Raises:
        CorruptRecord: A field of the record is malformed; the error says which one and why.
    """
    return RecordCursor(content).read_record()


def read_key(content: memoryview) -> memoryview | None:
    """Return the key of the record at the start of `content`. Nothing after the key is examined.

    Raises:
        CorruptRecord: The record is malformed before the end of its key; the caller adds the offset.
    """
    return RecordCursor(content).read_up_to_key()


def read_key_and_value(content: memoryview) -> tuple[memoryview | None, memoryview | None]:
    """Return the key and the value of the record at the start of `content`. Nothing after the value is examined.

    Raises:
        CorruptRecord: The record is malformed before the end of its value; the caller adds the offset.
    """
    cursor = RecordCursor(content)
    return cursor.read_up_to_key(), cursor.sized("value")


class RecordCursor:
    """A position in `data`, which never passes `limit`. A field that does not fit raises `CorruptRecord` with the reason only."""

    __slots__ = ("data", "limit", "position")

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.position = 0
        self.limit = len(data)

    def read_up_to_key(self) -> memoryview | None:
        """Read the beginning of a record, and return its key as a view of the data."""
        self._read_deltas()
        return self.sized("key")

    def _read_deltas(self) -> tuple[int, int]:
        size = self.varint("record length", _VARINT_BYTES)
        if not 0 <= size <= self.remaining:
            raise CorruptRecord(f"record length is {size}, {self.remaining} bytes are left")
        self.limit = self.position + size
        self.byte("record attributes")
        return self.varint("timestamp delta", _VARLONG_BYTES), self.varint("offset delta", _VARINT_BYTES)

    def read_record(self) -> tuple[int, int]:
        """Read one whole record, and return its timestamp delta and its offset delta."""
        deltas = self._read_deltas()
        self.sized("key")
        self.sized("value")
        self._headers()
        if self.remaining:
            raise CorruptRecord(f"the record claims {self.remaining} bytes more than its fields have")
        return deltas

    def _headers(self) -> None:
        count = self.varint("header count", _VARINT_BYTES)
        if not 0 <= 2 * count <= self.remaining:  # each header takes two bytes or more
            raise CorruptRecord(f"header count is {count}, but only {self.remaining} bytes are left")
        if count > MAX_HEADERS:
            raise CorruptRecord(f"header count is {count}, more than {MAX_HEADERS}")
        for _ in range(count):
            if self.sized("header key") is None:
                raise CorruptRecord("a header key is null")
            self.sized("header value")

    @property
    def remaining(self) -> int:
        """The number of bytes up to the limit."""
        return self.limit - self.position

    def byte(self, what: str) -> int:
        """Read the next byte."""
        if self.position >= self.limit:
            raise CorruptRecord(f"the record ends inside its {what}")
        self.position += 1
        return self.data[self.position - 1]

    def varint(self, what: str, max_bytes: int) -> int:
        """Read a zigzag varint of at most `max_bytes` bytes."""
        raw = 0
        for index in range(max_bytes):
            byte = self.byte(what)
            raw |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                break
        else:
            raise CorruptRecord(f"{what} is a varint of more than {max_bytes} bytes")
        if raw >> (32 if max_bytes == _VARINT_BYTES else 64):
            raise CorruptRecord(f"{what} is a varint out of range")
        return (raw >> 1) ^ -(raw & 1)

    def sized(self, what: str) -> memoryview | None:
        """Read a length and as many bytes; a length of -1 means null."""
        size = self.varint(f"{what} length", _VARINT_BYTES)
        if size == -1:
            return None
        if not 0 <= size <= self.remaining:
            raise CorruptRecord(f"{what} length is {size}, {self.remaining} bytes are left")
        self.position += size
        return self.data[self.position - size : self.position]
