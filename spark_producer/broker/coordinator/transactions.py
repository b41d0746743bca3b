"""The state of a transactional id, and the pure rules by which requests change it (Kafka's TransactionMetadata).

Nothing here reads a clock, writes a file or knows a partition: a state and a request give an error code and the next state. How
a transaction ends is in `ending`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection
from typing import Final, NamedTuple, TypeAlias

from spark_producer.common.error_codes import Code

TopicPartition: TypeAlias = tuple[str, int]

NONE_YET: Final = -1
"""This stands for a producer id, an epoch or a time that there is not."""

EXHAUSTED_EPOCH: Final = 32766
"""From this epoch on a producer id is used up: 32767 is kept for the coordinator's own markers, and no client gets it."""


class State(enum.Enum):
    """The states of a transactional id, by the names that DescribeTransactions gives them."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"


IDLE: Final = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
"""The states without a transaction, in which an id may be forgotten."""

DECIDED: Final = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
"""The states in which the outcome is settled, and markers are still to be written."""

AFTER: Final[dict[State, frozenset[State]]] = {
    State.EMPTY: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD}),
    State.ONGOING: frozenset({State.ONGOING, *DECIDED}),
    State.PREPARE_COMMIT: frozenset({State.COMPLETE_COMMIT}),
    State.PREPARE_ABORT: frozenset({State.COMPLETE_ABORT}),
    State.COMPLETE_COMMIT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD}),
    State.COMPLETE_ABORT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD}),
    State.DEAD: frozenset(),
}
"""The states that may follow each one. Only EndTxn 5 goes from an idle state to PrepareAbort (KIP-890)."""


class Transaction(NamedTuple):
    """What is known of one transactional id. Times are in milliseconds since 1970.

    previous_producer_id: the producer id before the last change of any kind: by it a repeated EndTxn is known whose first one
        used up the epochs.
    next_producer_id: the one that takes over when the markers are written, where the epochs are used up.
    last_epoch: the epoch before the current one, if the same producer may not have heard of the current one.
    partitions, groups: what the transaction has touched: partitions of topics, and consumer groups whose offsets it commits.
    started_ms: when the first of them was added.
    """

    producer_id: int
    timeout_ms: int
    epoch: int = NONE_YET
    last_epoch: int = NONE_YET
    previous_producer_id: int = NONE_YET
    next_producer_id: int = NONE_YET
    state: State = State.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    groups: frozenset[str] = frozenset()
    started_ms: int = NONE_YET
    updated_ms: int = 0

    @property
    def exhausted(self) -> bool:
        """Whether the producer id has no epoch left to give to a client."""
        return self.epoch >= EXHAUSTED_EPOCH


class Step(NamedTuple):
    """The answer to a request, and the state after it; `transaction` is None if nothing changes."""

    code: Code
    transaction: Transaction | None = None


class Holder(NamedTuple):
    """The producer id and epoch by which a client says which producer it is."""

    producer_id: int
    epoch: int


NewId: TypeAlias = Callable[[], int]
"""Makes a producer id that was never given out before. It may raise BrokerError."""


def moved(
    current: Transaction,
    state: State,
    now_ms: int,
    *,
    holder: Holder,
    last_epoch: int,
    next_producer_id: int = NONE_YET,
    started_ms: int | None = None,
) -> Transaction:
    """Return `current` in the next `state`. An illegal change is a defect of the rules (AssertionError)."""
    assert state in AFTER[current.state], f"{current.state} to {state}"
    return current._replace(
        producer_id=holder.producer_id,
        epoch=holder.epoch,
        last_epoch=last_epoch,
        previous_producer_id=current.producer_id,
        next_producer_id=next_producer_id,
        state=state,
        started_ms=current.started_ms if started_ms is None else started_ms,
        updated_ms=now_ms,
    )


def initialized(
    current: Transaction | None, expected: Holder | None, timeout_ms: int, new_id: NewId, now_ms: int
) -> Step:
    """InitProducerId: give the id to a new producer, or, with `expected`, a new epoch to the one that has it (KIP-360).

    An open transaction is not looked at here: the caller has to abort it, and to have the client ask again. Note that
    `expected` is no compare-and-set, in Kafka either: a second caller with the previous epoch gets the current one.
    """
    if current is None:
        current = Transaction(new_id(), timeout_ms)
    if expected is not None and not _may_be(current, expected):
        return Step(Code.PRODUCER_FENCED)
    if current.state in DECIDED or current.state is State.ONGOING:
        return Step(Code.CONCURRENT_TRANSACTIONS)
    if current.exhausted and (expected is None or expected.epoch == current.epoch):
        last = NONE_YET if expected is None else current.epoch
        return _emptied(current, Holder(new_id(), 0), last, timeout_ms, now_ms)
    following = Holder(current.producer_id, current.epoch + 1)
    if expected is None:
        return _emptied(current, following, NONE_YET, timeout_ms, now_ms)
    if current.epoch in (NONE_YET, expected.epoch):
        return _emptied(current, following, current.epoch, timeout_ms, now_ms)
    if expected.epoch == current.last_epoch:
        repeated = Holder(current.producer_id, current.epoch)
        return _emptied(current, repeated, current.last_epoch, timeout_ms, now_ms)
    return Step(Code.PRODUCER_FENCED)


def _may_be(current: Transaction, expected: Holder) -> bool:
    """Return whether a producer that calls itself `expected` may be the one that has the id. The epoch is not looked at."""
    if current.epoch == NONE_YET or expected.producer_id == current.producer_id:
        return True
    return expected.producer_id == current.previous_producer_id and expected.epoch >= EXHAUSTED_EPOCH


def _emptied(current: Transaction, holder: Holder, last_epoch: int, timeout_ms: int, now_ms: int) -> Step:
    after = moved(current, State.EMPTY, now_ms, holder=holder, last_epoch=last_epoch, started_ms=NONE_YET)
    return Step(Code.NONE, after._replace(timeout_ms=timeout_ms, partitions=frozenset(), groups=frozenset()))


def added(
    current: Transaction | None,
    holder: Holder,
    partitions: Collection[TopicPartition],
    groups: Collection[str],
    now_ms: int,
) -> Step:
    """AddPartitionsToTxn and AddOffsetsToTxn: note what the transaction touches, and begin one if there is none."""
    if current is None or current.producer_id != holder.producer_id:
        return Step(Code.INVALID_PRODUCER_ID_MAPPING)
    if current.epoch != holder.epoch:
        return Step(Code.PRODUCER_FENCED)
    if current.state in DECIDED:
        return Step(Code.CONCURRENT_TRANSACTIONS)
    ongoing = current.state is State.ONGOING
    if ongoing and current.partitions.issuperset(partitions) and current.groups.issuperset(groups):
        return Step(Code.NONE)
    after = moved(
        current,
        State.ONGOING,
        now_ms,
        holder=holder,
        last_epoch=current.last_epoch,
        started_ms=current.started_ms if ongoing else now_ms,
    )
    return Step(
        Code.NONE,
        after._replace(partitions=current.partitions.union(partitions), groups=current.groups.union(groups)),
    )


def verified(current: Transaction | None, holder: Holder, *, is_added: bool) -> Code:
    """Check a write of this producer to something that must have been added before, which `is_added` says (KIP-890)."""
    if current is None or current.producer_id != holder.producer_id:
        return Code.INVALID_PRODUCER_ID_MAPPING
    if current.epoch != holder.epoch:
        return Code.PRODUCER_FENCED
    if current.state in DECIDED:
        return Code.CONCURRENT_TRANSACTIONS
    return Code.NONE if is_added else Code.TRANSACTION_ABORTABLE


def has_timed_out(current: Transaction, now_ms: int) -> bool:
    """Return whether the transaction has been open for longer than its producer has asked for."""
    return current.state is State.ONGOING and current.started_ms + current.timeout_ms < now_ms


def has_expired(current: Transaction, now_ms: int, expiration_ms: int) -> bool:
    """Return whether nobody has used the id for so long that it is to be forgotten."""
    return current.state in IDLE and current.updated_ms + expiration_ms <= now_ms
