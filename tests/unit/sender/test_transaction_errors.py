"""Effects of errors of coordinators, leaders and network on a transaction: tables of request, code and end. Ids: TM, SN, KP."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from spark_producer.common.cluster import TopicPartition
from spark_producer.common.error_codes import Action, Code
from spark_producer.errors import (
    BrokerError,
    IllegalState,
    ProducerFenced,
    PyProducerError,
    TransactionAbortable,
    TransactionAborted,
    UnsupportedVersion,
)
from spark_producer.sender.transactions.errors import ACTIONS, ErrorAction, TxnRequest, action_for
from spark_producer.sender.transactions.states import TxnCall, TxnState
from tests.fakes import transaction_fakes as transaction_stage_module
from tests.fakes.coordinator_answers import coordinated, kind_of
from tests.fakes.transaction_fakes import LOST, TransactionFakes, transaction_fakes
from tests.unit.sender.transactions.test_manager import OFFSETS, in_transaction

RETRIABLE = [code for code in Code if Action.RETRY in code.action]
FENCED = (47, 49, 90)
TOO_LATE = ("commit", 48)
"""Kafka 4's error for the commit of a transaction that has timed out; Kafka 3.9 has 90."""

REQUESTS = {
    "find": TxnRequest.FIND_COORDINATOR,
    "init": TxnRequest.INIT,
    "add": TxnRequest.ADD_PARTITIONS,
    "group": TxnRequest.ADD_OFFSETS,
    "offsets": TxnRequest.COMMIT_OFFSETS,
    "commit": TxnRequest.COMMIT,
    "abort": TxnRequest.ABORT,
    "raise": TxnRequest.RAISE_EPOCH,
}
"""Every request by its name in `transaction_fakes`."""


def until_asked(name: str, answers: list[int | PyProducerError]) -> TransactionFakes:
    """A transaction in which the next requests of this name get these answers."""
    made = transaction_fakes()
    made.script[name] += answers if name != "find" else []
    if made.do(TxnCall.INIT).error is not None:
        return made
    made.do(TxnCall.BEGIN)
    if name == "find":
        made.made.sender.on_disconnect(1)
        made.script[name] += answers
    if name == "raise":
        made.script["produce"] = [87]
    made.made.batches(b"a")
    if name in ("group", "offsets"):
        made.ask(TxnCall.OFFSETS, OFFSETS)
    made.run()
    if name in ("abort", "raise"):
        made.do(TxnCall.ABORT)
    elif made.manager.failure is None and made.made.error is None:
        made.do(TxnCall.COMMIT)
    return made


@pytest.mark.parametrize("name", REQUESTS)
def test_every_retriable_code_and_a_lost_answer_is_asked_again(name: str) -> None:
    need = REQUESTS[name]
    codes = [code for code in RETRIABLE if action_for(need, code) in (ErrorAction.RETRY, ErrorAction.LOOK_UP)]
    assert {14, 15, 16, 51} <= set(codes)
    answers: list[int | PyProducerError] = [*codes, LOST]
    for answer in answers:
        made = until_asked(name, [answer])
        assert made.state is TxnState.READY, (name, answer)
        assert len([request for request in made.sent if request.split()[0] == name]) >= 2


@pytest.mark.parametrize(
    ("name", "rows", "end"),
    [
        ("add", "results_by_topic_v3_and_below", TxnState.ABORTABLE),
        ("offsets", "topics", TxnState.FATAL),
    ],
)
def test_what_an_answer_is_silent_about_is_not_in_the_transaction(
    monkeypatch: pytest.MonkeyPatch, name: str, rows: str, end: TxnState
) -> None:
    def silent(body: tuple[object, ...], *given: Any, **more: Any) -> Any:
        answer = coordinated(body, *given, **more)
        return answer._replace(**{rows: ()}) if kind_of(body) == name else answer

    monkeypatch.setattr(transaction_stage_module, "coordinated", silent)
    made = until_asked(name, [])
    assert made.state is end
    assert "commit" not in {request.split()[0] for request in made.sent}


@pytest.mark.covers("TM10")
@pytest.mark.parametrize("name", ["init", "add", "group", "commit", "abort", "raise"])
@pytest.mark.parametrize("answer", [15, 16, LOST])
def test_the_coordinator_is_looked_up_again_after_a_code_that_says_so_or_a_lost_answer(
    name: str, answer: int | PyProducerError
) -> None:
    made = until_asked(name, [answer])
    assert made.sent.count("find transaction") == 2
    assert made.state is TxnState.READY


