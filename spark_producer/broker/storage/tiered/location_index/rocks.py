"""The location index in RocksDB, as in BookKeeper's EntryLocationIndex: its memory does not grow with the number of batches.

A key is the id of the log and the base offset of the batch, both big-endian, so the batches of a log are in order. A value is a
row in the format of `index_file`.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Final

from spark_producer.broker.storage.tiered.entry_log_format import ENTRY_HEADER
from spark_producer.broker.storage.tiered.interfaces import Location
from spark_producer.broker.storage.tiered.location_index.base import IndexDamaged, IndexedBatch, IndexRow
from spark_producer.broker.storage.tiered.location_index.index_file import ADDED_ROW
from spark_producer.broker.storage.tiered.location_index.rocks_database import NAME, open_database, translated_errors
from spark_producer.record.batch_v2 import BatchHeader, read_header

if TYPE_CHECKING:
    from rocksdict import WriteBatch

_KEY: Final = Struct(">QQ")
_LAST: Final = (1 << 63) - 1
_END: Final = b"\xff" * _KEY.size
_CHUNK: Final = 1000
"""Number of rows that a scan reads with one iterator: while there is an iterator, RocksDB keeps its lock after `close`."""


class RocksIndex:
    """A `LocationIndex` in the directory `index.rocks`.

    Deleted rows are hidden at once, but removed only by `compact`: they are needed again after a crash that comes before the
    next store of the catalog.
    """

    def __init__(self, directory: Path, cache_bytes: int) -> None:
        """Open the index, or create it if it is missing.

        Args:
            cache_bytes: maximum memory of RocksDB in bytes.

        Raises:
            ConfigError: rocksdict is missing.
            IndexDamaged: rows cannot be read.
            OSError: the disk refused.
        """
        self._path, self._cache_bytes = directory / NAME, cache_bytes
        self._lock = threading.Lock()
        self._starts: dict[int, int] = {}
        """By log: the offset before which batches are deleted, but may still be stored."""
        self._counts: dict[int, int] = {}
        self._failed: dict[int, int] = {}
        """After a failed `add`: the first offset of each log from which on its rows may be stored."""
        self._has_failed = False
        self._database = open_database(self._path, cache_bytes)
        try:
            for log_id, _ in self._scan(b"", _END):
                self._counts[log_id] = self._counts.get(log_id, 0) + 1
        except BaseException:
            self.close()
            raise

    @property
    def durable_bytes(self) -> int:
        """Always 0: RocksDB checks its files."""
        return 0

    def add(self, rows: Mapping[int, Sequence[IndexRow]]) -> None:
        """See `LocationIndex.add`. The write-ahead log is forced."""
        from rocksdict import WriteBatch

        if self._has_failed:
            self._open_again()
        batch = WriteBatch(raw_mode=True)
        added = {log_id: self._put(batch, log_id, some) for log_id, some in rows.items() if some}
        self._has_failed = True
        self._failed = {log_id: read_header(some[0].header).base_offset for log_id, some in rows.items() if some}
        self._write(batch)
        self._has_failed, self._failed = False, {}
        with self._lock:
            for log_id, (count, replaces) in added.items():
                self._counts[log_id] = count + (0 if replaces else self._counts.get(log_id, 0))

    def _put(self, batch: WriteBatch, log_id: int, rows: Sequence[IndexRow]) -> tuple[int, bool]:
        """Put rows into a batch; return their number, and whether they replace the existing rows.

        Raises:
            IndexDamaged: the rows overlap the existing ones, or have a gap.
        """
        last, first = self.last(log_id), read_header(rows[0].header).base_offset
        expected = first if last is None else max(first, last.end_offset)
        replaces = last is not None and last.end_offset < first
        if replaces:  # they had been deleted, and a power failure lost the batches in between, which were not flushed
            batch.delete_range(_KEY.pack(log_id, 0), _KEY.pack(log_id, first))
        for row in rows:
            header = read_header(row.header)
            if header.base_offset != expected:
                raise IndexDamaged(
                    f"the index has batches from offset {header.base_offset} on where {expected} should follow"
                )
            batch.put(_KEY.pack(log_id, header.base_offset), ADDED_ROW.pack(*row))
            expected = header.last_offset + 1
        return len(rows), replaces

    def move(self, locations: Mapping[int, Sequence[Location]]) -> None:
        """See `LocationIndex.move`."""
        from rocksdict import WriteBatch

        if self._has_failed:
            self._open_again()
        batch = WriteBatch(raw_mode=True)
        for log_id, some in locations.items():
            for each in some:
                row = self._row(log_id, each.base_offset)
                if row is not None and read_header(row.header).base_offset == each.base_offset:
                    moved = row._replace(file_id=each.file_id, file_position=each.position)
                    batch.put(_KEY.pack(log_id, each.base_offset), ADDED_ROW.pack(*moved))
        self._has_failed = True
        self._write(batch)
        self._has_failed = False

    def replace(self, log_id: int, rows: Sequence[IndexRow]) -> None:
        """See `LocationIndex.replace`."""
        from rocksdict import WriteBatch

        if self._has_failed:
            self._open_again()
        end = read_header(rows[-1].header).last_offset + 1
        gone = sum(1 for row in self.rows(log_id) if read_header(row.header).base_offset < end)
        batch = WriteBatch(raw_mode=True)
        batch.delete_range(_KEY.pack(log_id, 0), _KEY.pack(log_id, end))
        for row in rows:
            batch.put(_KEY.pack(log_id, read_header(row.header).base_offset), ADDED_ROW.pack(*row))
        self._has_failed = True
        self._write(batch)
        self._has_failed = False
        with self._lock:
            self._counts[log_id] = self._counts.get(log_id, 0) - gone + len(rows)

    def _write(self, batch: WriteBatch) -> None:
        """Write a batch atomically, and force the write-ahead log."""
        from rocksdict import WriteOptions

        options = WriteOptions()
        options.sync = True
        with translated_errors(str(self._path)):
            self._database.write(batch, options)

    def _open_again(self) -> None:
        """Open the database again after a failed write: RocksDB accepts no writes then, and the rows may be in its log.

        The rows are removed, so that they may be added again.
        """
        from rocksdict import WriteBatch

        with self._lock:
            self._database.close()
            self._database = open_database(self._path, self._cache_bytes)
        batch = WriteBatch(raw_mode=True)
        for log_id, first in self._failed.items():
            batch.delete_range(_KEY.pack(log_id, first), _KEY.pack(log_id, _LAST))
        self._write(batch)
        self._has_failed, self._failed = False, {}

    def _floor(self, log_id: int, offset: int) -> IndexRow | None:
        """Return the last row of a log at or before `offset`, None if there is none or it is deleted."""
        if offset < 0:
            return None
        with self._lock, translated_errors(str(self._path)):
            found = self._database.iter()
            found.seek_for_prev(_KEY.pack(log_id, offset))
            key, value = (found.key(), found.value()) if found.valid() else (b"", b"")
            found.status()
            del found
        if key[:8] != log_id.to_bytes(8, "big"):
            return None
        row = IndexRow(*ADDED_ROW.unpack(value))
        return row if self._is_there(log_id, read_header(row.header)) else None

    def _is_there(self, log_id: int, header: BatchHeader) -> bool:
        return header.last_offset >= self._starts.get(log_id, 0)

    def _row(self, log_id: int, offset: int) -> IndexRow | None:
        """Return the row of the batch that holds `offset`, None if there is none."""
        row = self._floor(log_id, offset)
        return row if row is not None and offset <= read_header(row.header).last_offset else None

    def _scan(self, begin: bytes, end: bytes) -> Iterator[tuple[int, IndexRow]]:
        """Yield the id of the log and the row for the keys from `begin` to before `end`, except for deleted rows."""
        while chunk := self._chunk(begin, end):
            for key, value in chunk:
                log_id, row = _KEY.unpack(key)[0], IndexRow(*ADDED_ROW.unpack(value))
                if self._is_there(log_id, read_header(row.header)):
                    yield log_id, row
            begin = chunk[-1][0] + b"\0"

    def _chunk(self, begin: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
        found: list[tuple[bytes, bytes]] = []
        with self._lock, translated_errors(str(self._path)):
            each = self._database.iter()
            each.seek(begin)
            while each.valid() and len(found) < _CHUNK and (key := each.key()) < end:
                found.append((key, each.value()))
                each.next()
            each.status()
            del each
        return found

    def find(self, log_id: int, offset: int) -> Location | None:
        """See `LocationIndex.find`."""
        row = self._row(log_id, offset)
        if row is None:
            return None
        header = read_header(row.header)
        return Location(header.base_offset, header.last_offset + 1, row.file_id, row.file_position, header.size)

    def indexed(self, log_id: int, offset: int) -> IndexedBatch | None:
        """See `LocationIndex.indexed`."""
        row = self._row(log_id, offset)
        return None if row is None else _indexed(row)

    def last(self, log_id: int) -> IndexedBatch | None:
        """See `LocationIndex.last`."""
        row = self._floor(log_id, _LAST)
        return None if row is None else _indexed(row)

    def first_at_or_after_position(self, log_id: int, position: int) -> IndexedBatch | None:
        """See `LocationIndex.first_at_or_after_position`. This bisects the offsets, since positions rise with them."""
        first, last = next(self.rows(log_id), None), self.last(log_id)
        if first is None or last is None or position > last.position:
            return None
        offsets = range(read_header(first.header).base_offset, last.base_offset)
        found = bisect_left(offsets, True, key=lambda offset: self._begins_at_or_after(log_id, offset, position))
        return self.indexed(log_id, offsets[found] if found < len(offsets) else last.base_offset)

    def _begins_at_or_after(self, log_id: int, offset: int, position: int) -> bool:
        row = self._floor(log_id, offset)
        return row is not None and row.position >= position

    def first_at_or_after(self, log_id: int, timestamp: int) -> IndexedBatch | None:
        """See `LocationIndex.first_at_or_after`. All rows up to it are read, since timestamps need not rise."""
        rows = map(_indexed, self.rows(log_id))
        return next((found for found in rows if found.max_timestamp >= timestamp), None)

    def latest_timestamp(self, log_id: int) -> int | None:
        """See `LocationIndex.latest_timestamp`. All rows of the log are read."""
        return max((_indexed(row).max_timestamp for row in self.rows(log_id)), default=None)

    def rows(self, log_id: int) -> Iterator[IndexRow]:
        """See `LocationIndex.rows`."""
        return (row for _, row in self._scan(_KEY.pack(log_id, 0), _KEY.pack(log_id + 1, 0)))

    def log_ids(self) -> list[int]:
        """See `LocationIndex.log_ids`."""
        with self._lock:
            return sorted(self._counts)

    def file_ids(self, log_id: int) -> set[int]:
        """See `LocationIndex.file_ids`. All rows of the log are read."""
        return {row.file_id for row in self.rows(log_id)}

    def file_bytes(self, log_id: int) -> dict[int, int]:
        """See `LocationIndex.file_bytes`. All rows of the log are read."""
        found: dict[int, int] = {}
        for row in self.rows(log_id):
            found[row.file_id] = found.get(row.file_id, 0) + read_header(row.header).size + ENTRY_HEADER.size
        return found

    def file_ends(self) -> dict[int, int]:
        """See `LocationIndex.file_ends`. All rows are read."""
        ends: dict[int, int] = {}
        for _, row in self._scan(b"", _END):
            end = row.file_position + ENTRY_HEADER.size + read_header(row.header).size
            ends[row.file_id] = max(ends.get(row.file_id, 0), end)
        return ends

    def delete_before(self, log_id: int, offset: int) -> None:
        """See `LocationIndex.delete_before`."""
        if log_id not in self._counts or offset <= self._starts.get(log_id, 0):
            return
        gone = 0
        for row in self.rows(log_id):
            if read_header(row.header).last_offset >= offset:
                break
            gone += 1
        with self._lock:
            if gone and log_id in self._counts:
                self._starts[log_id] = offset
                self._counts[log_id] -= gone

    def delete_log(self, log_id: int) -> None:
        """See `LocationIndex.delete_log`."""
        with self._lock:
            if self._counts.pop(log_id, None) is not None:
                self._starts[log_id] = _LAST

    @property
    def row_count(self) -> int:
        """See `LocationIndex.row_count`."""
        with self._lock:
            return sum(self._counts.values())

    @property
    def memory_bytes(self) -> int:
        """See `LocationIndex.memory_bytes`: the usage of the block cache, which includes the write buffers."""
        with self._lock, translated_errors(str(self._path)):
            return int(self._database.property_int_value("rocksdb.block-cache-usage") or 0)

    def compact(self, note: Callable[[int], None]) -> None:
        """See `LocationIndex.compact`. Ranges are deleted in RocksDB, whose threads free their space."""
        from rocksdict import WriteBatch

        with self._lock:
            deleted = dict(self._starts)
        if not deleted:
            return
        note(self.durable_bytes)  # the catalog must have the deletions before the rows are removed
        batch = WriteBatch(raw_mode=True)
        for log_id, start in deleted.items():
            row = self._row(log_id, start)
            end = start if row is None else read_header(row.header).base_offset
            batch.delete_range(_KEY.pack(log_id, 0), _KEY.pack(log_id, end))
        self._write(batch)
        with self._lock:
            for log_id, start in deleted.items():
                if self._starts[log_id] == start:
                    del self._starts[log_id]

    def close(self) -> None:
        """See `LocationIndex.close`."""
        with self._lock:
            self._database.close()


def _indexed(row: IndexRow) -> IndexedBatch:
    header = read_header(row.header)
    return IndexedBatch(header.base_offset, header.last_offset + 1, header.max_timestamp, header.size, row.position)
