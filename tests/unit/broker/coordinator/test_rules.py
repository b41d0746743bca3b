"""The pure rules of the coordinator as tables: each state, each request, the error code and the next state."""

from collections.abc import Callable
from itertools import count

import pytest

from spark_producer.broker.coordinator import transactions
from spark_producer.broker.coordinator.ending import complete, end_transaction, fence
from spark_producer.broker.coordinator.transactions import (
    EXHAUSTED_EPOCH,
    NEXT_STATES,
    UNSET,
    Transaction,
    TransactionState,
    Transition,
    add_partitions,
    has_expired,
    has_timed_out,
    init_producer_id,
    verify,
)
from spark_producer.common.cluster import ProducerIdAndEpoch, TopicPartition
from spark_producer.common.error_codes import Code

PID, EPOCH, NEW_ID, NOW, TIMEOUT = 7, 5, 100, 1_000, 60_000
T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
ME = ProducerIdAndEpoch(PID, EPOCH)
BEFORE = ProducerIdAndEpoch(PID, EPOCH - 1)
NEXT = ProducerIdAndEpoch(PID, EPOCH + 1)
OTHER = ProducerIdAndEpoch(PID + 1, EPOCH)

NONE, BUSY, STATE, FENCED, MAPPING = (
    Code.NONE, Code.CONCURRENT_TRANSACTIONS, Code.INVALID_TXN_STATE, Code.PRODUCER_FENCED,
    Code.INVALID_PRODUCER_ID_MAPPING,
)  # fmt: skip
LIVING = [state for state in TransactionState if state is not TransactionState.DEAD]


def new_ids() -> Callable[[], int]:
    numbers = count(NEW_ID)
    return lambda: next(numbers)


def known(state: TransactionState, *, epoch: int = EPOCH, last_epoch: int = UNSET) -> Transaction:
    touched = frozenset({T0}) if state in (TransactionState.ONGOING, *transactions.DECIDED) else frozenset()
    started = 500 if touched else UNSET
    return Transaction(PID, TIMEOUT, epoch, last_epoch, state=state, partitions=touched, started_ms=started)


def end(
    current: Transaction | None, producer: ProducerIdAndEpoch = ME, *, commit: bool = True, implicit: bool = False
) -> Transition:
    return end_transaction(current, producer, commit=commit, implicit=implicit, new_producer_id=new_ids(), now_ms=NOW)


def init(current: Transaction | None, expected: ProducerIdAndEpoch | None = None) -> Transition:
    return init_producer_id(current, expected, TIMEOUT, new_ids(), NOW)


def holder_after(step: Transition) -> ProducerIdAndEpoch:
    assert step.transaction is not None
    return ProducerIdAndEpoch(step.transaction.producer_id, step.transaction.epoch)


E_, C_, A_ = "ended", "commit", "abort"
EXPLICIT: dict[TransactionState, tuple[Code | str, Code | str]] = {
    TransactionState.EMPTY: (STATE, STATE),
    TransactionState.ONGOING: (E_, E_),
    TransactionState.PREPARE_COMMIT: (BUSY, STATE),
    TransactionState.PREPARE_ABORT: (STATE, BUSY),
    TransactionState.COMPLETE_COMMIT: (NONE, STATE),
    TransactionState.COMPLETE_ABORT: (STATE, NONE),
}
IMPLICIT: dict[TransactionState, tuple[Code | str, Code | str]] = {
    TransactionState.EMPTY: (STATE, E_),
    TransactionState.ONGOING: (E_, E_),
    TransactionState.PREPARE_COMMIT: (FENCED, FENCED),
    TransactionState.PREPARE_ABORT: (FENCED, FENCED),
    TransactionState.COMPLETE_COMMIT: (STATE, E_),
    TransactionState.COMPLETE_ABORT: (STATE, E_),
}
REPEATED: dict[TransactionState, tuple[Code | str, Code | str]] = {
    TransactionState.EMPTY: (FENCED, FENCED),
    TransactionState.ONGOING: (FENCED, FENCED),
    TransactionState.PREPARE_COMMIT: (BUSY, STATE),
    TransactionState.PREPARE_ABORT: (STATE, BUSY),
    TransactionState.COMPLETE_COMMIT: (NONE, STATE),
    TransactionState.COMPLETE_ABORT: (STATE, NONE),
}
TABLES: dict[str, tuple[dict[TransactionState, tuple[Code | str, Code | str]], ProducerIdAndEpoch, bool]] = {
    "explicit": (EXPLICIT, ME, False),
    "implicit": (IMPLICIT, ME, True),
    "implicit, repeated": (REPEATED, BEFORE, True),
}


