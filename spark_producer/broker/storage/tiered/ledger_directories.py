"""The ledger directories: each has entry logs, an index of the batches in them, and a garbage collector.

There may be several, on separate disks (BookKeeper's `ledgerDirectories`). All batches of a log are in one directory: its number
is the remainder of the log's id divided by the number of directories; the same holds for the ids of entry logs. The number of
directories never changes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from spark_producer.broker.storage.file_ops import FileOps
from spark_producer.broker.storage.tiered.catalog import Catalog
from spark_producer.broker.storage.tiered.entry_log import EntryLogWriter
from spark_producer.broker.storage.tiered.entry_log_files import EntryLogFiles
from spark_producer.broker.storage.tiered.entry_log_format import HEADER_SIZE
from spark_producer.broker.storage.tiered.garbage_collection import GarbageCollector
from spark_producer.broker.storage.tiered.interfaces import EntryConsumer, EntryRun, Location, StoredEntry
from spark_producer.broker.storage.tiered.location_index import LocationIndex, open_index
from spark_producer.broker.storage.tiered.options import TieredOptions


@dataclass(frozen=True)
class LedgerDirectory:
    """One directory with its parts. `number` counts from 0.

    lost_files: ids of the entry logs that lack batches of the index, with an error message for each.
    """

    number: int
    path: Path
    entry_log: EntryLogWriter
    entry_log_files: EntryLogFiles
    index: LocationIndex
    collector: GarbageCollector
    lost_files: dict[int, str]

    def note_lost_files(self) -> None:
        """Update `lost_files` by the batches that are in the index now."""
        found = self.entry_log_files.lost(self.index.file_ends())
        self.lost_files.clear()
        self.lost_files.update(found)

    def close(self) -> None:
        """Close all files of the directory."""
        self.collector.close()
        self.index.close()
        self.entry_log.close()


class LedgerDirectories:
    """All ledger directories. For the read path they are one `LocationReader` and one `EntryLogReader`."""

    def __init__(self, directories: Sequence[LedgerDirectory]) -> None:
        self._directories = tuple(directories)

    def __iter__(self) -> Iterator[LedgerDirectory]:
        return iter(self._directories)

    def __len__(self) -> int:
        return len(self._directories)

    def __getitem__(self, number: int) -> LedgerDirectory:
        return self._directories[number]

    def of(self, log_id: int) -> LedgerDirectory:
        """Return the directory with the batches of a log."""
        return self._directories[log_id % len(self._directories)]

    def find(self, log_id: int, offset: int) -> Location | None:
        """See `interfaces.LocationReader.find`."""
        return self.of(log_id).index.find(log_id, offset)

    def entries(self, file_id: int, position: int = HEADER_SIZE) -> Iterator[StoredEntry]:
        """See `EntryLogFiles.entries`."""
        return self._files(file_id).entries(file_id, position)

    def runs(self, location: Location, consumer: EntryConsumer) -> Generator[EntryRun, None, None]:
        """See `interfaces.EntryLogReader.runs`."""
        return self._files(location.file_id).runs(location, consumer)

    def is_cached(self, location: Location) -> bool | None:
        """See `interfaces.EntryLogReader.is_cached`."""
        return self._files(location.file_id).is_cached(location)

    def _files(self, file_id: int) -> EntryLogFiles:
        return self._directories[file_id % len(self._directories)].entry_log_files

    @property
    def row_count(self) -> int:
        """The number of batches in all indexes."""
        return sum(each.index.row_count for each in self._directories)

    def collect(self) -> float:
        """Run the due steps of garbage collection; return the seconds until the next step.

        Raises:
            OSError: a disk refused; a later collection continues.
        """
        return min(each.collector.run_if_due() for each in self._directories)

    def close(self) -> None:
        """Close all files."""
        for each in self._directories:
            each.close()


def open_ledgers(files: FileOps, paths: Sequence[Path], catalog: Catalog, options: TieredOptions) -> LedgerDirectories:
    """Open the directories, which must exist, and must always be given in the same order.

    Raises:
        ConfigError: a library of the index is missing.
        OSError: the disk refused.
    """
    found: list[LedgerDirectory] = []
    try:
        for number, path in enumerate(paths):
            found.append(_opened(files, number, path, len(paths), catalog, options))
    except BaseException:
        LedgerDirectories(found).close()
        raise
    return LedgerDirectories(found)


def _opened(
    files: FileOps, number: int, path: Path, directories: int, catalog: Catalog, options: TieredOptions
) -> LedgerDirectory:
    writer = EntryLogWriter(files, path, options.entry_log_bytes, number=number, directories=directories)
    reader = EntryLogFiles(files, path, writer.readable_ends.get)
    index = open_index(
        files,
        path,
        [entry for entry in catalog.entries() if entry.log_id % directories == number],
        reader,
        durable_bytes=catalog.index_bytes(number),
        engine=options.index_engine,
        cache_bytes=options.index_cache_bytes // directories,
    )
    ends = index.file_ends()
    writer.readable_ends.update(ends)
    writer.skip_ids(max(ends, default=0))
    collector = GarbageCollector(files, writer, reader, index, catalog, options, number=number)
    return LedgerDirectory(number, path, writer, reader, index, collector, reader.lost(ends))
