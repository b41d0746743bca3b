"""The state machine of a transactional producer, driven by calls and responses (Kafka's TransactionManager).

A call is an `Operation` that any thread appends to `calls`; everything else happens on the I/O thread, in the sender's steps.
`request_loop` sends the requests and handles their responses.

A transaction that lacks a row can never be committed: `failure` keeps the reason until the transaction is aborted, and waiting
rows are dropped at once. A batch in doubt, which may still arrive, is fenced by the next epoch: EndTxn of transaction.version 2
takes it, otherwise InitProducerId after the abort.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import cast

from spark_producer.accumulator import ProducerBatch, ProducerIdAndEpoch, RecordAccumulator
from spark_producer.common.cluster import TopicPartition, TransactionVersion
from spark_producer.errors import IllegalState, PyProducerError, TransactionAbortable, TransactionAborted
from spark_producer.protocol import Api
from spark_producer.protocol.messages import ProduceRequest, ProduceResponse
from spark_producer.record.batch_v2 import NO_SEQUENCE, TRANSACTIONAL_BIT
from spark_producer.sender.identity import ProducerIdentity
from spark_producer.sender.settings import SenderSettings
from spark_producer.sender.transactions import exceptions
from spark_producer.sender.transactions.errors import TxnRequest
from spark_producer.sender.transactions.partitions import (
    UNKNOWN_OFFSET,
    GroupOffsets,
    PreparedResult,
    TransactionPartitions,
)
from spark_producer.sender.transactions.requests import produce_apis
from spark_producer.sender.transactions.states import (
    ACCEPTS_ROWS,
    ALLOWED,
    KEEPS_ROWS,
    SETTLED,
    Operation,
    TxnCall,
    TxnState,
    transition,
)

NO_PARTITIONS: frozenset[TopicPartition] = frozenset()
"""The admitted partitions of the accumulator while no transaction is open."""


class TransactionManager:
    """The state of one transactional producer. Only the I/O thread calls it; any thread may read `state` and call `check`."""

    def __init__(
        self,
        accumulator: RecordAccumulator,
        identity: ProducerIdentity,
        settings: SenderSettings,
    ) -> None:
        self.settings = settings
        self.transactional_id = settings.transactional_id or ""
        self.state = TxnState.UNINITIALIZED
        self.transaction_version = TransactionVersion.EXPLICIT
        self.contents = TransactionPartitions()
        self.number = 0
        """the number of transactions so far, deferred ones included; any thread may read it"""
        self.failure: TransactionAbortable | None = None
        """the error of a transaction that can only be aborted"""
        self.calls: deque[Operation] = deque()
        """the calls that the I/O thread has not executed yet; any thread may append"""
        self.on_done: Callable[[], None] = lambda: None
        """called when an operation is done, to wake its thread"""
        self.busy = False
        """whether a request to a coordinator is in flight; `request_loop` sets it"""
        self.end_in_doubt = False
        """whether an EndTxn had no response, so that a copy of it may arrive late (KAFKA-17754); `request_loop` sets it"""
        self._identity = identity
        self._incomplete = accumulator.incomplete
        self._drainer = accumulator.drainer
        self._completion = accumulator.completion
        self._produce = produce_apis(settings.produce)
        self._operation: Operation | None = None
        """the call that waits for responses of coordinators: the first init, a commit or an abort"""
        self._bumping_epoch = False
        """whether INITIALIZING takes the next epoch after a transaction"""
        self._from_hold = False
        """whether the transaction was deferred, so that the next one needs its own epoch"""
        self._drainer.admit(NO_PARTITIONS, 0.0)

    # --- any thread -------------------------------------------------------------------------------------------------

    def check(self) -> int:
        """Return the `number` of the transaction, begun or deferred, that accepts rows now.

        Raises:
            TransactionAbortable: the transaction can only be aborted. IllegalState: there is none.
        """
        if self.state not in ACCEPTS_ROWS:
            raise exceptions.illegal_call_error(TxnCall.MARK_ABORTABLE, self.state, self.failure)
        return self.number

    def check_still(self, number: int) -> None:
        """Check that the transaction of this number, which has the first rows of a call, still accepts the rest.

        Raises:
            IllegalState: another transaction has begun.
        """
        if self.number != number:
            raise exceptions.spans_transactions_error()

    # --- called by the sender ---------------------------------------------------------------------------------------

    @property
    def identity(self) -> ProducerIdAndEpoch:
        """The current producer id and epoch."""
        return self._identity.current

    @property
    def settled(self) -> bool:
        """Whether the producer may be closed now."""
        return self.state in SETTLED and not self.calls

    @property
    def expires(self) -> bool:
        """Whether waiting batches expire. Those of a deferred transaction do not."""
        return self.state is not TxnState.DEFERRED

    @property
    def produce_api(self) -> Api[ProduceRequest, ProduceResponse]:
        """Produce, limited to the API versions of the transaction version."""
        return self._produce[self.transaction_version]

    def next_request(self) -> TxnRequest | None:
        """Return the next request, the most urgent one first; None if there is none."""
        state, contents = self.state, self.contents
        if state is TxnState.INITIALIZING or state is TxnState.OPENING:
            return TxnRequest.RAISE_EPOCH if self._bumping_epoch else TxnRequest.INIT
        if contents.sealed and state is TxnState.COMMITTING:
            return TxnRequest.COMMIT
        if state is TxnState.IN_TRANSACTION or state is TxnState.COMMITTING:
            if contents.waiting:
                return TxnRequest.ADD_PARTITIONS
            if contents.offsets:
                added = (
                    self.transaction_version is TransactionVersion.IMPLICIT
                    or self.next_offsets().group.group_id in contents.groups
                )
                return TxnRequest.COMMIT_OFFSETS if added else TxnRequest.ADD_OFFSETS
        if self._incomplete.idle:
            if state is TxnState.COMMITTING and contents.may_be_open:
                return TxnRequest.COMMIT
            if state is TxnState.ABORTING and contents.may_be_open:
                return TxnRequest.INIT if self._fences else TxnRequest.ABORT
        return None

    def next_offsets(self) -> GroupOffsets:
        """Return the offsets to send next. The caller has checked that there are some."""
        return cast(GroupOffsets, self.contents.offsets[0].argument)

    def step(self, now: float) -> None:
        """Execute the posted calls, and drop the rows that cannot be sent."""
        while self.calls:
            self._execute(self.calls.popleft(), now)
        if self._incomplete.closing and self.state in ACCEPTS_ROWS | {TxnState.ABORTABLE}:
            self._abort(Operation(TxnCall.ABORT), now)
        if self.state is TxnState.DEFERRED and self._incomplete.starving:
            self._release(now)
        if self.state not in KEEPS_ROWS and len(self._incomplete.nonempty):
            self._drop(now)
        ending = self.state is TxnState.COMMITTING or self.state is TxnState.ABORTING
        if (
            ending
            and self._incomplete.idle
            and not self.busy
            and not self.contents.may_be_open
            and self.next_request() is None
        ):
            self.on_end(None, self.transaction_version, now)

    def set_not_admitted(self, not_admitted: frozenset[TopicPartition]) -> None:
        """Set the partitions whose batches wait to be admitted."""
        waits = self.state is TxnState.IN_TRANSACTION or self.state is TxnState.COMMITTING
        self.contents.waiting = not_admitted - self.contents.admitted if waits else NO_PARTITIONS

    def on_produce(self, now: float) -> None:
        """Record that a Produce request is sent now, which begins the transaction with `IMPLICIT`."""
        self.contents.record_start(now)
        self.contents.started = True

    def seal(self, now: float) -> None:
        """Record that the commit is requested.

        Rows that other threads queue after this are dropped at the end of the transaction.
        """
        self.contents.sealed = True
        self._drainer.admit(NO_PARTITIONS, now)

    # --- calls ----------------------------------------------------------------------------------------------

    def _execute(self, operation: Operation, now: float) -> None:
        call = operation.call
        if operation.seen:
            return
        operation.seen = True
        if self.state not in ALLOWED[call]:
            self._finish(operation, error=exceptions.illegal_call_error(call, self.state, self.failure))
        elif call is TxnCall.MARK_ABORTABLE:
            self.mark_abortable(cast(BaseException, operation.argument), now)
        elif call is TxnCall.OFFSETS:
            self.contents.offsets.append(operation)
        elif call is TxnCall.COMMIT:
            self._operation = operation
            self._move(TxnState.COMMITTING)
            self._incomplete.skip_linger(True)
        elif call is TxnCall.ABORT or call is TxnCall.TRY_ABORT:
            self._abort(operation, now)
        elif call is TxnCall.INIT:
            self._operation = operation
            self._move(TxnState.INITIALIZING)
        else:
            self._execute_locally(operation, now)

    def _execute_locally(self, operation: Operation, now: float) -> None:
        """Execute a call that needs no broker."""
        call, error = operation.call, None
        if call in (TxnCall.BEGIN, TxnCall.DEFER) and len(self._incomplete.nonempty):
            self._drop(now)  # rows of a thread that did not wait for the end of the last transaction
        self.number += call is TxnCall.BEGIN or call is TxnCall.DEFER
        if call is TxnCall.BEGIN:
            self._from_hold = False
            self._open(now)
        elif call is TxnCall.DEFER:
            self.contents = TransactionPartitions()
            self._from_hold = True
            self._move(TxnState.DEFERRED)
        elif call is TxnCall.RELEASE:
            self._release(now)
        elif call is TxnCall.TAKE and self.state is TxnState.DEFERRED:
            error_of_rows = TransactionAborted("the record was removed from the producer, to be written elsewhere")
            operation.result = self._completion.take_undrained(TRANSACTIONAL_BIT, error_of_rows, now)
            self._move(TxnState.UNINITIALIZED)
        elif call is TxnCall.PREPARE:
            error = self._prepare(operation, now)
        elif call is TxnCall.RENEW and self.state is not TxnState.UNINITIALIZED:
            self.contents = TransactionPartitions()
            self._move(TxnState.UNINITIALIZED)
        self._finish(operation, error=error)

    def _open(self, now: float) -> None:
        """Begin to send waiting batches: with `IMPLICIT` at once, otherwise when the coordinator has added their partitions."""
        self.contents = TransactionPartitions()
        self._move(TxnState.IN_TRANSACTION)
        self._drainer.admit(
            self.contents.admitted if self.transaction_version is TransactionVersion.EXPLICIT else None, now
        )

    def _release(self, now: float) -> None:
        if self.state is TxnState.DEFERRED:
            self._incomplete.restart_delivery_timeouts(now)
            self._move(TxnState.OPENING)

    def _prepare(self, operation: Operation, now: float) -> Exception | None:
        spans = self.contents.spans()
        if not self._incomplete.idle or self.contents.offsets:
            return IllegalState(
                "prepare() was called while another thread was sending rows or offsets. Wait until all sends have returned"
            )
        if any(span.first_offset == UNKNOWN_OFFSET for span in spans):
            self.mark_abortable(PyProducerError("a Produce response lacks the offset of a batch"), now)
            return self.failure
        operation.result = PreparedResult(
            self.transactional_id, *self.identity, self.transaction_version, spans, self.contents.began_at
        )
        self._move(TxnState.PREPARED)
        self._drainer.admit(NO_PARTITIONS, now)
        return None

    def _abort(self, operation: Operation, now: float) -> None:
        if self.state is TxnState.ABORTING:
            self._finish_operation(IllegalState("try_abort() replaced this call"))
            self._operation = operation
            return
        if self.state is TxnState.UNINITIALIZED or self.state is TxnState.READY:  # try_abort() has nothing to do
            self._finish(operation)
            return
        self._operation = operation
        self._move(TxnState.ABORTING)
        self._drainer.admit(NO_PARTITIONS, now)
        self._drop(now)
        self._fail_offsets(TransactionAborted("the offsets were not committed, because their transaction was aborted"))

    # --- responses --------------------------------------------------------------------------------------------

    def on_initialized(self, identity: ProducerIdAndEpoch, transaction_version: TransactionVersion, now: float) -> None:
        """Use the producer id and epoch of a response, and the current transaction version of the cluster."""
        self._identity.received(*identity)
        self.transaction_version = transaction_version
        if self.state is TxnState.OPENING:
            self._open(now)
        elif self.state is TxnState.INITIALIZING:
            self._bumping_epoch = False
            self._move(TxnState.READY)
            self._finish_operation()
        elif self.state is TxnState.ABORTING and self._fences:
            self.on_end(None, transaction_version, now)

    def on_partitions_added(self, topic_partitions: frozenset[TopicPartition], now: float) -> None:
        """Admit the batches of these partitions, which the coordinator has added."""
        self.contents.started = True
        if self.state in KEEPS_ROWS:
            self.contents.admitted |= topic_partitions
            self.contents.waiting -= topic_partitions
            self._drainer.admit(self.contents.admitted, now)

    def on_offsets_committed(self, offsets: GroupOffsets) -> None:
        """Record that offsets of a group are in the transaction."""
        self.contents.started = True
        for operation in self.contents.offsets:
            if operation.argument is offsets:
                self.contents.offsets.remove(operation)
                self._finish(operation)
                return

    def on_end(self, identity: ProducerIdAndEpoch | None, transaction_version: TransactionVersion, now: float) -> None:
        """Record that the transaction is committed or aborted. `identity` is that of the next one, if EndTxn returns it."""
        committed = self.state is TxnState.COMMITTING
        if self._operation is not None:
            self._operation.committed = committed
        in_doubt = self.contents.unresolved or self.end_in_doubt or transaction_version is not self.transaction_version
        if identity is not None:
            self._identity.received(*identity)
        bumps_epoch = self.transaction_version is TransactionVersion.EXPLICIT and in_doubt
        self.transaction_version = transaction_version
        self.contents, self.failure = TransactionPartitions(), None
        self.end_in_doubt = False
        self._drainer.admit(NO_PARTITIONS, now)
        if committed:
            self._incomplete.skip_linger(False)
        else:
            self._incomplete.failures.discard()
        needs_epoch, self._from_hold = self._from_hold and not committed, False
        if needs_epoch or (self._operation is not None and self._operation.call is TxnCall.TRY_ABORT):
            self._move(TxnState.UNINITIALIZED)
        elif bumps_epoch:
            self._bumping_epoch = True
            self._move(TxnState.INITIALIZING)
            return
        else:
            self._move(TxnState.READY)
        self._finish_operation()

    def on_batch_failed(self, batch: ProducerBatch, error: Exception, now: float) -> None:
        """Record that a batch has failed, so that the transaction lacks its rows, or may lack them."""
        if batch.base_sequence != NO_SEQUENCE:
            self.contents.unresolved = True
        self.mark_abortable(error, now)

    def wrote(self, batch: ProducerBatch, base_offset: int, now: float) -> None:
        """Record that a batch is in the log at this offset.

        The transaction can only be aborted if the topic has another id than for earlier batches, or if the offsets of a partition
        do not increase: the topic was created again, its new log takes the next batch, and earlier ones are lost.
        """
        if not self.contents.wrote(batch, base_offset):
            text = f"earlier rows in {batch.topic_partition} are lost, because the topic was deleted and created again"
            self.mark_abortable(PyProducerError(text), now)

    def mark_abortable(self, error: BaseException, now: float) -> None:
        """Make the transaction abortable only, because of the first error. Do nothing once the commit is requested."""
        if self.state not in KEEPS_ROWS or self.contents.sealed:
            return
        committing = self.state is TxnState.COMMITTING
        self.failure = exceptions.rows_missing_error(self.transactional_id, error)
        self._move(TxnState.ABORTABLE)
        self._drainer.admit(NO_PARTITIONS, now)
        if committing:
            self._incomplete.skip_linger(False)
            self._finish_operation(self.failure)
        self._fail_offsets(self.failure)

    def on_init_rejected(self, error: Exception, now: float) -> None:
        """Record that the request for a producer id was rejected, for a reason that may be temporary."""
        if self.state is TxnState.INITIALIZING or self.state is TxnState.ABORTING:
            self._move(TxnState.UNINITIALIZED)
            self._finish_operation(error)
        else:
            self.mark_abortable(error, now)

    def fail(self, error: Exception) -> None:
        """End the producer: every wait and every later call raises the reason."""
        self.state = TxnState.FATAL
        self._fail_offsets(error)
        self._completion.abort(error)
        self._finish_operation(error)  # a commit that is done has still succeeded

    @property
    def _fences(self) -> bool:
        """Whether the transaction is aborted by taking the next epoch, which fences a batch in doubt at once.

        It is only for ids that no other producer uses, since it would fence a newer one.
        """
        try_abort = self._operation is not None and self._operation.call is TxnCall.TRY_ABORT
        return try_abort and self.transaction_version is TransactionVersion.EXPLICIT and self.contents.unresolved

    # --- details ----------------------------------------------------------------------------------------------------

    def _move(self, to: TxnState) -> None:
        """Change the state. An invalid transition is a bug, which ends the producer.

        Raises:
            IllegalState: the transition is invalid.
        """
        try:
            self.state = transition(self.state, to)
        except IllegalState:
            self.state = TxnState.FATAL
            raise

    def _drop(self, now: float) -> None:
        """Fail the waiting rows."""
        dropped = self._completion.abort_undrained(exceptions.not_sent_error(self.state, self.failure), now)
        if any(batch.base_sequence != NO_SEQUENCE for batch in dropped):
            self.contents.unresolved = True

    def _fail_offsets(self, error: Exception) -> None:
        offsets, self.contents.offsets = self.contents.offsets, []
        for operation in offsets:
            self._finish(operation, error=error)

    def _finish_operation(self, error: Exception | None = None) -> None:
        operation, self._operation = self._operation, None
        if operation is not None:
            self._finish(operation, error=error)

    def _finish(self, operation: Operation, *, error: Exception | None = None) -> None:
        operation.error = None if operation.committed else error
        operation.done = True
        self.on_done()
