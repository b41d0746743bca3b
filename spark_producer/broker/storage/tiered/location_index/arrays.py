"""The location index without other libraries: arrays in memory, and a file to which rows are appended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from spark_producer.broker.storage.file_ops import FileOps
from spark_producer.broker.storage.tiered.interfaces import Location
from spark_producer.broker.storage.tiered.location_index.base import IndexedBatch, IndexRow
from spark_producer.broker.storage.tiered.location_index.columns import ROW_BYTES, LogColumns
from spark_producer.broker.storage.tiered.location_index.index_file import (
    ADDED,
    ADDED_ROW,
    MOVED,
    MOVED_ROW,
    REPLACED,
    IndexBlock,
    IndexFile,
)

NAME: Final = "index"
MIN_ROWS: Final = 10_000
"""Maximum number of rows of a file that is never rewritten."""


class ArrayIndex:
    """A `LocationIndex` in the file `index` of a directory. Its lock is held for copies in memory, never for calls of the
    disk."""

    def __init__(self, files: FileOps, directory: Path, *, durable_bytes: int = 0) -> None:
        """Open the index, or create it if it is missing.

        Args:
            durable_bytes: size of the file when it was last forced.

        Raises:
            IndexDamaged: forced rows cannot be read.
            OSError: the disk refused.
        """
        self._lock = threading.Lock()
        self._files, self._path = files, directory / NAME
        self._logs: dict[int, LogColumns] = {}
        self._stored_rows = 0
        self._is_named = True
        self._older: IndexFile | None = None
        self._file = IndexFile(files, self._path)
        try:
            for block in self._file.load(durable_bytes):
                self._take(block)
        except BaseException:
            self._file.close()
            raise

    def _take(self, block: IndexBlock) -> None:
        self._stored_rows += len(block.rows) // (MOVED_ROW.size if block.kind == MOVED else ADDED_ROW.size)
        if block.kind == ADDED:
            self._logs.setdefault(block.log_id, LogColumns()).extend(block.rows, block.position)
        elif block.kind == REPLACED:
            self._logs.setdefault(block.log_id, LogColumns()).replace(block.rows, block.position)
        elif block.log_id in self._logs:
            for base_offset, file_id, position in MOVED_ROW.iter_unpack(block.rows):
                self._logs[block.log_id].move(base_offset, file_id, position)

    @property
    def durable_bytes(self) -> int:
        """The size of the file in bytes: all of it is on the disk."""
        return self._file.size

    def add(self, rows: Mapping[int, Sequence[IndexRow]]) -> None:
        """See `LocationIndex.add`."""
        packed = {log_id: b"".join(ADDED_ROW.pack(*row) for row in some) for log_id, some in rows.items() if some}
        self._name()
        positions = self._file.append(ADDED, packed)
        with self._lock:
            for log_id, data in packed.items():
                self._stored_rows += len(data) // ADDED_ROW.size
                self._logs.setdefault(log_id, LogColumns()).extend(data, positions[log_id])

    def move(self, locations: Mapping[int, Sequence[Location]]) -> None:
        """See `LocationIndex.move`."""
        packed = {
            log_id: b"".join(MOVED_ROW.pack(each.base_offset, each.file_id, each.position) for each in some)
            for log_id, some in locations.items()
            if some
        }
        self._name()
        self._file.append(MOVED, packed)
        with self._lock:
            for log_id, some in locations.items():
                self._stored_rows += len(some)
                for each in some if log_id in self._logs else ():
                    self._logs[log_id].move(each.base_offset, each.file_id, each.position)

    def replace(self, log_id: int, rows: Sequence[IndexRow]) -> None:
        """See `LocationIndex.replace`."""
        data = b"".join(ADDED_ROW.pack(*row) for row in rows)
        self._name()
        positions = self._file.append(REPLACED, {log_id: data})
        with self._lock:
            self._stored_rows += len(rows)
            if log_id in self._logs:
                self._logs[log_id].replace(data, positions[log_id])

    def find(self, log_id: int, offset: int) -> Location | None:
        """See `LocationIndex.find`."""
        with self._lock:
            columns = self._logs.get(log_id)
            row = columns.row(offset) if columns is not None else None
            return columns.location(row) if columns is not None and row is not None else None

    def indexed(self, log_id: int, offset: int) -> IndexedBatch | None:
        """See `LocationIndex.indexed`."""
        with self._lock:
            columns = self._logs.get(log_id)
            return self._indexed(columns, columns.row(offset) if columns is not None else None)

    def last(self, log_id: int) -> IndexedBatch | None:
        """See `LocationIndex.last`."""
        with self._lock:
            columns = self._logs.get(log_id)
            return self._indexed(columns, len(columns) - 1 if columns else None)

    def first_at_or_after_position(self, log_id: int, position: int) -> IndexedBatch | None:
        """See `LocationIndex.first_at_or_after_position`."""
        with self._lock:
            columns = self._logs.get(log_id)
            return self._indexed(columns, columns.row_at_or_after_position(position) if columns else None)

    def first_at_or_after(self, log_id: int, timestamp: int) -> IndexedBatch | None:
        """See `LocationIndex.first_at_or_after`."""
        with self._lock:
            columns = self._logs.get(log_id)
            return self._indexed(columns, columns.row_at_or_after(timestamp) if columns else None)

    @staticmethod
    def _indexed(columns: LogColumns | None, row: int | None) -> IndexedBatch | None:
        return columns.indexed(row) if columns is not None and row is not None else None

    def latest_timestamp(self, log_id: int) -> int | None:
        """See `LocationIndex.latest_timestamp`."""
        with self._lock:
            columns = self._logs.get(log_id)
            return columns.latest_timestamp() if columns else None

    def rows(self, log_id: int) -> Iterator[IndexRow]:
        """See `LocationIndex.rows`."""
        with self._lock:
            columns = self._logs.get(log_id)
            blocks, file = (list(columns.blocks) if columns else []), self._file
            replaced, floor = (columns.replaced, columns.replaced_end) if columns else (None, 0)
        if replaced is not None:
            yield from self._stored(log_id, file, replaced, 0)
        for block in blocks:
            yield from self._stored(log_id, file, block, floor)

    def _stored(self, log_id: int, file: IndexFile, block: tuple[int, int], floor: int) -> Iterator[IndexRow]:
        """Yield the rows of a block from the offset `floor` on, with the current positions of their batches."""
        for header, position, _, _ in ADDED_ROW.iter_unpack(file.read(*block)):
            base_offset = int.from_bytes(header[:8], "big")
            location = self.find(log_id, base_offset) if base_offset >= floor else None
            if location is not None and location.base_offset == base_offset:
                yield IndexRow(header, position, location.file_id, location.position)

    def log_ids(self) -> list[int]:
        """See `LocationIndex.log_ids`."""
        with self._lock:
            return sorted(self._logs)

    def file_ids(self, log_id: int) -> set[int]:
        """See `LocationIndex.file_ids`."""
        with self._lock:
            columns = self._logs.get(log_id)
            return columns.file_ids() if columns else set()

    def file_bytes(self, log_id: int) -> dict[int, int]:
        """See `LocationIndex.file_bytes`."""
        with self._lock:
            columns = self._logs.get(log_id)
            return columns.file_bytes() if columns else {}

    def file_ends(self) -> dict[int, int]:
        """See `LocationIndex.file_ends`."""
        ends: dict[int, int] = {}
        with self._lock:
            for columns in self._logs.values():
                columns.note_file_ends(ends)
        return ends

    def delete_before(self, log_id: int, offset: int) -> None:
        """See `LocationIndex.delete_before`."""
        with self._lock:
            if log_id in self._logs:
                self._logs[log_id].delete_before(offset)

    def delete_log(self, log_id: int) -> None:
        """See `LocationIndex.delete_log`."""
        with self._lock:
            self._logs.pop(log_id, None)

    @property
    def row_count(self) -> int:
        """The number of batches in the index."""
        with self._lock:
            return sum(map(len, self._logs.values()))

    @property
    def memory_bytes(self) -> int:
        """See `LocationIndex.memory_bytes`. All rows are in memory, so nothing bounds them but the number of batches."""
        return self.row_count * ROW_BYTES

    @property
    def is_mostly_dead(self) -> bool:
        """Whether most rows of the file are of deleted or moved batches, so that a rewrite of the file is worthwhile."""
        with self._lock:
            return self._stored_rows > MIN_ROWS and self._stored_rows > 2 * sum(map(len, self._logs.values()))

    def compact(self, note: Callable[[int], None]) -> None:
        """See `LocationIndex.compact`. During the rewrite the size in the catalog is 0, since a crash may leave either file.

        The rows are collected before the catalog is stored. So the file has all logs of the catalog: a log that is deleted in
        between is in the file, and not missing after a crash.
        """
        if self.is_mostly_dead:
            packed = self._packed()
            note(0)
            self._rewrite(packed)
            note(self.durable_bytes)

    def _packed(self) -> dict[int, bytes]:
        """Return the packed rows of all batches by log."""
        packed = {log_id: b"".join(ADDED_ROW.pack(*row) for row in self.rows(log_id)) for log_id in self.log_ids()}
        return {log_id: data for log_id, data in packed.items() if data}

    def _rewrite(self, packed: Mapping[int, bytes]) -> None:
        """Write a file with these rows, and replace the old one.

        Readers of rows of the old file may continue until the next rewrite.

        Raises:
            OSError: the disk refused; either the old or the new file exists.
        """
        fresh_path = self._path.with_name(f"{NAME}.new")
        if fresh_path.name in self._files.names(fresh_path.parent):
            self._files.unlink(fresh_path)
        fresh = IndexFile(self._files, fresh_path)
        try:
            positions = fresh.append(ADDED, packed)
            self._files.rename(fresh_path, self._path)
            fresh.path = self._path
        except BaseException:
            fresh.close()
            raise
        with self._lock:
            older, self._older, self._file = self._older, self._file, fresh
            self._stored_rows = 0
            for log_id, data in packed.items():
                self._stored_rows += len(data) // ADDED_ROW.size
                if log_id in self._logs:
                    self._logs[log_id].blocks = [(positions[log_id], len(data))]
                    self._logs[log_id].replaced, self._logs[log_id].replaced_end = None, 0
        if older is not None:
            older.close()
        self._is_named = False
        self._name()

    def _name(self) -> None:
        """Force the name of a rewritten file to the disk. Before that, no rows may be added to it: a power failure might restore
        the old file, without the added rows."""
        if not self._is_named:
            self._files.sync_directory(self._path.parent)
            self._is_named = True

    def close(self) -> None:
        """See `LocationIndex.close`."""
        self._file.close()
        if self._older is not None:
            self._older.close()
