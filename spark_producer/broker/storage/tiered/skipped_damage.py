"""Skips what is missing or damaged in the entry logs: batches without records take the place of lost ones.

All other batches stay where they are, and every batch keeps its offsets. Damaged entry logs are not changed.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import TYPE_CHECKING

from spark_producer.broker.storage.empty_batch import empty_batch
from spark_producer.broker.storage.tiered.entry_log_files import EntryLogFiles
from spark_producer.broker.storage.tiered.interfaces import EntryMissing, StoredEntry
from spark_producer.broker.storage.tiered.location_index import IndexRow
from spark_producer.broker.storage.tiered.log_state import LogState
from spark_producer.broker.storage.tiered.operations import LogRewriting
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import CorruptRecord
from spark_producer.record.batch_v2 import HEADER_SIZE, BatchHeader, read_header

if TYPE_CHECKING:
    from spark_producer.broker.storage.tiered.engine import Engine

logger = escaping_logger(__name__)


def skip_lost_batches(engine: Engine) -> None:
    """Replace the batches of all logs that cannot be read from the entry logs, and log their number. All entry logs are read.

    Raises:
        OSError: the disk refused, for another reason than unreadable sectors.
    """
    for state in engine.states_with_records():
        if state.damage is not None:
            continue  # batches are missing from the index too, so nothing is known of them
        rows = list(engine.ledgers.of(state.log_id).index.rows(state.log_id))
        reader = _EntryReader(engine.ledgers.of(state.log_id).entry_log_files)
        lost = {number for number, row in enumerate(rows) if not reader.has(row)}
        if lost:
            _replace(engine, state, rows, lost)
    for ledger in engine.ledgers:
        ledger.note_lost_files()


def _replace(engine: Engine, state: LogState, rows: list[IndexRow], lost: set[int]) -> None:
    headers = [read_header(row.header) for row in rows]
    rewriting = LogRewriting(engine, state, headers[-1].last_offset + 1)
    taken = (
        rewriting.add(_replacement(header)) if number in lost else rewriting.keep(row)
        for number, (row, header) in enumerate(zip(rows, headers, strict=True))
    )
    if not (all(taken) and rewriting.commit()):
        rewriting.abort()
        logger.error("%s: lost batches are not skipped, since the write cache could not be flushed", state.name)
        return
    gone = [headers[number] for number in sorted(lost)]
    logger.error(
        "%s: %d records in %d batches are skipped, and %d markers of transactions, which stay open (hanging); the first is at "
        "offset %d, the last at offset %d. Entry logs that are damaged are kept",
        *(state.name, sum(each.records_count for each in gone if not each.is_control), len(gone)),
        *(sum(each.is_control for each in gone), gone[0].base_offset, gone[-1].last_offset),
    )


def _replacement(header: BatchHeader) -> bytes:
    """Return the batch that takes the place of a lost one.

    The content of a marker said whether it was a commit or an abort. Without it the transaction of its producer stays open.
    """
    return empty_batch(header.base_offset, header.last_offset, None if header.is_control else header)


class _EntryReader:
    """Finds which entries can be read. Those that follow one another are read in one pass over their file."""

    def __init__(self, files: EntryLogFiles) -> None:
        self._files = files
        self._entries: Iterator[StoredEntry] = iter(())
        self._next: tuple[int, int] | None = None
        """The file and the position of the next entry of `_entries`."""

    def has(self, row: IndexRow) -> bool:
        """Return whether the batch of a row is there, whole and unchanged."""
        if self._next != (row.file_id, row.file_position):
            self._entries = self._files.entries(row.file_id, row.file_position)
        self._next = None
        try:
            stored = next(self._entries, None)
        except (EntryMissing, CorruptRecord):
            return False
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return False
        if stored is None or bytes(stored.batch[:HEADER_SIZE]) != row.header:
            return False
        self._next = row.file_id, stored.next_position
        return True
