"""The sizes of the pages of a Parquet file, from their headers: pyarrow allocates these sizes without a check.

The headers are structs in Thrift's compact protocol (parquet.thrift, PageHeader: field 2 is the decompressed size, 3 that in the
file).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa

_MAX_HEADER = 16 << 20
"""The maximum bytes of a header, which may contain the smallest and the largest value of its page."""

_MAX_DEPTH = 16
_UNPACKED, _PACKED = 2, 3
_BOOLEANS, _BYTE, _INTEGERS, _DOUBLE, _BINARY, _STRUCT = (1, 2), 3, (4, 5, 6), 7, 8, 12
"""The types of fields in the compact protocol; no header has lists or maps."""


class Page(NamedTuple):
    """The sizes of a page in bytes: decompressed, and as stored in the file."""

    unpacked: int
    packed: int


def pages_of(file: BinaryIO, chunk: Any) -> Iterator[Page]:
    """Yield the pages of a column chunk (pyarrow's ColumnChunkMetaData).

    Raises:
        pyarrow.ArrowInvalid: a page has no valid header.
    """
    at = chunk.data_page_offset
    if chunk.has_dictionary_page and chunk.dictionary_page_offset:  # some writers give 0 where there is none
        at = min(at, chunk.dictionary_page_offset)
    end = at + chunk.total_compressed_size
    while at < end:
        header = _header_at(file, at)
        yield Page(header.fields[_UNPACKED], header.fields[_PACKED])
        at += header.at + header.fields[_PACKED]


def _header_at(file: BinaryIO, at: int) -> _Header:
    size = 256
    while True:
        file.seek(at)
        data = file.read(size)
        try:
            header = _Header(data)
        except IndexError:
            if len(data) < size or size > _MAX_HEADER:
                raise pa.ArrowInvalid(f"the header of a page at byte {at} is cut off") from None
            size *= 8
            continue
        if min(header.fields.get(_UNPACKED, -1), header.fields.get(_PACKED, -1)) < 0:
            raise pa.ArrowInvalid(f"the header of a page at byte {at} has no sizes")
        return header


class _Header:
    """The integer fields of a struct by number, and its length in bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0
        self.fields: dict[int, int] = {}
        self._struct(self.fields, 0)

    def _struct(self, fields: dict[int, int], depth: int) -> None:
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            kind = head & 15
            if kind in _INTEGERS:
                fields[number] = self._zigzag()
            else:
                self._skip(kind, depth)

    def _skip(self, kind: int, depth: int) -> None:
        if kind in _INTEGERS:
            self._varint()
        elif kind == _BYTE:
            self._move(1)
        elif kind == _DOUBLE:
            self._move(8)
        elif kind == _BINARY:
            self._move(self._varint())
        elif kind == _STRUCT and depth < _MAX_DEPTH:
            self._struct({}, depth + 1)
        elif kind not in _BOOLEANS:
            raise pa.ArrowInvalid("the header of a page has a field of an unexpected type")

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _move(self, size: int) -> None:
        self.at += size
        if self.at > len(self._data):
            raise IndexError

    def _varint(self) -> int:
        value = shift = 0
        while shift < 64:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
        raise pa.ArrowInvalid("the header of a page has a number of more than 64 bits")

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
