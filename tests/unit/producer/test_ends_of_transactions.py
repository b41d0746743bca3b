"""The errors of callers at the end of a transaction when something else fails too. Ids: TM, KP."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from spark_producer import Producer
from spark_producer.common.cluster import TRANSACTIONS
from spark_producer.errors import IllegalState, PyProducerError, TransactionAbortable, TransactionTimeout
from spark_producer.producer import parts_of
from spark_producer.sender.transactions.states import Operation, TxnState
from tests.fakes.accumulator_fakes import DEADLINE, Runner
from tests.fakes.hurry import RunningClock
from tests.fakes.scripted_cluster import ScriptedCluster
from tests.support.waiting import wait_until

# The fixtures of the calls' own tests.
from tests.unit.producer.test_transactions import (
    CtrlC,
    cluster,
    producer,
    rows,
    state_of,
    transactional,
    transactions_of,
)

__all__ = ["cluster", "producer"]


def committing_with_an_older_epoch(cluster: ScriptedCluster, producer: Producer) -> None:
    """A transaction with version 1 at whose end the cluster changes to version 2; the next epoch is held back."""
    producer.begin_transaction()
    producer.send("t", "a")
    producer.flush()
    cluster.wake(levels={TRANSACTIONS: 2})
    cluster.holding_apis.add("raise")


ENDS: dict[str, Callable[[ScriptedCluster, Producer], None]] = {
    "refused": lambda cluster, _: cluster.release_apis(),
    "unreachable for good": lambda cluster, _: cluster.wake(poll_error=KeyError("surprise")),
    "closed": lambda _, producer: producer.close(0.0),
}
"""Return the error that ends the producer."""


@pytest.mark.covers("TM27")
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("late", [False, True])
def test_a_commit_that_is_done_succeeds_whatever_ends_the_producer_afterwards(
    cluster: ScriptedCluster, producer: Producer, end: str, late: bool
) -> None:
    committing_with_an_older_epoch(cluster, producer)
    cluster.codes["raise"] = [53]
    if late:
        with pytest.raises(TransactionTimeout):
            producer.commit_transaction(0.05)
        wait_until(lambda: "raise" in cluster.names, "the epoch is asked for")
        ENDS[end](cluster, producer)
        wait_until(lambda: not parts_of(producer).io_thread.is_alive, "the thread ends")
        producer.commit_transaction()
    else:
        waiting = Runner(producer.commit_transaction)
        wait_until(lambda: "raise" in cluster.names, "the epoch is asked for")
        ENDS[end](cluster, producer)
        waiting.result()
    wait_until(lambda: parts_of(producer).accumulator.incomplete.error is not None, "the producer has ended")
    with pytest.raises(PyProducerError):
        producer.begin_transaction()
    with pytest.raises(PyProducerError):
        producer.commit_transaction()


def write_beside(producer: Producer, cluster: ScriptedCluster, other_cluster: ScriptedCluster | None) -> None:
    """A transaction in whose body another call is not answered in time."""
    with producer.transaction():
        producer.send("t", "a")
        if other_cluster is None:
            cluster.holding_apis.add("group")
            producer.send_offsets_to_transaction({("in", 0): 5}, "readers", 0.05)
        else:
            (other,) = other_cluster.producers
            other.begin_transaction()
            other.send("t", "b")
            other.flush()
            other_cluster.holding_apis.add("commit")
            other.commit_transaction(0.05)


@pytest.mark.covers("TM16")
@pytest.mark.parametrize("nested", [False, True])
def test_a_context_aborts_after_a_timeout_that_is_not_of_its_own_commit(
    cluster: ScriptedCluster, producer: Producer, nested: bool
) -> None:
    other = ScriptedCluster() if nested else None
    if other is not None:
        transactional(other).init_transactions()

    def release() -> None:
        wait_until(lambda: state_of(producer) is TxnState.ABORTING, "the abort waits for the answer")
        cluster.release_apis()

    releasing = None if nested else Runner(release)
    with pytest.raises(TransactionTimeout, match="commit" if nested else "offsets"):
        write_beside(producer, cluster, other)
    assert state_of(producer) is TxnState.READY
    if releasing is not None:
        releasing.result()
    if other is not None:
        other.release_apis()
        other.producers[0].close(5.0)
    with producer.transaction():
        producer.send("t", "c")


@pytest.mark.covers("TM2")
def test_a_commit_does_not_raise_for_rows_that_were_sent_outside_of_a_transaction(
    cluster: ScriptedCluster, producer: Producer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread is allowed to send rows, and sends them once the transaction is aborted."""
    accounts = parts_of(producer).accumulator.incomplete.failures
    producer.begin_transaction()
    producer.abort_transaction()
    with monkeypatch.context() as patched, ThreadPoolExecutor(1) as worker:
        transactions = transactions_of(producer)
        patched.setattr(transactions, "check", lambda: transactions._manager.number)
        worker.submit(producer.send_batch, rows("late"), topic="t").result()
        wait_until(lambda: isinstance(accounts.first_unreported(), IllegalState), "the row is dropped")
    with caplog.at_level(logging.WARNING), producer.transaction():
        producer.send("t", "a")
    assert "outside of a transaction" in caplog.text
    assert cluster.names.count("commit") == 1
    producer.flush()  # no failure is left to report


