"""The calls of transactions: how threads wait for them, what a timeout means, and what ends them. Ids: TM, KP, SN."""

from __future__ import annotations

import inspect
import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from spark_producer import Producer
from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import (
    BufferExhausted,
    ConfigError,
    IllegalState,
    MetadataTimeout,
    ProducerClosed,
    ProducerFenced,
    PyProducerError,
    RecordError,
    RecordTooLarge,
    TopicNotFound,
    TransactionAbortable,
    TransactionAborted,
    TransactionTimeout,
)
from spark_producer.producer import parts_of
from spark_producer.producer.transactions import Transactions
from spark_producer.sender.transactions.partitions import ConsumerGroup, GroupOffset
from spark_producer.sender.transactions.states import TxnState
from tests.fakes.accumulator_fakes import Runner
from tests.fakes.hurry import impatient
from tests.fakes.scripted_cluster import ScriptedCluster, knowing_the_topic
from tests.support.waiting import wait_until

TID = "orders-1"
MISSING = "of no use"


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    made = ScriptedCluster()
    yield made
    made.wake(holding_apis=set())
    made.release()
    for producer in made.producers:
        producer.close(5.0)


def transactional(cluster: ScriptedCluster, **options: Any) -> Producer:
    return cluster.producer(transactional_id=TID, **options)


@pytest.fixture
def producer(cluster: ScriptedCluster) -> Producer:
    made = transactional(cluster)
    made.init_transactions()
    return made


def transactions_of(producer: Producer) -> Transactions:
    found = parts_of(producer).transactions
    assert found is not None
    return found


def state_of(producer: Producer) -> TxnState:
    return transactions_of(producer)._manager.state


def rows(*values: str) -> pa.RecordBatch:
    return pa.record_batch({"value": list(values)})


def fail_in_transaction(producer: Producer) -> None:
    with producer.transaction():
        producer.send_batch(rows("c"), topic="t")
        raise KeyError("of the caller")


def fail_in_producer(producer: Producer, *, forced: bool) -> None:
    with producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", "a")
        producer.flush()
        if forced:
            producer.close(0.0)
        raise KeyError("of the caller")


def fill(producer: Producer) -> None:
    for _ in range(100):
        producer.send_batch(rows("x" * 5000), topic="t")


@pytest.mark.covers("TM8")
def test_a_transaction_is_committed_at_the_end_of_its_context_and_aborted_after_an_error(
    cluster: ScriptedCluster, producer: Producer
) -> None:
    with producer.transaction():
        producer.send_batch(rows("a", "b"), topic="t")
    with pytest.raises(KeyError):
        fail_in_transaction(producer)
    with producer.transaction():
        producer.send("t", "d")
    ends = [name for name in cluster.names if name in ("commit", "abort")]
    assert ends == ["commit", "commit"] or ends == ["commit", "abort", "commit"]
    assert b"d" in cluster.log[TopicPartition("t", 0)]


@pytest.mark.covers("KP11", "TM11")
def test_an_init_that_times_out_is_repeated_and_nothing_else_before(cluster: ScriptedCluster) -> None:
    producer = transactional(cluster)
    cluster.holding_apis.add("init")
    with pytest.raises(TransactionTimeout, match=r"call it again, before any other call"):
        producer.init_transactions(0.01)
    for call in (producer.begin_transaction, producer.commit_transaction, producer.abort_transaction):
        with pytest.raises(IllegalState, match=r"Call init_transactions\(\) again"):
            call()
    with pytest.raises(IllegalState):
        producer.send("t", "a")
    cluster.release_apis()
    wait_until(lambda: state_of(producer) is TxnState.READY, "the late answer is used")
    with pytest.raises(IllegalState, match=r"Call init_transactions\(\) again"):
        producer.begin_transaction()
    producer.init_transactions()
    assert cluster.names.count("init") == 1, "the result of the first call, not another request"
    with producer.transaction():
        producer.send("t", "a")


@pytest.mark.covers("TM16")
@pytest.mark.parametrize("name", ["commit", "abort"])
def test_a_commit_or_abort_that_times_out_gets_its_result_when_it_is_repeated(
    cluster: ScriptedCluster, producer: Producer, name: str
) -> None:
    call, other = producer.commit_transaction, producer.abort_transaction
    if name == "abort":
        call, other = other, call
    producer.begin_transaction()
    producer.send("t", "a")
    producer.flush()
    cluster.holding_apis.add(name)
    with pytest.raises(TransactionTimeout, match=f"{name}_transaction"):
        call(0.01)
    with pytest.raises(IllegalState):
        other()
    with pytest.raises(TransactionTimeout):
        call(0.01)
    cluster.release_apis()
    call()
    assert cluster.names.count(name) == 1
    with producer.transaction():
        producer.send("t", "b")