@pytest.mark.covers("TM10", "TM13")
def test_the_coordinator_of_the_group_is_looked_up_again() -> None:
    answers: list[int | PyProducerError] = [15, 16, 7, LOST]
    for answer in answers:
        made = until_asked("offsets", [answer])
        assert (made.sent.count("find group"), made.sent.count("find transaction")) == (2, 1)
        assert made.sent.count("offsets readers") == 2


@pytest.mark.covers("TM10")
def test_a_coordinator_that_cannot_be_reached_is_looked_up_again_before_anything_is_sent() -> None:
    made = in_transaction()
    made.made.sender.on_disconnect(1)
    made.made.batches(b"a")
    made.run()
    assert made.sent[:2] == ["find transaction", "add 0"]
    made.made.network.unready.add(1)
    made.made.network.pauses[1] = 0.5
    made.ask(TxnCall.ABORT)
    made.made.step()
    made.made.fakes.clock.advance(0.1)
    made.made.network.unready.clear()
    made.made.network.pauses.clear()
    made.run()
    assert made.sent[-2:] == ["find transaction", "abort"]


FATAL = [
    *[(name, code) for name in REQUESTS if name != "find" for code in FENCED],
    *[(name, 53) for name in ("find", "add", "group", "offsets", "commit", "abort")],
    *[(name, 48) for name in ("add", "group", "commit", "abort")],
    ("offsets", 43), ("abort", 120), ("find", 31), ("find", 35), ("init", 50), ("commit", 87), ("group", 87), ("raise", 53),
]  # fmt: skip


@pytest.mark.covers("TM14", "TM15", "TM19")
@pytest.mark.parametrize(("name", "code"), FATAL)
def test_a_fatal_code_ends_the_producer_with_a_reason_that_says_what_to_do(name: str, code: int) -> None:
    made = until_asked(name, [code])
    assert made.state is TxnState.FATAL
    error = made.made.fakes.incomplete.error
    fences = code in FENCED or (name, code) == TOO_LATE
    assert isinstance(error, BrokerError)
    assert isinstance(error, ProducerFenced) == fences
    assert ("or the transaction took longer than transaction.timeout.ms" in str(error)) == fences
    assert (Code(code).name in str(error), "What to do" in str(error)) == (True, True)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert made.made.fakes.pool.available == made.made.fakes.pool.total
    assert made.made.step().requests == []


ABORTABLE = [
    ("add", 29), ("add", 55), ("add", -1), ("add", 120), ("add", 59), ("add", 87),
    ("group", 30), ("group", 120), ("group", 59),
    *[("offsets", code) for code in (30, 82, 120, 25, 22, 69, 113, 27)],
    ("commit", 120), ("commit", 59),
]  # fmt: skip


@pytest.mark.covers("TM13", "TM14", "TM32")
@pytest.mark.parametrize(("name", "code"), ABORTABLE)
def test_an_abortable_code_refuses_the_commit_until_an_abort(name: str, code: int) -> None:
    made = until_asked(name, [code])
    assert made.state is TxnState.ABORTABLE
    for call in (TxnCall.COMMIT, TxnCall.BEGIN, TxnCall.OFFSETS, TxnCall.PREPARE):
        error = made.do(call, OFFSETS).error
        assert isinstance(error, TransactionAbortable)
        assert Code(code).name in str(error)
    assert made.do(TxnCall.ABORT).error is None
    made.do(TxnCall.BEGIN)
    made.made.batches(b"again")
    assert made.do(TxnCall.COMMIT).error is None


@pytest.mark.covers("TM14", "TM32")
def test_a_refused_group_coordinator_is_abortable() -> None:
    for code in (30, 120):
        made = transaction_fakes()
        made.begin()
        made.made.batches(b"a")
        made.run()
        made.script["find"] = [code]
        refused = made.do(TxnCall.OFFSETS, OFFSETS)
        assert isinstance(refused.error, TransactionAbortable)
        assert made.state is TxnState.ABORTABLE


