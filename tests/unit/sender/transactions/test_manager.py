"""Transactions from their first request to their last, with both transaction versions: which requests go out, in which order.
Ids: TM, SN, RA."""

from __future__ import annotations

import pytest

from spark_producer.accumulator import ProducerIdAndEpoch
from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import IllegalState, TransactionAborted
from spark_producer.record.batch_v2 import TRANSACTIONAL_BIT
from spark_producer.sender.transactions.partitions import ConsumerGroup, GroupOffset, GroupOffsets
from spark_producer.sender.transactions.states import (
    ACCEPTS_ROWS,
    ALLOWED,
    SETTLED,
    SOURCES,
    TxnCall,
    TxnState,
    transition,
)
from tests.fakes.sender_fakes import TOPIC
from tests.fakes.transaction_fakes import LOST, TransactionFakes, transaction_fakes

CONCURRENT = 51
OFFSETS = GroupOffsets(ConsumerGroup("readers", 3, "member"), {TopicPartition("in", 0): GroupOffset(17, 2, "note")})


def in_transaction(*, implicit: bool = False, **options: object) -> TransactionFakes:
    made = transaction_fakes(implicit=implicit, **options)
    made.begin()
    return made


@pytest.mark.covers("TM8")
def test_a_whole_transaction_in_the_explicit_version() -> None:
    made = transaction_fakes()
    made.do(TxnCall.INIT)
    made.do(TxnCall.BEGIN)
    made.made.batches(b"a", b"b")
    made.made.batches(b"c", partition=2)
    offsets = made.ask(TxnCall.OFFSETS, OFFSETS)
    commit = made.do(TxnCall.COMMIT)
    assert made.sent == [
        "find transaction", "init", "add 0,2", "group readers", "produce 2", "find group", "produce 0", "offsets readers",
        "produce 0", "commit",
    ]  # fmt: skip
    assert made.state is TxnState.READY
    assert commit.done
    assert offsets.done
    assert (commit.error, offsets.error) == (None, None)
    versions = {request.api.name.split()[0]: request.api.max_version for request in made.requests}
    assert (versions["Produce"], versions["EndTxn"], versions["TxnOffsetCommit"]) == (11, 4, 4)
    assert all(header.attributes & TRANSACTIONAL_BIT for header in made.headers)
    assert [(header.producer_id, header.producer_epoch, header.base_sequence) for header in made.headers] == [
        (77, 0, 0), (77, 0, 0), (77, 0, 1),
    ]  # fmt: skip


@pytest.mark.covers("TM8", "TM4")
def test_a_whole_transaction_in_the_implicit_version_adds_nothing_by_itself() -> None:
    made = transaction_fakes(implicit=True)
    made.do(TxnCall.INIT)
    for _ in range(2):
        made.do(TxnCall.BEGIN)
        made.made.batches(b"a")
        made.ask(TxnCall.OFFSETS, OFFSETS)
        made.do(TxnCall.COMMIT)
    each = ["offsets readers", "produce 0", "commit"]
    assert sorted(made.sent) == sorted(["find transaction", "init", "find group", *each, *each])
    versions = {request.api.name.split()[0]: request.api.min_version for request in made.requests}
    assert (versions["Produce"], versions["EndTxn"], versions["TxnOffsetCommit"]) == (12, 5, 5)
    assert [(header.producer_epoch, header.base_sequence) for header in made.headers] == [(0, 0), (1, 0)]


@pytest.mark.covers("TM4")
def test_in_the_explicit_version_a_batch_waits_until_its_partition_is_added() -> None:
    made = in_transaction()
    made.holding.add("add")
    made.made.batches(b"a")
    made.run()
    made.made.batches(b"b", partition=1)
    made.run()
    assert made.sent == ["add 0"], "one request is in flight at a time, and nothing is sent before it is answered"
    made.holding.clear()
    made.answer_held()
    made.run()
    assert made.sent == ["add 0", "add 1", "produce 0,1"] or made.sent[1:] == ["produce 0", "add 1", "produce 1"]


@pytest.mark.covers("TM5")
def test_only_before_the_first_partition_the_pause_is_short() -> None:
    made = in_transaction()
    made.script["add"] = [CONCURRENT, CONCURRENT, 0, CONCURRENT]
    began = made.made.now
    made.made.batches(b"a")
    made.run()
    assert made.made.now - began == pytest.approx(2 * 0.02)
    made.made.batches(b"b", partition=2)
    made.run()
    assert made.made.now - began == pytest.approx(2 * 0.02 + 0.1)


@pytest.mark.covers("TM11")
def test_a_second_init_is_refused_and_changes_nothing() -> None:
    made = in_transaction()
    assert isinstance(made.do(TxnCall.INIT).error, IllegalState)
    assert made.state is TxnState.IN_TRANSACTION