@pytest.mark.parametrize("outcome", [C_, A_])
@pytest.mark.parametrize("state", LIVING, ids=lambda state: state.value)
@pytest.mark.parametrize("txn_version", TABLES)
def test_end_of_a_transaction(txn_version: str, state: TransactionState, outcome: str) -> None:
    """The tables of Kafka's TransactionCoordinator.endTransaction, for EndTxn up to 4 and from 5 on."""
    rules, producer, implicit = TABLES[txn_version]
    expected = rules[state][0 if outcome == C_ else 1]
    step = end(known(state), producer, commit=outcome == C_, implicit=implicit)
    if not isinstance(expected, Code):
        prepared = TransactionState.PREPARE_COMMIT if outcome == C_ else TransactionState.PREPARE_ABORT
        assert step.code == NONE
        assert step.transaction is not None
        assert step.transaction.state is prepared
        assert step.transaction.epoch == EPOCH + implicit
        assert step.transaction.partitions == known(state).partitions
        assert step.transaction.started_ms == (known(state).started_ms if state is TransactionState.ONGOING else NOW)
    else:
        assert step == Transition(expected)


@pytest.mark.parametrize("state", LIVING, ids=lambda state: state.value)
@pytest.mark.parametrize(
    ("producer", "implicit", "code"),
    [
        (OTHER, False, MAPPING),
        (OTHER, True, MAPPING),
        (BEFORE, False, FENCED),
        (NEXT, False, FENCED),
        (NEXT, True, FENCED),
        (ProducerIdAndEpoch(PID, EPOCH - 2), True, FENCED),
    ],
)
def test_end_by_another_producer(
    state: TransactionState, producer: ProducerIdAndEpoch, implicit: bool, code: Code
) -> None:
    for commit in (True, False):
        assert end(known(state), producer, commit=commit, implicit=implicit) == Transition(code)
        assert end(None, producer, commit=commit, implicit=implicit) == Transition(MAPPING)


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_can_be_asked_for_again_in_the_same_transaction_version_only(commit: bool) -> None:
    explicit = end(known(TransactionState.ONGOING), commit=commit)
    assert explicit.transaction is not None
    done = complete(explicit.transaction, NOW)
    assert end(done, commit=commit) == Transition(NONE)
    assert end(done, commit=not commit) == Transition(STATE)
    assert end(done, commit=True, implicit=True) == Transition(STATE)

    implicit = end(known(TransactionState.ONGOING), commit=commit, implicit=True)
    assert implicit.transaction is not None
    done = complete(implicit.transaction, NOW)
    assert (done.epoch, done.last_epoch) == (EPOCH + 1, EPOCH)
    assert end(done, commit=commit, implicit=True) == Transition(NONE)
    assert end(done, commit=not commit, implicit=True) == Transition(STATE)
    assert end(done, commit=commit) == Transition(FENCED)