@pytest.mark.covers("TM14")
@pytest.mark.parametrize("name", ["find", "init"])
@pytest.mark.parametrize("code", [53, 31, 120])
def test_a_refused_init_may_be_repeated(name: str, code: int) -> None:
    made = transaction_fakes()
    made.script[name] = [code]
    refused = made.do(TxnCall.INIT)
    assert isinstance(refused.error, BrokerError)
    assert (Code(code).name in str(refused.error), "user 'app'" in str(refused.error)) == (True, code != 120)
    assert made.sent.count(name) + made.sent.count(f"{name} transaction") == 1
    assert [made.do(call).error for call in (TxnCall.INIT, TxnCall.BEGIN)] == [None, None]
    assert made.state is TxnState.IN_TRANSACTION


@pytest.mark.covers("TM14")
def test_a_lookup_that_is_refused_while_a_transaction_is_ended_is_repeated_with_pauses() -> None:
    made = in_transaction()
    made.made.batches(b"a")
    made.run()
    made.made.sender.on_disconnect(1)
    made.script["find"] = [120] * 3
    began = made.made.now
    assert made.do(TxnCall.ABORT).error is None
    assert made.sent[-5:] == [*["find transaction"] * 4, "abort"]
    assert made.made.now - began > 0.3


@pytest.mark.covers("TM5")
def test_after_a_second_of_markers_that_are_not_written_the_pauses_grow() -> None:
    made = transaction_fakes()
    made.script["init"] = [51] * 100_000
    init = made.ask(TxnCall.INIT)
    made.run(seconds=60.0)
    assert not init.done
    assert 51 <= made.sent.count("init") < 51 + 60 / 0.8 + 1


@pytest.mark.covers("TM12")
@pytest.mark.parametrize("name", ["find", "init", "commit"])
def test_a_broker_without_the_version_is_fatal(name: str) -> None:
    made = until_asked(name, [UnsupportedVersion("too old")])
    assert isinstance(made.made.fakes.incomplete.error, UnsupportedVersion)
    assert made.state is TxnState.FATAL


@pytest.mark.covers("TM23")
def test_if_some_topics_are_unknown_all_are_asked_for_again_and_a_refused_one_is_named() -> None:
    made = in_transaction()
    made.script["add"] = [{0: 55, 1: 3}, {0: 55, 1: 29}]
    made.made.batches(b"a")
    made.made.batches(b"b", partition=1)
    made.run()
    assert made.sent == ["add 0,1", "add 0,1"]
    assert "partition 1" in str(made.manager.failure)
    assert "TOPIC_AUTHORIZATION_FAILED" in str(made.manager.failure)


def test_every_request_has_its_row_and_no_code_is_treated_as_done() -> None:
    assert set(ACTIONS) == set(TxnRequest) == set(REQUESTS.values())
    for need in TxnRequest:
        for code in Code:
            assert (action_for(need, code) is ErrorAction.DONE) == (code == 0)


# --- what leaders answer ----------------------------------------------------------------------------------------------


@pytest.mark.covers("SN47", "TM20")
@pytest.mark.parametrize("code", [47, 48, 120, 29, 87, 44, 17, -1])
def test_a_refused_batch_makes_the_transaction_abortable_and_no_flush_mends_that(code: int) -> None:
    made = in_transaction()
    made.script["produce"] = [code]
    made.made.batches(b"a")
    made.run()
    accounts = made.made.fakes.incomplete.failures
    with pytest.raises(BrokerError):
        accounts.raise_unreported()
    accounts.raise_unreported()  # the flush after that knows of no failure any more
    assert isinstance(made.do(TxnCall.COMMIT).error, TransactionAbortable)
    assert made.do(TxnCall.ABORT).error is None
    assert "commit" not in made.sent


@pytest.mark.covers("TM19")
def test_a_producer_with_an_old_epoch_may_abort_and_its_error_says_what_follows() -> None:
    """As in Java: the leader's error is the same for a newer producer and a time-out, after which Kafka 4 lets it go on."""
    for code, state in ((90, TxnState.FATAL), (0, TxnState.READY)):
        made = in_transaction()
        made.script["produce"] = [47]
        made.made.batches(b"a")
        made.run()
        reported = made.do(TxnCall.COMMIT).error
        assert isinstance(reported, TransactionAbortable)
        assert "transaction.timeout.ms passed; abort_transaction() shows which" in str(reported)
        made.script["abort"] = [code]
        assert isinstance(made.do(TxnCall.ABORT).error, ProducerFenced) == bool(code)
        assert made.state is state


