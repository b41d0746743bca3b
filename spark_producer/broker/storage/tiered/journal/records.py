"""The format of a journal file: header, records, the marker at the end of a group, and the marker at the end of the file.

Everything is big-endian. A file begins with a header, which takes one block of the alignment:

    8 magic | u32 size of the header | u64 id of the file | u32 CRC-32C of all before
    u8 when records were acknowledged | 16 boot id of the machine | u64 first size of the file | u32 CRC-32C of these three

of which earlier versions have only the first line. A record is

    u32 length of the batch | u32 CRC-32C | u64 id of the log | batch

and its CRC covers the id of the file and the position of the record, then length, id of the log and batch. So only a record that
was written at this position is valid: neither zeros of reserved space, nor bytes of another file or position. (BookKeeper's
records have no CRC.) Two ids of logs are markers. The end of a group has the position up to which the file had been forced when
the group was written, then zeros up to the next block; the end of a file has no content, and is last.
"""

from __future__ import annotations

from enum import Enum
from struct import Struct
from typing import Final, NamedTuple

from spark_producer.broker.storage.file_ops import Buffer
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError
from spark_producer.record.checksum import crc32c

MAGIC: Final = b"PYPJRNL\x01"
"""First bytes of every file; the last of them is the version of the format."""
GROUP_END: Final = 2**64 - 1
FILE_END: Final = 2**64 - 2
"""Markers, which have these values instead of the id of a log. Ids of logs count up from 0, and stay below 2^63."""

FILE_HEADER: Final = Struct(">8sIQ")
CRC: Final = Struct(">I")
RECORD_HEADER: Final = Struct(">IIQ")
_COVERED: Final = Struct(">QQIQ")
FORCED: Final = Struct(">Q")
HEADER_SIZE: Final = RECORD_HEADER.size
_ORIGIN: Final = Struct(">B16sQ")
MIN_GROUP_END: Final = HEADER_SIZE + FORCED.size


class Acknowledged(Enum):
    """The time at which records of a file were acknowledged: before or after a force. UNKNOWN in files of earlier versions."""

    UNKNOWN = 0
    FORCED = 1
    WRITTEN = 2


class FileOrigin(NamedTuple):
    """The circumstances in which a file was written.

    acknowledged: when its records were acknowledged.
    boot_id: boot id of the machine (`FileOps.boot_id`).
    size: minimum size of the file before it was ended, in bytes: the space that was reserved first.
    """

    acknowledged: Acknowledged = Acknowledged.UNKNOWN
    boot_id: bytes = b""
    size: int = 0


class JournalRecord(NamedTuple):
    """A batch to write: the id of its log, its base offset, the offset after its last record, and its bytes.

    Only the id and the bytes are written. The bytes must not change until the record is written.
    """

    log_id: int
    base_offset: int
    end_offset: int
    batch: memoryview


class Mark(NamedTuple):
    """A position in the journal: the id of a file, and a position in it. Marks are ordered as the records at them."""

    file_id: int
    position: int


class JournalMissing(BrokerError):
    """A journal file that is still needed is missing (KAFKA_STORAGE_ERROR); the message says what to do."""


class JournalDamaged(BrokerError):
    """Forced records cannot be read (KAFKA_STORAGE_ERROR); the message says what to do."""


_HINT: Final = (
    "Put back the files of the journal, or restore a backup of all of the broker's data. To continue without the records that "
    "cannot be read, start once with skip_damage (pyproducer broker --skip-damage): damaged files are set aside, and skipped "
    "records are logged"
)


def missing_error(text: str) -> JournalMissing:
    """Return the error about a missing file; `text` says which."""
    return JournalMissing(f"{text}. {_HINT}", code=Code.KAFKA_STORAGE_ERROR)


def damaged_error(text: str) -> JournalDamaged:
    """Return the error about records that cannot be read; `text` says which, and why."""
    return JournalDamaged(f"{text}. {_HINT}", code=Code.KAFKA_STORAGE_ERROR)


def checksum(file_id: int, position: int, log_id: int, batch: Buffer) -> int:
    """Return the CRC of the record at `position` of that file."""
    return crc32c(batch, crc32c(_COVERED.pack(file_id, position, len(batch), log_id)))


def record_header(file_id: int, position: int, log_id: int, batch: Buffer) -> bytes:
    """Return the header of the record at `position` of that file."""
    return RECORD_HEADER.pack(len(batch), checksum(file_id, position, log_id, batch), log_id)


def group_end(file_id: int, position: int, alignment: int, forced: int) -> bytes:
    """Return the marker of a group that ends at `position`. It fills the block, and another one if the rest is too small."""
    size = -position % alignment
    if size < MIN_GROUP_END:
        size += alignment
    body = FORCED.pack(forced) + bytes(size - MIN_GROUP_END)
    return record_header(file_id, position, GROUP_END, body) + body


def file_end(file_id: int, position: int) -> bytes:
    """Return the marker at the end of a file."""
    return record_header(file_id, position, FILE_END, b"")


def file_header(file_id: int, alignment: int, read_origin: FileOrigin = FileOrigin()) -> bytes:  # noqa: B008
    """Return the first block of a file."""
    fields = FILE_HEADER.pack(MAGIC, alignment, file_id)
    how = _ORIGIN.pack(read_origin.acknowledged.value, read_origin.boot_id, read_origin.size)
    return (fields + CRC.pack(crc32c(fields)) + how + CRC.pack(crc32c(how))).ljust(alignment, b"\0")


def read_origin(start: bytes) -> FileOrigin:
    """Return how the file that begins with these bytes was written; `FileOrigin()` if the header does not have it."""
    begin = FILE_HEADER.size + CRC.size
    how = start[begin : begin + _ORIGIN.size]
    if len(start) < begin + _ORIGIN.size + CRC.size or CRC.unpack_from(start, begin + _ORIGIN.size) != (crc32c(how),):
        return FileOrigin()
    when, boot_id, size = _ORIGIN.unpack(how)
    return FileOrigin(Acknowledged(when), boot_id if any(boot_id) else b"", size)


def header_size(start: bytes, file_id: int) -> int | None:
    """Return the size of the header at the start of a file, None if these bytes are not the header of that file."""
    fields = start[: FILE_HEADER.size]
    if len(start) < FILE_HEADER.size + CRC.size or CRC.unpack_from(start, FILE_HEADER.size) != (crc32c(fields),):
        return None
    magic, size, found = FILE_HEADER.unpack(fields)
    return int(size) if magic == MAGIC and found == file_id else None