@pytest.mark.covers("KP13")
def test_a_send_that_waits_from_one_transaction_to_the_next_is_refused_and_spoils_what_it_got_into(
    cluster: ScriptedCluster, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.topics["t"] = 2
    accumulator, appended = producer._accumulator, list[object]()
    append = accumulator.append

    def after_a_wait(*given: object) -> None:
        if appended:
            producer.abort_transaction()
            producer.begin_transaction()
        appended.append(given)
        append(*given)  # type: ignore[arg-type]

    producer.begin_transaction()
    batch = pa.record_batch({"value": ["a", "b"], "partition": pa.array([0, 1], pa.int32())})
    monkeypatch.setattr(accumulator, "append", after_a_wait)
    with pytest.raises(IllegalState, match="another one begun"):
        producer.send_batch(batch, topic="t")
    monkeypatch.undo()
    assert len(appended) == 2
    with pytest.raises(TransactionAbortable):
        producer.commit_transaction()
    producer.abort_transaction()
    with producer.transaction():
        producer.send("t", "again")


@pytest.mark.covers("KP13")
def test_no_table_is_written_partly_in_one_transaction_and_partly_in_the_next(
    cluster: ScriptedCluster, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_producer.producer.producer.PIECE_BYTES", 64)
    send_rows, chunks = producer._send_rows, list[object]()

    def ended_meanwhile(*given: object) -> int | None:
        if chunks:
            producer.abort_transaction()
            producer.begin_transaction()
        chunks.append(given)
        return send_rows(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(producer, "_send_rows", ended_meanwhile)
    producer.begin_transaction()
    with pytest.raises(IllegalState, match="another one begun"):
        producer.send_table(pa.table({"value": ["x" * 40] * 10}), topic="t")
    assert len(chunks) == 2
    producer.commit_transaction()
    assert "commit" not in cluster.names, "nothing of the table is in the second one"


class Interrupted(deque[Operation]):
    """Ctrl-C strikes before the first call is queued."""

    struck = False

    def append(self, operation: Operation) -> None:
        if not self.struck:
            self.struck = True
            raise CtrlC
        super().append(operation)


@pytest.mark.covers("TM16")
@pytest.mark.parametrize("name", ["begin", "commit", "abort"])
def test_a_call_that_ctrl_c_has_struck_before_it_was_queued_is_done_when_it_is_repeated(
    cluster: ScriptedCluster, producer: Producer, name: str
) -> None:
    manager = transactions_of(producer)._manager
    call = getattr(producer, f"{name}_transaction")
    if name != "begin":
        producer.begin_transaction()
        producer.send("t", "a")
        producer.flush()
    manager.calls = Interrupted()
    with pytest.raises(CtrlC):
        call()
    call(10.0) if name != "begin" else call()
    assert state_of(producer) is (TxnState.IN_TRANSACTION if name == "begin" else TxnState.READY)
    assert [each for each in cluster.names if each in ("commit", "abort")] == ([] if name == "begin" else [name])


@pytest.mark.covers("TM16")
def test_a_begin_that_was_not_carried_out_in_time_is_that_of_the_next_context(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = RunningClock()
    producer = transactional(cluster, clock=clock, max_sleep=0.01, max_block_ms=20_000)
    producer.init_transactions(10.0)
    manager, reached, gate = transactions_of(producer)._manager, threading.Event(), threading.Event()
    step = manager.step

    def slow_step(now: float) -> None:
        reached.set()
        gate.wait(DEADLINE)
        step(now)

    def write() -> None:
        with producer.transaction():
            producer.send("t", "a")

    monkeypatch.setattr(manager, "step", slow_step)
    cluster.wake()
    assert reached.wait(DEADLINE), "the I/O thread does nothing more"
    first = Runner(write)
    wait_until(lambda: len(manager.calls) == 1, "it begins")
    with pytest.raises(IllegalState, match="another thread was beginning"):
        producer.begin_transaction()
    clock.skip(20.0)
    with pytest.raises(TransactionTimeout, match=r"begin_transaction\(\) .* call it again"):
        first.result()
    gate.set()
    wait_until(lambda: state_of(producer) is TxnState.IN_TRANSACTION, "it is begun all the same")
    write()
    assert cluster.names.count("commit") == 1


def test_a_close_logs_a_transaction_that_was_not_ended(
    cluster: ScriptedCluster, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    producer.begin_transaction()
    producer.send("t", "a")
    producer.close(0.0)
    assert "closed with an open transaction" in caplog.text
    caplog.clear()
    producer.close(0.0)
    assert caplog.text == ""


def test_a_close_after_a_commit_logs_nothing(
    cluster: ScriptedCluster, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    producer.begin_transaction()
    producer.send("t", "a")
    producer.commit_transaction()
    producer.close(0.0)
    assert "not committed" not in caplog.text
