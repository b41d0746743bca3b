"""One file of the journal while it is written: space ahead of the writer, groups at whole blocks, pages that leave the cache."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from spark_producer.broker.storage.file_ops import Buffer, FileOps
from spark_producer.broker.storage.tiered.journal.listing import name_of
from spark_producer.broker.storage.tiered.journal.records import (
    HEADER_SIZE,
    Record,
    file_end,
    file_header,
    group_end,
    record_header,
)
from spark_producer.broker.storage.tiered.journal.settings import JournalSettings

KEPT_CACHED: Final = 8 * 1024 * 1024
"""So many of the last bytes stay in the page cache, because the file is continued there (BookKeeper's CACHE_DROP_LAG)."""
PAGE: Final = 4096
"""The unit in which pages are dropped. Of a page in part the system drops nothing."""


class GroupWritten(NamedTuple):
    """Where a group ends, and how many bytes it took, with those of the marker at its end."""

    end: int
    size: int
    padding: int


class JournalFile:
    """A new file with its header, which is on the disk, name and all, when the constructor returns.

    The journal's thread writes, and the force thread forces; nothing is shared but `forced`, which only the latter changes.
    """

    def __init__(self, directory: Path, file_id: int, files: FileOps, settings: JournalSettings) -> None:
        self.file_id = file_id
        self.position = settings.alignment
        self.forced = settings.alignment
        self._files, self._settings = files, settings
        self._reserved = self._dropped = 0
        self._file = files.open(directory / name_of(file_id), create=True)
        try:
            self._reserve(settings.alignment)
            files.write(self._file, [file_header(file_id, settings.alignment)], 0)
            files.force(self._file)
            files.sync_directory(directory)
        except BaseException:
            files.close(self._file)
            raise

    @property
    def is_full(self) -> bool:
        """Whether the next group belongs into a new file."""
        return self.position >= max(self._settings.max_file_bytes, self._settings.alignment + 1)

    def has_space(self, size: int) -> bool:
        """Return whether a group of one batch of `size` bytes goes into this file without asking the disk for space."""
        if self.is_full:
            return False
        most = HEADER_SIZE + size + 2 * self._settings.alignment  # the end of a group takes two blocks at most
        return not self._settings.preallocated or self.position + most <= self._reserved

    def write(self, records: Sequence[Record]) -> GroupWritten:
        """Write the records as one group; they are not forced. `position` moves as the last of all, if nothing has failed.

        Raises:
            OSError: the disk refused; nothing may be written to the file any more.
        """
        buffers: list[Buffer] = []
        position = self.position
        for record in records:
            header = record_header(self.file_id, position, record.log_id, record.batch)
            buffers += header, record.batch
            position += len(header) + len(record.batch)
        padding = group_end(self.file_id, position, self._settings.alignment, self.forced)
        buffers.append(padding)
        end = position + len(padding)
        done = GroupWritten(end, end - self.position, len(padding))
        self._reserve(end)
        self._files.write(self._file, buffers, self.position)
        self.position = end
        return done

    def force(self, end: int) -> None:
        """Put everything before `end` on the disk, where a group ends that was written.

        Raises:
            OSError: the disk refused; nothing that was written since the last `force` may be relied on.
        """
        self._files.force(self._file)
        self.forced = end

    def drop_pages(self) -> int:
        """Let what was forced leave the page cache, except for the last 8 MiB; return how many bytes that were.

        It comes after a force because the system keeps pages that it must still write.
        """
        until = (self.forced - KEPT_CACHED) // PAGE * PAGE
        size = until - self._dropped
        if not self._settings.drop_page_cache or size <= 0:
            return 0
        self._files.drop_pages(self._file, self._dropped, size)
        self._dropped = until
        return size

    def end(self) -> None:
        """Say that nothing follows the last group, which has been forced; give back the space that was reserved, and close.

        Raises:
            OSError: the disk refused; the file is closed all the same.
        """
        try:
            marker = file_end(self.file_id, self.position)
            self._files.write(self._file, [marker], self.position)
            self._files.truncate(self._file, self.position + len(marker))
            self._files.force(self._file)
            if self._settings.drop_page_cache:
                self._files.drop_pages(self._file, 0, self.position + len(marker))
        finally:
            self.close()

    def close(self) -> None:
        """Close the file as it is."""
        self._files.close(self._file)

    def _reserve(self, end: int) -> None:
        """Have space for all bytes before `end`, and for more."""
        step = self._settings.preallocated
        if step and end > self._reserved:
            size = -(-(end - self._reserved) // step) * step
            self._files.reserve(self._file, self._reserved, size)
            self._reserved += size
