"""The write path: a batch is copied to the write cache and appended to the journal, which later confirms it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from spark_producer.broker.settings import TopicSettings
from spark_producer.broker.storage.base import LEADER_EPOCH
from spark_producer.broker.storage.disk import storage_errors
from spark_producer.broker.storage.file_ops import Buffer
from spark_producer.broker.storage.tiered.batch_limit import BatchLimit
from spark_producer.broker.storage.tiered.catalog import Catalog
from spark_producer.broker.storage.tiered.journal import Journal, JournalRecord, Mark
from spark_producer.broker.storage.tiered.ledgers import RollRules
from spark_producer.broker.storage.tiered.log_state import LogListener, LogState
from spark_producer.broker.storage.tiered.write_cache import WriteCache
from spark_producer.broker.storage.tiered.write_cache_half import CachedBatch
from spark_producer.common.error_codes import Code
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import BrokerError
from spark_producer.record.batch_v2 import BatchHeader, assign_base_offset

_ASSIGNED_BYTES: Final = 16
"""Number of bytes at the start of a batch that a broker changes: base offset, length and leader epoch."""

logger = escaping_logger(__name__)


class AdmittedListener(Protocol):
    """Called with each admitted batch: see `ReadPath.admitted`."""

    def __call__(self, log_id: int, base_offset: int, end_offset: int, batch: bytes | memoryview, /) -> None:
        """Take the batch in."""


def stamped(batch: memoryview, base_offset: int) -> tuple[Buffer, Buffer]:
    """Return the parts of a batch with this base offset and `LEADER_EPOCH`; `batch` is not changed."""
    head = memoryview(bytearray(batch[:_ASSIGNED_BYTES]))
    assign_base_offset(head, base_offset, LEADER_EPOCH)
    return head, batch[_ASSIGNED_BYTES:]


class WritePath:
    """Admits batches of all logs in `states`. The broker's thread uses it; docstrings name other threads.

    `clock_ms` gives milliseconds since 1970.
    """

    def __init__(
        self,
        *,
        write_cache: WriteCache[Mark | None],
        catalog: Catalog,
        states: dict[int, LogState],
        sync: bool,
        roll: RollRules,
        clock_ms: Callable[[], int],
        admitted: AdmittedListener,
    ) -> None:
        self.states = states
        self.failure: str | None = None
        """Error message after the journal has failed: no batch is confirmed any more."""
        self.refusal: str | None = None
        """Error message after too many flushes have failed: no batch is admitted any more."""
        self.notify_log: LogListener = lambda _topic, _partition: None
        self.notify_space: Callable[[], None] = lambda: None
        self.journal: Journal | None = None
        """None until the journals of earlier runs were replayed."""
        self.limit = BatchLimit(write_cache.half_size)
        self._write_cache, self._catalog, self._sync, self._roll = write_cache, catalog, sync, roll
        self._clock_ms, self._admitted = clock_ms, admitted
        self._space_is_awaited = False

    def has_space(self, size: int) -> bool:
        """See `Storage.has_space`. Return True too if no batch is admitted any more: then `admit` raises the reason."""
        if self.failure is not None or self.refusal is not None or self.journal is None:
            return True
        had_space = not self._space_is_awaited
        self._space_is_awaited = True  # before the check, so that space that is freed during it is reported
        if self._write_cache.has_space(min(size, self._write_cache.half_size)) and self.journal.has_memory(size):
            self._space_is_awaited = False
            return True
        self._write_cache.counters.throttled += had_space
        return False

    def admit(self, state: LogState, settings: TopicSettings, batch: memoryview, header: BatchHeader) -> int:
        """See `storage.base.Log.admit`."""
        journal = self._checked_journal(state.topic, header.size)
        if not state.is_in_catalog:
            with storage_errors(self._catalog.path):
                self._catalog.store()
            state.is_in_catalog = True
        base, now = state.end_offset, self._clock_ms()
        end = base + header.last_offset_delta + 1
        ledger = state.ledger_for(header.size, header.max_timestamp, settings, self._roll, now)
        cached = CachedBatch(base, end, header.max_timestamp, header.size, state.end_position, ledger)

        def hand_over(view: memoryview) -> int:
            ticket = journal.append(JournalRecord(state.log_id, base, end, view))
            state.add_batch(ledger, end, header.size, header.max_timestamp, now)
            try:
                self._admitted(state.log_id, base, end, view)
            except MemoryError:  # the journal has the batch, so it is admitted even without a copy there
                logger.warning("%s: no memory for a batch in the tail cache", state.name)
            return ticket

        try:
            is_put = self._write_cache.put(state.log_id, cached, stamped(batch, base), hand_over)
        except MemoryError as error:  # neither the write cache nor the journal has the batch
            raise self._out_of_space("the process has no memory for the batch") from error
        if not is_put:
            raise self._out_of_space("the write cache is full, and its other half is being flushed")
        return base

    def _checked_journal(self, topic: str, size: int) -> Journal:
        self.check_writable()
        if self.refusal is not None:
            raise BrokerError(self.refusal, code=Code.KAFKA_STORAGE_ERROR)
        self.limit.check(topic, size)
        assert self.journal is not None, "no batch is admitted before the recovery has ended"
        if self.journal.full:
            raise self._out_of_space(self.journal.full)
        if not self.journal.has_memory(size):
            raise self._out_of_space("the journal waits for the disk")
        return self.journal

    def _out_of_space(self, why: str) -> BrokerError:
        """Count a refusal; return the retriable error for the producer.

        Kafka returns NOT_ENOUGH_REPLICAS for a batch that cannot be stored safely now; all clients send the batch again, and know
        that it was not stored. BookKeeper's code for this, TooManyRequests, has no other counterpart that librdkafka retries.
        """
        self._write_cache.counters.rejected += 1
        return BrokerError(f"no space for the batch: {why}. Send it again", code=Code.NOT_ENOUGH_REPLICAS)

    def check_writable(self) -> None:
        """Check that the journal works.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """
        if self.failure is not None:
            raise BrokerError(self.failure, code=Code.KAFKA_STORAGE_ERROR)

    def written(self, records: Sequence[JournalRecord], by_caller: bool) -> None:
        """Handle records that the journal has written. The threads of the journal call this; without `sync` mostly `admit` does
        (`by_caller`), whose caller sees the confirmed offset when it returns."""
        self._advance(records, confirms=not self._sync, notifies=not by_caller)

    def forced(self, records: Sequence[JournalRecord]) -> None:
        """Handle records that the journal has forced. The threads of the journal call this."""
        self._advance(records, confirms=True, notifies=True)

    def _advance(self, records: Sequence[JournalRecord], *, confirms: bool, notifies: bool) -> None:
        touched: dict[int, LogState] = {}
        for record in records:
            state = self.states.get(record.log_id)
            if state is not None:  # else the log was deleted
                state.written_end = max(state.written_end, record.end_offset)
                if confirms:
                    state.confirmed_end = record.end_offset
                touched[record.log_id] = state
        for state in touched.values() if notifies else ():
            self.notify_log(state.topic, state.partition)
        if confirms:
            self.space_freed()

    def failed(self, error: BaseException) -> None:
        """Record that the journal has failed. The threads of the journal call this."""
        self.failure = (
            f"the broker is read-only: its journal has failed ({error!r}), so batches that are not acknowledged may not be on "
            "the disk. Repair the disk, then restart the broker: it recovers the stored batches, and idempotent producers can "
            "send their batches again without duplicates"
        )
        logger.error("%s", self.failure)
        for state in list(self.states.values()):
            if state.confirmed_end < state.end_offset:
                self.notify_log(state.topic, state.partition)
        self.space_freed()

    def flushes_failed(self, reason: str) -> None:
        """Record that too many flushes have failed. The flush thread calls this."""
        self.refusal = reason
        logger.error("%s", reason)
        self.space_freed()

    def space_freed(self) -> None:
        """Report that there is space again, if `has_space` has returned False. Any thread may call this."""
        if self._space_is_awaited:
            self._space_is_awaited = False
            self.notify_space()
