"""The flush of a half of the write cache, as a sequence of steps that can be repeated after a failure.

The order of the steps makes a crash at any moment harmless. Batches are written to the entry log before they are added to the
index, to the index before the catalog counts them, and to all three before the mark of the journal passes them; journal files are
removed last.

A flush writes to all ledger directories, because they share one mark. If one directory fails, the flush fails with its name, and
the batches in the others are not written again. BookKeeper continues with the other directories, since any of them can take any
ledger. Here all batches of a log stay in one directory, so that one index has all of them.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from spark_producer.broker.storage.tiered.catalog import Catalog
from spark_producer.broker.storage.tiered.counters import FlushCounters
from spark_producer.broker.storage.tiered.entry_log import NewEntry
from spark_producer.broker.storage.tiered.journal import LastMark, Mark
from spark_producer.broker.storage.tiered.ledger_directories import LedgerDirectories, LedgerDirectory
from spark_producer.broker.storage.tiered.ledgers import Ledger, with_batches
from spark_producer.broker.storage.tiered.location_index import IndexRow
from spark_producer.broker.storage.tiered.write_cache import WriteCache
from spark_producer.broker.storage.tiered.write_cache_half import NO_TICKET, Slot, WriteCacheHalf
from spark_producer.common.escape import escaping_logger
from spark_producer.record.batch_v2 import HEADER_SIZE

MAX_JOURNAL_WAIT_S: Final = 1.0
"""Maximum time in seconds of one wait for the journal."""

logger = escaping_logger(__name__)


class JournalForFlush(Protocol):
    """The journal, as a flush sees it."""

    def wait_written(self, ticket: int, timeout: float) -> bool:
        """See `Journal.wait_written`."""

    @property
    def forced_ticket(self) -> int:
        """See `Journal.forced_ticket`."""

    @property
    def full(self) -> str:
        """See `Journal.full`."""

    def force_now(self, timeout: float) -> bool:
        """See `Journal.force_now`."""

    def drop_before(self, mark: Mark) -> None:
        """See `Journal.drop_before`."""


@dataclass(frozen=True)
class FlushTargets:
    """The write cache and the parts that a flush writes to. Without a journal (in a recovery) it neither waits nor removes files.

    With `sync` batches are confirmed when the journal is forced, else when it is written; the flush waits for that, so the index
    has only confirmed batches. A flush fails if the journal takes longer than `journal_timeout_s`.
    """

    write_cache: WriteCache[Mark | None]
    ledgers: LedgerDirectories
    catalog: Catalog
    last_mark: LastMark
    journal: JournalForFlush | None
    sync: bool
    journal_timeout_s: float = 60.0
    clock: Callable[[], float] = time.monotonic
    counters: FlushCounters = field(default_factory=FlushCounters)


class Flush:
    """The flush of one half. `mark` is the new mark of the journal, None for no change. Only the flush thread uses it."""

    def __init__(self, half: WriteCacheHalf, mark: Mark | None, targets: FlushTargets) -> None:
        self._half = half
        self._mark = mark
        self._targets = targets
        self._contents: list[tuple[int, list[Slot]]] = []
        self._rows: dict[int, dict[int, list[IndexRow]]] = {}
        """By number of each directory whose entry log has the batches: the rows by log."""
        self._added: set[int] = set()
        """Numbers of the directories whose index has the rows."""
        self._steps: list[Callable[[], None]] = [
            self._await_journal,
            self._write_entries,
            self._add_rows,
            self._note_ledgers,
            self._keep_mark,
            self._clear,
            self._drop_journals,
        ]

    def run(self) -> None:
        """Run all steps that are not completed yet.

        Raises:
            OSError: the disk refused. The next call repeats the step that failed.
            BrokerError: the journal has failed.
        """
        while self._steps:
            self._steps[0]()
            del self._steps[0]

    def _await_journal(self) -> None:
        """Wait until the journal has written the batches of the half, and they are confirmed."""
        journal, ticket = self._targets.journal, self._half.ticket
        if journal is None or ticket == NO_TICKET:
            return
        deadline = self._targets.clock() + self._targets.journal_timeout_s
        while not journal.wait_written(ticket, MAX_JOURNAL_WAIT_S):
            if journal.full:
                raise OSError(errno.ENOSPC, journal.full)
            self._check(deadline, "written")
        while self._targets.sync and journal.forced_ticket < ticket:
            if not journal.force_now(MAX_JOURNAL_WAIT_S):
                self._check(deadline, "forced")

    def _check(self, deadline: float, what: str) -> None:
        if self._targets.clock() >= deadline:
            raise TimeoutError(
                f"the journal has not {what} the batches to be flushed within {self._targets.journal_timeout_s} s: its disk hangs"
            )

    def _write_entries(self) -> None:
        begin = self._targets.clock()
        if not self._rows:  # after a failure these must be the batches that some directories already have
            self._contents = self._targets.write_cache.contents()
        for ledger in self._targets.ledgers:
            if ledger.number not in self._rows:
                with _naming_directory(ledger.path):
                    self._rows[ledger.number] = self._written_to(ledger)
        self._targets.counters.entrylog_us += self._since(begin)

    def _written_to(self, ledger: LedgerDirectory) -> dict[int, list[IndexRow]]:
        contents = [each for each in self._contents if self._targets.ledgers.of(each[0]) is ledger]
        if not contents:
            return {}
        written = iter(ledger.entry_log.write(self._entries(contents)))
        return {log_id: [self._row(slot, *next(written)) for slot in slots] for log_id, slots in contents}

    def _entries(self, contents: list[tuple[int, list[Slot]]]) -> Iterator[NewEntry]:
        for log_id, slots in contents:
            for slot in slots:
                yield NewEntry(log_id, slot.batch.base_offset, slot.batch.end_offset, self._half.view(slot))

    def _row(self, slot: Slot, file_id: int, file_position: int) -> IndexRow:
        return IndexRow(bytes(self._half.view(slot)[:HEADER_SIZE]), slot.batch.position, file_id, file_position)

    def _since(self, begin: float) -> int:
        """Return the microseconds since `begin`."""
        return int((self._targets.clock() - begin) * 1_000_000)

    def _add_rows(self) -> None:
        begin = self._targets.clock()
        for ledger in self._targets.ledgers:
            if ledger.number not in self._added and self._rows[ledger.number]:
                with _naming_directory(ledger.path):
                    ledger.index.add(self._rows[ledger.number])
            self._added.add(ledger.number)
        self._targets.counters.index_us += self._since(begin)

    def _note_ledgers(self) -> None:
        catalog, ledgers = self._targets.catalog, self._targets.ledgers
        known = {log_id: entry for log_id, _ in self._contents if (entry := catalog.get(log_id)) is not None}
        for log_id, _ in self._contents:
            if log_id in known:
                ledgers.of(log_id).index.delete_before(log_id, known[log_id].start_offset)
            else:  # the log was deleted meanwhile
                ledgers.of(log_id).index.delete_log(log_id)
        catalog.set_ledgers(
            {
                log_id: with_batches(known[log_id].ledgers, map(_ledger_batch, slots))
                for log_id, slots in self._contents
                if log_id in known
            }
        )
        for ledger in ledgers:
            catalog.set_index_bytes(ledger.number, ledger.index.durable_bytes)
        catalog.store()

    def _keep_mark(self) -> None:
        if self._mark is not None:
            self._targets.last_mark.advance(self._mark)

    def _clear(self) -> None:
        self._targets.write_cache.clear()

    def _drop_journals(self) -> None:
        latest = self._targets.last_mark.latest
        if self._targets.journal is not None and latest is not None:
            try:
                self._targets.journal.drop_before(latest)
            except OSError as error:
                logger.warning("journal files that are not needed any more could not be removed: %s", error)


@contextmanager
def _naming_directory(path: Path) -> Iterator[None]:
    """Add the directory to an OSError inside the `with` block."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def _ledger_batch(slot: Slot) -> tuple[Ledger, int, int, int]:
    batch = slot.batch
    return batch.ledger, batch.end_offset, batch.size, batch.max_timestamp