def test_the_last_epoch_goes_over_into_a_new_producer_id() -> None:
    last = known(TransactionState.ONGOING, epoch=EXHAUSTED_EPOCH)
    me = ProducerIdAndEpoch(PID, EXHAUSTED_EPOCH)
    step = end(last, me, implicit=True)
    assert step.transaction is not None
    assert holder_after(step) == ProducerIdAndEpoch(PID, 32767)  # in the markers
    done = complete(step.transaction, NOW)
    assert ProducerIdAndEpoch(done.producer_id, done.epoch) == ProducerIdAndEpoch(NEW_ID, 0)
    assert end(done, me, implicit=True) == Transition(NONE)
    assert end(done, me, commit=False, implicit=True) == Transition(STATE)
    assert end(done, me) == Transition(MAPPING)
    assert end(done, ProducerIdAndEpoch(PID, EXHAUSTED_EPOCH - 1), implicit=True) == Transition(MAPPING)

    explicit = end(last, me)
    assert explicit.transaction is not None
    done = complete(explicit.transaction, NOW)
    assert ProducerIdAndEpoch(done.producer_id, done.epoch) == me
    assert holder_after(init(done)) == ProducerIdAndEpoch(NEW_ID, 0)


@pytest.mark.parametrize(
    ("epoch", "implicit", "then"),
    [
        (EPOCH, False, ProducerIdAndEpoch(PID, EPOCH + 2)),
        (EPOCH, True, ProducerIdAndEpoch(PID, EPOCH + 2)),
        (32764, False, ProducerIdAndEpoch(PID, 32766)),
        (32765, False, ProducerIdAndEpoch(NEW_ID, 0)),
        (32766, False, ProducerIdAndEpoch(NEW_ID, 0)),
        (32765, True, ProducerIdAndEpoch(NEW_ID, 0)),
        (32766, True, ProducerIdAndEpoch(NEW_ID, 1)),
    ],
)
def test_a_fence_takes_two_epochs(epoch: int, implicit: bool, then: ProducerIdAndEpoch) -> None:
    ongoing = known(TransactionState.ONGOING, epoch=epoch)
    assert init(ongoing) == Transition(BUSY)
    aborting = fence(ongoing, implicit=implicit, new_producer_id=new_ids(), now_ms=NOW)
    assert aborting.state is TransactionState.PREPARE_ABORT
    assert aborting.epoch == epoch + 1
    assert init(aborting) == Transition(BUSY)
    assert holder_after(init(complete(aborting, NOW))) == then


def test_after_a_fence_only_an_abort_in_the_new_transaction_version_is_not_refused() -> None:
    for implicit in (False, True):
        done = complete(
            fence(known(TransactionState.ONGOING), implicit=implicit, new_producer_id=new_ids(), now_ms=NOW), NOW
        )
        assert end(done) == Transition(FENCED)
        assert end(done, commit=False) == Transition(FENCED)
        assert end(done, implicit=True) == Transition(STATE)
        assert end(done, commit=False, implicit=True) == Transition(NONE)


@pytest.mark.parametrize(
    "state", [TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT]
)
@pytest.mark.parametrize(
    ("last", "expected", "epoch", "last_after"),
    [
        (UNSET, None, EPOCH + 1, UNSET),
        (UNSET, ME, EPOCH + 1, EPOCH),
        (EPOCH - 1, BEFORE, EPOCH, EPOCH - 1),  # no compare-and-set: two callers get the same epoch
        (UNSET, BEFORE, None, None),
        (UNSET, NEXT, None, None),
        (UNSET, OTHER, None, None),
    ],
)
def test_a_new_epoch(
    state: TransactionState, last: int, expected: ProducerIdAndEpoch | None, epoch: int | None, last_after: int | None
) -> None:
    step = init(known(state, last_epoch=last), expected)
    if epoch is None:
        assert step == Transition(FENCED)
    else:
        assert step.code == NONE
        assert step.transaction == Transaction(
            PID, TIMEOUT, epoch, last_after or UNSET, previous_producer_id=PID, updated_ms=NOW
        )


def test_the_epoch_of_a_producer_in_a_transaction_is_not_checked() -> None:
    """The trap of KIP-360: any client that knows the producer id ends the transaction, with any epoch."""
    assert init(known(TransactionState.ONGOING), BEFORE) == Transition(BUSY)
    assert init(known(TransactionState.ONGOING), NEXT) == Transition(BUSY)
    assert init(known(TransactionState.ONGOING), OTHER) == Transition(FENCED)


