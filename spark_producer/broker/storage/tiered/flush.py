"""One flush of a half of the write cache: what is done, step by step, each of which may be repeated after a failure.

The order is what makes a crash at any moment harmless. Batches are in the entry log before the index names them, in the index
before the catalog counts them, and in all of them before the mark of the journal passes them; their journals go last.

One flush goes to all ledger directories, because one mark is for all of them. If one refuses, the flush fails, and says which;
what the others have is not written again. BookKeeper goes on with the other directories, where any of them takes any ledger. Here
a log's batches stay in one, so that one place knows all of them.
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
"""How long a flush waits for the journal at a time, at most."""

logger = escaping_logger(__name__)


class JournalForFlush(Protocol):
    """What a flush asks of the journal."""

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
    """Where a flush writes. Without a journal (in a recovery) nothing is waited for, and nothing dropped.

    With `sync` batches are confirmed when the journal is forced, else when it is written; the flush waits for that, so the index
    has nothing but confirmed batches. A flush fails if the journal takes longer than `journal_timeout_s`.
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
    """The flush of one half, with the mark that was taken for it (None: the mark stays). Only the thread of the flush uses it."""

    def __init__(self, half: WriteCacheHalf, mark: Mark | None, targets: FlushTargets) -> None:
        self._half = half
        self._mark = mark
        self._targets = targets
        self._contents: list[tuple[int, list[Slot]]] = []
        self._rows: dict[int, dict[int, list[IndexRow]]] = {}
        """By directory that has the batches in its entry log: by log."""
        self._added: set[int] = set()
        """The directories that have the rows in their index."""
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
        """Do all steps that are not done yet.

        Raises:
            OSError: the disk refused. The next call goes on with the step that failed.
            BrokerError: the journal has failed.
        """
        while self._steps:
            self._steps[0]()
            del self._steps[0]

    def _await_journal(self) -> None:
        """Wait until the journal, which writes from the half, needs it no more, and its batches are confirmed."""
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
        if not self._rows:  # those that some directories have must be the same ones after a failure
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
        """Return the microseconds since a moment."""
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
            else:  # it was deleted meanwhile
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
                logger.warning("files of the journal that are not needed any more could not be removed: %s", error)


@contextmanager
def _naming_directory(path: Path) -> Iterator[None]:
    """Have an OSError inside the `with` block say which directory refused."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def _ledger_batch(slot: Slot) -> tuple[Ledger, int, int, int]:
    batch = slot.batch
    return batch.ledger, batch.end_offset, batch.size, batch.max_timestamp
