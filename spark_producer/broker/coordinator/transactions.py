"""The state of a transactional id, and the pure rules by which requests change it (Kafka's TransactionMetadata).

Nothing here reads a clock, writes a file or knows a partition: a state and a request give an error code and the next state. The
end of a transaction is in `ending`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection
from typing import Final, NamedTuple, TypeAlias

from spark_producer.common.cluster import ProducerIdAndEpoch, TopicPartition
from spark_producer.common.error_codes import Code

UNSET: Final = -1
"""A producer id, an epoch or a time that is not set."""

EXHAUSTED_EPOCH: Final = 32766
"""The last epoch of a client: 32767 is reserved for the coordinator's own markers."""


class TransactionState(enum.Enum):
    """The states of a transactional id, with the names in DescribeTransactions (Kafka's TransactionState)."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"


IDLE: Final = frozenset({TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
"""The states without a transaction, in which an id can expire."""

DECIDED: Final = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
"""The states in which the outcome is final and markers are still to be written."""

NEXT_STATES: Final[dict[TransactionState, frozenset[TransactionState]]] = {
    TransactionState.EMPTY: frozenset(
        {TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.PREPARE_ABORT, TransactionState.DEAD}
    ),
    TransactionState.ONGOING: frozenset({TransactionState.ONGOING, *DECIDED}),
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.COMPLETE_COMMIT}),
    TransactionState.PREPARE_ABORT: frozenset({TransactionState.COMPLETE_ABORT}),
    TransactionState.COMPLETE_COMMIT: frozenset(
        {TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.PREPARE_ABORT, TransactionState.DEAD}
    ),
    TransactionState.COMPLETE_ABORT: frozenset(
        {TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.PREPARE_ABORT, TransactionState.DEAD}
    ),
    TransactionState.DEAD: frozenset(),
}
"""The legal next states of each one. Only EndTxn 5 goes from an idle state to PrepareAbort (KIP-890)."""


class Transaction(NamedTuple):
    """The state of one transactional id. Times are in milliseconds since 1970.

    previous_producer_id: the producer id before the last change of any kind: it identifies a repeated EndTxn whose first one used
        up the epochs.
    next_producer_id: the one that takes over when the markers are written, once the epochs are used up.
    last_epoch: the epoch before the current one, if the same producer may not know the current one.
    partitions, groups: the partitions that the transaction writes to, and the consumer groups whose offsets it commits.
    started_ms: when the first of them was added.
    """

    producer_id: int
    timeout_ms: int
    epoch: int = UNSET
    last_epoch: int = UNSET
    previous_producer_id: int = UNSET
    next_producer_id: int = UNSET
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    groups: frozenset[str] = frozenset()
    started_ms: int = UNSET
    updated_ms: int = 0

    @property
    def exhausted(self) -> bool:
        """Whether the producer id has no further epoch for a client."""
        return self.epoch >= EXHAUSTED_EPOCH


class Transition(NamedTuple):
    """The error code for a request, and the next state; `transaction` is None if nothing changes."""

    code: Code
    transaction: Transaction | None = None


NewProducerId: TypeAlias = Callable[[], int]
"""Returns a producer id that was never assigned before. It may raise BrokerError."""


def transition_to(
    current: Transaction,
    state: TransactionState,
    now_ms: int,
    *,
    producer: ProducerIdAndEpoch,
    last_epoch: int,
    next_producer_id: int = UNSET,
    started_ms: int | None = None,
) -> Transaction:
    """Return `current` in the next `state`. An illegal transition is a bug in the rules (AssertionError)."""
    assert state in NEXT_STATES[current.state], f"{current.state} to {state}"
    return current._replace(
        producer_id=producer.producer_id,
        epoch=producer.epoch,
        last_epoch=last_epoch,
        previous_producer_id=current.producer_id,
        next_producer_id=next_producer_id,
        state=state,
        started_ms=current.started_ms if started_ms is None else started_ms,
        updated_ms=now_ms,
    )


def init_producer_id(
    current: Transaction | None,
    expected: ProducerIdAndEpoch | None,
    timeout_ms: int,
    new_producer_id: NewProducerId,
    now_ms: int,
) -> Transition:
    """Apply InitProducerId: assign the id to a new producer, or raise the epoch of the `expected` one (KIP-360).

    The caller has to abort an open transaction first, and let the client retry. `expected` is no
    compare-and-set, as in Kafka: a second caller with the previous epoch gets the current one.
    """
    if current is None:
        current = Transaction(new_producer_id(), timeout_ms)
    if expected is not None and not _may_be(current, expected):
        return Transition(Code.PRODUCER_FENCED)
    if current.state in DECIDED or current.state is TransactionState.ONGOING:
        return Transition(Code.CONCURRENT_TRANSACTIONS)
    if current.exhausted and (expected is None or expected.epoch == current.epoch):
        last = UNSET if expected is None else current.epoch
        return _emptied(current, ProducerIdAndEpoch(new_producer_id(), 0), last, timeout_ms, now_ms)
    following = ProducerIdAndEpoch(current.producer_id, current.epoch + 1)
    if expected is None:
        return _emptied(current, following, UNSET, timeout_ms, now_ms)
    if current.epoch in (UNSET, expected.epoch):
        return _emptied(current, following, current.epoch, timeout_ms, now_ms)
    if expected.epoch == current.last_epoch:
        repeated = ProducerIdAndEpoch(current.producer_id, current.epoch)
        return _emptied(current, repeated, current.last_epoch, timeout_ms, now_ms)
    return Transition(Code.PRODUCER_FENCED)


def _may_be(current: Transaction, expected: ProducerIdAndEpoch) -> bool:
    """Return whether the producer id of `expected` is one of this transactional id. The epoch is not compared."""
    if current.epoch == UNSET or expected.producer_id == current.producer_id:
        return True
    return expected.producer_id == current.previous_producer_id and expected.epoch >= EXHAUSTED_EPOCH


def _emptied(
    current: Transaction, producer: ProducerIdAndEpoch, last_epoch: int, timeout_ms: int, now_ms: int
) -> Transition:
    after = transition_to(
        current, TransactionState.EMPTY, now_ms, producer=producer, last_epoch=last_epoch, started_ms=UNSET
    )
    return Transition(Code.NONE, after._replace(timeout_ms=timeout_ms, partitions=frozenset(), groups=frozenset()))


def add_partitions(
    current: Transaction | None,
    producer: ProducerIdAndEpoch,
    partitions: Collection[TopicPartition],
    groups: Collection[str],
    now_ms: int,
) -> Transition:
    """Apply AddPartitionsToTxn or AddOffsetsToTxn: add to the transaction, and begin one if there is none."""
    if current is None or current.producer_id != producer.producer_id:
        return Transition(Code.INVALID_PRODUCER_ID_MAPPING)
    if current.epoch != producer.epoch:
        return Transition(Code.PRODUCER_FENCED)
    if current.state in DECIDED:
        return Transition(Code.CONCURRENT_TRANSACTIONS)
    ongoing = current.state is TransactionState.ONGOING
    if ongoing and current.partitions.issuperset(partitions) and current.groups.issuperset(groups):
        return Transition(Code.NONE)
    after = transition_to(
        current,
        TransactionState.ONGOING,
        now_ms,
        producer=producer,
        last_epoch=current.last_epoch,
        started_ms=current.started_ms if ongoing else now_ms,
    )
    return Transition(
        Code.NONE,
        after._replace(partitions=current.partitions.union(partitions), groups=current.groups.union(groups)),
    )


def verify(current: Transaction | None, producer: ProducerIdAndEpoch, *, is_added: bool) -> Code:
    """Return whether the producer may write to a partition or group, where `is_added` says whether it was added (KIP-890)."""
    if current is None or current.producer_id != producer.producer_id:
        return Code.INVALID_PRODUCER_ID_MAPPING
    if current.epoch != producer.epoch:
        return Code.PRODUCER_FENCED
    if current.state in DECIDED:
        return Code.CONCURRENT_TRANSACTIONS
    return Code.NONE if is_added else Code.TRANSACTION_ABORTABLE


def has_timed_out(current: Transaction, now_ms: int) -> bool:
    """Return whether the transaction has been open for longer than its timeout."""
    return current.state is TransactionState.ONGOING and current.started_ms + current.timeout_ms < now_ms


def has_expired(current: Transaction, now_ms: int, expiration_ms: int) -> bool:
    """Return whether the id has been unused for `expiration_ms`."""
    return current.state in IDLE and current.updated_ms + expiration_ms <= now_ms
