"""The writer of entry logs: files with the batches of many logs, sorted by log within each flush.

Only the flush thread uses it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from spark_producer.broker.storage.file_ops import Buffer, FileOps
from spark_producer.broker.storage.tiered.entry_log_format import (
    ENTRY_HEADER,
    HEADER_SIZE,
    Extent,
    entry_header,
    file_header,
    ids_in,
    merge_extents,
    name_of,
    pack_map,
)
from spark_producer.common.escape import escaping_logger

CHUNK: Final = 2 * 1024 * 1024
"""Number of bytes of entries that are written per call, so that forces of the journal can run in between."""

logger = escaping_logger(__name__)


class NewEntry(NamedTuple):
    """A batch to write, with its offsets in the log."""

    log_id: int
    base_offset: int
    end_offset: int
    batch: Buffer


class EntryPosition(NamedTuple):
    """The position of a written entry: the file, and the byte at which the entry begins."""

    file_id: int
    position: int


@dataclass
class _OpenLog:
    """The open file, which takes the next entries."""

    file_id: int
    file: int
    end: int = HEADER_SIZE
    extents: list[Extent] = field(default_factory=list)


class EntryLogWriter:
    """Writes entry logs of at most about `max_bytes` to a directory. Each run of the broker creates a new file, so the torn end
    that a crash leaves is never overwritten.

    With several directories, the remainder of a file's id divided by their number is the number of its directory, so ids are
    unique.
    """

    def __init__(
        self, files: FileOps, directory: Path, max_bytes: int, *, number: int = 0, directories: int = 1
    ) -> None:
        """List the files of the directory.

        Args:
            files, directory: of the entry logs.
            max_bytes: maximum size of one file.
            number: number of the directory: the remainder of the ids of its files divided by `directories`.
            directories: number of directories.

        Raises:
            OSError: the disk refused.
        """
        self._files = files
        self._directory = directory
        self._max_bytes = max_bytes
        self._number, self._step = number, directories
        self._next_id = 0
        self.skip_ids(max(ids_in(directory, files), default=0))
        self._log: _OpenLog | None = None
        self._begun: list[int] = []
        self.readable_ends: dict[int, int] = {}
        """End of the readable entries of each file: of the forced ones, and in files of earlier runs of those in the index."""

    def skip_ids(self, last: int) -> None:
        """Do not use ids up to `last`: a file had that id, even if it is missing now."""
        self._next_id = max(self._next_id, last + 1 + (self._number - last - 1) % self._step)

    @property
    def open_id(self) -> int | None:
        """The id of the open file, None if there is none."""
        return None if self._log is None else self._log.file_id

    def write(self, entries: Iterable[NewEntry]) -> list[EntryPosition]:
        """Write entries and force them; return their positions.

        Raises:
            OSError: the disk refused. The same entries may be written again, to a new file, because a file may not be relied on
                after a failed force.
        """
        self._begun = []
        try:
            positions = [position for chunk in _chunks(entries) for position in self._write_chunk(chunk)]
            if self._log is not None:
                self._files.force(self._log.file)
                self.readable_ends[self._log.file_id] = self._log.end
        except OSError:
            self._abandon()
            raise
        return positions

    def _write_chunk(self, entries: list[NewEntry]) -> list[EntryPosition]:
        size = sum(ENTRY_HEADER.size + len(entry.batch) for entry in entries)
        log = self._log_with_space(size)
        positions: list[EntryPosition] = []
        parts: list[Buffer] = []
        end = log.end
        for entry in entries:
            positions.append(EntryPosition(log.file_id, end))
            parts += [entry_header(entry.log_id, entry.batch), entry.batch]
            end += ENTRY_HEADER.size + len(entry.batch)
        self._files.write(log.file, parts, log.end)
        log.end = end
        log.extents = merge_extents(
            [*log.extents, *(Extent(*entry[:3], len(entry.batch) + ENTRY_HEADER.size) for entry in entries)]
        )
        return positions

    def _log_with_space(self, size: int) -> _OpenLog:
        if self._log is not None and self._log.end > HEADER_SIZE and self._log.end + size > self._max_bytes:
            self.seal()
        if self._log is None:
            self._log = self._begin()
        return self._log

    def _begin(self) -> _OpenLog:
        file_id = self._next_id
        self._next_id += self._step
        file = self._files.open(self._directory / name_of(file_id), create=True)
        self._begun.append(file_id)
        log = _OpenLog(file_id, file)
        self._log = log
        self._files.write(file, [file_header(file_id)], 0)
        self._files.sync_directory(self._directory)
        return log

    @property
    def open_extents(self) -> list[Extent]:
        """The extents of the open file."""
        return [] if self._log is None else self._log.extents

    def end(self) -> None:
        """Seal the open file, between two calls of `write`. The next call creates a new one.

        Raises:
            OSError: the disk refused; no written entry is lost, and the file is not written any more.
        """
        self._begun = []  # all written entries were forced, so no file is removed
        try:
            self.seal()
        except OSError:
            self._abandon()
            raise

    def seal(self) -> None:
        """Seal the open file: write its map, and the position of the map in its header.

        Raises:
            OSError: the disk refused.
        """
        log = self._log
        if log is None:
            return
        self._files.write(log.file, [pack_map(log.extents)], log.end)
        self._files.force(log.file)  # the header must not point to a map that is not on the disk
        self._files.write(log.file, [file_header(log.file_id, log.end)], 0)
        self._files.force(log.file)
        self.readable_ends[log.file_id] = log.end
        self._log = None
        self._files.close(log.file)

    def _abandon(self) -> None:
        """Close the open file, and remove the files that were created since the last force."""
        log, self._log = self._log, None
        if log is not None:
            with contextlib.suppress(OSError):
                self._files.close(log.file)
        for file_id in self._begun:
            self.readable_ends.pop(file_id, None)
            try:
                self._files.unlink(self._directory / name_of(file_id))
            except OSError as error:
                logger.warning("%s could not be removed: %s", self._directory / name_of(file_id), error)

    def close(self) -> None:
        """Close the open file as it is."""
        if self._log is not None:
            self._files.close(self._log.file)
            self._log = None


def _chunks(entries: Iterable[NewEntry]) -> Iterator[list[NewEntry]]:
    chunk: list[NewEntry] = []
    size = 0
    for entry in entries:
        chunk.append(entry)
        size += len(entry.batch)
        if size >= CHUNK:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
