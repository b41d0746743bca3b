"""The way of a batch into the engine: into the write cache, then to the journal; and what the journal says about it later."""

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
"""The first bytes of a batch: base offset, length and leader epoch. A broker changes nothing after them."""

logger = escaping_logger(__name__)


class AdmittedListener(Protocol):
    """Who is told of each batch that was admitted: see `ReadPath.admitted`."""

    def __call__(self, log_id: int, base_offset: int, end_offset: int, batch: bytes | memoryview, /) -> None:
        """Take note of the batch."""


def stamped(batch: memoryview, base_offset: int) -> tuple[Buffer, Buffer]:
    """Return the parts of a batch with this base offset and the leader epoch of all batches; `batch` is not changed."""
    head = memoryview(bytearray(batch[:_ASSIGNED_BYTES]))
    assign_base_offset(head, base_offset, LEADER_EPOCH)
    return head, batch[_ASSIGNED_BYTES:]


class WritePath:
    """Admits batches of all logs in `states`. The broker's thread calls, and the journal's threads where it is said.

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
        """Why nothing is confirmed any more: the journal has failed."""
        self.refusal: str | None = None
        """Why nothing is admitted any more: flushes failed again and again."""
        self.notify_log: LogListener = lambda _topic, _partition: None
        self.notify_space: Callable[[], None] = lambda: None
        self.journal: Journal | None = None
        """None until the journals of earlier lives were read."""
        self.limit = BatchLimit(write_cache.half_size)
        self._write_cache, self._catalog, self._sync, self._roll = write_cache, catalog, sync, roll
        self._clock_ms, self._admitted = clock_ms, admitted
        self._space_is_awaited = False

    def has_space(self, size: int) -> bool:
        """Return whether a request of `size` bytes may be handled now. Where nothing is admitted any more, `admit` says why."""
        if self.failure is not None or self.refusal is not None or self.journal is None:
            return True
        had_space = not self._space_is_awaited
        self._space_is_awaited = True  # before looking, so that room that comes at once is told
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
            except MemoryError:  # the journal has the batch, so it is admitted, with or without a copy there
                logger.warning("%s: no memory for a batch in the tail cache", state.name)
            return ticket

        try:
            is_put = self._write_cache.put(state.log_id, cached, stamped(batch, base), hand_over)
        except MemoryError as error:  # neither the write cache nor the journal has it
            raise self._out_of_space("the process has no memory for the batch") from error
        if not is_put:
            raise self._out_of_space("the write cache is full, and its other half is being flushed")
        return base

    def _checked_journal(self, topic: str, size: int) -> Journal:
        self.check_writable()
        if self.refusal is not None:
            raise BrokerError(self.refusal, code=Code.KAFKA_STORAGE_ERROR)
        self.limit.check(topic, size)
        assert self.journal is not None, "nothing is admitted before the recovery has ended"
        if self.journal.full:
            raise self._out_of_space(self.journal.full)
        if not self.journal.has_memory(size):
            raise self._out_of_space("the journal waits for the disk")
        return self.journal

    def _out_of_space(self, why: str) -> BrokerError:
        """Count a refusal; return the error that tells a producer to send the batch again.

        Kafka answers NOT_ENOUGH_REPLICAS for a batch that cannot be kept safely now; all clients send it again, and know that it
        was not kept. BookKeeper's code for it, TooManyRequests, has no other counterpart that librdkafka takes for retriable.
        """
        self._write_cache.counters.rejected += 1
        return BrokerError(f"no room: {why}; send the batch again", code=Code.NOT_ENOUGH_REPLICAS)

    def check_writable(self) -> None:
        """Check that the journal works.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """
        if self.failure is not None:
            raise BrokerError(self.failure, code=Code.KAFKA_STORAGE_ERROR)

    def written(self, records: Sequence[JournalRecord], by_caller: bool) -> None:
        """Note the records that the journal has written. Its threads call this; without `sync` mostly `admit` does (`by_caller`),
        whose caller finds out what is confirmed when it returns."""
        self._advance(records, confirms=not self._sync, notifies=not by_caller)

    def forced(self, records: Sequence[JournalRecord]) -> None:
        """Note what the journal has forced to the disk. Its threads call this."""
        self._advance(records, confirms=True, notifies=True)

    def _advance(self, records: Sequence[JournalRecord], *, confirms: bool, notifies: bool) -> None:
        touched: dict[int, LogState] = {}
        for record in records:
            state = self.states.get(record.log_id)
            if state is not None:  # else it was deleted
                state.written_end = max(state.written_end, record.end_offset)
                if confirms:
                    state.confirmed_end = record.end_offset
                touched[record.log_id] = state
        for state in touched.values() if notifies else ():
            self.notify_log(state.topic, state.partition)
        if confirms:
            self.space_freed()

    def failed(self, error: BaseException) -> None:
        """Note that the journal has failed. Its threads call this."""
        self.failure = (
            f"the broker is read-only: its journal has failed ({error!r}), so batches that are not acknowledged may not be on "
            "the disk. Look after the disk, then restart the broker: it recovers what is there, and producers that send their "
            "batches again get each of them in once"
        )
        logger.error("%s", self.failure)
        for state in list(self.states.values()):
            if state.confirmed_end < state.end_offset:
                self.notify_log(state.topic, state.partition)
        self.space_freed()

    def flushes_failed(self, reason: str) -> None:
        """Note that flushes failed too often. The flush's thread calls this."""
        self.refusal = reason
        logger.error("%s", reason)
        self.space_freed()

    def space_freed(self) -> None:
        """Tell that there is room again, if somebody found none. Any thread may call."""
        if self._space_is_awaited:
            self._space_is_awaited = False
            self.notify_space()
