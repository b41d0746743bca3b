"""Opens a location index, and rebuilds it from the entry logs if it is damaged."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from spark_producer.broker.storage.file_ops import FileOps
from spark_producer.broker.storage.tiered.catalog import CatalogEntry
from spark_producer.broker.storage.tiered.entry_log_format import HEADER_SIZE
from spark_producer.broker.storage.tiered.interfaces import StoredEntry
from spark_producer.broker.storage.tiered.location_index.arrays import NAME, ArrayIndex
from spark_producer.broker.storage.tiered.location_index.base import IndexDamaged, IndexRow, LocationIndex
from spark_producer.broker.storage.tiered.location_index.rocks import RocksIndex
from spark_producer.broker.storage.tiered.location_index.rocks_database import NAME as ROCKS_NAME
from spark_producer.broker.storage.tiered.location_index.rocks_database import remove_database, set_aside
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import CorruptRecord
from spark_producer.record.batch_v2 import HEADER_SIZE as BATCH_HEADER_SIZE
from spark_producer.record.batch_v2 import read_header

ARRAYS: Final = "arrays"
ROCKS: Final = "rocks"
DAMAGED: Final = f"{NAME}.damaged"

logger = escaping_logger(__name__)


class EntryLogScanner(Protocol):
    """The entry logs, as a rebuild sees them: see `EntryLogFiles`."""

    def ids(self) -> list[int]:
        """See `EntryLogFiles.ids`."""

    def entries(self, file_id: int, position: int = HEADER_SIZE) -> Iterator[StoredEntry]:
        """See `EntryLogFiles.entries`."""


def open_index(
    files: FileOps,
    directory: Path,
    logs: Collection[CatalogEntry],
    entry_logs: EntryLogScanner,
    *,
    durable_bytes: int = 0,
    engine: str = ARRAYS,
    cache_bytes: int = 0,
) -> LocationIndex:
    """Open the index of a ledger directory.

    An index that is damaged, or lacks batches of the catalog because the other engine was used meanwhile, is renamed to
    `.damaged` and rebuilt. The index of the other engine is then removed.

    Args:
        files, directory: of the index.
        logs: the logs of the catalog with batches in this directory.
        entry_logs: the entry logs in it.
        durable_bytes: number of bytes of the index that were certainly on the disk.
        engine: "arrays" or "rocks".
        cache_bytes: maximum memory of RocksDB in bytes.

    Raises:
        ConfigError: a library of the engine is missing.
        OSError: the disk refused.
    """
    name = ROCKS_NAME if engine == ROCKS else NAME
    index = None
    try:
        index = _opened(files, directory, engine, cache_bytes, durable_bytes)
        _check_complete(index, logs, directory / name)
    except IndexDamaged as error:
        logger.warning(
            "%s: the index is rebuilt from the entry logs, and the damaged one is renamed to %s",
            *(error, f"{name}.damaged"),
        )
        if index is not None:
            index.close()
        index = _rebuilt(files, directory, logs, entry_logs, engine, cache_bytes)
    _remove_other(files, directory, engine)
    return index


def _opened(files: FileOps, directory: Path, engine: str, cache_bytes: int, durable_bytes: int) -> LocationIndex:
    return (
        RocksIndex(directory, cache_bytes)
        if engine == ROCKS
        else ArrayIndex(files, directory, durable_bytes=durable_bytes)
    )


def _check_complete(index: LocationIndex, logs: Collection[CatalogEntry], path: Path) -> None:
    """Raise IndexDamaged if the index lacks the first or the last flushed batch of a log."""
    for entry in logs:
        if entry.flushed_end > entry.start_offset:
            last = index.last(entry.log_id)
            if (
                last is None
                or last.end_offset < entry.flushed_end
                or index.indexed(entry.log_id, entry.start_offset) is None
            ):
                raise IndexDamaged(f"{path} lacks batches of log {entry.log_id}")


def _rebuilt(
    files: FileOps,
    directory: Path,
    logs: Collection[CatalogEntry],
    entry_logs: EntryLogScanner,
    engine: str,
    cache_bytes: int,
) -> LocationIndex:
    if engine == ROCKS:
        set_aside(directory / ROCKS_NAME)
    else:
        files.rename(directory / NAME, directory / DAMAGED)
    ends = {entry.log_id: entry.flushed_end for entry in logs}
    starts = {entry.log_id: entry.start_offset for entry in logs}
    index = _opened(files, directory, engine, cache_bytes, 0)
    index.add(scanned_rows(entry_logs, starts, ends))
    return index


def _remove_other(files: FileOps, directory: Path, engine: str) -> None:
    """Remove the index of the other engine, which is outdated."""
    if engine == ROCKS and NAME in files.names(directory):
        files.unlink(directory / NAME)
        files.sync_directory(directory)
    elif engine == ARRAYS:
        remove_database(directory / ROCKS_NAME)


def scanned_rows(
    entry_logs: EntryLogScanner, starts: Mapping[int, int], ends: Mapping[int, int]
) -> dict[int, Sequence[IndexRow]]:
    """Return the rows of all batches in the entry logs between the start of their log and its flushed end.

    Of batches with the same offsets the one that was written last is valid: the older ones were moved, were rewritten by the
    compaction of their log, or were written by a flush that a crash interrupted, before other batches got their offsets. Batches
    after the flushed end are in the journal.
    """
    found: dict[int, list[tuple[int, int, IndexRow]]] = {log_id: [] for log_id in ends}
    for file_id in entry_logs.ids():
        position = HEADER_SIZE
        for entry in _readable_entries(entry_logs, file_id):
            header = read_header(entry.batch)
            known = found.get(entry.log_id)
            if (
                known is not None
                and starts[entry.log_id] <= header.last_offset
                and header.base_offset < ends[entry.log_id]
            ):
                row = IndexRow(bytes(entry.batch[:BATCH_HEADER_SIZE]), 0, file_id, position)
                known.append((header.base_offset, header.last_offset + 1, row))
            position = entry.next_position
    return {log_id: _in_order(_newest(rows), starts[log_id]) for log_id, rows in found.items() if rows}


def _newest(rows: Sequence[tuple[int, int, IndexRow]]) -> dict[int, IndexRow]:
    """Return the rows by base offset, without those that a later one overlaps. `rows` are in the order of their writes."""
    bases: list[int] = []
    ends: list[int] = []
    kept: dict[int, IndexRow] = {}
    for base, end, row in rows:
        if bases and base < ends[-1]:
            first, last = bisect_right(ends, base), bisect_left(bases, end)
            for gone in bases[first:last]:
                del kept[gone]
            bases[first:last], ends[first:last] = [base], [end]
        else:
            bases.append(base)
            ends.append(end)
        kept[base] = row
    return kept


def _readable_entries(entry_logs: EntryLogScanner, file_id: int) -> Iterator[StoredEntry]:
    try:
        yield from entry_logs.entries(file_id)
    except CorruptRecord as error:
        logger.warning("%s: later entries of the file are skipped", error)


def _in_order(rows: Mapping[int, IndexRow], start: int) -> list[IndexRow]:
    """Return the rows up to the first gap, with their positions in the log."""
    ordered: list[IndexRow] = []
    expected, position = start, 0
    for base_offset in sorted(rows):
        header = read_header(rows[base_offset].header)
        if base_offset == expected or (not ordered and base_offset < start):
            ordered.append(rows[base_offset]._replace(position=position))
            expected, position = header.last_offset + 1, position + header.size
    return ordered
