"""The writer of entry logs: files in which batches of many logs lie one after another, sorted by log within each flush.

Only the thread of the flush uses it.
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
"""Entries are written in calls of about so many bytes, so that the journal's forces come between."""

logger = escaping_logger(__name__)


class NewEntry(NamedTuple):
    """A batch to be written, with the offsets that it has in its log."""

    log_id: int
    base_offset: int
    end_offset: int
    batch: Buffer


class EntryPosition(NamedTuple):
    """Where an entry was written: the file, and the byte at which the entry begins."""

    file_id: int
    position: int


@dataclass
class _OpenLog:
    """The file that is written to."""

    file_id: int
    file: int
    end: int = HEADER_SIZE
    extents: list[Extent] = field(default_factory=list)


class EntryLogWriter:
    """Writes entry logs of about `max_bytes` at most into a directory. Each life of the broker begins a file of its own, so the
    torn end that a crash leaves is never written over.

    Of several directories each takes every so-manieth id, so no two files have the same, and it tells in which one a file is.
    """

    def __init__(
        self, files: FileOps, directory: Path, max_bytes: int, *, number: int = 0, directories: int = 1
    ) -> None:
        """Look up which files there are.

        Args:
            files, directory: where they are.
            max_bytes: of one file.
            number: of the directory; the remainder of its files' ids when they are divided by `directories`.
            directories: how many there are.

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
        """Up to where each file may be read: what was forced, and in files of earlier lives what the index has."""

    def skip_ids(self, last: int) -> None:
        """Give no file an id up to `last`: there was one of that id, though it may be missing now."""
        self._next_id = max(self._next_id, last + 1 + (self._number - last - 1) % self._step)

    @property
    def open_id(self) -> int | None:
        """The id of the file that is written to, None if there is none."""
        return None if self._log is None else self._log.file_id

    def write(self, entries: Iterable[NewEntry]) -> list[EntryPosition]:
        """Write entries and force them; return where each of them is.

        Raises:
            OSError: the disk refused. The same entries may be written again: they go to a new file, because nothing of a file may
                be relied on after a force that failed.
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
        """What the file holds that is written to."""
        return [] if self._log is None else self._log.extents

    def end(self) -> None:
        """End the file that is written to, between two calls of `write`. The next call begins a new one.

        Raises:
            OSError: the disk refused; nothing that was written is lost, and nothing more is written to the file.
        """
        self._begun = []  # all that was written has been forced, so no file is removed
        try:
            self.seal()
        except OSError:
            self._abandon()
            raise

    def seal(self) -> None:
        """End the file that is written to: its map is written, and the place of the map into its header.

        Raises:
            OSError: the disk refused.
        """
        log = self._log
        if log is None:
            return
        self._files.write(log.file, [pack_map(log.extents)], log.end)
        self._files.force(log.file)  # the header may not name a map that is not there
        self._files.write(log.file, [file_header(log.file_id, log.end)], 0)
        self._files.force(log.file)
        self.readable_ends[log.file_id] = log.end
        self._log = None
        self._files.close(log.file)

    def _abandon(self) -> None:
        """Write no more to the file, and remove those that were begun since the last force."""
        log, self._log = self._log, None
        if log is not None:
            with contextlib.suppress(OSError):
                self._files.close(log.file)
        for file_id in self._begun:
            self.readable_ends.pop(file_id, None)
            try:
                self._files.unlink(self._directory / name_of(file_id))
            except OSError as error:
                logger.warning("%s was left behind: %s", self._directory / name_of(file_id), error)

    def close(self) -> None:
        """Close the file that is written to, as it is."""
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
