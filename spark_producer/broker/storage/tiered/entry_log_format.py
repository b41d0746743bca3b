"""The format of an entry log: header, entries, and the map of its contents, which is written when the file is sealed.

Everything is big-endian. A file begins with a header of 1,024 bytes,

    8 magic | u32 id of the file | u64 position of the map, 0 while there is none | u32 CRC-32C of all before | zeros

and an entry is one batch of one log:

    u32 size of the batch | u32 CRC-32C of the id and the batch | u64 id of the log | batch

The map has a row for each extent: id of the log, first offset, offset after the last, bytes of its entries (u64 each); before the
rows their number and CRC-32C (u32 each). With it the garbage collection knows without a scan which entries are still needed
(BookKeeper's "ledgers map").
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
    """Consecutive batches of one log in a file: offsets from `first_offset` to before `end_offset`, and their size in bytes."""

    log_id: int
    first_offset: int
    end_offset: int
    bytes: int


def name_of(file_id: int) -> str:
    """Return the name of a file."""
    return f"{file_id:08x}.log"


def ids_in(directory: Path, files: FileOps) -> list[int]:
    """Return the sorted ids of the entry logs in a directory.

    Raises:
        OSError: the disk refused.
    """
    found = (_NAME.fullmatch(name) for name in files.names(directory))
    return sorted(int(match[1], 16) for match in found if match is not None)


def file_header(file_id: int, map_position: int = 0) -> bytes:
    """Return the header of a file."""
    fields = _HEADER.pack(_MAGIC, file_id, map_position)
    return (fields + _CRC.pack(crc32c(fields))).ljust(HEADER_SIZE, b"\0")


def map_position(start: bytes, file_id: int) -> int | None:
    """Return the position of the map from the header `start` of a file, 0 if it has none; None if the header is invalid."""
    fields = start[: _HEADER.size]
    if len(start) < _HEADER.size + _CRC.size or _CRC.unpack_from(start, _HEADER.size) != (crc32c(fields),):
        return None
    magic, found, position = _HEADER.unpack(fields)
    return int(position) if magic == _MAGIC and found == file_id else None


def entry_header(log_id: int, batch: Buffer) -> bytes:
    """Return the header of an entry."""
    return ENTRY_HEADER.pack(len(batch), checksum(log_id, batch), log_id)


def checksum(log_id: int, batch: Buffer) -> int:
    """Return the CRC of an entry."""
    return crc32c(batch, crc32c(_LOG_ID.pack(log_id)))


def pack_map(extents: Sequence[Extent]) -> bytes:
    """Return the map of a file."""
    rows = b"".join(_EXTENT.pack(*extent) for extent in extents)
    return _MAP.pack(len(extents), crc32c(rows)) + rows


def read_map(data: bytes) -> list[Extent] | None:
    """Return the rows of a map, None if `data` is not a valid map."""
    try:
        count, crc = _MAP.unpack_from(data)
    except error:
        return None
    rows = data[_MAP.size : _MAP.size + count * _EXTENT.size]
    if len(rows) < count * _EXTENT.size or crc32c(rows) != crc:
        return None
    return [Extent(*row) for row in _EXTENT.iter_unpack(rows)]


def merge_extents(entries: Iterable[Extent]) -> list[Extent]:
    """Return the extents of a file, given entry by entry in the order of the file, with consecutive ones merged."""
    found: list[Extent] = []
    last: dict[int, int] = {}
    for each in entries:
        index = last.get(each.log_id)
        if index is not None and found[index].end_offset == each.first_offset:
            before = found[index]
            found[index] = before._replace(end_offset=each.end_offset, bytes=before.bytes + each.bytes)
        else:
            last[each.log_id] = len(found)
            found.append(each)
    return found