def test_a_new_id_begins_at_epoch_0_whatever_is_expected() -> None:
    for expected in (None, ME):
        assert init(None, expected).transaction == Transaction(
            NEW_ID, TIMEOUT, 0, previous_producer_id=NEW_ID, updated_ms=NOW
        )


def test_a_repeated_bump_of_the_last_epoch_is_known_by_the_producer_id_before() -> None:
    me = ProducerIdAndEpoch(PID, EXHAUSTED_EPOCH)
    first = init(known(TransactionState.EMPTY, epoch=EXHAUSTED_EPOCH), me)
    assert holder_after(first) == ProducerIdAndEpoch(NEW_ID, 0)
    assert holder_after(init(first.transaction, me)) == ProducerIdAndEpoch(NEW_ID, 0)
    assert init(first.transaction, ME) == Transition(FENCED)
    assert init(first.transaction, ProducerIdAndEpoch(PID, 0)) == Transition(FENCED)


@pytest.mark.parametrize(
    ("state", "producer", "code"),
    [
        *((state, OTHER, MAPPING) for state in LIVING),
        *((state, BEFORE, FENCED) for state in LIVING),
        *((state, NEXT, FENCED) for state in LIVING),
        (TransactionState.PREPARE_COMMIT, ME, BUSY),
        (TransactionState.PREPARE_ABORT, ME, BUSY),
        *((state, ME, NONE) for state in LIVING if state not in transactions.DECIDED),
    ],
)
def test_a_partition_is_added(state: TransactionState, producer: ProducerIdAndEpoch, code: Code) -> None:
    before = known(state)
    step = add_partitions(before, producer, [T1], ["g"], NOW)
    assert step.code == code
    assert add_partitions(None, producer, [T1], [], NOW) == Transition(MAPPING)
    if code == NONE:
        started = before.started_ms if state is TransactionState.ONGOING else NOW
        assert step.transaction == before._replace(
            state=TransactionState.ONGOING,
            partitions=before.partitions | {T1},
            groups=frozenset({"g"}),
            started_ms=started,
            updated_ms=NOW,
            previous_producer_id=PID,
        )
    else:
        assert step.transaction is None


def test_what_is_in_the_transaction_already_changes_nothing() -> None:
    assert add_partitions(known(TransactionState.ONGOING), ME, [T0], [], NOW) == Transition(NONE)


@pytest.mark.parametrize("state", LIVING, ids=lambda state: state.value)
def test_a_write_must_have_been_announced(state: TransactionState) -> None:
    decided = state in transactions.DECIDED
    current = known(state)
    assert verify(None, ME, is_added=False) == MAPPING
    assert verify(current, OTHER, is_added=True) == MAPPING
    assert verify(current, BEFORE, is_added=True) == FENCED
    assert verify(current, NEXT, is_added=True) == FENCED
    assert verify(current, ME, is_added=True) == (BUSY if decided else NONE)
    assert verify(current, ME, is_added=False) == (BUSY if decided else Code.TRANSACTION_ABORTABLE)


@pytest.mark.parametrize("state", LIVING, ids=lambda state: state.value)
def test_time_runs_for_open_transactions_and_for_idle_ids(state: TransactionState) -> None:
    current = known(state)._replace(started_ms=500, updated_ms=500)
    open_, idle = state is TransactionState.ONGOING, state in transactions.IDLE
    assert not has_timed_out(current, 500 + TIMEOUT)
    assert has_timed_out(current, 501 + TIMEOUT) == open_
    assert not has_expired(current, 599, 100)
    assert has_expired(current, 600, 100) == idle


def test_nothing_leaves_a_decision_but_its_completion() -> None:
    assert NEXT_STATES[TransactionState.PREPARE_COMMIT] == {TransactionState.COMPLETE_COMMIT}
    assert NEXT_STATES[TransactionState.PREPARE_ABORT] == {TransactionState.COMPLETE_ABORT}
    with pytest.raises(AssertionError, match="COMPLETE_COMMIT"):
        complete(known(TransactionState.COMPLETE_COMMIT), NOW)