@pytest.mark.covers("KP11")
def test_a_close_ends_a_wait_for_init(cluster: ScriptedCluster) -> None:
    producer = transactional(cluster)
    cluster.holding_apis.add("init")
    waiting = Runner(producer.init_transactions)
    wait_until(lambda: "init" in cluster.names, "the question is asked")
    producer.close(0.0)
    with pytest.raises(ProducerClosed):
        waiting.result()


@pytest.mark.covers("KP8")
@pytest.mark.parametrize("name", ["find", "init", "group"])
def test_a_forced_close_does_not_wait_for_coordinators(cluster: ScriptedCluster, name: str) -> None:
    producer = transactional(cluster)
    cluster.holding_apis.add(name)
    if name == "group":
        producer.init_transactions()
        producer.begin_transaction()
        waiting = Runner(lambda: producer.send_offsets_to_transaction({("in", 0): 5}, "readers"))
    else:
        waiting = Runner(producer.init_transactions)
    wait_until(lambda: name in cluster.names, "the question is asked")
    producer.close(0.0)
    wait_until(lambda: not parts_of(producer).io_thread.is_alive, "the thread ends")
    with pytest.raises(PyProducerError):
        waiting.result()


@pytest.mark.covers("SN40")
def test_a_close_in_a_transaction_aborts_it(cluster: ScriptedCluster, producer: Producer) -> None:
    producer.begin_transaction()
    producer.send("t", "a")
    producer.flush()
    waits = producer.send("t", "b")
    producer.close()
    assert "abort" in cluster.names
    assert "commit" not in cluster.names
    assert waits.exception() is None or isinstance(waits.exception(), TransactionAborted)


@pytest.mark.covers("SN40")
def test_the_end_of_with_after_an_error_aborts_too_and_a_forced_close_does_not(cluster: ScriptedCluster) -> None:
    for forced, ends in ((False, ["abort"]), (True, [])):
        cluster.names.clear()
        producer = transactional(cluster)
        with pytest.raises(KeyError):
            fail_in_producer(producer, forced=forced)
        assert [name for name in cluster.names if name in ("commit", "abort")] == ends


@pytest.mark.covers("SN49")
def test_what_ends_the_producer_ends_every_call_and_the_thread(cluster: ScriptedCluster, producer: Producer) -> None:
    producer.begin_transaction()
    producer.send("t", "a")
    cluster.codes["commit"] = [90]
    with pytest.raises(ProducerFenced) as fenced:
        producer.commit_transaction()
    wait_until(lambda: not parts_of(producer).io_thread.is_alive, "the thread ends")
    for call in (
        producer.begin_transaction,
        producer.abort_transaction,
        producer.flush,
        lambda: producer.send("t", "b"),
    ):
        with pytest.raises(ProducerFenced):
            call()
    assert "transaction.timeout.ms" in str(pickle.loads(pickle.dumps(fenced.value)))


BAD_ROWS: dict[str, tuple[type[Exception], Callable[[Producer], object]]] = {
    "too large": (RecordTooLarge, lambda producer: producer.send_batch(rows("x" * 2000), topic="t")),
    "too large, alone": (RecordTooLarge, lambda producer: producer.send("t", "x" * 2000)),
    "no such topic": (TopicNotFound, lambda producer: producer.send_batch(rows("x"), topic=MISSING)),
    "no topic name": (RecordError, lambda producer: producer.send("", "x")),
    "no such partition": (MetadataTimeout, lambda producer: producer.send("t", "x", partition=7)),
}


@pytest.mark.covers("KP13")
@pytest.mark.parametrize("what", BAD_ROWS)
def test_a_transaction_from_which_a_row_was_refused_cannot_be_committed(cluster: ScriptedCluster, what: str) -> None:
    kind, send = BAD_ROWS[what]
    cluster.topic_codes = lambda name: 3 if name == MISSING else 0
    producer = impatient(transactional(cluster, max_request_size=1024, batch_size=512))
    producer.init_transactions(10.0)
    producer.begin_transaction()
    producer.send("t", "good")
    with pytest.raises(kind):
        send(producer)
    with suppress(TransactionAborted):  # of the good row, if it was still waiting
        producer.flush()
    with pytest.raises(TransactionAbortable):
        producer.commit_transaction(10.0)
    producer.abort_transaction(10.0)
    with producer.transaction():
        producer.send("t", "again")
    assert cluster.names.count("commit") == 1