@pytest.mark.covers("TM15", "TM19", "SN49")
@pytest.mark.parametrize("code", [49, 90, 53, 31, 35])
def test_a_fatal_code_of_a_leader_ends_the_producer(code: int) -> None:
    made = in_transaction()
    made.script["produce"] = [code]
    made.made.batches(b"a")
    commit = made.do(TxnCall.COMMIT)
    assert made.state is TxnState.FATAL
    assert commit.error is made.made.fakes.incomplete.error
    assert isinstance(commit.error, ProducerFenced) == (code in FENCED)


@pytest.mark.covers("TM29")
def test_in_a_fatal_state_late_failures_change_nothing() -> None:
    made = in_transaction(max_request_size=1200)
    made.holding.add("produce")
    made.made.batches(b"a")
    made.made.batches(b"b", partition=2)
    made.run()
    assert len(made.held) == 2
    made.script["produce"] = [90, 87]
    made.answer_held()
    assert made.state is TxnState.FATAL
    assert isinstance(made.made.fakes.incomplete.error, ProducerFenced)
    assert made.manager.failure is None


@pytest.mark.covers("TM20")
def test_an_error_while_aborting_does_not_stick() -> None:
    made = in_transaction()
    made.holding.add("produce")
    made.made.batches(b"a")
    made.run()
    abort = made.do(TxnCall.ABORT)
    assert not abort.done, "a batch in flight is waited for"
    made.script["produce"] = [87]
    made.answer_held()
    made.holding.clear()
    made.run()
    assert abort.error is None
    assert made.state is TxnState.READY
    assert made.manager.failure is None


@pytest.mark.covers("SN21", "TM26")
def test_a_batch_that_expires_makes_the_transaction_abortable_and_drops_the_commit() -> None:
    made = in_transaction()
    made.holding.add("produce")
    made.made.batches(b"a", b"b")
    commit = made.do(TxnCall.COMMIT)
    made.made.fakes.clock.advance(200.0)
    made.run()
    assert isinstance(commit.error, TransactionAbortable)
    assert "not acknowledged within" in str(commit.error)
    assert "commit" not in made.sent
    assert made.manager.contents.unresolved
    made.answer_held()  # late, and harmless
    made.holding.clear()
    assert made.do(TxnCall.ABORT).error is None
    assert made.sent[-2:] == ["abort", "raise 0"]


@pytest.mark.covers("TM26")
def test_where_no_epoch_can_be_raised_a_batch_in_doubt_is_fatal() -> None:
    made = in_transaction()
    made.script["produce"] = [87]
    made.script["raise"] = [UnsupportedVersion("InitProducerId 3 comes with Kafka 2.5")]
    made.made.batches(b"a")
    made.run()
    abort = made.do(TxnCall.ABORT)
    assert isinstance(abort.error, UnsupportedVersion)
    assert made.state is TxnState.FATAL


@pytest.mark.covers("SN27")
def test_a_gap_that_no_earlier_batch_explains_fails_the_batch_and_the_transaction() -> None:
    made = in_transaction()
    made.made.batches(b"a")
    made.run()
    made.script["produce"] = [45]
    made.made.batches(b"b")
    made.run()
    assert made.state is TxnState.ABORTABLE
    assert "OUT_OF_ORDER_SEQUENCE_NUMBER" in str(made.manager.failure)
    assert made.made.fakes.incomplete.queue_of(("orders", 0)).gate == 0


@pytest.mark.covers("TM25")
def test_in_a_transaction_that_can_only_be_aborted_nothing_is_drained_and_waiting_batches_fail() -> None:
    made = in_transaction()
    made.script["produce"] = [87]
    made.made.batches(b"a")
    future = made.made.fakes.append_one(b"after!" * 150)
    made.run()
    assert made.state is TxnState.ABORTABLE
    assert isinstance(future.exception(), TransactionAborted)
    assert "INVALID_RECORD" in str(future.exception())
    late = made.made.fakes.append_one(b"a thread that has not heard of it")
    made.run()
    assert isinstance(late.exception(), TransactionAborted)
    assert len(made.headers) == 1


