"""The recovery of an engine at its start: the states of all logs, from the catalog, the index and the journal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from spark_producer.broker.settings import TopicSettings
from spark_producer.broker.storage.tiered.catalog import Catalog, CatalogEntry
from spark_producer.broker.storage.tiered.journal import Mark
from spark_producer.broker.storage.tiered.ledger_directories import LedgerDirectories
from spark_producer.broker.storage.tiered.ledgers import RollRules
from spark_producer.broker.storage.tiered.log_state import LogState
from spark_producer.broker.storage.tiered.write_cache import WriteCache
from spark_producer.broker.storage.tiered.write_cache_half import NO_TICKET, CachedBatch
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import CorruptRecord
from spark_producer.record.batch_v2 import BatchHeader, read_header

logger = escaping_logger(__name__)


class Recovery:
    """Rebuilds the states of all logs. `clock_ms` gives milliseconds since 1970.

    The settings of topics are not known yet: ledgers of batches that are not in the catalog are rolled by the default ones.
    """

    def __init__(
        self,
        catalog: Catalog,
        ledgers: LedgerDirectories,
        roll: RollRules,
        clock_ms: Callable[[], int],
        *,
        skip_damage: bool = False,
    ) -> None:
        """`skip_damage`: continue without missing records, and log their number."""
        self._catalog, self._ledgers, self._roll, self._clock_ms = catalog, ledgers, roll, clock_ms
        self._skip_damage = skip_damage
        self._skipped: dict[str, int] = {}
        self.journal_only: dict[str, int] = {}
        """Number of batches that are only in the journal, by damaged partition."""
        self.states: dict[int, LogState] = {}

    def read_index(self) -> None:
        """Restore the states of all logs up to their flushed batches. Index rows of deleted logs are dropped.

        Raises:
            CorruptRecord: the index has a log that the catalog never had.
        """
        for ledger in self._ledgers:
            for log_id in ledger.index.log_ids():
                if log_id >= self._catalog.next_log_id:
                    self._adopt(log_id, f"the index in {ledger.path}")
        for entry in self._catalog.entries():
            self.states[entry.log_id] = self._flushed(entry)
        for ledger in self._ledgers:
            for log_id in ledger.index.log_ids():
                if log_id not in self.states:
                    ledger.index.delete_log(log_id)

    def _adopt(self, log_id: int, where: str) -> CatalogEntry:
        """Add a log that the catalog never had, if damage is skipped.

        Raises:
            CorruptRecord: damage is not skipped.
        """
        what = f"{where} has batches of log {log_id}, which is missing in the catalog {self._catalog.path}"
        if not self._skip_damage:
            raise CorruptRecord(f"{what}. Restore a backup of the whole data directory")
        logger.error("%s: its records are kept, and cannot be read, since their topic is unknown", what)
        return self._catalog.adopt(log_id)

    def _flushed(self, entry: CatalogEntry) -> LogState:
        index = self._ledgers.of(entry.log_id).index
        index.delete_before(entry.log_id, entry.start_offset)
        last = index.last(entry.log_id)
        state = LogState.of(entry, entry.start_offset, 0)
        if last is not None:
            first = index.indexed(entry.log_id, entry.start_offset)
            if first is None:
                state.damage = f"its records from offset {entry.start_offset} on are missing from the index"
            state.end_position = last.position + last.size
            if last.end_offset > entry.flushed_end:
                self._count_uncounted(state, entry.flushed_end, last.end_offset)
            state.end_offset = max(state.end_offset, last.end_offset)
        if state.end_offset < entry.flushed_end:
            state.damage = (
                f"its records from offset {state.end_offset} up to {entry.flushed_end} are missing from the index"
            )
        state.confirm_all()
        return state

    def _count_uncounted(self, state: LogState, begin: int, end: int) -> None:
        """Add batches to ledgers that are in the index but not in the catalog, since a crash interrupted the flush."""
        offset, now, index = begin, self._clock_ms(), self._ledgers.of(state.log_id).index
        while offset < end and (found := index.indexed(state.log_id, offset)) is not None:
            state.end_offset = found.base_offset
            ledger = state.ledger_for(found.size, found.max_timestamp, TopicSettings(), self._roll, now)
            state.count(ledger, found.end_offset, found.size, found.max_timestamp, now)
            offset = found.end_offset
        self._catalog.set_ledgers({state.log_id: [replace(ledger) for ledger in state.ledgers]})

    def replay(
        self,
        records: Iterable[tuple[int, bytes]],
        write_cache: WriteCache[Mark | None],
        flush_cache: Callable[[], None],
    ) -> int:
        """Put the batches of the journal that were not flushed into the write cache; return their number.

        `flush_cache` is called when the cache is full, and must empty it.

        Raises:
            OSError: the cache is full, and could not be flushed.
        """
        count = 0
        for log_id, batch in records:
            state = self.states.get(log_id)
            header = read_header(batch)
            if state is None and log_id >= self._catalog.next_log_id:
                entry = replace(self._adopt(log_id, "the journal"), start_offset=header.base_offset)
                self._catalog.set_start(log_id, header.base_offset)
                state = self.states[log_id] = LogState.of(entry, header.base_offset, 0)
            if state is None or header.last_offset < state.end_offset:
                continue  # the log was deleted, or the batch was flushed
            if state.damage is not None:
                self.journal_only[state.name] = self.journal_only.get(state.name, 0) + 1
                continue
            if header.base_offset != state.end_offset and self._skip_damage:
                self._skipped[state.name] = self._skipped.get(state.name, 0) + header.records_count
                continue
            if header.base_offset != state.end_offset:
                state.damage = f"its records from offset {state.end_offset} up to {header.base_offset} are missing"
                self.journal_only[state.name] = 1
                continue
            self._put(state, header, batch, write_cache, flush_cache)
            count += 1
        for state in self.states.values():
            state.confirm_all()
        for name, skipped in self._skipped.items():
            logger.error("%s: skipped %d records that follow damage of the journal", name, skipped)
        return count

    def _put(
        self,
        state: LogState,
        header: BatchHeader,
        batch: bytes,
        write_cache: WriteCache[Mark | None],
        flush_cache: Callable[[], None],
    ) -> None:
        now = self._clock_ms()
        size, timestamp = len(batch), header.max_timestamp
        ledger = state.ledger_for(size, timestamp, TopicSettings(), self._roll, now)
        end = header.last_offset + 1
        cached = CachedBatch(header.base_offset, end, timestamp, size, state.end_position, ledger)
        if not write_cache.put(state.log_id, cached, [batch], _not_handed_over):
            flush_cache()
            if not write_cache.put(state.log_id, cached, [batch], _not_handed_over):
                state.damage = (
                    f"its batch at offset {header.base_offset} has {size} bytes, more than half of the write cache"
                )
                return
        state.add_batch(ledger, end, size, timestamp, now)


def _not_handed_over(_view: memoryview) -> int:
    """Return no ticket: the batch is already in the journal."""
    return NO_TICKET
