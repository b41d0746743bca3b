"""The file of a location index: an append-only sequence of blocks, each with rows of one log.

Everything is big-endian. A block is

    u32 bytes of its rows | u32 CRC-32C | u64 id of the log | u32 kind | rows

and its CRC covers its position in the file and all fields but the CRC, so bytes from another position are not valid. A row of
kind ADDED is the 61-byte header of the batch, its position in the log (u64), and the file and position of the entry (u32 each). A
row of kind MOVED is a base offset (u64), a file and a position. The torn end after a crash is cut off; damage before it is an
error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from spark_producer.broker.storage.file_ops import FileOps
from spark_producer.broker.storage.tiered.location_index.base import IndexDamaged
from spark_producer.record.checksum import crc32c

ADDED: Final = 0
MOVED: Final = 1
REPLACED: Final = 2
ADDED_ROW: Final = Struct(">61sqII")
MOVED_ROW: Final = Struct(">QII")
_BLOCK: Final = Struct(">IIQI")
_COVERED: Final = Struct(">QIQI")


class IndexBlock(NamedTuple):
    """A block in the file; `position` is the byte at which its rows begin."""

    kind: int
    log_id: int
    position: int
    rows: memoryview


class IndexFile:
    """The file at `path`, which is created if it is missing. One thread at a time may use it."""

    def __init__(self, files: FileOps, path: Path) -> None:
        """Open the file.

        Raises:
            OSError: the disk refused.
        """
        self.path = path
        self._files = files
        is_new = path.name not in files.names(path.parent)
        self._file = files.open(path, create=is_new)
        if is_new:
            files.sync_directory(path.parent)
        self.size = 0

    def load(self, durable_bytes: int) -> Iterator[IndexBlock]:
        """Yield all blocks. Afterwards the file ends with the last block, and all of it is on the disk.

        Bytes after `durable_bytes` may be in the page cache only: after a failed force and a `kill -9`, the system shows bytes
        that it has not written to the disk and considers written. So they are written again.

        Args:
            durable_bytes: size of the file when it was last forced.

        Raises:
            IndexDamaged: there is an invalid block before `durable_bytes`.
            OSError: the disk refused.
        """
        content = memoryview(self._files.read(self._file, self._files.size(self._file), 0))
        while (block := self._block(content, self.size)) is not None:
            yield block
            self.size = block.position + len(block.rows)
        if self.size < durable_bytes:
            raise IndexDamaged(f"{self.path} is damaged at byte {self.size}, but {durable_bytes} bytes were forced")
        if self.size < len(content):
            self._files.truncate(self._file, self.size)
        if self.size > durable_bytes:
            self._files.write(self._file, [content[durable_bytes : self.size]], durable_bytes)
            self._files.force(self._file)

    @staticmethod
    def _block(content: memoryview, position: int) -> IndexBlock | None:
        if position + _BLOCK.size > len(content):
            return None
        length, crc, log_id, kind = _BLOCK.unpack_from(content, position)
        begin = position + _BLOCK.size
        rows = content[begin : begin + length]
        if len(rows) < length or _checksum(position, log_id, kind, rows) != crc:
            return None
        return IndexBlock(kind, log_id, begin, rows)

    def append(self, kind: int, rows: Mapping[int, bytes]) -> dict[int, int]:
        """Write a block for each log, and force them. Return the position of the rows by log.

        Raises:
            OSError: the disk refused. The next call overwrites the same bytes, so that the pages are written again: after a
                failed force, the system may consider them written.
        """
        parts, positions, end = [], {}, self.size
        for log_id, data in rows.items():
            head = _BLOCK.pack(len(data), _checksum(end, log_id, kind, data), log_id, kind)
            parts += [head, data]
            positions[log_id] = end + len(head)
            end += len(head) + len(data)
        self._files.write(self._file, parts, self.size)
        self._files.force(self._file)
        self.size = end
        return positions

    def read(self, position: int, size: int) -> bytes:
        """Return the bytes of rows.

        Raises:
            IndexDamaged: the file has become shorter.
            OSError: the disk refused.
        """
        found = self._files.read(self._file, size, position)
        if len(found) < size:
            raise IndexDamaged(f"{self.path} no longer has its bytes from {position + len(found)} on")
        return found

    def close(self) -> None:
        """Close the file."""
        self._files.close(self._file)


def _checksum(position: int, log_id: int, kind: int, rows: bytes | memoryview) -> int:
    return crc32c(rows, crc32c(_COVERED.pack(position, len(rows), log_id, kind)))