def test_rows_that_come_after_the_end_of_a_transaction_are_not_in_the_next_one() -> None:
    made = in_transaction()
    made.do(TxnCall.COMMIT)
    stray = made.made.fakes.append_one(b"of a thread that did not wait")
    made.do(TxnCall.BEGIN)
    made.made.batches(b"a")
    assert isinstance(stray.exception(), IllegalState)
    assert made.do(TxnCall.COMMIT).error is None
    assert sum(header.records_count for header in made.headers) == 1


@pytest.mark.covers("TM20", "KP13")
def test_a_row_that_was_refused_before_it_was_queued_spoils_the_transaction_for_good() -> None:
    made = in_transaction()
    made.made.batches(b"a")
    made.run()
    made.do(TxnCall.MARK_ABORTABLE, ValueError("bad row"))
    made.do(TxnCall.MARK_ABORTABLE, ValueError("another"))
    refused = made.do(TxnCall.COMMIT).error
    assert isinstance(refused, TransactionAbortable)
    assert "bad row" in str(refused)
    assert made.do(TxnCall.ABORT).error is None
    made.do(TxnCall.MARK_ABORTABLE, ValueError("outside of a transaction nothing is spoilt"))
    made.do(TxnCall.BEGIN)
    made.made.batches(b"b")
    assert made.do(TxnCall.COMMIT).error is None


@pytest.mark.covers("TM17")
def test_after_an_abort_the_next_transaction_is_as_new_whatever_ended_the_last_one() -> None:
    """Before anything was sent, after it, and while a batch is to be sent again."""
    for answers, sequence in (([], 0), ([0], 1), ([7], 0)):
        made = in_transaction()
        made.script["produce"] = list(answers)
        if answers:
            made.made.batches(b"a")
            made.run(seconds=0.0)
        made.do(TxnCall.MARK_ABORTABLE, ValueError("bad"))
        assert made.state is TxnState.ABORTABLE
        assert made.do(TxnCall.ABORT).error is None
        made.do(TxnCall.BEGIN)
        made.made.batches(b"b")
        assert made.do(TxnCall.COMMIT).error is None
        assert (made.headers[-1].base_sequence, made.headers[-1].producer_epoch) == (sequence, int(answers == [7]))


@pytest.mark.covers("TM22")
def test_a_batch_that_was_to_be_sent_again_is_dropped_and_the_epoch_shuts_out_what_is_on_its_way() -> None:
    made = in_transaction()
    made.script["produce"] = [LOST]
    made.made.batches(b"a")
    future = made.made.fakes.append_one(b"b" * 900)
    made.run(seconds=0.0)
    assert made.do(TxnCall.ABORT).error is None
    assert isinstance(future.exception(), TransactionAborted)
    assert made.sent == ["add 0", "produce 0", "abort", "raise 0"]
    made.do(TxnCall.BEGIN)
    made.made.batches(b"c")
    made.run()
    assert (made.headers[-1].producer_epoch, made.headers[-1].base_sequence) == (1, 0)


@pytest.mark.covers("TM27")
def test_an_end_that_got_no_answer_is_asked_for_again_and_then_the_epoch_is_raised() -> None:
    """A late copy of it would end the next transaction of the same epoch (KAFKA-17754)."""
    made = in_transaction()
    made.script["commit"] = [LOST]
    made.made.batches(b"a")
    assert made.do(TxnCall.COMMIT).error is None
    assert made.sent == ["add 0", "produce 0", "commit", "find transaction", "commit", "raise 0"]
    implicit = in_transaction(implicit=True)
    implicit.script["commit"] = [LOST]
    implicit.made.batches(b"a")
    assert implicit.do(TxnCall.COMMIT).error is None
    assert implicit.sent == ["produce 0", "commit", "find transaction", "commit"]


@pytest.mark.covers("SN32")
def test_a_batch_that_is_split_in_a_transaction_keeps_its_sequences() -> None:
    made = in_transaction()
    made.script["produce"] = [10]
    for value in (b"a", b"b", b"c", b"d"):
        made.made.fakes.append(value * 100)
    commit = made.do(TxnCall.COMMIT)
    assert commit.error is None
    assert [(header.base_sequence, header.records_count) for header in made.headers] == [(0, 4), (0, 2), (2, 2)]


def test_the_places_of_a_refused_partition_are_those_of_the_request() -> None:
    made = in_transaction()
    made.script["add"] = [{2: 29}]
    made.made.batches(b"a", partition=2)
    made.run()
    assert str(TopicPartition("orders", 2)) in str(made.manager.failure)
