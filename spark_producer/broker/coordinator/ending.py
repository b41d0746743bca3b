"""How a transaction ends: the pure rules of EndTxn in both styles, of fencing, and of what follows when the markers are written.

The tables are those of Kafka's TransactionCoordinator. In the explicit style (EndTxn up to 4) the epoch stays. In the implicit
one (EndTxn from 5 on, KIP-890) each end takes the next epoch, so that a late or repeated request is known by its epoch.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from spark_producer.broker.coordinator.transactions import (
    DECIDED,
    EXHAUSTED_EPOCH,
    NONE_YET,
    Holder,
    NewId,
    State,
    Step,
    Transaction,
    moved,
)
from spark_producer.common.error_codes import Code

_Rules: TypeAlias = dict[State, tuple[Code | None, Code | None]]
"""State → the answers to a commit and to an abort; None where the transaction is ended."""

_NONE, _BUSY, _STATE, _FENCED = (
    Code.NONE, Code.CONCURRENT_TRANSACTIONS, Code.INVALID_TXN_STATE, Code.PRODUCER_FENCED,
)  # fmt: skip

EXPLICIT: Final[_Rules] = {
    State.EMPTY: (_STATE, _STATE),
    State.ONGOING: (None, None),
    State.PREPARE_COMMIT: (_BUSY, _STATE),
    State.PREPARE_ABORT: (_STATE, _BUSY),
    State.COMPLETE_COMMIT: (_NONE, _STATE),
    State.COMPLETE_ABORT: (_STATE, _NONE),
}
"""The answers to EndTxn up to 4 with the current epoch."""

IMPLICIT: Final[_Rules] = {
    State.EMPTY: (_STATE, None),
    State.ONGOING: (None, None),
    State.PREPARE_COMMIT: (_FENCED, _FENCED),
    State.PREPARE_ABORT: (_FENCED, _FENCED),
    State.COMPLETE_COMMIT: (_STATE, None),
    State.COMPLETE_ABORT: (_STATE, None),
}
"""The answers to EndTxn from 5 on with the current epoch."""

REPEATED: Final[_Rules] = {
    State.EMPTY: (_FENCED, _FENCED),
    State.ONGOING: (_FENCED, _FENCED),
    State.PREPARE_COMMIT: (_BUSY, _STATE),
    State.PREPARE_ABORT: (_STATE, _BUSY),
    State.COMPLETE_COMMIT: (_NONE, _STATE),
    State.COMPLETE_ABORT: (_STATE, _NONE),
}
"""The answers to EndTxn from 5 on with the epoch before, that is to one which was answered already."""


def ended(
    current: Transaction | None, holder: Holder, *, commit: bool, implicit: bool, new_id: NewId, now_ms: int
) -> Step:
    """EndTxn: decide the outcome. The markers must be written, and `completed` called, before anything else happens to the id."""
    if current is None:
        return Step(Code.INVALID_PRODUCER_ID_MAPPING)
    rotated = implicit and _is_repeated_after_rotation(current, holder)
    if current.producer_id != holder.producer_id and not rotated:
        return Step(Code.INVALID_PRODUCER_ID_MAPPING)
    if implicit and (rotated or current.epoch == holder.epoch + 1):
        rules = REPEATED
    elif current.epoch == holder.epoch:
        rules = IMPLICIT if implicit else EXPLICIT
    else:
        return Step(Code.PRODUCER_FENCED)
    answer = rules[current.state][0 if commit else 1]
    if answer is not None:
        return Step(answer)
    return Step(Code.NONE, _decided(current, commit=commit, raise_epoch=implicit, new_id=new_id, now_ms=now_ms))


def _is_repeated_after_rotation(current: Transaction, holder: Holder) -> bool:
    """Return whether this producer has ended a transaction with its last epoch, and goes on under a new producer id."""
    rotated = current.previous_producer_id == holder.producer_id and current.epoch == 0
    return rotated and holder.epoch == EXHAUSTED_EPOCH and current.state not in (State.EMPTY, State.ONGOING, *DECIDED)


def _decided(current: Transaction, *, commit: bool, raise_epoch: bool, new_id: NewId, now_ms: int) -> Transaction:
    state = State.PREPARE_COMMIT if commit else State.PREPARE_ABORT
    started = current.started_ms if current.state is State.ONGOING else now_ms
    if not raise_epoch:
        same = Holder(current.producer_id, current.epoch)
        return moved(current, state, now_ms, holder=same, last_epoch=current.last_epoch)
    following = Holder(current.producer_id, current.epoch + 1)
    next_id = new_id() if current.exhausted else NONE_YET
    return moved(
        current,
        state,
        now_ms,
        holder=following,
        last_epoch=current.epoch,
        next_producer_id=next_id,
        started_ms=started,
    )


def fenced(current: Transaction, *, implicit: bool, new_id: NewId, now_ms: int) -> Transaction:
    """Abort an open transaction against the will of its producer, whose epoch is too old from now on.

    `implicit` is the style of the cluster, not that of the transaction. Without it the producer cannot come back by
    InitProducerId with its old epoch; with it, it can, in Kafka too.
    """
    if implicit:
        return _decided(current, commit=False, raise_epoch=True, new_id=new_id, now_ms=now_ms)
    following = Holder(current.producer_id, current.epoch + 1)
    return moved(current, State.PREPARE_ABORT, now_ms, holder=following, last_epoch=NONE_YET)


def completed(current: Transaction, now_ms: int) -> Transaction:
    """Return the state when all markers of a decided transaction are written."""
    state = State.COMPLETE_COMMIT if current.state is State.PREPARE_COMMIT else State.COMPLETE_ABORT
    rotates = current.next_producer_id != NONE_YET
    holder = Holder(current.next_producer_id, 0) if rotates else Holder(current.producer_id, current.epoch)
    after = moved(current, state, now_ms, holder=holder, last_epoch=current.last_epoch)
    return after._replace(partitions=frozenset(), groups=frozenset())
