"""The state of a transactional producer, and what callers and answers do to it (Kafka's TransactionManager).

A call is an `Operation` that any thread appends to `asked`; all else happens on the I/O thread, in the sender's steps. Which
request is due, and what its answer means, is in `transaction_dialog`.

A transaction that lacks a row can never be committed: the reason is kept in `failure`, whatever is flushed or told meanwhile,
until the transaction is aborted. Then what waits is dropped at once. A batch in doubt, which may yet arrive, is shut out by the
next epoch: EndTxn of transaction.version 2 takes it by itself, else InitProducerId does, behind the abort.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import cast

from spark_producer.accumulator import ProducerBatch, ProducerIdAndEpoch, RecordAccumulator
from spark_producer.common.cluster import Style, TopicPartition
from spark_producer.errors import IllegalState, PyProducerError, TransactionAbortable, TransactionAborted
from spark_producer.protocol import Api
from spark_producer.protocol.messages import ProduceRequest, ProduceResponse
from spark_producer.record.batch_v2 import NO_SEQUENCE, TRANSACTIONAL_BIT
from spark_producer.sender.identity import ProducerIdentity
from spark_producer.sender.settings import SenderSettings
from spark_producer.sender.transactions import exceptions as refusals
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

NOTHING: frozenset[TopicPartition] = frozenset()
"""The gate of the accumulator while no transaction is open: no partition is admitted."""


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
        self.style = Style.EXPLICIT
        self.contents = TransactionPartitions()
        self.number = 0
        """counts the transactions, and the holds; any thread may read it"""
        self.failure: TransactionAbortable | None = None
        """why the transaction can only be aborted"""
        self.asked: deque[Operation] = deque()
        """the calls that the I/O thread has not seen yet; any thread may append"""
        self.on_done: Callable[[], None] = lambda: None
        """is called when an operation is done, so that its thread wakes"""
        self.busy = False
        """whether a request to a coordinator is in flight; `transaction_dialog` keeps it"""
        self.end_in_doubt = False
        """whether an EndTxn got no answer, so that a copy of it may come late (KAFKA-17754); `transaction_dialog` sets it"""
        self._identity = identity
        self._backlog = accumulator.incomplete
        self._drainer = accumulator.drainer
        self._outcomes = accumulator.completion
        self._produce = produce_apis(settings.produce)
        self._operation: Operation | None = None
        """the call that waits for answers of coordinators: the first init, a commit or an abort"""
        self._raising = False
        """whether INITIALIZING is the next epoch behind a transaction"""
        self._from_hold = False
        """whether the transaction began as a hold, so that the next one needs an epoch of its own"""
        self._drainer.admit(NOTHING, 0.0)

    # --- any thread -------------------------------------------------------------------------------------------------

    def check(self) -> int:
        """Refuse rows unless they would be in a transaction, or are held back. Return its `number`.

        Raises:
            TransactionAbortable: the transaction can only be aborted. IllegalState: there is none.
        """
        if self.state not in ACCEPTS_ROWS:
            raise refusals.illegal_call_error(TxnCall.MARK_ABORTABLE, self.state, self.failure)
        return self.number

    def check_still(self, number: int) -> None:
        """Refuse the rest of a call's rows, of which the first ones are in the transaction of this number.

        Raises:
            IllegalState: another one has begun.
        """
        if self.number != number:
            raise refusals.spans_transactions_error()

    # --- what the sender asks ---------------------------------------------------------------------------------------

    @property
    def identity(self) -> ProducerIdAndEpoch:
        """The producer id and epoch in use."""
        return self._identity.current

    @property
    def settled(self) -> bool:
        """Whether the producer may be closed now."""
        return self.state in SETTLED and not self.asked

    @property
    def expires(self) -> bool:
        """Whether batches that wait grow old; those that are held back do not."""
        return self.state is not TxnState.HELD

    @property
    def produce_api(self) -> Api[ProduceRequest, ProduceResponse]:
        """The versions of Produce that suit the transaction."""
        return self._produce[self.style]

    def need(self) -> TxnRequest | None:
        """Return the request that is needed now, the most important first; None if there is none."""
        state, contents = self.state, self.contents
        if state is TxnState.INITIALIZING or state is TxnState.OPENING:
            return TxnRequest.RAISE_EPOCH if self._raising else TxnRequest.INIT
        if contents.sealed and state is TxnState.COMMITTING:
            return TxnRequest.COMMIT
        if state is TxnState.IN_TRANSACTION or state is TxnState.COMMITTING:
            if contents.waiting:
                return TxnRequest.ADD_PARTITIONS
            if contents.offsets:
                added = self.style is Style.IMPLICIT or self.next_offsets().group.group_id in contents.groups
                return TxnRequest.COMMIT_OFFSETS if added else TxnRequest.ADD_OFFSETS
        if self._backlog.idle:
            if state is TxnState.COMMITTING and contents.may_be_open:
                return TxnRequest.COMMIT
            if state is TxnState.ABORTING and contents.may_be_open:
                return TxnRequest.INIT if self._fences else TxnRequest.ABORT
        return None

    def next_offsets(self) -> GroupOffsets:
        """Return the offsets that are to be sent next; there are some."""
        return cast(GroupOffsets, self.contents.offsets[0].argument)

    def step(self, now: float) -> None:
        """Carry out what callers have asked for, and drop the rows that cannot be sent."""
        while self.asked:
            self._carry_out(self.asked.popleft(), now)
        if self._backlog.closing and self.state in ACCEPTS_ROWS | {TxnState.ABORTABLE}:
            self._abort(Operation(TxnCall.ABORT), now)
        if self.state is TxnState.HELD and self._backlog.starving:
            self._release(now)
        if self.state not in KEEPS_ROWS and len(self._backlog.nonempty):
            self._drop(now)
        ending = self.state is TxnState.COMMITTING or self.state is TxnState.ABORTING
        if ending and self._backlog.idle and not self.busy and not self.contents.may_be_open and self.need() is None:
            self.ended(None, self.style, now)

    def found(self, kept_back: frozenset[TopicPartition]) -> None:
        """Note which partitions have batches that wait to be admitted."""
        waits = self.state is TxnState.IN_TRANSACTION or self.state is TxnState.COMMITTING
        self.contents.waiting = kept_back - self.contents.admitted if waits else NOTHING

    def sending(self, now: float) -> None:
        """Note that a Produce request goes out now, which begins the transaction if the style is implicit."""
        self.contents.begins(now)
        self.contents.started = True

    def seal(self, now: float) -> None:
        """Note that the coordinator is asked to commit. Rows of threads that still send wait for the end, which drops them."""
        self.contents.sealed = True
        self._drainer.admit(NOTHING, now)

    # --- what calls do ----------------------------------------------------------------------------------------------

    def _carry_out(self, operation: Operation, now: float) -> None:
        call = operation.call
        if operation.seen:
            return
        operation.seen = True
        if self.state not in ALLOWED[call]:
            self._finish(operation, error=refusals.illegal_call_error(call, self.state, self.failure))
        elif call is TxnCall.MARK_ABORTABLE:
            self.mark_abortable(cast(BaseException, operation.argument), now)
        elif call is TxnCall.OFFSETS:
            self.contents.offsets.append(operation)
        elif call is TxnCall.COMMIT:
            self._operation = operation
            self._move(TxnState.COMMITTING)
            self._backlog.hurry(True)
        elif call is TxnCall.ABORT or call is TxnCall.TRY_ABORT:
            self._abort(operation, now)
        elif call is TxnCall.INIT:
            self._operation = operation
            self._move(TxnState.INITIALIZING)
        else:
            self._finish_at_once(operation, now)

    def _finish_at_once(self, operation: Operation, now: float) -> None:
        """Carry out a call that needs no broker."""
        call, error = operation.call, None
        if call in (TxnCall.BEGIN, TxnCall.HOLD) and len(self._backlog.nonempty):
            self._drop(now)  # rows of a thread that did not wait for the end of the last transaction
        self.number += call is TxnCall.BEGIN or call is TxnCall.HOLD
        if call is TxnCall.BEGIN:
            self._from_hold = False
            self._open(now)
        elif call is TxnCall.HOLD:
            self.contents = TransactionPartitions()
            self._from_hold = True
            self._move(TxnState.HELD)
        elif call is TxnCall.RELEASE:
            self._release(now)
        elif call is TxnCall.TAKE and self.state is TxnState.HELD:
            told = TransactionAborted("the record was taken out of the producer, to be written elsewhere")
            operation.result = self._outcomes.take_undrained(TRANSACTIONAL_BIT, told, now)
            self._move(TxnState.UNINITIALIZED)
        elif call is TxnCall.PREPARE:
            error = self._prepare(operation, now)
        elif call is TxnCall.RENEW and self.state is not TxnState.UNINITIALIZED:
            self.contents = TransactionPartitions()
            self._move(TxnState.UNINITIALIZED)
        self._finish(operation, error=error)

    def _open(self, now: float) -> None:
        """Begin to send: what waits goes out when the coordinator has its partitions, or by itself in the implicit style."""
        self.contents = TransactionPartitions()
        self._move(TxnState.IN_TRANSACTION)
        self._drainer.admit(self.contents.admitted if self.style is Style.EXPLICIT else None, now)

    def _release(self, now: float) -> None:
        if self.state is TxnState.HELD:
            self._backlog.restart_delivery_timeouts(now)
            self._move(TxnState.OPENING)

    def _prepare(self, operation: Operation, now: float) -> Exception | None:
        spans = self.contents.spans()
        if not self._backlog.idle or self.contents.offsets:
            return IllegalState("prepare() was called while rows or offsets of another thread were on their way")
        if any(span.first_offset == UNKNOWN_OFFSET for span in spans):
            self.mark_abortable(PyProducerError("a broker did not say at which offset it wrote a batch"), now)
            return self.failure
        operation.result = PreparedResult(
            self.transactional_id, *self.identity, self.style, spans, self.contents.began_at
        )
        self._move(TxnState.PREPARED)
        self._drainer.admit(NOTHING, now)
        return None

    def _abort(self, operation: Operation, now: float) -> None:
        if self.state is TxnState.ABORTING:
            self._finish_operation(IllegalState("give_up() took the place of this call"))
            self._operation = operation
            return
        if self.state is TxnState.UNINITIALIZED or self.state is TxnState.READY:  # give_up() has nothing to do
            self._finish(operation)
            return
        self._operation = operation
        self._move(TxnState.ABORTING)
        self._drainer.admit(NOTHING, now)
        self._drop(now)
        self._end_offsets(TransactionAborted("the offsets were not committed, because their transaction was aborted"))

    # --- what answers do --------------------------------------------------------------------------------------------

    def initialized(self, identity: ProducerIdAndEpoch, style: Style, now: float) -> None:
        """Take over the producer id and epoch that the coordinator gave, and the style that the cluster speaks now."""
        self._identity.received(*identity)
        self.style = style
        if self.state is TxnState.OPENING:
            self._open(now)
        elif self.state is TxnState.INITIALIZING:
            self._raising = False
            self._move(TxnState.READY)
            self._finish_operation()
        elif self.state is TxnState.ABORTING and self._fences:
            self.ended(None, style, now)

    def partitions_added(self, topic_partitions: frozenset[TopicPartition], now: float) -> None:
        """Let batches of these partitions go: the coordinator has added them."""
        self.contents.started = True
        if self.state in KEEPS_ROWS:
            self.contents.admitted |= topic_partitions
            self.contents.waiting -= topic_partitions
            self._drainer.admit(self.contents.admitted, now)

    def offsets_committed(self, asked: GroupOffsets) -> None:
        """Note that offsets of a group are in the transaction."""
        self.contents.started = True
        for operation in self.contents.offsets:
            if operation.argument is asked:
                self.contents.offsets.remove(operation)
                self._finish(operation)
                return

    def ended(self, identity: ProducerIdAndEpoch | None, style: Style, now: float) -> None:
        """Note that the transaction is committed or aborted; `identity` is what EndTxn gives for the next one, if it does."""
        committed = self.state is TxnState.COMMITTING
        if self._operation is not None:
            self._operation.committed = committed
        in_doubt = self.contents.unresolved or self.end_in_doubt or style is not self.style
        if identity is not None:
            self._identity.received(*identity)
        raises = self.style is Style.EXPLICIT and in_doubt
        self.style = style
        self.contents, self.failure = TransactionPartitions(), None
        self.end_in_doubt = False
        self._drainer.admit(NOTHING, now)
        if committed:
            self._backlog.hurry(False)
        else:
            self._backlog.failures.discard()
        anew, self._from_hold = self._from_hold and not committed, False
        if anew or (self._operation is not None and self._operation.call is TxnCall.TRY_ABORT):
            self._move(TxnState.UNINITIALIZED)
        elif raises:
            self._raising = True
            self._move(TxnState.INITIALIZING)
            return
        else:
            self._move(TxnState.READY)
        self._finish_operation()

    def on_batch_failed(self, batch: ProducerBatch, error: Exception, now: float) -> None:
        """Note that a batch was given up: the transaction lacks its rows, or at least nobody knows."""
        if batch.base_sequence != NO_SEQUENCE:
            self.contents.unresolved = True
        self.mark_abortable(error, now)

    def mark_abortable(self, error: BaseException, now: float) -> None:
        """Let the transaction only be aborted from now on. The first reason is kept. None counts once a commit is asked for."""
        if self.state not in KEEPS_ROWS or self.contents.sealed:
            return
        committing = self.state is TxnState.COMMITTING
        self.failure = refusals.rows_missing_error(self.transactional_id, error)
        self._move(TxnState.ABORTABLE)
        self._drainer.admit(NOTHING, now)
        if committing:
            self._backlog.hurry(False)
            self._finish_operation(self.failure)
        self._end_offsets(self.failure)

    def refused(self, error: Exception, now: float) -> None:
        """Note that no producer id was given, for a reason that may pass."""
        if self.state is TxnState.INITIALIZING or self.state is TxnState.ABORTING:
            self._move(TxnState.UNINITIALIZED)
            self._finish_operation(error)
        else:
            self.mark_abortable(error, now)

    def fail(self, error: Exception) -> None:
        """End the producer: every wait and every later call raises the reason."""
        self.state = TxnState.FATAL
        self._end_offsets(error)
        self._outcomes.abort(error)
        self._finish_operation(error)  # a commit that has been done has succeeded for all that

    @property
    def _fences(self) -> bool:
        """Whether the transaction is aborted by taking the next epoch, which shuts out a batch in doubt at once.

        That is only for ids that no other producer has: it would take them away from a newer one.
        """
        gives_up = self._operation is not None and self._operation.call is TxnCall.TRY_ABORT
        return gives_up and self.style is Style.EXPLICIT and self.contents.unresolved

    # --- details ----------------------------------------------------------------------------------------------------

    def _move(self, to: TxnState) -> None:
        """Change the state. What the table does not allow is a defect, which ends the producer.

        Raises:
            IllegalState: the table does not allow it.
        """
        try:
            self.state = transition(self.state, to)
        except IllegalState:
            self.state = TxnState.FATAL
            raise

    def _drop(self, now: float) -> None:
        """Fail the rows that wait."""
        dropped = self._outcomes.abort_undrained(refusals.not_sent_error(self.state, self.failure), now)
        if any(batch.base_sequence != NO_SEQUENCE for batch in dropped):
            self.contents.unresolved = True

    def _end_offsets(self, error: Exception) -> None:
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