@pytest.mark.covers("TM2", "TM21")
def test_commit_is_withheld_while_a_batch_is_in_flight_or_waits() -> None:
    made = in_transaction()
    made.holding.add("produce")
    made.made.batches(b"a", b"b")
    commit = made.do(TxnCall.COMMIT)
    assert made.sent == ["add 0", "produce 0"]
    assert not commit.done
    made.holding.clear()
    made.answer_held()
    made.run()
    assert made.sent == ["add 0", "produce 0", "produce 0", "commit"]
    assert commit.done


@pytest.mark.covers("RA18", "SN41")
def test_a_commit_sends_open_batches_at_once() -> None:
    made = in_transaction(linger=500.0)
    made.made.fakes.append(b"open")
    began = made.made.now
    made.do(TxnCall.COMMIT)
    assert made.sent == ["add 0", "produce 0", "commit"]
    assert made.made.now == began
    assert made.made.fakes.incomplete.flushing == 0


@pytest.mark.covers("TM18")
def test_a_commit_adds_the_partitions_that_are_not_added_yet_all_at_once() -> None:
    made = in_transaction(linger=500.0)
    made.holding.add("add")
    made.made.batches(b"a")
    made.run()
    for partition in (1, 2):
        made.made.fakes.append(b"b", tp=TopicPartition(TOPIC, partition))
    commit = made.ask(TxnCall.COMMIT)
    made.run()
    made.holding.clear()
    made.answer_held()
    made.run()
    assert commit.error is None
    assert [request for request in made.sent if request.startswith("add")] == ["add 0", "add 1,2"]
    assert made.sent[-1] == "commit"


@pytest.mark.covers("TM24")
@pytest.mark.parametrize("call", [TxnCall.COMMIT, TxnCall.ABORT])
@pytest.mark.parametrize("implicit", [False, True])
def test_a_transaction_without_anything_ends_without_a_request(call: TxnCall, implicit: bool) -> None:
    made = in_transaction(implicit=implicit)
    assert made.do(call).error is None
    assert made.sent == []
    assert made.state is TxnState.READY


@pytest.mark.covers("TM24")
def test_an_abort_sends_no_end_if_adding_was_refused() -> None:
    made = in_transaction()
    made.script["add"] = [29]
    made.made.batches(b"a")
    made.run()
    assert made.state is TxnState.ABORTABLE
    assert made.do(TxnCall.ABORT).error is None
    assert made.sent == ["add 0"]


def test_an_abort_ends_what_may_have_begun_though_no_answer_came_and_believes_that_it_had_not() -> None:
    made = in_transaction()
    made.script["add"] = [LOST, 29]
    made.made.batches(b"a")
    made.run()
    made.script["abort"] = [48]  # INVALID_TXN_STATE: there is none
    assert made.do(TxnCall.ABORT).error is None
    assert made.sent == ["add 0", "find transaction", "add 0", "abort"]


@pytest.mark.covers("SN42")
@pytest.mark.parametrize("implicit", [False, True])
def test_an_abort_drops_what_waits_and_keeps_the_producer(implicit: bool) -> None:
    made = in_transaction(implicit=implicit)
    made.made.batches(b"a")
    made.run()
    future = made.made.fakes.append_one(b"b")
    assert made.do(TxnCall.ABORT).error is None
    assert isinstance(future.exception(), TransactionAborted)
    assert made.sent[-1] == "abort"
    assert made.made.fakes.incomplete.failure is None, "an abort reports no failure to its own caller"
    made.do(TxnCall.BEGIN)
    made.made.batches(b"c")
    assert made.do(TxnCall.COMMIT).error is None
    assert made.made.fakes.pool.available == made.made.fakes.pool.total


@pytest.mark.covers("TM30")
def test_sequences_go_on_after_an_abort_with_the_explicit_version_and_begin_again_in_the_implicit_one() -> None:
    for implicit, expected in ((False, [(0, 0), (0, 1)]), (True, [(0, 0), (1, 0)])):
        made = in_transaction(implicit=implicit)
        made.made.batches(b"a")
        made.run()
        made.do(TxnCall.ABORT)
        made.do(TxnCall.BEGIN)
        made.made.batches(b"b")
        made.run()
        assert [(header.producer_epoch, header.base_sequence) for header in made.headers] == expected


@pytest.mark.covers("TM3")
@pytest.mark.parametrize("state", [state for state in TxnState if state is not TxnState.FATAL])
def test_each_state_allows_its_calls_and_no_other(state: TxnState) -> None:
    for call in TxnCall:
        made = transaction_fakes()
        made.manager.state = state
        made.manager.contents.started = True
        made.holding |= {"init", "find", "commit", "abort"}
        operation = made.do(call, OFFSETS if call is TxnCall.OFFSETS else ValueError("bad row"))
        refused = isinstance(operation.error, IllegalState)
        assert refused == (state not in ALLOWED[call]), (state, call, operation.error)
        if refused:
            assert made.state is state, "a call that makes no sense changes nothing"


