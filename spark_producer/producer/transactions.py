"""The calls that begin and end transactions, in which task threads wait for the I/O thread.

`sender.transactions` has the states and their allowed calls. After a timeout the call continues without its thread, and then only
the same call is allowed, which gets the result (as with Kafka's TransactionalRequestResult).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, cast

from spark_producer.accumulator import RecordAccumulator
from spark_producer.common.cluster import Span, TopicPartition, TransactionVersion
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
"""The names of the calls in the metrics of their durations (Kafka's KafkaProducerMetrics)."""


class PreparedTransaction(NamedTuple):
    """A filled, acknowledged and open transaction, which any process with these values can end.

    `started_ms` is its start by this machine's clock. Without rows `spans` is empty, and there is nothing to end.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    transaction_version: TransactionVersion
    spans: tuple[Span, ...]
    started_ms: int


class DeferredBatch(NamedTuple):
    """A record batch as sent in a transaction, without producer id, epoch, sequence, and the CRC over them."""

    topic: str
    partition: int
    records: int
    data: bytes


class Transactions:
    """The calls of one transactional producer. Any thread except the I/O thread may call them. Timeouts are in seconds."""

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
        """`last_error` returns the last connection error. `waited(call, seconds, now)` records the duration of a call."""
        self.check = manager.check
        self.check_still = manager.check_still
        self._manager = manager
        self._accumulator = accumulator
        self._incomplete = accumulator.incomplete
        self._max_block = max_block
        self._max_sleep = max_sleep
        self._clock = clock
        self._wakeup = wakeup
        self._restart_partitioner = restart_partitioner
        self._last_error = last_error
        self._waited = waited
        self._lock = threading.Lock()
        """Acquire it directly, not by the condition: Ctrl-C within the condition's `__enter__` would leave it locked for ever."""
        self._changed = threading.Condition(self._lock)
        self._unfinished: Operation | None = None
        """the call of `REPEATED` that a thread waits for, or that has timed out"""
        manager.on_done = self.wake_waiters

    def wake_waiters(self) -> None:
        """Wake the waiting threads. The I/O thread calls this, also at its end."""
        with self._lock:
            self._changed.notify_all()

    def mark_abortable(self, error: BaseException) -> None:
        """Make the transaction abortable only, because a row was rejected before it was queued."""
        self._manager.calls.append(Operation(TxnCall.MARK_ABORTABLE, error))
        self._wakeup()

    def check_may_flush(self) -> None:
        """Check that a flush would not wait for rows of a deferred transaction.

        Raises:
            IllegalState: the transaction is deferred.
        """
        if self._manager.state is TxnState.DEFERRED:
            raise IllegalState("flush() would wait for ever: the transaction is deferred until release() or prepare()")

    # --- as in Kafka's producer -------------------------------------------------------------------------------------

    def init(self, timeout: float | None) -> None:
        """Take the next epoch of the transactional id, which aborts a transaction that an earlier producer has left open."""
        self._timed(TxnCall.INIT, timeout=timeout)

    def begin(self) -> None:
        """Begin a transaction."""
        self._timed(TxnCall.BEGIN)

    def commit(self, timeout: float | None) -> None:
        """Send all rows and commit them."""
        self._accumulator.close_open()
        self._timed(TxnCall.COMMIT, timeout=timeout)
        self._restart_partitioner()
        other_failure = self._incomplete.failures.acknowledge_mine()
        if (
            other_failure is not None
        ):  # no row of this transaction has failed; a raised error would make the caller write it again
            _log.warning(
                "rows were not written, because they were sent while no transaction was open: %s", other_failure
            )

    def warn_if_open(self) -> None:
        """Log a warning on the first close if a transaction is open, which was probably forgotten."""
        if self._manager.state in (TxnState.IN_TRANSACTION, TxnState.ABORTABLE) and not self._incomplete.closing:
            _log.warning(
                "transactional.id %s: the producer is closed with an open transaction, which is aborted with all its rows. "
                "Commit or abort before close()",
                self._manager.transactional_id,
            )

    def abort(self, timeout: float | None) -> None:
        """Drop the waiting rows and abort."""
        self._timed(TxnCall.ABORT, timeout=timeout)
        self._restart_partitioner()

    def send_offsets(
        self, offsets: Mapping[tuple[str, int], int | GroupOffset], group: str | ConsumerGroup, timeout: float | None
    ) -> None:
        """Commit offsets of a group with the transaction."""
        added = group_offsets(offsets, group)
        if added.offsets:
            self._timed(TxnCall.OFFSETS, added, timeout)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Begin a transaction, and commit it at the end; abort it after an error."""
        self.begin()
        try:
            yield
            self.commit(None)
        except BaseException:
            unfinished = (
                self._unfinished is not None
            )  # Ctrl-C or a timeout has ended a wait, so an abort would be rejected
            if not unfinished and self._manager.state in (
                TxnState.IN_TRANSACTION,
                TxnState.ABORTABLE,
            ):
                self.abort(None)
            raise

    # --- for the sink -----------------------------------------------------------------------------------------------

    def begin_deferred(self) -> None:
        """Begin a deferred transaction: rows are queued from now on, but not sent, until `release` begins the transaction.

        It begins automatically, as with `release`, when a thread waits for memory.
        """
        self._run(TxnCall.DEFER)

    @property
    def is_deferred(self) -> bool:
        """Whether the transaction is deferred now."""
        return self._manager.state is TxnState.DEFERRED

    def deferred_bytes(self) -> int:
        """Return the bytes of the waiting batches. Open batches count with their size before compression."""
        return self._accumulator.waiting_bytes()

    def take_deferred(self) -> list[DeferredBatch] | None:
        """Remove the batches of the deferred transaction and return them, without a transaction; None if it has begun already."""
        self._accumulator.close_open()
        if not self.is_deferred:
            return None
        found = cast(list[tuple[TopicPartition, int, bytes]] | None, self._run(TxnCall.TAKE))
        if found is None:  # the transaction has begun meanwhile
            return None
        self._restart_partitioner()
        return [DeferredBatch(*tp, records, data) for tp, records, data in found]

    def release(self) -> None:
        """Begin the deferred transaction, with its own epoch, and send the rows in it. It does not wait."""
        self._run(TxnCall.RELEASE)

    def prepare(self) -> PreparedTransaction:
        """Flush, and leave the transaction open for another process to end. All calls are rejected until `renew`.

        Raises:
            TransactionAbortable: rows are missing in the transaction.
        """
        if self._manager.state is TxnState.DEFERRED:
            self.release()
        self._accumulator.flush()
        self._restart_partitioner()
        found = cast(PreparedResult, self._run(TxnCall.PREPARE))
        open_for = 0.0 if found.began_at is None else self._clock() - found.began_at
        started_ms = time.time_ns() // 1_000_000 - int(open_for * 1000)
        return PreparedTransaction(*found[:-1], started_ms)

    def renew(self) -> None:
        """Forget the prepared transaction, which another process ends. The next one takes the next epoch."""
        self._run(TxnCall.RENEW)

    def try_abort(self, timeout: float | None = None) -> bool:
        """Drop waiting rows, and abort an open or prepared transaction. Return whether that has succeeded; raise nothing.

        If a batch is in doubt, the next epoch is taken, which fences it. After False, close the producer.
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
        """Do what `_run` does, and record its duration, also after an error."""
        began = self._clock()
        try:
            self._run(call, argument, timeout)
        finally:
            now = self._clock()
            self._waited(_SHORT_NAMES[call], now - began, now)

    def _run(self, call: TxnCall, argument: object = None, timeout: float | None = None) -> object:
        """Execute a call on the I/O thread, and return its result.

        Raises:
            TransactionTimeout: it has timed out; a call of `REPEATED` continues.
            IllegalState: another call is in progress, the call is not allowed now, or a callback has made it.
            The error of the call, or the one that has ended the producer.
        """
        if threading.get_ident() == self._accumulator.io_thread:
            raise IllegalState(
                f"{call.value}() was called by a callback, on the thread that executes it. Call it on another thread"
            )
        if not self._has_committed(call):
            self._incomplete.check_open()
        limit = self._clock() + (self._max_block if timeout is None else timeout)
        with self._lock:
            operation = self._post(call, argument)
            operation.caller = threading.get_ident()
            try:
                self._wakeup()
                while not operation.done:
                    error = self._incomplete.error
                    if error is not None and operation.committed:
                        operation.done = True  # only the next epoch is missing, which is no longer needed
                        break
                    if error is not None:
                        raise error
                    remaining = limit - self._clock()
                    if remaining <= 0:
                        raise self._timeout_error(call, timeout)
                    self._changed.wait(min(remaining, self._max_sleep))
            finally:
                operation.caller = None
                if self._unfinished is operation and operation.done:
                    self._unfinished = None
        if operation.error is not None:
            raise operation.error
        return operation.result

    def _has_committed(self, call: TxnCall) -> bool:
        """Return whether this call repeats a commit that timed out and then succeeded, even if the producer has failed since."""
        found = self._unfinished
        return found is not None and found.call is call and found.committed

    def _post(self, call: TxnCall, argument: object) -> Operation:
        found = self._unfinished
        if found is None:
            found = Operation(call, argument)
            if call in REPEATED:  # other calls are separate: threads may send different offsets concurrently
                self._unfinished = found
            self._manager.calls.append(found)
        elif found.call is not call:
            raise IllegalState(
                f"{call.value}() was called before {found.call.value}() had its result. Call {found.call.value}() again to get "
                "the result, or close the producer"
            )
        elif call is TxnCall.BEGIN and found.caller not in (None, threading.get_ident()):
            raise IllegalState("begin_transaction() was called while another thread was beginning a transaction")
        elif not found.seen:
            self._manager.calls.append(found)  # Ctrl-C may have interrupted the previous call before this
        return found

    def _timeout_error(self, call: TxnCall, timeout: float | None) -> TransactionTimeout:
        within = f"{self._max_block:g} s (kafka.max.block.ms)" if timeout is None else f"{timeout:g} s"
        then = (
            "call it again, before any other call, since it continues" if call in REPEATED else "abort the transaction"
        )
        error = self._last_error()
        reason = f" Last error: {str(error).rstrip('.')}." if error is not None else ""
        return TransactionTimeout(f"{call.value}() was not answered within {within}.{reason} What to do: {then}")


def group_offsets(offsets: Mapping[tuple[str, int], int | GroupOffset], group: str | ConsumerGroup) -> GroupOffsets:
    """Return the offsets of a group after checking them. `offsets` maps topic and partition to the next offset.

    Raises:
        RecordError: the group has no name, a generation without a member id, or an offset is negative.
    """
    member = ConsumerGroup(group) if isinstance(group, str) else group
    if not member.group_id:
        raise RecordError("send_offsets_to_transaction() needs the name of a consumer group")
    if member.generation_id > 0 and not member.member_id:
        raise RecordError(
            f"group {member.group_id!r} has generation {member.generation_id} and no member_id. Give both"
        )
    found = {}
    for (topic, partition), given in offsets.items():
        offset = given if isinstance(given, GroupOffset) else GroupOffset(given)
        if offset.offset < 0:
            raise RecordError(f"offset {offset.offset} of topic {topic!r}, partition {partition} is negative")
        found[TopicPartition(topic, partition)] = offset
    return GroupOffsets(member, found)
