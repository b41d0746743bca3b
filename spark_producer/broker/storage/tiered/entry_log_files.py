"""The reader of entry logs. Any thread may use it, while other threads write or delete files."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Final

from spark_producer.broker.storage.file_ops import FileOps
from spark_producer.broker.storage.tiered.entry_log_format import (
    ENTRY_HEADER,
    HEADER_SIZE,
    Extent,
    checksum,
    ids_in,
    map_position,
    name_of,
    read_map,
)
from spark_producer.broker.storage.tiered.interfaces import EntryConsumer, EntryMissing, EntryRun, Location, StoredEntry
from spark_producer.errors import CorruptRecord
from spark_producer.record.batch_v2 import read_header
from spark_producer.record.checksum import crc32c

FIRST_READ: Final = 64 * 1024
MAX_READ_BYTES: Final = 512 * 1024
"""Maximum number of bytes per read. Each read is twice as large as the previous one, since a reader may need only one entry. With
more, the bytes are no longer in the cache of the processor when they are checked and copied."""


class EntryLogFiles:
    """The entry logs in a directory (an `interfaces.EntryLogReader`).

    No file stays open, as in the segments engine. `readable_end` returns the byte up to which a file may be read, None for its
    end.
    """

    def __init__(
        self, files: FileOps, directory: Path, readable_end: Callable[[int], int | None] = lambda _: None
    ) -> None:
        self._files = files
        self._directory = directory
        self._readable_end = readable_end

    def path(self, file_id: int) -> Path:
        """Return the path of a file."""
        return self._directory / name_of(file_id)

    def ids(self) -> list[int]:
        """Return the sorted ids of all files.

        Raises:
            OSError: the disk refused.
        """
        return ids_in(self._directory, self._files)

    def lost(self, ends: Mapping[int, int]) -> dict[int, str]:
        """Return the ids of files that are missing or too short, with an error message for each.

        Args:
            ends: minimum size of each file in bytes.

        Raises:
            OSError: the disk refused.
        """
        found: dict[int, str] = {}
        for file_id, end in ends.items():
            try:
                file = self._open(file_id)
            except EntryMissing:
                found[file_id] = f"the entry log {self.path(file_id)} is missing"
                continue
            try:
                size = self._files.size(file)
            finally:
                self._files.close(file)
            if size < end:
                found[file_id] = f"the entry log {self.path(file_id)} has {size} bytes, but had at least {end}"
        return found

    def entries(self, file_id: int, position: int = HEADER_SIZE) -> Iterator[StoredEntry]:
        """Yield the entries of a file from the one at `position` to the last flushed one. A batch may be a view of a buffer that
        is reused.

        Raises:
            EntryMissing: the file was deleted.
            CorruptRecord: there is no valid entry.
            OSError: the disk refused.
        """
        file = self._open(file_id)
        try:
            end = self._end(file, file_id)
            view, at, read = memoryview(b""), 0, FIRST_READ  # the entry at `position` begins at byte `at` of `view`
            seeds: dict[int, int] = {}  # start value for the checksum of an entry, by id of the log
            while position < end:
                if at + ENTRY_HEADER.size > len(view):
                    view, at = memoryview(self._files.read(file, min(read, end - position), position)), 0
                    read = min(2 * read, MAX_READ_BYTES)
                size, crc, log_id = self._entry_header(view, at, file_id, position)
                whole = ENTRY_HEADER.size + size
                if position + whole > end:
                    raise self._damaged(file_id, position)
                if at + whole > len(view):
                    view, at = memoryview(self._files.read(file, min(max(whole, read), end - position), position)), 0
                    read = min(2 * read, MAX_READ_BYTES)
                batch = view[at + ENTRY_HEADER.size : at + whole]
                seed = seeds.get(log_id)
                if seed is None:
                    seed = seeds[log_id] = checksum(log_id, b"")
                if len(batch) < size or crc32c(batch, seed) != crc:
                    raise self._damaged(file_id, position)
                position, at = position + whole, at + whole
                yield StoredEntry(log_id, batch, position)
        finally:
            self._files.close(file)

    def runs(self, location: Location, consumer: EntryConsumer) -> Generator[EntryRun, None, None]:
        """See `interfaces.EntryLogReader.runs`."""
        file = self._open(location.file_id)
        try:
            end = self._end(file, location.file_id)
            position, read = location.position, max(FIRST_READ, location.size + ENTRY_HEADER.size)
            while not consumer.is_done:
                size = min(read, end - position)
                view = memoryview(self._files.read(file, size, position)) if size > 0 else memoryview(b"")
                if len(view) < size:  # the file has become shorter: another read would return no more
                    end = position + len(view)
                run, taken = consumer.take(view)
                if run is not None:
                    yield run
                    read = min(2 * read, MAX_READ_BYTES)
                elif not consumer.is_done:  # the entry is larger than the read, or than the rest of the file
                    read = self._whole(view, end - position, consumer)
                position += taken
        except CorruptRecord as error:
            raise self._damaged(location.file_id, location.position) from error
        finally:
            self._files.close(file)

    def _whole(self, view: memoryview, end: int, consumer: EntryConsumer) -> int:
        """Return the size of the entry that begins with `view`; report damage if it exceeds `end`, the rest of the file."""
        whole = ENTRY_HEADER.size + ENTRY_HEADER.unpack_from(view)[0] if len(view) >= ENTRY_HEADER.size else 0
        if not len(view) < whole <= end:
            consumer.on_damage()
        return whole

    def _open(self, file_id: int) -> int:
        try:
            return self._files.open(self.path(file_id))
        except FileNotFoundError as error:
            raise EntryMissing(f"{self.path(file_id)} is missing") from error

    def _entry_header(self, data: memoryview, at: int, file_id: int, position: int) -> tuple[int, int, int]:
        if at + ENTRY_HEADER.size > len(data):
            raise self._damaged(file_id, position)
        size, crc, log_id = ENTRY_HEADER.unpack_from(data, at)
        return size, crc, log_id

    def _damaged(self, file_id: int, position: int) -> CorruptRecord:
        return CorruptRecord(f"{self.path(file_id)} has no entry at byte {position}, or a damaged one")

    def _end(self, file: int, file_id: int) -> int:
        """Return the end of the readable entries of a file, or the end of the file if that is unknown."""
        forced = self._readable_end(file_id)
        if forced is not None:
            return forced
        return map_position(self._files.read(file, HEADER_SIZE, 0), file_id) or self._files.size(file)

    def is_cached(self, location: Location) -> bool | None:
        """See `interfaces.EntryLogReader.is_cached`."""
        try:
            file = self._open(location.file_id)
        except EntryMissing:
            return None
        try:
            return self._files.is_cached(file, location.position, location.size + ENTRY_HEADER.size)
        finally:
            self._files.close(file)

    def stored_extents(self, file_id: int) -> list[Extent] | None:
        """Return the extents of a file from its map, None if it has no valid map.

        Raises:
            EntryMissing: the file was deleted.
            OSError: the disk refused.
        """
        file = self._open(file_id)
        try:
            position = map_position(self._files.read(file, HEADER_SIZE, 0), file_id)
            size = self._files.size(file) - position if position else 0
            return read_map(self._files.read(file, size, position)) if position and size > 0 else None
        finally:
            self._files.close(file)

    def scanned_extents(self, file_id: int) -> Generator[Extent, None, None]:
        """Yield the extents of a file, entry by entry, up to the first damage. The whole file is read.

        Raises:
            EntryMissing, OSError: as `entries`.
        """
        position = HEADER_SIZE
        try:
            for entry in self.entries(file_id):
                header = read_header(entry.batch)
                size, position = entry.next_position - position, entry.next_position
                yield Extent(entry.log_id, header.base_offset, header.last_offset + 1, size)
        except CorruptRecord:
            return  # the torn end after a crash
