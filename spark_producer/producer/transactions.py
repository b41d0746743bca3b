"""The calls that begin and end transactions: task threads wait here for what the I/O thread does.

`sender.transactions` has the states and says which call is allowed. A thread that has waited long enough leaves; what it asked
for goes on, and then only the same call is allowed, which gets the result (as with Kafka's TransactionalRequestResult).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, cast

from spark_producer.accumulator import RecordAccumulator
from spark_producer.common.cluster import Span, Style, TopicPartition
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import IllegalState, PyProducerError, RecordError, TransactionTimeout
from spark_producer.sender.transactions.manager import TransactionManager
from spark_producer.sender.transactions.partitions import ConsumerGroup, GroupOffset, GroupOffsets, PreparedResult
from spark_producer.sender.transactions.states import REPEATED, Operation, TxnCall, TxnState

_log = escaping_logger(__name__)

_SHORT_NAMES = {
    TxnCall.INIT: "init",
    TxnCall.BEGIN: "begin",
    TxnCall.OFFSETS: "send-offsets",
    TxnCall.COMMIT: "commit",
    TxnCall.ABORT: "abort",
}
"""What the calls are named in the metrics that tell how long they took (Kafka's KafkaProducerMetrics)."""


class PreparedTransaction(NamedTuple):
    """A transaction that is filled, acknowledged and open: whoever has these values may end it.

    `started_ms` is when it was begun, by this machine's clock. Without rows `spans` is empty, and there is nothing to end.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    style: Style
    spans: tuple[Span, ...]
    started_ms: int


class HeldBatch(NamedTuple):
    """A record batch as it is sent in a transaction, but for producer id, epoch and sequence, and the CRC over them."""

    topic: str
    partition: int
    records: int
    data: bytes


class Transactions:
    """The calls of one transactional producer. Any thread but the I/O thread may call. Timeouts are seconds."""

    def __init__(
        self,
        manager: TransactionManager,
        accumulator: RecordAccumulator,
        *,
        max_block: float,
        max_sleep: float,
        clock: Callable[[], float],
        wakeup: Callable[[], None],
        restart_partitioner: Callable[[], None],
        last_error: Callable[[], PyProducerError | None],
        waited: Callable[[str, float, float], None],
    ) -> None:
        """`last_error` tells why a broker could not be reached. `waited` is told of each call and its seconds, and the time."""
        self.check = manager.check
        self.check_still = manager.check_still
        self._manager = manager
        self._accumulator = accumulator
        self._backlog = accumulator.incomplete
        self._max_block = max_block
        self._max_sleep = max_sleep
        self._clock = clock
        self._wakeup = wakeup
        self._restart_partitioner = restart_partitioner
        self._last_error = last_error
        self._waited = waited
        self._lock = threading.Lock()
        """Take it itself, not by the condition: Ctrl-C within the condition's own `__enter__` would leave it locked for ever."""
        self._changed = threading.Condition(self._lock)
        self._unfinished: Operation | None = None
        """the call of `REPEATED` that a thread waits for, or that was not answered in time"""
        manager.on_done = self.wake_waiters

    def wake_waiters(self) -> None:
        """Wake the threads that wait. The I/O thread calls this, also at its end."""
        with self._lock:
            self._changed.notify_all()

    def mark_abortable(self, error: BaseException) -> None:
        """Let the transaction only be aborted: a row was refused before it was queued, so the transaction lacks it."""
        self._manager.calls.append(Operation(TxnCall.MARK_ABORTABLE, error))
        self._wakeup()

    def check_may_flush(self) -> None:
        """Refuse a flush that would wait for rows which are held back.

        Raises:
            IllegalState: they are.
        """
        if self._manager.state is TxnState.HELD:
            raise IllegalState("flush() would wait for ever: the rows are held back until release() or prepare()")

    # --- as in Kafka's producer -------------------------------------------------------------------------------------

    def init(self, timeout: float | None) -> None:
        """Take the next epoch of the transactional id, which ends whatever an earlier producer has left open."""
        self._timed(TxnCall.INIT, timeout=timeout)

    def begin(self) -> None:
        """Begin a transaction."""
        self._timed(TxnCall.BEGIN)

    def commit(self, timeout: float | None) -> None:
        """Send everything and commit it."""
        self._accumulator.close_open()
        self._timed(TxnCall.COMMIT, timeout=timeout)
        self._restart_partitioner()
        stray = self._backlog.failures.acknowledge_mine()
        if stray is not None:  # no row of this transaction has failed, and whoever is told of an error writes again
            _log.warning("rows that were sent while no transaction was open are not written: %s", stray)

    def warn_if_open(self) -> None:
        """Before the first close: a transaction that was neither committed nor aborted has probably been forgotten."""
        if self._manager.state in (TxnState.IN_TRANSACTION, TxnState.ABORTABLE) and not self._backlog.closing:
            _log.warning(
                "transactional.id %s: the producer is closed in a transaction that was not committed, so that is aborted, with "
                "all its rows",
                self._manager.transactional_id,
            )

    def abort(self, timeout: float | None) -> None:
        """Drop what waits and abort."""
        self._timed(TxnCall.ABORT, timeout=timeout)
        self._restart_partitioner()

    def send_offsets(
        self, offsets: Mapping[tuple[str, int], int | GroupOffset], group: str | ConsumerGroup, timeout: float | None
    ) -> None:
        """Commit offsets of a group with the transaction."""
        asked = group_offsets(offsets, group)
        if asked.offsets:
            self._timed(TxnCall.OFFSETS, asked, timeout)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Begin a transaction, and commit it at the end; abort it after an error."""
        self.begin()
        try:
            yield
            self.commit(None)
        except BaseException:
            goes_on = self._unfinished is not None  # Ctrl-C or a timeout has ended a wait: an abort would be refused
            if not goes_on and self._manager.state in (
                TxnState.IN_TRANSACTION,
                TxnState.ABORTABLE,
            ):
                self.abort(None)
            raise

    # --- for the sink -----------------------------------------------------------------------------------------------

    def hold(self) -> None:
        """Take rows from now on without sending them: no transaction is begun, and no request for one is made.

        The hold ends by itself, as with `release`, when a thread waits for memory.
        """
        self._run(TxnCall.HOLD)

    @property
    def holding(self) -> bool:
        """Whether rows are held back now."""
        return self._manager.state is TxnState.HELD

    def held_bytes(self) -> int:
        """Return the bytes of the batches that wait. Open batches that will be compressed count as they are now."""
        return self._accumulator.waiting_bytes()

    def take_held(self) -> list[HeldBatch] | None:
        """Take out what is held and end the hold, as if nothing had ever been queued; None if the hold has ended before."""
        self._accumulator.close_open()
        if not self.holding:
            return None
        found = cast(list[tuple[TopicPartition, int, bytes]] | None, self._run(TxnCall.TAKE))
        if found is None:  # it has ended since
            return None
        self._restart_partitioner()
        return [HeldBatch(*tp, records, data) for tp, records, data in found]

    def release(self) -> None:
        """End the hold: a transaction with an epoch of its own begins, and everything goes out in it. This does not wait."""
        self._run(TxnCall.RELEASE)

    def prepare(self) -> PreparedTransaction:
        """Flush, and leave the transaction open for another process to end. From now on every call is refused until `renew`.

        Raises:
            TransactionAbortable: the transaction lacks rows.
        """
        if self._manager.state is TxnState.HELD:
            self.release()
        self._accumulator.flush()
        self._restart_partitioner()
        found = cast(PreparedResult, self._run(TxnCall.PREPARE))
        open_for = 0.0 if found.began_at is None else self._clock() - found.began_at
        started_ms = time.time_ns() // 1_000_000 - int(open_for * 1000)
        return PreparedTransaction(*found[:-1], started_ms)

    def renew(self) -> None:
        """Forget the prepared transaction, which is ended elsewhere; the next one takes the next epoch."""
        self._run(TxnCall.RENEW)

    def try_abort(self, timeout: float | None = None) -> bool:
        """Drop what waits, and abort what is open, also if it is prepared. Return whether that is done; it raises nothing.

        If a batch is in doubt, the next epoch is taken, which shuts it out. After False, close the producer.
        """
        self._unfinished = None
        try:
            self._run(TxnCall.TRY_ABORT, timeout=timeout)
        except PyProducerError:
            return False
        self._restart_partitioner()
        return True

    # --- waiting ----------------------------------------------------------------------------------------------------

    def _timed(self, call: TxnCall, argument: object = None, timeout: float | None = None) -> None:
        """Do what `_run` does, and record how long the caller was in it, with or without success."""
        began = self._clock()
        try:
            self._run(call, argument, timeout)
        finally:
            now = self._clock()
            self._waited(_SHORT_NAMES[call], now - began, now)

    def _run(self, call: TxnCall, argument: object = None, timeout: float | None = None) -> object:
        """Have the I/O thread carry out a call, and return its result.

        Raises:
            TransactionTimeout: it took too long; a call of `REPEATED` goes on.
            IllegalState: another call is under way, or this one makes no sense now, or a callback made it.
            The error of the call, or the one that ended the producer.
        """
        if threading.get_ident() == self._accumulator.io_thread:
            raise IllegalState(f"{call.value}() was called by a callback, on the thread that would carry it out")
        if not self._has_committed(call):
            self._backlog.check_open()
        limit = self._clock() + (self._max_block if timeout is None else timeout)
        with self._lock:
            operation = self._take_up(call, argument)
            operation.caller = threading.get_ident()
            try:
                self._wakeup()
                while not operation.done:
                    ended = self._backlog.error
                    if ended is not None and operation.committed:
                        operation.done = True  # only the next epoch is missing, and nobody needs it any more
                        break
                    if ended is not None:
                        raise ended
                    left = limit - self._clock()
                    if left <= 0:
                        raise self._too_late(call, timeout)
                    self._changed.wait(min(left, self._max_sleep))
            finally:
                operation.caller = None
                if self._unfinished is operation and operation.done:
                    self._unfinished = None
        if operation.error is not None:
            raise operation.error
        return operation.result

    def _has_committed(self, call: TxnCall) -> bool:
        """Whether this call repeats a commit that was not told in time and was done, whatever became of the producer since."""
        found = self._unfinished
        return found is not None and found.call is call and found.committed

    def _take_up(self, call: TxnCall, argument: object) -> Operation:
        found = self._unfinished
        if found is None:
            found = Operation(call, argument)
            if call in REPEATED:  # each of the others is one of its own: threads may send different offsets at once
                self._unfinished = found
            self._manager.calls.append(found)
        elif found.call is not call:
            raise IllegalState(
                f"{call.value}() was called before {found.call.value}() had its result: call {found.call.value}() again, "
                "which returns once it is known, or close the producer"
            )
        elif call is TxnCall.BEGIN and found.caller not in (None, threading.get_ident()):
            raise IllegalState("begin_transaction() was called while another thread was beginning a transaction")
        elif not found.seen:
            self._manager.calls.append(found)  # Ctrl-C may have struck before this was done
        return found

    def _too_late(self, call: TxnCall, timeout: float | None) -> TransactionTimeout:
        within = f"{self._max_block:g} s (kafka.max.block.ms)" if timeout is None else f"{timeout:g} s"
        then = "it goes on, so call it again, and nothing else before" if call in REPEATED else "abort the transaction"
        error = self._last_error()
        reason = f" Last error: {str(error).rstrip('.')}." if error is not None else ""
        return TransactionTimeout(f"{call.value}() was not answered within {within}.{reason} What to do: {then}")


def group_offsets(offsets: Mapping[tuple[str, int], int | GroupOffset], group: str | ConsumerGroup) -> GroupOffsets:
    """Return checked offsets of a group. `offsets` maps a topic and a partition to the offset to read on from.

    Raises:
        RecordError: the group has no name, a generation without a member, or an offset is below 0.
    """
    member = ConsumerGroup(group) if isinstance(group, str) else group
    if not member.group_id:
        raise RecordError("send_offsets_to_transaction() needs the name of a consumer group")
    if member.generation_id > 0 and not member.member_id:
        raise RecordError(
            f"group {member.group_id!r} has generation {member.generation_id} and no member_id: give both"
        )
    found = {}
    for (topic, partition), given in offsets.items():
        offset = given if isinstance(given, GroupOffset) else GroupOffset(given)
        if offset.offset < 0:
            raise RecordError(f"offset {offset.offset} of topic {topic!r}, partition {partition} is below 0")
        found[TopicPartition(topic, partition)] = offset
    return GroupOffsets(member, found)
