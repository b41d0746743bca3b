"""The pure rules of the coordinator as tables: each state, each request, what is answered and what follows."""

from collections.abc import Callable
from itertools import count

import pytest

from spark_producer.broker.coordinator import transactions
from spark_producer.broker.coordinator.ending import completed, ended, fenced
from spark_producer.broker.coordinator.transactions import (
    AFTER,
    EXHAUSTED_EPOCH,
    NONE_YET,
    Holder,
    State,
    Step,
    Transaction,
    added,
    has_expired,
    has_timed_out,
    initialized,
    verified,
)
from spark_producer.common.error_codes import Code

PID, EPOCH, NEW_ID, NOW, TIMEOUT = 7, 5, 100, 1_000, 60_000
T0 = ("t", 0)
T1 = ("t", 1)
ME = Holder(PID, EPOCH)
BEFORE = Holder(PID, EPOCH - 1)
NEXT = Holder(PID, EPOCH + 1)
OTHER = Holder(PID + 1, EPOCH)

NONE, BUSY, STATE, FENCED, MAPPING = (
    Code.NONE, Code.CONCURRENT_TRANSACTIONS, Code.INVALID_TXN_STATE, Code.PRODUCER_FENCED,
    Code.INVALID_PRODUCER_ID_MAPPING,
)  # fmt: skip
LIVING = [state for state in State if state is not State.DEAD]


def new_ids() -> Callable[[], int]:
    numbers = count(NEW_ID)
    return lambda: next(numbers)


def known(state: State, *, epoch: int = EPOCH, last_epoch: int = NONE_YET) -> Transaction:
    touched = frozenset({T0}) if state in (State.ONGOING, *transactions.DECIDED) else frozenset()
    started = 500 if touched else NONE_YET
    return Transaction(PID, TIMEOUT, epoch, last_epoch, state=state, partitions=touched, started_ms=started)


def end(current: Transaction | None, holder: Holder = ME, *, commit: bool = True, implicit: bool = False) -> Step:
    return ended(current, holder, commit=commit, implicit=implicit, new_id=new_ids(), now_ms=NOW)


def init(current: Transaction | None, expected: Holder | None = None) -> Step:
    return initialized(current, expected, TIMEOUT, new_ids(), NOW)


def holder_after(step: Step) -> Holder:
    assert step.transaction is not None
    return Holder(step.transaction.producer_id, step.transaction.epoch)


E_, C_, A_ = "ended", "commit", "abort"
EXPLICIT: dict[State, tuple[Code | str, Code | str]] = {
    State.EMPTY: (STATE, STATE),
    State.ONGOING: (E_, E_),
    State.PREPARE_COMMIT: (BUSY, STATE),
    State.PREPARE_ABORT: (STATE, BUSY),
    State.COMPLETE_COMMIT: (NONE, STATE),
    State.COMPLETE_ABORT: (STATE, NONE),
}
IMPLICIT: dict[State, tuple[Code | str, Code | str]] = {
    State.EMPTY: (STATE, E_),
    State.ONGOING: (E_, E_),
    State.PREPARE_COMMIT: (FENCED, FENCED),
    State.PREPARE_ABORT: (FENCED, FENCED),
    State.COMPLETE_COMMIT: (STATE, E_),
    State.COMPLETE_ABORT: (STATE, E_),
}
REPEATED: dict[State, tuple[Code | str, Code | str]] = {
    State.EMPTY: (FENCED, FENCED),
    State.ONGOING: (FENCED, FENCED),
    State.PREPARE_COMMIT: (BUSY, STATE),
    State.PREPARE_ABORT: (STATE, BUSY),
    State.COMPLETE_COMMIT: (NONE, STATE),
    State.COMPLETE_ABORT: (STATE, NONE),
}
TABLES: dict[str, tuple[dict[State, tuple[Code | str, Code | str]], Holder, bool]] = {
    "explicit": (EXPLICIT, ME, False),
    "implicit": (IMPLICIT, ME, True),
    "implicit, repeated": (REPEATED, BEFORE, True),
}


@pytest.mark.parametrize("outcome", [C_, A_])
@pytest.mark.parametrize("state", LIVING, ids=lambda state: state.value)
@pytest.mark.parametrize("style", TABLES)
def test_end_of_a_transaction(style: str, state: State, outcome: str) -> None:
    """The tables of Kafka's TransactionCoordinator.endTransaction, for EndTxn up to 4 and from 5 on."""
    rules, holder, implicit = TABLES[style]
    expected = rules[state][0 if outcome == C_ else 1]
    step = end(known(state), holder, commit=outcome == C_, implicit=implicit)
    if not isinstance(expected, Code):
        prepared = State.PREPARE_COMMIT if outcome == C_ else State.PREPARE_ABORT
        assert step.code == NONE
        assert step.transaction is not None
        assert step.transaction.state is prepared
        assert step.transaction.epoch == EPOCH + implicit
        assert step.transaction.partitions == known(state).partitions
        assert step.transaction.started_ms == (known(state).started_ms if state is State.ONGOING else NOW)
    else:
        assert step == Step(expected)