@pytest.mark.covers("KP13")
def test_an_unknown_topic_and_a_full_pool_fail_the_transaction_too(cluster: ScriptedCluster) -> None:
    producer = knowing_the_topic(transactional(cluster, buffer_memory=65536, batch_size=16384, max_block_ms=100))
    transactions_of(producer)._max_block = 10.0
    producer.init_transactions(10.0)
    for kind in (MetadataTimeout, BufferExhausted):
        producer.begin_transaction()
        producer.send("t", "a")
        producer.flush()
        if kind is MetadataTimeout:
            cluster.hold_metadata()
            with pytest.raises(MetadataTimeout):
                producer.send("another", "a")
            cluster.release_metadata()
        else:
            cluster.holding = True
            with pytest.raises(BufferExhausted):
                fill(producer)
            cluster.release()
        with pytest.raises(TransactionAbortable):
            producer.commit_transaction(10.0)
        producer.abort_transaction(10.0)


@pytest.mark.covers("KP14")
def test_the_arguments_of_offsets_are_checked(producer: Producer) -> None:
    producer.begin_transaction()
    wrong: list[tuple[dict[tuple[str, int], int | GroupOffset], str | ConsumerGroup]] = [
        ({("in", 0): 5}, ""),
        ({("in", 0): 5}, ConsumerGroup("readers", 3)),
        ({("in", 0): -1}, "readers"),
        ({("in", 0): GroupOffset(-7)}, ConsumerGroup("readers", 3, "member")),
    ]
    for offsets, group in wrong:
        with pytest.raises(RecordError):
            producer.send_offsets_to_transaction(offsets, group)
    producer.send_offsets_to_transaction({}, "readers")
    producer.commit_transaction()


@pytest.mark.covers("KP14")
def test_offsets_are_committed_with_the_transaction(cluster: ScriptedCluster, producer: Producer) -> None:
    with producer.transaction():
        producer.send_offsets_to_transaction({("in", 0): 5, ("in", 1): GroupOffset(7, 2, "note")}, "readers")
    assert [name for name in cluster.names if name in ("group", "offsets", "commit")] == ["group", "offsets", "commit"]
    with pytest.raises(IllegalState):
        producer.send_offsets_to_transaction({("in", 0): 6}, "readers")


@pytest.mark.covers("KP14")
def test_threads_that_send_offsets_at_once_send_their_own(cluster: ScriptedCluster, producer: Producer) -> None:
    producer.begin_transaction()
    cluster.holding_apis.add("group")
    first = Runner(lambda: producer.send_offsets_to_transaction({("in", 0): 5}, "readers"))
    wait_until(lambda: "group" in cluster.names, "the group is being added")
    second = Runner(lambda: producer.send_offsets_to_transaction({("in", 1): 7}, "readers"))
    wait_until(lambda: len(transactions_of(producer)._manager.contents.offsets) == 2, "both wait")
    cluster.release_apis()
    first.result()
    second.result()
    producer.commit_transaction()
    assert [name for name in cluster.names if name in ("group", "offsets", "commit")] == [
        "group", "offsets", "offsets", "commit",
    ]  # fmt: skip


@pytest.mark.covers("KP12", "TM33")
def test_a_prepared_producer_refuses_all_but_its_owner(cluster: ScriptedCluster) -> None:
    producer = transactional(cluster)
    transactions = transactions_of(producer)
    transactions.begin_deferred()
    producer.send_batch(rows("a", "b"), topic="t")
    assert "init" not in cluster.names
    with pytest.raises(IllegalState, match="the transaction is deferred"):
        producer.flush()
    prepared = transactions.prepare()
    assert (prepared.transactional_id, [span.records for span in prepared.spans]) == (TID, [2])
    for call in (
        producer.begin_transaction,
        producer.commit_transaction,
        producer.abort_transaction,
        lambda: producer.send("t", "c"),
        lambda: producer.send_batch(rows("c"), topic="t"),
        transactions.take_deferred,
    ):
        if call == transactions.take_deferred:
            assert call() is None
            continue
        with pytest.raises(IllegalState):
            call()
    transactions.renew()
    transactions.begin_deferred()
    producer.send("t", "c")
    taken = transactions.take_deferred()
    assert taken is not None
    assert [(batch.topic, batch.partition, batch.records) for batch in taken] == [("t", 0, 1)]
    producer.close()
    assert not {"commit", "abort"} & set(cluster.names)


