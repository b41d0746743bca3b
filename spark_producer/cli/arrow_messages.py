"""The messages of Arrow files and streams, and the sizes of their buffers once decompressed.

A message is a flatbuffer (Message.fbs) and a body with buffers. Compressed buffers begin with their size, which Arrow allocates
(RecordBatch.compression); of the flatbuffers only these sizes are read here.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from spark_producer.cli.inflation import check_unpacked

_CONTINUED = 0xFFFFFFFF
"""The marker before the size of a message, since Arrow 0.15."""

_MAX_METADATA = 256 << 20
_MAX_BODY = 1 << 40
_BUFFERS, _COMPRESSION, _DATA = 2, 3, 1
_VERSION_TYPE, _HEADER, _BODY = 1, 2, 3
_DICTIONARY, _RECORD_BATCH = 2, 3
_MAGIC = b"ARROW1\0\0"

Read = Callable[[int], bytes]


class Head(NamedTuple):
    """The beginning of a message as bytes, its flatbuffer, and the size of its body."""

    begin: bytes
    metadata: bytes
    body: int


def read_head(read: Read) -> Head | None:
    """Read the beginning of a message; None at the end of the stream.

    Raises:
        pyarrow.ArrowInvalid: it is not a message.
    """
    begin = read(4)
    if len(begin) == 4 and struct.unpack("<I", begin)[0] == _CONTINUED:
        begin += read(4)
    if not begin:
        return None
    if len(begin) not in (4, 8):
        raise pa.ArrowInvalid("it is cut off within the size of a message")
    (size,) = struct.unpack("<I", begin[-4:])
    if size == 0:
        return None
    metadata = read(size) if size <= _MAX_METADATA else b""
    if len(metadata) < size:
        raise pa.ArrowInvalid(f"a message says that it has {size:,} bytes, more than the file has")
    try:
        message = _Table(metadata, struct.unpack_from("<I", metadata)[0])
        body = message.number(_BODY, "<q")
    except struct.error as error:
        raise pa.ArrowInvalid("a message is not a valid flatbuffer") from error
    if not 0 <= body <= _MAX_BODY:
        raise pa.ArrowInvalid(f"a message says that its body has {body:,} bytes")
    return Head(begin, metadata, body)


def check_message(head: Head, prefix: Callable[[int], bytes]) -> None:
    """Check that the buffers of a message are not too large once decompressed.

    Args:
        head: the beginning of the message.
        prefix: returns the eight bytes at an offset in its body.

    Raises:
        pyarrow.ArrowInvalid: they are too large, or missing.
    """
    try:
        unpacked = _unpacked(head, prefix)
    except (struct.error, ValueError) as error:
        raise pa.ArrowInvalid("a message is not a valid flatbuffer") from error
    check_unpacked("a batch", unpacked, head.body)


def _unpacked(head: Head, prefix: Callable[[int], bytes]) -> int:
    message = _Table(head.metadata, struct.unpack_from("<I", head.metadata)[0])
    kind = message.number(_VERSION_TYPE, "<B")
    if kind not in (_DICTIONARY, _RECORD_BATCH):
        return 0
    batch = message.table(_HEADER)
    if kind == _DICTIONARY:
        batch = batch.table(_DATA)
    if not batch.has(_COMPRESSION):
        return head.body
    total = 0
    for offset, length in batch.pairs(_BUFFERS).tolist():
        if length >= 8:
            (size,) = struct.unpack("<q", prefix(offset))
            total += length if size < 0 else size  # -1: this buffer is not compressed
    return total


class _Table:
    """A table of a flatbuffer: its fields by their numbers."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at
        (back,) = struct.unpack_from("<i", data, at)
        self._fields_at = at - back
        if not 0 <= self._fields_at <= len(data) - 4:
            raise struct.error
        (self._size,) = struct.unpack_from("<H", data, self._fields_at)

    def _field(self, number: int) -> int:
        entry = 4 + 2 * number
        if entry + 2 > self._size:
            return 0
        (offset,) = struct.unpack_from("<H", self._data, self._fields_at + entry)
        return self._at + offset if offset else 0

    def has(self, number: int) -> bool:
        return self._field(number) > 0

    def number(self, number: int, form: str) -> int:
        at = self._field(number)
        return int(struct.unpack_from(form, self._data, at)[0]) if at else 0

    def _target(self, number: int) -> int:
        at = self._field(number)
        if not at:
            raise struct.error
        return at + int(struct.unpack_from("<I", self._data, at)[0])

    def table(self, number: int) -> _Table:
        return _Table(self._data, self._target(number))

    def pairs(self, number: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        """Return a vector of structs of two 64-bit integers."""
        at = self._target(number)
        (count,) = struct.unpack_from("<I", self._data, at)
        return np.frombuffer(self._data, "<i8", 2 * count, at + 4).reshape(-1, 2)


def check_file(file: io.BufferedReader) -> None:
    """Check all batches of a file, one after the other, before Arrow reads any.

    Raises:
        pyarrow.ArrowInvalid: one of them is too large, or is not a message.
    """
    file.seek(0)
    at = len(_MAGIC) if file.read(len(_MAGIC)) == _MAGIC else 0
    file.seek(at)
    while (head := read_head(file.read)) is not None:
        body = at + len(head.begin) + len(head.metadata)

        def prefix(offset: int, body: int = body) -> bytes:
            file.seek(body + offset)
            return file.read(8)

        check_message(head, prefix)
        at = body + head.body
        file.seek(at)


class CheckedStream(io.RawIOBase):
    """A stream that checks each message before Arrow reads it; for pipes, which cannot be read twice."""

    def __init__(self, read: Read) -> None:
        super().__init__()
        self._pieces = self._messages(read)
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Return True."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return `size` bytes; fewer only at the end of the stream."""
        found = []
        while size:
            if not self._rest:
                self._rest = memoryview(next(self._pieces, b""))
                if not self._rest:
                    break
            found.append(self._rest[: size if size > 0 else None])
            self._rest = self._rest[len(found[-1]) :]
            size -= len(found[-1]) if size > 0 else 0
        return b"".join(found)

    @staticmethod
    def _messages(read: Read) -> Iterator[bytes]:
        while (head := read_head(read)) is not None:
            body = _all(read, head.body)
            check_message(head, lambda offset, body=body: body[offset : offset + 8])  # type: ignore[misc]
            yield head.begin + head.metadata
            if body:
                yield body


def _all(read: Read, size: int) -> bytes:
    """Return `size` bytes, or fewer at the end of the stream; no more memory is allocated than is read."""
    pieces = []
    while size and (piece := read(min(size, 1 << 20))):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)