@pytest.mark.parametrize("state", LIVING, ids=lambda state: state.value)
@pytest.mark.parametrize(
    ("holder", "implicit", "code"),
    [
        (OTHER, False, MAPPING),
        (OTHER, True, MAPPING),
        (BEFORE, False, FENCED),
        (NEXT, False, FENCED),
        (NEXT, True, FENCED),
        (Holder(PID, EPOCH - 2), True, FENCED),
    ],
)
def test_end_by_somebody_else(state: State, holder: Holder, implicit: bool, code: Code) -> None:
    for commit in (True, False):
        assert end(known(state), holder, commit=commit, implicit=implicit) == Step(code)
        assert end(None, holder, commit=commit, implicit=implicit) == Step(MAPPING)


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_can_be_asked_for_again_in_the_same_style_only(commit: bool) -> None:
    explicit = end(known(State.ONGOING), commit=commit)
    assert explicit.transaction is not None
    done = completed(explicit.transaction, NOW)
    assert end(done, commit=commit) == Step(NONE)
    assert end(done, commit=not commit) == Step(STATE)
    assert end(done, commit=True, implicit=True) == Step(STATE)

    implicit = end(known(State.ONGOING), commit=commit, implicit=True)
    assert implicit.transaction is not None
    done = completed(implicit.transaction, NOW)
    assert (done.epoch, done.last_epoch) == (EPOCH + 1, EPOCH)
    assert end(done, commit=commit, implicit=True) == Step(NONE)
    assert end(done, commit=not commit, implicit=True) == Step(STATE)
    assert end(done, commit=commit) == Step(FENCED)


def test_the_last_epoch_goes_over_into_a_new_producer_id() -> None:
    last = known(State.ONGOING, epoch=EXHAUSTED_EPOCH)
    me = Holder(PID, EXHAUSTED_EPOCH)
    step = end(last, me, implicit=True)
    assert step.transaction is not None
    assert holder_after(step) == Holder(PID, 32767)  # in the markers
    done = completed(step.transaction, NOW)
    assert Holder(done.producer_id, done.epoch) == Holder(NEW_ID, 0)
    assert end(done, me, implicit=True) == Step(NONE)
    assert end(done, me, commit=False, implicit=True) == Step(STATE)
    assert end(done, me) == Step(MAPPING)
    assert end(done, Holder(PID, EXHAUSTED_EPOCH - 1), implicit=True) == Step(MAPPING)

    explicit = end(last, me)
    assert explicit.transaction is not None
    done = completed(explicit.transaction, NOW)
    assert Holder(done.producer_id, done.epoch) == me
    assert holder_after(init(done)) == Holder(NEW_ID, 0)


@pytest.mark.parametrize(
    ("epoch", "implicit", "then"),
    [
        (EPOCH, False, Holder(PID, EPOCH + 2)),
        (EPOCH, True, Holder(PID, EPOCH + 2)),
        (32764, False, Holder(PID, 32766)),
        (32765, False, Holder(NEW_ID, 0)),
        (32766, False, Holder(NEW_ID, 0)),
        (32765, True, Holder(NEW_ID, 0)),
        (32766, True, Holder(NEW_ID, 1)),
    ],
)
def test_a_fence_takes_two_epochs(epoch: int, implicit: bool, then: Holder) -> None:
    ongoing = known(State.ONGOING, epoch=epoch)
    assert init(ongoing) == Step(BUSY)
    aborting = fenced(ongoing, implicit=implicit, new_id=new_ids(), now_ms=NOW)
    assert aborting.state is State.PREPARE_ABORT
    assert aborting.epoch == epoch + 1
    assert init(aborting) == Step(BUSY)
    assert holder_after(init(completed(aborting, NOW))) == then


def test_after_a_fence_only_an_abort_in_the_new_style_is_not_refused() -> None:
    for implicit in (False, True):
        done = completed(fenced(known(State.ONGOING), implicit=implicit, new_id=new_ids(), now_ms=NOW), NOW)
        assert end(done) == Step(FENCED)
        assert end(done, commit=False) == Step(FENCED)
        assert end(done, implicit=True) == Step(STATE)
        assert end(done, commit=False, implicit=True) == Step(NONE)