def test_giving_up_raises_nothing_and_says_whether_it_is_done(cluster: ScriptedCluster) -> None:
    producer = transactional(cluster)
    transactions = transactions_of(producer)
    transactions.begin_deferred()
    producer.send("t", "a")
    transactions.prepare()
    cluster.holding_apis.add("abort")
    assert transactions.try_abort(0.01) is False
    cluster.release_apis()
    assert transactions.try_abort() is True
    transactions.begin_deferred()
    transactions.release()
    cluster.codes["init"] = [90]
    wait_until(lambda: parts_of(producer).failed or "init" in cluster.names[-1:], "it is asked")
    assert transactions.try_abort() in (True, False)
    producer.close(0.0)
    assert transactions.try_abort() is False


class CtrlC(BaseException):
    """Stands for KeyboardInterrupt, which would end all tests."""


def test_ctrl_c_while_a_lock_is_taken_does_not_leave_it_locked(
    monkeypatch: pytest.MonkeyPatch, producer: Producer
) -> None:
    """A condition's `__enter__` is Python, so a signal can end it when the lock is taken; a lock's own cannot be cut so."""
    ours, enter = transactions_of(producer)._changed, threading.Condition.__enter__

    def interrupted(condition: threading.Condition) -> bool:
        taken = enter(condition)
        if condition is ours:
            raise CtrlC
        return taken

    monkeypatch.setattr(threading.Condition, "__enter__", interrupted)
    producer.begin_transaction()
    future = producer.send("t", "a")
    producer.commit_transaction()
    assert future.done(), "neither thread waits for ever"


def test_ctrl_c_in_a_commit_is_what_the_context_raises(monkeypatch: pytest.MonkeyPatch, producer: Producer) -> None:
    """The I/O thread has not seen the commit yet, so the state still says that a transaction is open."""
    called, gate = threading.Event(), threading.Event()

    def hold_up(*_: object) -> None:
        called.set()
        gate.wait(10.0)

    def struck() -> None:
        raise CtrlC

    def write() -> None:
        with producer.transaction():
            producer.send("t", "a", on_delivery=hold_up)
            wait_until(called.is_set, "the I/O thread is in the callback")
            monkeypatch.setattr(transactions_of(producer), "_wakeup", struck)

    with pytest.raises(CtrlC):
        write()
    monkeypatch.undo()
    gate.set()
    producer.commit_transaction()


def test_a_producer_without_an_id_has_no_transactions_and_imports_nothing_for_them(cluster: ScriptedCluster) -> None:
    producer = cluster.producer()
    assert parts_of(producer).transactions is None
    for call in (producer.init_transactions, producer.begin_transaction, producer.transaction):
        with pytest.raises(IllegalState, match=r"Set transactional\.id"):
            call()


@pytest.mark.covers("KP1")
@pytest.mark.parametrize("options", [{"acks": "1"}, {"retries": 0}, {"enable_idempotence": False}])
def test_transactions_need_idempotence(cluster: ScriptedCluster, options: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"transactional\.id needs"):
        transactional(cluster, **options)


def test_rows_outside_of_a_transaction_are_refused_and_a_callback_cannot_end_one(
    cluster: ScriptedCluster, producer: Producer
) -> None:
    for send in (lambda: producer.send("t", "a"), lambda: producer.send_batch(rows("a"), topic="t")):
        with pytest.raises(IllegalState, match="outside of a transaction"):
            send()
    reported: list[Exception] = []
    called = threading.Event()

    def commit(_: object, __: object) -> None:
        try:
            producer.commit_transaction()
        except PyProducerError as error:
            reported.append(error)
        called.set()

    with producer.transaction():
        producer.send("t", "a", on_delivery=commit)
        producer.flush()
    assert called.wait(10)
    assert isinstance(reported[0], IllegalState)


def test_the_docstring_of_every_call_says_what_it_raises() -> None:
    for name in ("init_transactions", "commit_transaction", "begin_transaction", "send_offsets_to_transaction"):
        assert "Raises" in str(inspect.getdoc(getattr(Producer, name)))


def test_a_commit_is_a_flush_to_whose_errors_the_thread_answers(producer: Producer) -> None:
    accounts = parts_of(producer).accumulator.incomplete.failures
    producer.begin_transaction()
    producer.send("t", "a")
    assert accounts.mine().sent
    producer.commit_transaction()
    assert not accounts.mine().sent
