"""A journal file that is being written: preallocated space, groups that fill whole blocks, pages dropped from the page cache."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from spark_producer.broker.storage.disk import DISK_FULL_ERRNOS, moved_error
from spark_producer.broker.storage.file_ops import Buffer, FileOps
from spark_producer.broker.storage.tiered.journal.file_names import name_of
from spark_producer.broker.storage.tiered.journal.records import (
    HEADER_SIZE,
    Acknowledged,
    FileOrigin,
    JournalRecord,
    file_end,
    file_header,
    group_end,
    record_header,
)
from spark_producer.broker.storage.tiered.journal.settings import JournalSettings

MIN_CACHED_BYTES: Final = 8 * 1024 * 1024
"""Number of bytes at the end of the file that stay in the page cache, since writes continue there (BookKeeper's
CACHE_DROP_LAG)."""
PAGE: Final = 4096
"""Size of a page in bytes: the unit in which pages are dropped. The system does not drop a part of a page."""
MIN_FREE_PER_RESERVED: Final = 8
"""Minimum of free bytes per byte that is reserved ahead, since flushes need space on the same disk."""


class GroupWritten(NamedTuple):
    """The position after a written group, and its size in bytes. The size includes the marker, which has `padding` bytes."""

    end: int
    size: int
    padding: int


class JournalFile:
    """A new file. Its name and header are on the disk when `begin` has returned.

    The journal thread writes, and the force thread forces. Only the latter changes `forced`, and a lock keeps the marker that it
    writes after the last group apart from the next group.
    """

    def __init__(
        self,
        directory: Path,
        file_id: int,
        files: FileOps,
        settings: JournalSettings,
        *,
        sync: bool,
        lock: contextlib.AbstractContextManager[object],
    ) -> None:
        """Create no file yet.

        Args:
            directory, file_id, files, settings: of the file.
            sync: whether records are acknowledged after they were forced, else after they were written.
            lock: lock of this file, which keeps a group and a forced marker apart.
        """
        self.file_id = file_id
        self.position = settings.alignment
        self.forced = settings.alignment
        self.is_begun = False
        self._path = directory / name_of(file_id)
        self._files, self._settings = files, settings
        self._acknowledged = Acknowledged.FORCED if sync else Acknowledged.WRITTEN
        self._reserved = self._dropped = 0
        self._file = -1
        self._writing = lock

    def begin(self) -> None:
        """Create the file.

        Raises:
            OSError: the disk refused. If it is full, the file is removed, and this may be called again.
        """
        files = self._files
        file = files.open(self._path, create=True)
        try:
            self._file = file
            self._reserve(self._settings.alignment)
            origin = FileOrigin(self._acknowledged, files.boot_id(), files.size(file))
            files.write(file, [file_header(self.file_id, self._settings.alignment, origin)], 0)
            files.force(file)
            files.sync_directory(self._path.parent)
        except BaseException as error:
            self._reserved, self._file = 0, -1
            files.close(file)
            if isinstance(error, OSError) and error.errno in DISK_FULL_ERRNOS:
                files.unlink(self._path)
            raise
        self.is_begun = True

    @property
    def is_full(self) -> bool:
        """Whether the next group must go to a new file."""
        return self.position >= max(self._settings.max_file_bytes, self._settings.alignment + 1)

    def has_space(self, size: int) -> bool:
        """Return whether a group of one batch of `size` bytes fits in the reserved space of this file."""
        if self.is_full or not self.is_begun:
            return False
        max_size = HEADER_SIZE + size + 2 * self._settings.alignment  # the end of a group takes at most two blocks
        return not self._settings.preallocated or self.position + max_size <= self._reserved

    def write(self, records: Sequence[JournalRecord]) -> GroupWritten:
        """Write the records as one group, without a force. `position` changes last, if nothing has failed.

        Raises:
            OSError: the disk refused. If it is full, the same records may be written again; else the file may not be written any
                more. ENOENT: the file was moved.
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
        with self._writing:
            if not self._files.is_at(self._file, self._path):
                raise moved_error(self._path)
            self._files.write(self._file, buffers, self.position)
            self.position = end
        return done

    def force(self, end: int) -> None:
        """Force all groups before `end`, the end of a written group, to the disk.

        Raises:
            OSError: the disk refused; bytes written since the last `force` may not be relied on.
        """
        if not self._files.is_at(self._file, self._path):
            raise moved_error(self._path)
        self._files.force(self._file)
        self.forced = end

    def write_forced_marker(self) -> None:
        """Write a marker after the last group that the group was forced. The next group overwrites it.

        With it, damage of the group is not considered a torn end after a crash. The marker is not forced, since it is needed only
        after the death of the process; and it is omitted if it has no space.
        """
        with self._writing:
            note = group_end(self.file_id, self.position, self._settings.alignment, self.forced)
            has_space = not self._settings.preallocated or self.position + len(note) <= self._reserved
            if self.position == self.forced and has_space:
                with contextlib.suppress(OSError):  # the next group meets the same error
                    self._files.write(self._file, [note], self.position)

    def drop_pages(self) -> int:
        """Drop the forced pages from the page cache, except for the last 8 MiB; return the number of bytes.

        Call it after a force, because the system does not drop pages that it must still write.
        """
        until = (self.forced - MIN_CACHED_BYTES) // PAGE * PAGE
        size = until - self._dropped
        if not self._settings.drop_page_cache or size <= 0:
            return 0
        self._files.drop_pages(self._file, self._dropped, size)
        self._dropped = until
        return size

    def end(self) -> None:
        """Write the end marker after the last group, which was forced; free the reserved space, and close the file.

        Raises:
            OSError: the disk refused. The file is closed nevertheless, unless the disk is full: then this may be called again.
        """
        if self._file < 0:
            return
        marker = file_end(self.file_id, self.position)
        try:
            self._files.write(self._file, [marker], self.position)
        except OSError as error:
            if error.errno not in DISK_FULL_ERRNOS:
                self.close()
            raise
        try:
            self._files.truncate(self._file, self.position + len(marker))
            self._files.force(self._file)
            if self._settings.drop_page_cache:
                self._files.drop_pages(self._file, 0, self.position + len(marker))
        finally:
            self.close()

    def close(self) -> None:
        """Close the file as it is. Repeated calls do nothing."""
        if self._file >= 0:
            file, self._file = self._file, -1
            self._files.close(file)

    def _reserve(self, end: int) -> None:
        """Reserve space for all bytes before `end`, and for more if the disk has enough.

        Raises:
            OSError: the disk refused. If it is full, nothing has changed.
        """
        step = self._settings.preallocated
        if not step or end <= self._reserved:
            return
        wanted = -(-(end - self._reserved) // step) * step
        free = self._files.free_bytes(self._file)
        if free is not None and wanted * MIN_FREE_PER_RESERVED > free:
            wanted = max(end - self._reserved, free // MIN_FREE_PER_RESERVED // PAGE * PAGE)
        try:
            self._files.reserve(self._file, self._reserved, wanted)
        except OSError:
            with contextlib.suppress(OSError):
                self._files.truncate(self._file, self._reserved)  # some systems leave a part of it
            raise
        self._reserved += wanted
