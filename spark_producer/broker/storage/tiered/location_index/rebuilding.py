"""The opening of an index, which is rebuilt from the entry logs if it is damaged."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from spark_producer.broker.storage.file_ops import FileOps
from spark_producer.broker.storage.tiered.catalog import Catalog
from spark_producer.broker.storage.tiered.entry_log_format import HEADER_SIZE
from spark_producer.broker.storage.tiered.location_index.arrays import NAME, ArrayIndex
from spark_producer.broker.storage.tiered.location_index.base import IndexDamaged, IndexRow
from spark_producer.broker.storage.tiered.sources import StoredEntry
from spark_producer.errors import CorruptRecord
from spark_producer.record.batch_v2 import HEADER_SIZE as BATCH_HEADER_SIZE
from spark_producer.record.batch_v2 import read_header

DAMAGED: Final = f"{NAME}.damaged"

logger = logging.getLogger(__name__)


class ScannedLogs(Protocol):
    """What a rebuilding asks of the entry logs: see `EntryLogFiles`."""

    def ids(self) -> list[int]:
        """See `EntryLogFiles.ids`."""

    def entries(self, file_id: int, position: int = HEADER_SIZE) -> Iterator[StoredEntry]:
        """See `EntryLogFiles.entries`."""


def open_index(files: FileOps, directory: Path, catalog: Catalog, entry_logs: ScannedLogs) -> ArrayIndex:
    """Open the index of a ledger directory. A damaged one is put aside as `index.damaged`, and rebuilt.

    Raises:
        OSError: the disk refused.
    """
    try:
        return ArrayIndex(files, directory, trusted=catalog.index_bytes)
    except IndexDamaged as error:
        logger.warning("%s: the index is rebuilt from the entry logs, and what is left of it is %s", error, DAMAGED)
    files.rename(directory / NAME, directory / DAMAGED)
    ends = {entry.log_id: entry.flushed_end for entry in catalog.entries()}
    starts = {entry.log_id: entry.start_offset for entry in catalog.entries()}
    index = ArrayIndex(files, directory)
    index.add(scanned_rows(entry_logs, starts, ends))
    return index


def scanned_rows(
    entry_logs: ScannedLogs, starts: Mapping[int, int], ends: Mapping[int, int]
) -> dict[int, Sequence[IndexRow]]:
    """Return the rows of all batches in the entry logs that lie between the start of their log and its flushed end.

    A batch that is there more than once is taken from the newest file: the older copy was compacted, or was written by a flush
    that a crash has cut short, before other batches got its offsets. What lies behind the flushed end is in the journal.
    """
    found: dict[int, dict[int, IndexRow]] = {log_id: {} for log_id in ends}
    for file_id in entry_logs.ids():
        place = HEADER_SIZE
        for entry in _readable(entry_logs, file_id):
            header = read_header(entry.batch)
            known = found.get(entry.log_id)
            if known is not None and starts[entry.log_id] <= header.base_offset < ends[entry.log_id]:
                known[header.base_offset] = IndexRow(bytes(entry.batch[:BATCH_HEADER_SIZE]), 0, file_id, place)
            place = entry.next_position
    return {log_id: _in_order(rows, starts[log_id]) for log_id, rows in found.items() if rows}


def _readable(entry_logs: ScannedLogs, file_id: int) -> Iterator[StoredEntry]:
    try:
        yield from entry_logs.entries(file_id)
    except CorruptRecord as error:
        logger.warning("%s: entries behind it are not looked for", error)


def _in_order(rows: Mapping[int, IndexRow], start: int) -> list[IndexRow]:
    """Return the rows that follow each other without a gap, with their positions in the log."""
    ordered, expected, position = [], start, 0
    for base_offset in sorted(rows):
        header = read_header(rows[base_offset].header)
        if base_offset == expected:
            ordered.append(rows[base_offset]._replace(position=position))
            expected, position = header.last_offset + 1, position + header.size
    return ordered
