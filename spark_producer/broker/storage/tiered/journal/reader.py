"""A journal file that is being read: the record at a position, if there is a valid one."""

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
"""Number of bytes that are read at a time."""
_NO_HEADER: Final = bytes(HEADER_SIZE)
_GROUP_END_HEADER: Final = re.compile(rb"(?=\x00[\x00-\xff]{7}\xff{8})")
"""Matches the header of the marker at the end of a group: a short record with the id GROUP_END."""


class FoundRecord(NamedTuple):
    """A record or marker in the file: the id of its log, its batch, and the position after it."""

    log_id: int
    batch: bytes
    end: int


class AfterDamage(NamedTuple):
    """The readable rest of a file after damage.

    forced: position up to which the file had been forced, by the markers in the rest.
    next_group: start of the first whole group, None if there is none.
    records: number of records in all whole groups.
    """

    forced: int
    next_group: int | None
    records: int


class JournalReader:
    """An open file. All methods may raise OSError."""

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
        """Return the record or marker at `position`, None if there is no complete one that was written there."""
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
        """Return the readable rest after the damage at `position`."""
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
        """Return the start of the record after the damaged one at `position`, None if the length of that is wrong too."""
        header = self._bytes(position, HEADER_SIZE)
        if len(header) < HEADER_SIZE:
            return None
        end: int = position + HEADER_SIZE + RECORD_HEADER.unpack(header)[0]
        return end if end > position and self.record(end) is not None else None

    def has_group_end(self, position: int) -> bool:
        """Return whether the marker at the end of a group is at `position` or after it.

        A process that is killed while it writes leaves the beginning of a group, but not its end.
        """
        for at in range(position, self.size, WINDOW):
            chunk = self._files.read(self._file, WINDOW + HEADER_SIZE, at)
            for match in _GROUP_END_HEADER.finditer(chunk):
                found = self.record(at + match.start())
                if found is not None and found.log_id == GROUP_END:
                    return True
        return False

    def used(self) -> int:
        """Return the start of the reserved space, which are zeros at the end of the file."""
        end = self.size
        while end > 0:
            begin = max(0, end - WINDOW)
            found = self._files.read(self._file, end - begin, begin).rstrip(b"\0")
            if found:
                return begin + len(found)
            end = begin
        return 0

    def copy_to(self, path: Path, size: int) -> None:
        """Copy the first `size` bytes to the file `path`, which is replaced and forced."""
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
        """Overwrite all bytes with themselves and force them, which needs no space."""
        for at in range(0, self.size, WINDOW):
            self._files.write(self._file, [self._files.read(self._file, min(WINDOW, self.size - at), at)], at)
        self._files.force(self._file)

    @property
    def is_ended(self) -> bool:
        """Whether the last bytes are the marker that ends the file."""
        found = self.record(self.size - HEADER_SIZE) if self.size >= HEADER_SIZE else None
        return found is not None and found.log_id == FILE_END

    def end_at(self, position: int) -> None:
        """Truncate the file at `position`, write the end marker there, and force the file and its name.

        If the file has no header, because a crash interrupted its creation, write one.
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
        """Return `size` bytes of the file; fewer only at its end."""
        start = position - self._start
        if start < 0 or start + size > len(self._window):
            self._window = self._files.read(self._file, max(size, WINDOW), position)
            self._start, start = position, 0
        return self._window[start : start + size]


def next_id(directory: Path, files: FileOps) -> int:
    """Return the id of the next file of the journal.

    Raises:
        ValueError: the last file has no end marker: `replay` must read it first.
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