@pytest.mark.covers("TM3")
@pytest.mark.parametrize("state", TxnState)
def test_rows_are_taken_in_a_transaction_and_held_back_before_one(state: TxnState) -> None:
    made = transaction_fakes()
    made.manager.state = state
    if state in {
        TxnState.DEFERRED,
        TxnState.OPENING,
        TxnState.IN_TRANSACTION,
    }:
        made.manager.check()
    else:
        with pytest.raises(IllegalState, match=r"begin_transaction\(\)"):
            made.manager.check()


@pytest.mark.covers("TM31")
def test_what_the_table_does_not_allow_is_fatal_on_the_io_thread() -> None:
    for to in TxnState:
        for state in TxnState:
            if state in SOURCES[to]:
                assert transition(state, to) is to
                continue
            with pytest.raises(IllegalState, match="invalid transition"):
                transition(state, to)
            made = transaction_fakes()
            made.manager.state = state
            with pytest.raises(IllegalState):
                made.manager._move(to)
            assert made.state is TxnState.FATAL


def test_every_state_can_be_reached_and_left() -> None:
    reached = {TxnState.UNINITIALIZED}
    for _ in TxnState:
        reached |= {to for to in TxnState if SOURCES[to] & reached}
    assert reached == set(TxnState)
    assert all(any(state in SOURCES[to] for to in TxnState) for state in TxnState)
    assert not ACCEPTS_ROWS & SETTLED


@pytest.mark.covers("TM6")
def test_what_leaves_a_partition_by_what_the_coordinator_has_done() -> None:
    """Waiting, being added, added; and with each, the transaction open, or only to be aborted."""
    for stage_of_adding, sent_then in ((0, 0), (1, 0), (2, 1)):
        for abortable in (False, True):
            made = in_transaction()
            made.holding |= {"add"} if stage_of_adding < 2 else set()
            if stage_of_adding:
                made.made.batches(b"a")
                made.run()
            if abortable:
                made.do(TxnCall.MARK_ABORTABLE, ValueError("bad"))
            before = len(made.headers)
            assert before == sent_then
            made.made.batches(b"b")
            made.run()
            more = len(made.headers) - before
            assert more == (1 if stage_of_adding == 2 and not abortable else 0)


@pytest.mark.covers("TM1", "SN40")
def test_a_producer_that_closes_aborts_its_transaction() -> None:
    made = in_transaction(linger=500.0)
    made.made.batches(b"a")
    made.run()
    made.made.fakes.append(b"b")
    made.made.fakes.incomplete.begin_close()
    assert not made.manager.settled
    made.run()
    assert made.sent[-1] == "abort"
    assert made.manager.settled
    assert made.made.fakes.incomplete.idle


@pytest.mark.covers("TM1", "SN40")
def test_a_producer_that_closes_goes_on_with_a_commit_and_does_not_wait_for_an_init() -> None:
    made = in_transaction()
    made.holding.add("commit")
    made.made.batches(b"a")
    commit = made.do(TxnCall.COMMIT)
    made.made.fakes.incomplete.begin_close()
    made.run()
    assert not made.manager.settled
    made.answer_held()
    assert made.manager.settled
    assert commit.done
    waiting = transaction_fakes()
    waiting.holding.add("init")
    waiting.do(TxnCall.INIT)
    waiting.made.fakes.incomplete.begin_close()
    assert waiting.manager.settled


@pytest.mark.covers("TM28")
def test_the_end_of_an_implicit_transaction_gives_the_next_epoch_or_another_producer_id() -> None:
    made = in_transaction(implicit=True)
    made.made.batches(b"a")
    made.identity = ProducerIdAndEpoch(78, -1)  # as if the epochs of 77 were used up
    made.do(TxnCall.COMMIT)
    assert made.manager.identity == (78, 0)
    made.do(TxnCall.BEGIN)
    made.made.batches(b"b")
    made.run()
    assert [(header.producer_id, header.producer_epoch, header.base_sequence) for header in made.headers] == [
        (77, 0, 0), (78, 0, 0),
    ]  # fmt: skip


@pytest.mark.covers("TM9")
def test_the_transaction_version_is_that_of_the_finalized_feature_at_init_and_at_the_end_of_each_transaction() -> None:
    made = in_transaction()
    for level, requests in (
        (1, ["add 0", "produce 0", "commit"]),
        (2, ["add 0", "produce 0", "commit", "raise 0"]),  # seen at the end: the epoch is raised once by the producer
        (2, ["produce 0", "commit"]),
        (0, ["produce 0", "commit"]),  # seen at the end again
        (0, ["add 0", "produce 0", "commit"]),
    ):
        made.implicit(level)
        made.sent.clear()
        if made.state is TxnState.READY:
            made.do(TxnCall.BEGIN)
        made.made.batches(b"a")
        assert made.do(TxnCall.COMMIT).error is None
        assert made.sent == requests, level
        assert made.state is TxnState.READY
