"""The bytes of an entry log: its header, its entries, and the map of what it holds, which is written when it is full.

Everything is big-endian. A file begins with a header of 1,024 bytes,

    8 magic | u32 id of the file | u64 place of the map, 0 while there is none | u32 CRC-32C of all before | zeros

and an entry is one batch of one log:

    u32 size of the batch | u32 CRC-32C of the id and the batch | u64 id of the log | batch

The map has a row for each stretch of a log in the file: id of the log, first offset, offset after the last, bytes of its entries
(u64 each); before it the number of rows and the CRC-32C of the rows (u32 each). From it the garbage collection knows without a
scan what is still needed (BookKeeper's "ledgers map").
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from struct import Struct, error
from typing import Final, NamedTuple

from spark_producer.broker.storage.file_ops import Buffer, FileOps
from spark_producer.record.checksum import crc32c

HEADER_SIZE: Final = 1024
ENTRY_HEADER: Final = Struct(">IIQ")
MAX_ID: Final = 2**31 - 1

_MAGIC: Final = b"PYPENTL\x01"
_HEADER: Final = Struct(">8sIQ")
_CRC: Final = Struct(">I")
_LOG_ID: Final = Struct(">Q")
_MAP: Final = Struct(">II")
_EXTENT: Final = Struct(">QQQQ")
_NAME: Final = re.compile(r"([0-9a-f]{8})\.log")


class Extent(NamedTuple):
    """Batches of one log that follow each other in a file: offsets from `first_offset` to before `end_offset`, and their
    bytes."""

    log_id: int
    first_offset: int
    end_offset: int
    bytes: int


def name_of(file_id: int) -> str:
    """Return the name of a file."""
    return f"{file_id:08x}.log"


def ids_in(directory: Path, files: FileOps) -> list[int]:
    """Return the ids of the entry logs in a directory, in order.

    Raises:
        OSError: the disk refused.
    """
    found = (_NAME.fullmatch(name) for name in files.names(directory))
    return sorted(int(match[1], 16) for match in found if match is not None)


def file_header(file_id: int, map_position: int = 0) -> bytes:
    """Return the first bytes of a file."""
    fields = _HEADER.pack(_MAGIC, file_id, map_position)
    return (fields + _CRC.pack(crc32c(fields))).ljust(HEADER_SIZE, b"\0")


def map_position(start: bytes, file_id: int) -> int | None:
    """Return where the map of a file is that begins with `start`, 0 if it has none; None if these are no bytes of that file."""
    fields = start[: _HEADER.size]
    if len(start) < _HEADER.size + _CRC.size or _CRC.unpack_from(start, _HEADER.size) != (crc32c(fields),):
        return None
    magic, found, place = _HEADER.unpack(fields)
    return int(place) if magic == _MAGIC and found == file_id else None


def entry_header(log_id: int, batch: Buffer) -> bytes:
    """Return what stands before a batch."""
    return ENTRY_HEADER.pack(len(batch), checksum(log_id, batch), log_id)


def checksum(log_id: int, batch: Buffer) -> int:
    """Return the CRC of an entry."""
    return crc32c(batch, crc32c(_LOG_ID.pack(log_id)))


def pack_map(extents: Sequence[Extent]) -> bytes:
    """Return the map of a file."""
    rows = b"".join(_EXTENT.pack(*extent) for extent in extents)
    return _MAP.pack(len(extents), crc32c(rows)) + rows


def read_map(data: bytes) -> list[Extent] | None:
    """Return the rows of a map, None if these bytes are none."""
    try:
        count, crc = _MAP.unpack_from(data)
    except error:
        return None
    rows = data[_MAP.size : _MAP.size + count * _EXTENT.size]
    if len(rows) < count * _EXTENT.size or crc32c(rows) != crc:
        return None
    return [Extent(*row) for row in _EXTENT.iter_unpack(rows)]


def merge_extents(entries: Iterable[Extent]) -> list[Extent]:
    """Return extents of a file, given entry by entry in the order of the file, with those joined that follow each other."""
    found: list[Extent] = []
    last: dict[int, int] = {}
    for each in entries:
        place = last.get(each.log_id)
        if place is not None and found[place].end_offset == each.first_offset:
            before = found[place]
            found[place] = before._replace(end_offset=each.end_offset, bytes=before.bytes + each.bytes)
        else:
            last[each.log_id] = len(found)
            found.append(each)
    return found
