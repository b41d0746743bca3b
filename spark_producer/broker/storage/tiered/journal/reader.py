"""One file of the journal while it is read: the record at a position, if what stands there is one."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from spark_producer.broker.storage.file_ops import FileOps
from spark_producer.broker.storage.tiered.journal.listing import FIRST_ID, ids_in, name_of
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
)
from spark_producer.broker.storage.tiered.journal.settings import SMALLEST_ALIGNMENT

WINDOW: Final = 1024 * 1024
"""How many bytes are read at a time."""
_NO_HEADER: Final = bytes(HEADER_SIZE)


class FoundRecord(NamedTuple):
    """A record or marker that was read: the id of its log, its batch, and the position behind it."""

    log_id: int
    batch: bytes
    end: int


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
            self.first = header_size(self._bytes(0, SMALLEST_ALIGNMENT), file_id)
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
        return FoundRecord(log_id, batch, start + length)

    def forced_behind(self, position: int) -> int:
        """Return up to where the file had been forced, as the groups behind `position` say; 0 if there are none."""
        forced = 0
        at = -(-position // SMALLEST_ALIGNMENT) * SMALLEST_ALIGNMENT
        while at < self.size:
            found = self.record(at)
            while found is not None and found.log_id != GROUP_END:
                found = self.record(found.end)
            if found is not None:
                forced = max(forced, *FORCED.unpack_from(found.batch))
                at = found.end
            else:
                at += SMALLEST_ALIGNMENT
        return forced

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
            self._files.write(self._file, [file_header(self.file_id, SMALLEST_ALIGNMENT)], 0)
            self.first = position = SMALLEST_ALIGNMENT
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
