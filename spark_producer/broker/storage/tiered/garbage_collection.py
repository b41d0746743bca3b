"""The garbage collection of entry logs: files without needed batches are deleted, and those with few are compacted.

A file has batches of many logs, so a deleted ledger leaves a hole. A file with only holes is deleted. A file with many holes is
compacted: the remaining batches are copied to the open file, and their locations in the index are changed (BookKeeper's
GarbageCollectorThread and EntryLogCompactor). Only the flush thread does this, between two flushes.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from spark_producer.broker.storage.file_ops import FileOps
from spark_producer.broker.storage.tiered.catalog import Catalog
from spark_producer.broker.storage.tiered.entry_log import CHUNK, EntryLogWriter, NewEntry
from spark_producer.broker.storage.tiered.entry_log_files import EntryLogFiles
from spark_producer.broker.storage.tiered.entry_log_format import HEADER_SIZE, Extent, merge_extents
from spark_producer.broker.storage.tiered.interfaces import Location
from spark_producer.broker.storage.tiered.location_index import LocationIndex
from spark_producer.broker.storage.tiered.options import TieredOptions
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import CorruptRecord
from spark_producer.record.batch_v2 import read_header

_MIN_USAGE: Final = 1e-9
"""Minimum fraction of a file that an entry can be."""

logger = escaping_logger(__name__)


@dataclass
class GarbageCollectionCounters:
    """Counters of garbage collections: files deleted, files compacted, and bytes copied by compactions."""

    deleted: int = 0
    compacted: int = 0
    copied_bytes: int = 0


class GarbageCollector:
    """Collects the garbage of the ledger directory `number`.

    It scans files without a map, and copies batches for compactions, in steps of `CHUNK` bytes and with at most `compaction_rate`
    bytes per second. In between the flush thread flushes, so that producers do not wait.
    """

    def __init__(
        self,
        files: FileOps,
        entry_log: EntryLogWriter,
        entry_log_files: EntryLogFiles,
        index: LocationIndex,
        catalog: Catalog,
        options: TieredOptions,
        *,
        number: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counters = GarbageCollectionCounters()
        self._files, self._entry_log, self._entry_log_files = files, entry_log, entry_log_files
        self._index, self._catalog, self._options = index, catalog, options
        self._number = number
        self._clock = clock
        self._work: Generator[int, None, None] | None = None
        self._continue_at = 0.0
        self._is_requested = self._is_thorough = False
        self.is_paused = False
        """Whether entries are being written that are not in the index yet: then there must be no garbage collection."""
        self._extents: dict[int, list[Extent]] = {}
        now = clock()
        self._begun_at = -math.inf
        self._next = now + options.gc_interval_s
        self._next_minor = now + options.minor_interval_s
        self._next_major = now + options.major_interval_s

    def request(self) -> None:
        """Request a collection soon, since a log was deleted. Any thread may call this."""
        self._is_requested = True

    def run_if_due(self) -> float:
        """Run a step of a collection if it is due; return the seconds until the next step.

        Raises:
            OSError: the disk refused; a later collection continues.
        """
        now = self._clock()
        if self._is_requested:
            self._is_requested, self._is_thorough = False, True
            soon = max(now + self._options.gc_after_deletion_s, self._begun_at + self._options.gc_spacing_s)
            self._next = min(self._next, soon)
        if self.is_paused:
            return max(0.0, self._next - now, 1.0)
        if self._work is None and now >= self._next:
            self._work, self._continue_at = self.steps(self._threshold_of(now)), now
        if self._work is not None and now >= self._continue_at:
            self._continue(self._work)
        until = self._next if self._work is None else self._continue_at
        return max(0.0, until - self._clock())

    def _threshold_of(self, now: float) -> float:
        """Return the threshold of the collection that begins now: files with a smaller fraction in use are compacted."""
        self._begun_at, self._next = now, now + self._options.gc_interval_s
        threshold = self._options.major_threshold if self._is_thorough else 0.0
        self._is_thorough = False
        if now >= self._next_major:
            self._next_major = now + self._options.major_interval_s
            threshold = self._options.major_threshold
        elif now >= self._next_minor:
            self._next_minor = now + self._options.minor_interval_s
            threshold = max(threshold, self._options.minor_threshold)
        return threshold

    def _continue(self, work: Generator[int, None, None]) -> None:
        """Run the next step, and set the time of the one after it."""
        try:
            done = next(work, None)
        except BaseException:
            self._work = None
            raise
        if done is None:
            self._work = None
        else:
            self._continue_at = self._clock() + done / self._options.compaction_rate

    def steps(self, threshold: float) -> Generator[int, None, None]:
        """Delete the files without needed batches, and compact those of which a smaller fraction than `threshold` is needed.
        Yield after each chunk the number of bytes that were copied or scanned; flushes may run in between.

        Do nothing while the catalog on the disk does not have all deletions: after a crash it would refer to deleted batches.

        Raises:
            OSError: the disk refused.
        """
        if not self._catalog.is_stored or self.is_paused:
            return
        self._end_open_file(threshold)
        known, unknown = self._closed_files()
        yield from self._collect(known, threshold)  # first, since the scan of the others may take minutes
        for file_id in unknown:
            yield from self._scan(file_id)
        yield from self._collect(unknown, threshold)
        self._index.compact(self._store_index_bytes)

    def _collect(self, file_ids: Sequence[int], threshold: float) -> Iterator[int]:
        """Delete the files without needed batches, and compact those below the threshold, as `steps`; yield as `_compact`."""
        usages = {file_id: self._needed_part(file_id, self._extents[file_id]) for file_id in file_ids}
        indexed = self._indexed() if 0.0 in usages.values() else set()
        for file_id, usage in sorted(usages.items(), key=lambda each: each[1]):
            if usage == 0.0 and file_id in indexed:
                path = self._entry_log_files.path(file_id)
                logger.error(
                    "entry log %s is not deleted: it is damaged, and the index has batches after the damage", path
                )
            elif usage == 0.0 and (unknown := self._unknown(file_id)) is not None:
                path = self._entry_log_files.path(file_id)
                logger.error(
                    "entry log %s is not deleted: it has batches of log %d, which is missing in the catalog",
                    path,
                    unknown,
                )
            elif usage == 0.0:
                self._delete(file_id)
            elif usage < threshold:
                yield from self._compact(file_id)

    def close(self) -> None:
        """Stop the collection. The next run of the broker continues."""
        if self._work is not None:
            self._work.close()
            self._work = None

    def _store_index_bytes(self, durable_bytes: int) -> None:
        self._catalog.set_index_bytes(self._number, durable_bytes)
        self._catalog.store()

    def _end_open_file(self, threshold: float) -> None:
        """Seal the open file if it must be deleted or compacted: it might not become full for a long time."""
        extents, file_id = self._entry_log.open_extents, self._entry_log.open_id
        if extents and file_id is not None and self._needed_part(file_id, extents) < max(threshold, _MIN_USAGE):
            self._entry_log.end()

    def _closed_files(self) -> tuple[list[int], list[int]]:
        """Return the ids of the closed files: those with known extents, which are read from their maps if needed, and those that
        must be scanned."""
        closed = [file_id for file_id in self._entry_log_files.ids() if file_id != self._entry_log.open_id]
        for file_id in closed:
            found = None if file_id in self._extents else self._entry_log_files.stored_extents(file_id)
            if found is not None:
                self._extents[file_id] = found
        known = self._extents.keys() & closed
        return sorted(known), [file_id for file_id in closed if file_id not in known]

    def _scan(self, file_id: int) -> Iterator[int]:
        """Scan the extents of a file without a map, which is the last one of a run of the broker. The whole file is read; yield
        the number of bytes after each chunk."""
        found: list[Extent] = []
        with contextlib.closing(self._entry_log_files.scanned_extents(file_id)) as entries:
            for chunk, size in _by_chunks(entries):
                found = merge_extents([*found, *chunk])
                yield size
        self._extents[file_id] = found

    def _needed_part(self, file_id: int, extents: Sequence[Extent]) -> float:
        """Return the fraction of the bytes of a file that belongs to existing ledgers. The index has the remaining batches of a
        compacted log."""
        total = sum(extent.bytes for extent in extents)
        needed = sum(extent.bytes for extent in extents if self._is_needed(extent))
        for log_id in {extent.log_id for extent in extents if self._is_compacted(extent.log_id)}:
            needed += self._index.file_bytes(log_id).get(file_id, 0)
        return needed / total if total else 0.0

    def _is_compacted(self, log_id: int) -> bool:
        entry = self._catalog.get(log_id)
        return entry is not None and entry.is_compacted

    def _indexed(self) -> set[int]:
        """Return the ids of the files with batches in the index. A file may have more batches than a scan up to damage finds."""
        return set[int]().union(*map(self._index.file_ids, self._index.log_ids()))

    def _is_needed(self, extent: Extent) -> bool:
        entry = self._catalog.get(extent.log_id)
        return entry is not None and not entry.is_compacted and entry.holds(extent.first_offset, extent.end_offset)

    def _unknown(self, file_id: int) -> int | None:
        """Return the id of a log in a file that the catalog never had, None if it had all of them."""
        ids = {extent.log_id for extent in self._extents[file_id]}
        return next((log_id for log_id in sorted(ids) if log_id >= self._catalog.next_log_id), None)

    def _delete(self, file_id: int) -> None:
        self._catalog.store()  # a log may have been deleted since the check
        self._files.unlink(self._entry_log_files.path(file_id))
        self._extents.pop(file_id, None)
        self.counters.deleted += 1
        logger.info("entry log %s was deleted: none of its batches is needed", self._entry_log_files.path(file_id))

    def _compact(self, file_id: int) -> Iterator[int]:
        """Copy the needed batches of a file to the open file, and delete it. A damaged file is not changed. Yield the number
        of copied bytes after each chunk.
        """
        try:
            for chunk in self._chunks(file_id):
                yield self._move(chunk)
        except CorruptRecord as error:
            logger.error("an entry log is not compacted: %s", error)
            return
        self.counters.compacted += 1
        self._delete(file_id)

    def _move(self, chunk: list[NewEntry]) -> int:
        """Copy entries and change their locations in the index; return their size in bytes."""
        written = self._entry_log.write(chunk)
        locations: dict[int, list[Location]] = {}
        for entry, (file_id, position) in zip(chunk, written, strict=True):
            location = Location(entry.base_offset, entry.end_offset, file_id, position, len(entry.batch))
            locations.setdefault(entry.log_id, []).append(location)
        self._index.move(locations)
        copied = sum(len(entry.batch) for entry in chunk)
        self.counters.copied_bytes += copied
        return copied

    def _chunks(self, file_id: int) -> Iterator[list[NewEntry]]:
        """Yield the entries of a file that are in the index, in chunks."""
        chunk: list[NewEntry] = []
        size, position = 0, HEADER_SIZE
        for entry in self._entry_log_files.entries(file_id):
            header = read_header(entry.batch)
            location = self._index.find(entry.log_id, header.base_offset)
            if location is not None and (location.file_id, location.position) == (file_id, position):
                batch = bytes(entry.batch)
                chunk.append(NewEntry(entry.log_id, header.base_offset, header.last_offset + 1, batch))
                size += len(batch)
            if size >= CHUNK:
                yield chunk
                chunk, size = [], 0
            position = entry.next_position
        if chunk:
            yield chunk


def _by_chunks(entries: Iterable[Extent]) -> Iterator[tuple[list[Extent], int]]:
    """Yield the entries in chunks, with their size in bytes."""
    chunk: list[Extent] = []
    size = 0
    for entry in entries:
        chunk.append(entry)
        size += entry.bytes
        if size >= CHUNK:
            yield chunk, size
            chunk, size = [], 0
    if chunk:
        yield chunk, size
