"""The end of a transaction: the pure rules of EndTxn in both versions, of fencing, and of completion when the markers are
written.

The tables are those of Kafka's TransactionCoordinator. With explicit ends (EndTxn up to 4) the epoch stays. With implicit ones
(EndTxn from 5 on, KIP-890) each end raises the epoch, so that a late or repeated request is recognized by its epoch.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from spark_producer.broker.coordinator.transactions import (
    DECIDED,
    EXHAUSTED_EPOCH,
    UNSET,
    NewProducerId,
    Transaction,
    TransactionState,
    Transition,
    transition_to,
)
from spark_producer.common.cluster import ProducerIdAndEpoch
from spark_producer.common.error_codes import Code

_Rules: TypeAlias = dict[TransactionState, tuple[Code | None, Code | None]]
"""The state → the error codes of a commit and of an abort; None where the transaction is ended."""

_NONE, _BUSY, _STATE, _FENCED = (
    Code.NONE, Code.CONCURRENT_TRANSACTIONS, Code.INVALID_TXN_STATE, Code.PRODUCER_FENCED,
)  # fmt: skip

EXPLICIT: Final[_Rules] = {
    TransactionState.EMPTY: (_STATE, _STATE),
    TransactionState.ONGOING: (None, None),
    TransactionState.PREPARE_COMMIT: (_BUSY, _STATE),
    TransactionState.PREPARE_ABORT: (_STATE, _BUSY),
    TransactionState.COMPLETE_COMMIT: (_NONE, _STATE),
    TransactionState.COMPLETE_ABORT: (_STATE, _NONE),
}
"""The responses to EndTxn up to 4 with the current epoch."""

IMPLICIT: Final[_Rules] = {
    TransactionState.EMPTY: (_STATE, None),
    TransactionState.ONGOING: (None, None),
    TransactionState.PREPARE_COMMIT: (_FENCED, _FENCED),
    TransactionState.PREPARE_ABORT: (_FENCED, _FENCED),
    TransactionState.COMPLETE_COMMIT: (_STATE, None),
    TransactionState.COMPLETE_ABORT: (_STATE, None),
}
"""The responses to EndTxn from 5 on with the current epoch."""

REPEATED: Final[_Rules] = {
    TransactionState.EMPTY: (_FENCED, _FENCED),
    TransactionState.ONGOING: (_FENCED, _FENCED),
    TransactionState.PREPARE_COMMIT: (_BUSY, _STATE),
    TransactionState.PREPARE_ABORT: (_STATE, _BUSY),
    TransactionState.COMPLETE_COMMIT: (_NONE, _STATE),
    TransactionState.COMPLETE_ABORT: (_STATE, _NONE),
}
"""The responses to EndTxn from 5 on with the previous epoch, that is to a repeated request."""


def end_transaction(
    current: Transaction | None,
    producer: ProducerIdAndEpoch,
    *,
    commit: bool,
    implicit: bool,
    new_producer_id: NewProducerId,
    now_ms: int,
) -> Transition:
    """Apply EndTxn: decide the outcome. The markers must be written, and `complete` called, before any other change of the id."""
    if current is None:
        return Transition(Code.INVALID_PRODUCER_ID_MAPPING)
    rotated = implicit and _is_repeated_after_rotation(current, producer)
    if current.producer_id != producer.producer_id and not rotated:
        return Transition(Code.INVALID_PRODUCER_ID_MAPPING)
    if implicit and (rotated or current.epoch == producer.epoch + 1):
        rules = REPEATED
    elif current.epoch == producer.epoch:
        rules = IMPLICIT if implicit else EXPLICIT
    else:
        return Transition(Code.PRODUCER_FENCED)
    code = rules[current.state][0 if commit else 1]
    if code is not None:
        return Transition(code)
    return Transition(
        Code.NONE,
        _decided(current, commit=commit, raise_epoch=implicit, new_producer_id=new_producer_id, now_ms=now_ms),
    )


def _is_repeated_after_rotation(current: Transaction, producer: ProducerIdAndEpoch) -> bool:
    """Return whether the request repeats the one that used up the epochs, after which the producer has a new producer id."""
    rotated = current.previous_producer_id == producer.producer_id and current.epoch == 0
    return (
        rotated
        and producer.epoch == EXHAUSTED_EPOCH
        and current.state not in (TransactionState.EMPTY, TransactionState.ONGOING, *DECIDED)
    )


def _decided(
    current: Transaction, *, commit: bool, raise_epoch: bool, new_producer_id: NewProducerId, now_ms: int
) -> Transaction:
    state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
    started = current.started_ms if current.state is TransactionState.ONGOING else now_ms
    if not raise_epoch:
        same = ProducerIdAndEpoch(current.producer_id, current.epoch)
        return transition_to(current, state, now_ms, producer=same, last_epoch=current.last_epoch)
    following = ProducerIdAndEpoch(current.producer_id, current.epoch + 1)
    next_id = new_producer_id() if current.exhausted else UNSET
    return transition_to(
        current,
        state,
        now_ms,
        producer=following,
        last_epoch=current.epoch,
        next_producer_id=next_id,
        started_ms=started,
    )


def fence(current: Transaction, *, implicit: bool, new_producer_id: NewProducerId, now_ms: int) -> Transaction:
    """Abort an open transaction and raise the epoch, which fences its producer.

    `implicit` is the version of the cluster, not of the transaction. Without it the producer cannot return by InitProducerId with
    its old epoch; with it, it can, in Kafka too.
    """
    if implicit:
        return _decided(current, commit=False, raise_epoch=True, new_producer_id=new_producer_id, now_ms=now_ms)
    following = ProducerIdAndEpoch(current.producer_id, current.epoch + 1)
    return transition_to(current, TransactionState.PREPARE_ABORT, now_ms, producer=following, last_epoch=UNSET)


def complete(current: Transaction, now_ms: int) -> Transaction:
    """Return the state once all markers of a decided transaction are written."""
    state = (
        TransactionState.COMPLETE_COMMIT
        if current.state is TransactionState.PREPARE_COMMIT
        else TransactionState.COMPLETE_ABORT
    )
    rotates = current.next_producer_id != UNSET
    producer = (
        ProducerIdAndEpoch(current.next_producer_id, 0)
        if rotates
        else ProducerIdAndEpoch(current.producer_id, current.epoch)
    )
    after = transition_to(current, state, now_ms, producer=producer, last_epoch=current.last_epoch)
    return after._replace(partitions=frozenset(), groups=frozenset())
