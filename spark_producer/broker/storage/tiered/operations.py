"""Operations of administrators and of compaction on a log: moving its start offset, and rewriting its batches.

Rewritten batches are written to the entry log, and become valid when they replace the old ones in the index, with one write. Then
the old ones are garbage. Until then garbage collection is paused, since the new batches look like garbage too.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from spark_producer.broker.storage.disk import storage_errors
from spark_producer.broker.storage.tiered.entry_log import CHUNK, EntryPosition, NewEntry
from spark_producer.broker.storage.tiered.location_index import IndexRow
from spark_producer.broker.storage.tiered.log_state import LogState
from spark_producer.common.escape import escaping_logger
from spark_producer.record.batch_v2 import HEADER_SIZE, BatchHeader, read_header

if TYPE_CHECKING:
    from spark_producer.broker.storage.tiered.engine import Engine

logger = escaping_logger(__name__)


class LogOperations:
    """The operations on the logs of an engine. Only the broker's thread uses them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def delete_before(self, state: LogState, offset: int) -> None:
        """See `Log.delete_before`. If the new start offset is within a batch, that is flushed first: a replay of the journal
        expects batches from the start offset on."""
        if offset <= state.start_offset:
            return
        engine = self._engine
        engine.write_path.check_writable()
        with storage_errors(engine.directory):
            cached = engine.write_cache.cached_batch(state.log_id, offset)
            if cached is not None and cached.base_offset < offset:
                engine.flusher.flush_now()
            engine.catalog.set_start(state.log_id, offset)
            state.ledgers[:] = [ledger for ledger in state.ledgers if ledger.end_offset > offset]
            state.start_offset = offset
            engine.ledgers.of(state.log_id).index.delete_before(state.log_id, offset)
            engine.catalog.store()
        state.is_in_catalog = True
        engine.ledgers.of(state.log_id).collector.request()
        logger.info("%s: the log start offset is %d", state.name, offset)

    def rewritable_end(self, state: LogState) -> int:
        """See `Log.rewritable_end`: the end of the flushed batches before the last ledger."""
        last = self._engine.ledgers.of(state.log_id).index.last(state.log_id)
        if last is None or not state.ledgers or self._engine.write_path.failure is not None:
            return state.start_offset
        begin = state.ledgers[-1].first_offset
        if last.end_offset <= begin:
            return max(last.end_offset, state.start_offset)
        found = self._engine.ledgers.of(state.log_id).index.indexed(state.log_id, begin)
        return state.start_offset if found is None else max(found.base_offset, state.start_offset)

    def rewrite(self, state: LogState, end: int) -> LogRewriting:
        """See `Log.rewrite`."""
        self._engine.write_path.check_writable()
        return LogRewriting(self._engine, state, end)


class LogRewriting:
    """A `Rewriting` of the batches of a log before the offset `end`."""

    def __init__(self, engine: Engine, state: LogState, end: int) -> None:
        self._engine, self._state, self._end = engine, state, end
        self._directory = engine.ledgers.of(state.log_id)
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._headers: list[bytes] = []
        self._written: list[EntryPosition] = []
        self._directory.collector.is_paused = True

    def add(self, batch: bytes) -> bool:
        """See `Rewriting.add`. Batches are written in chunks, between two flushes."""
        if self._waiting_bytes >= CHUNK and not self._write():
            return False
        self._waiting.append(batch)
        self._waiting_bytes += len(batch)
        return True

    def keep(self, row: IndexRow) -> bool:
        """Keep a batch of the log where it is, after those that were added; return as `add`."""
        if self._waiting and not self._write():
            return False
        self._headers.append(row.header)
        self._written.append(EntryPosition(row.file_id, row.file_position))
        return True

    def _write(self) -> bool:
        """Write the waiting batches; return False if a flush is running."""
        with storage_errors(self._directory.path):
            return self._engine.flusher.if_idle(self._write_waiting)

    def _write_waiting(self) -> None:
        headers = [read_header(batch) for batch in self._waiting]
        self._written += self._directory.entry_log.write(
            NewEntry(self._state.log_id, header.base_offset, header.last_offset + 1, batch)
            for header, batch in zip(headers, self._waiting, strict=True)
        )
        self._headers += [batch[:HEADER_SIZE] for batch in self._waiting]
        self._waiting, self._waiting_bytes = [], 0

    def commit(self) -> bool:
        """See `Rewriting.commit`."""
        with storage_errors(self._directory.path):
            return self._engine.flusher.if_idle(self._commit)

    def _commit(self) -> None:
        if self._waiting:
            self._write_waiting()
        engine, state = self._engine, self._state
        headers = [read_header(header) for header in self._headers]
        sizes = self._ledger_sizes(headers)
        engine.catalog.set_compacted(
            state.log_id, {}
        )  # before the index, whose old rows would otherwise count as needed
        engine.catalog.store()
        self._directory.index.replace(state.log_id, self._rows(headers))
        for ledger in state.ledgers:
            if ledger.first_offset in sizes:
                ledger.entries, ledger.bytes = sizes[ledger.first_offset]
        engine.catalog.set_compacted(state.log_id, sizes)
        engine.catalog.set_index_bytes(self._directory.number, self._directory.index.durable_bytes)
        engine.read_path.rewritten(state.log_id)
        self._resume_collecting()
        self._directory.collector.request()
        engine.catalog.store()

    def _rows(self, headers: list[BatchHeader]) -> list[IndexRow]:
        """Return the rows of the new batches. Their positions have the same end as those of the old ones."""
        last = self._directory.index.indexed(self._state.log_id, self._end - 1)
        assert last is not None
        position = last.position + last.size - sum(header.size for header in headers)
        rows = []
        for raw, header, (file_id, file_position) in zip(self._headers, headers, self._written, strict=True):
            rows.append(IndexRow(raw, position, file_id, file_position))
            position += header.size
        return rows

    def _ledger_sizes(self, headers: list[BatchHeader]) -> dict[int, tuple[int, int]]:
        """Return (number of batches, bytes) of the ledgers before the end, by first offset."""
        ledgers = [ledger for ledger in self._state.ledgers if ledger.end_offset <= self._end]
        counts, sizes = [0] * len(ledgers), [0] * len(ledgers)
        firsts = [ledger.first_offset for ledger in ledgers]
        for header in headers if ledgers else ():
            number = max(bisect_right(firsts, header.base_offset) - 1, 0)
            counts[number] += 1
            sizes[number] += header.size
        return {first: (counts[number], sizes[number]) for number, first in enumerate(firsts)}

    def abort(self) -> None:
        """See `Rewriting.abort`. Batches that were written are garbage, since they are not in the index."""
        self._waiting = []
        self._resume_collecting()

    def _resume_collecting(self) -> None:
        self._directory.collector.is_paused = False
