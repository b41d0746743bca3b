"""One file of the journal while it is read: the record at a position, if what stands there is one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

from spark_producer.broker.storage.file_ops import FileOps
from spark_producer.broker.storage.tiered.journal.file_names import FIRST_ID, ids_in, name_of
from spark_producer.broker.storage.tiered.journal.records import (
    FILE_END,
    FORCED,
    GROUP_END,
    HEADER_SIZE,
    RECORD_HEADER,
    checksum,
    file_end,
    file_header,
    header_size,
    read_origin,
)
from spark_producer.broker.storage.tiered.journal.settings import MIN_ALIGNMENT

WINDOW: Final = 1024 * 1024
"""How many bytes are read at a time."""
_NO_HEADER: Final = bytes(HEADER_SIZE)
_GROUP_END_HEADER: Final = re.compile(rb"(?=\x00[\x00-\xff]{7}\xff{8})")
"""The beginning of a marker at the end of a group: a short record with the id GROUP_END."""


class FoundRecord(NamedTuple):
    """A record or marker that was read: the id of its log, its batch, and the position behind it."""

    log_id: int
    batch: bytes
    end: int


class AfterDamage(NamedTuple):
    """What can be read after damage: up to where the file had been forced, as it says; the start of the first whole group (None
    if there is none); and the number of records in all whole groups."""

    forced: int
    next_group: int | None
    records: int


class JournalReader:
    """An open file. All methods pass OSErrors."""

    def __init__(self, directory: Path, file_id: int, files: FileOps) -> None:
        self.file_id = file_id
        self.path = directory / name_of(file_id)
        self._files = files
        self._file = files.open(self.path)
        try:
            self.size = files.size(self._file)
            self._window, self._start = b"", 0
            self.first = header_size(self._bytes(0, MIN_ALIGNMENT), file_id)
            self.origin = read_origin(self._bytes(0, MIN_ALIGNMENT))
        except BaseException:
            files.close(self._file)
            raise

    def record(self, position: int) -> FoundRecord | None:
        """Return what begins at `position`, None if that is no record that was written there as a whole."""
        header = self._bytes(position, HEADER_SIZE)
        if len(header) < HEADER_SIZE or header == _NO_HEADER:
            return None
        length, crc, log_id = RECORD_HEADER.unpack(header)
        start = position + HEADER_SIZE
        if length > self.size - start or (log_id >= 2**63 and log_id not in (GROUP_END, FILE_END)):
            return None
        batch = self._bytes(start, length)
        if len(batch) < length or checksum(self.file_id, position, log_id, batch) != crc:
            return None
        if log_id == GROUP_END and length < FORCED.size:
            return None
        return FoundRecord(log_id, batch, start + length)

    def after_damage(self, position: int) -> AfterDamage:
        """Return what can be read after the damage at `position`."""
        forced, records, first = 0, 0, None
        at = -(-position // MIN_ALIGNMENT) * MIN_ALIGNMENT
        while at < self.size:
            found, count = self.record(at), 0
            while found is not None and found.log_id < FILE_END:
                found, count = self.record(found.end), count + 1
            if found is not None and found.log_id == GROUP_END:
                forced = max(forced, *FORCED.unpack_from(found.batch))
                first = at if first is None and count else first
                at, records = found.end, records + count
            else:
                at += MIN_ALIGNMENT
        return AfterDamage(forced, first, records)

    def following(self, position: int) -> int | None:
        """Return the start of the record after the damaged one at `position`, if the length of that is right; else None."""
        header = self._bytes(position, HEADER_SIZE)
        if len(header) < HEADER_SIZE:
            return None
        end: int = position + HEADER_SIZE + RECORD_HEADER.unpack(header)[0]
        return end if end > position and self.record(end) is not None else None

    def has_group_end(self, position: int) -> bool:
        """Return whether the marker at the end of a group is at `position` or after it.

        A process that was killed while it wrote leaves the beginning of a group, and not its end.
        """
        for at in range(position, self.size, WINDOW):
            chunk = self._files.read(self._file, WINDOW + HEADER_SIZE, at)
            for match in _GROUP_END_HEADER.finditer(chunk):
                found = self.record(at + match.start())
                if found is not None and found.log_id == GROUP_END:
                    return True
        return False

    def used(self) -> int:
        """Return the start of the zeros at the end of the file, which are reserved space."""
        end = self.size
        while end > 0:
            begin = max(0, end - WINDOW)
            found = self._files.read(self._file, end - begin, begin).rstrip(b"\0")
            if found:
                return begin + len(found)
            end = begin
        return 0

    def copy_to(self, path: Path, size: int) -> None:
        """Copy the first `size` bytes to another file, which is replaced, and force it."""
        if path.name in self._files.names(path.parent):
            self._files.unlink(path)
        copy = self._files.open(path, create=True)
        try:
            for at in range(0, size, WINDOW):
                self._files.write(copy, [self._files.read(self._file, min(WINDOW, size - at), at)], at)
            self._files.force(copy)
        finally:
            self._files.close(copy)
        self._files.sync_directory(path.parent)

    def write_again(self) -> None:
        """Write all bytes over themselves and force them, which takes no space."""
        for at in range(0, self.size, WINDOW):
            self._files.write(self._file, [self._files.read(self._file, min(WINDOW, self.size - at), at)], at)
        self._files.force(self._file)

    @property
    def is_ended(self) -> bool:
        """Whether the last bytes are the marker that ends the file."""
        found = self.record(self.size - HEADER_SIZE) if self.size >= HEADER_SIZE else None
        return found is not None and found.log_id == FILE_END

    def end_at(self, position: int) -> None:
        """Cut off what begins at `position`, say so with the marker that ends a file, and force that, with the file's name.

        A file without a header, which its last life did not finish to make, gets one.
        """
        if self.first is None:
            self._files.write(self._file, [file_header(self.file_id, MIN_ALIGNMENT)], 0)
            self.first = position = MIN_ALIGNMENT
        marker = file_end(self.file_id, position)
        self._files.write(self._file, [marker], position)
        self._files.truncate(self._file, position + len(marker))
        self._files.force(self._file)
        self._files.sync_directory(self.path.parent)

    def close(self) -> None:
        """Close the file."""
        self._files.close(self._file)

    def _bytes(self, position: int, size: int) -> bytes:
        """Return the bytes of the file; fewer where it ends."""
        start = position - self._start
        if start < 0 or start + size > len(self._window):
            self._window = self._files.read(self._file, max(size, WINDOW), position)
            self._start, start = position, 0
        return self._window[start : start + size]


def next_id(directory: Path, files: FileOps) -> int:
    """Return the id of the next file of the journal.

    Raises:
        ValueError: the last file has no end: `replay` must read it first.
        OSError: the disk refused.
    """
    ids = ids_in(directory, files)
    if not ids:
        return FIRST_ID
    reader = JournalReader(directory, ids[-1], files)
    try:
        if not reader.is_ended:
            raise ValueError(f"{reader.path} was not read to its end by `replay`")
    finally:
        reader.close()
    return ids[-1] + 1