@pytest.mark.parametrize("state", [State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT])
@pytest.mark.parametrize(
    ("last", "expected", "epoch", "last_after"),
    [
        (NONE_YET, None, EPOCH + 1, NONE_YET),
        (NONE_YET, ME, EPOCH + 1, EPOCH),
        (EPOCH - 1, BEFORE, EPOCH, EPOCH - 1),  # no compare-and-set: two callers get the same epoch
        (NONE_YET, BEFORE, None, None),
        (NONE_YET, NEXT, None, None),
        (NONE_YET, OTHER, None, None),
    ],
)
def test_a_new_epoch(
    state: State, last: int, expected: Holder | None, epoch: int | None, last_after: int | None
) -> None:
    step = init(known(state, last_epoch=last), expected)
    if epoch is None:
        assert step == Step(FENCED)
    else:
        assert step.code == NONE
        assert step.transaction == Transaction(
            PID, TIMEOUT, epoch, last_after or NONE_YET, previous_producer_id=PID, updated_ms=NOW
        )


def test_the_epoch_of_a_producer_in_a_transaction_is_not_looked_at() -> None:
    """The trap of KIP-360: whoever knows the producer id ends the transaction, with whatever epoch."""
    assert init(known(State.ONGOING), BEFORE) == Step(BUSY)
    assert init(known(State.ONGOING), NEXT) == Step(BUSY)
    assert init(known(State.ONGOING), OTHER) == Step(FENCED)


def test_a_new_id_begins_at_epoch_0_whatever_is_expected() -> None:
    for expected in (None, ME):
        assert init(None, expected).transaction == Transaction(
            NEW_ID, TIMEOUT, 0, previous_producer_id=NEW_ID, updated_ms=NOW
        )


def test_a_repeated_bump_of_the_last_epoch_is_known_by_the_producer_id_before() -> None:
    me = Holder(PID, EXHAUSTED_EPOCH)
    first = init(known(State.EMPTY, epoch=EXHAUSTED_EPOCH), me)
    assert holder_after(first) == Holder(NEW_ID, 0)
    assert holder_after(init(first.transaction, me)) == Holder(NEW_ID, 0)
    assert init(first.transaction, ME) == Step(FENCED)
    assert init(first.transaction, Holder(PID, 0)) == Step(FENCED)


@pytest.mark.parametrize(
    ("state", "holder", "code"),
    [
        *((state, OTHER, MAPPING) for state in LIVING),
        *((state, BEFORE, FENCED) for state in LIVING),
        *((state, NEXT, FENCED) for state in LIVING),
        (State.PREPARE_COMMIT, ME, BUSY),
        (State.PREPARE_ABORT, ME, BUSY),
        *((state, ME, NONE) for state in LIVING if state not in transactions.DECIDED),
    ],
)
def test_a_partition_is_added(state: State, holder: Holder, code: Code) -> None:
    before = known(state)
    step = added(before, holder, [T1], ["g"], NOW)
    assert step.code == code
    assert added(None, holder, [T1], [], NOW) == Step(MAPPING)
    if code == NONE:
        started = before.started_ms if state is State.ONGOING else NOW
        assert step.transaction == before._replace(
            state=State.ONGOING,
            partitions=before.partitions | {T1},
            groups=frozenset({"g"}),
            started_ms=started,
            updated_ms=NOW,
            previous_producer_id=PID,
        )
    else:
        assert step.transaction is None


def test_what_is_in_the_transaction_already_changes_nothing() -> None:
    assert added(known(State.ONGOING), ME, [T0], [], NOW) == Step(NONE)


@pytest.mark.parametrize("state", LIVING, ids=lambda state: state.value)
def test_a_write_must_have_been_announced(state: State) -> None:
    decided = state in transactions.DECIDED
    current = known(state)
    assert verified(None, ME, is_added=False) == MAPPING
    assert verified(current, OTHER, is_added=True) == MAPPING
    assert verified(current, BEFORE, is_added=True) == FENCED
    assert verified(current, NEXT, is_added=True) == FENCED
    assert verified(current, ME, is_added=True) == (BUSY if decided else NONE)
    assert verified(current, ME, is_added=False) == (BUSY if decided else Code.TRANSACTION_ABORTABLE)


@pytest.mark.parametrize("state", LIVING, ids=lambda state: state.value)
def test_time_runs_for_open_transactions_and_for_idle_ids(state: State) -> None:
    current = known(state)._replace(started_ms=500, updated_ms=500)
    open_, idle = state is State.ONGOING, state in transactions.IDLE
    assert not has_timed_out(current, 500 + TIMEOUT)
    assert has_timed_out(current, 501 + TIMEOUT) == open_
    assert not has_expired(current, 599, 100)
    assert has_expired(current, 600, 100) == idle


def test_nothing_leaves_a_decision_but_its_completion() -> None:
    assert AFTER[State.PREPARE_COMMIT] == {State.COMPLETE_COMMIT}
    assert AFTER[State.PREPARE_ABORT] == {State.COMPLETE_ABORT}
    with pytest.raises(AssertionError, match="COMPLETE_COMMIT"):
        completed(known(State.COMPLETE_COMMIT), NOW)
