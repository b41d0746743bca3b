"""Errors reach their owner: the threads whose rows were in a batch that failed, and who flushes for them. Id: KP9."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from spark_producer import Producer
from spark_producer.errors import BrokerError
from spark_producer.producer import parts_of
from tests.fakes.accumulator_fakes import DEADLINE, Runner
from tests.fakes.scripted_cluster import ScriptedCluster
from tests.support.waiting import wait_until

Start = Callable[..., Producer]
REFUSED = "TOPIC_AUTHORIZATION_FAILED"


class Thread:
    """A thread that lives as long as the test, and makes one call after the other."""

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(1)

    def run(self, call: Callable[..., Any], *args: Any, **more: Any) -> Any:
        return self.pool.submit(call, *args, **more).result(DEADLINE)


@pytest.fixture
def threads() -> Iterator[tuple[Thread, Thread]]:
    made = Thread(), Thread()
    yield made
    for thread in made:
        thread.pool.shutdown()


@pytest.fixture
def cluster(cluster: ScriptedCluster) -> ScriptedCluster:
    cluster.topics = {"bad": 1, "good": 1, "other": 1}
    cluster.produce_code = lambda tp: 0 if tp.topic == "good" else 29
    return cluster


@pytest.fixture
def producer(start: Start) -> Producer:
    return start(batch_size=1024)


def rows(*values: str) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values, pa.string())})


def failed(producer: Producer, count: int = 1) -> None:
    wait_until(
        lambda: parts_of(producer).accumulator.incomplete.failures.count >= count, f"{count} batches have failed"
    )


@pytest.mark.covers("KP9")
def test_the_flush_of_one_thread_neither_raises_nor_takes_the_error_of_another(
    producer: Producer, threads: tuple[Thread, Thread]
) -> None:
    one, two = threads
    one.run(producer.send_batch, rows("x"), topic="good")
    two.run(producer.send_batch, rows("y"), topic="bad")
    failed(producer)
    one.run(producer.send_batch, rows("z"), topic="good")
    one.run(producer.flush)
    for _ in range(2):
        with pytest.raises(BrokerError, match=REFUSED):
            two.run(producer.send_batch, rows("y"), topic="good")
    with pytest.raises(BrokerError, match=REFUSED):
        two.run(producer.flush)
    two.run(producer.flush)
    two.run(producer.send_batch, rows("y"), topic="good")


@pytest.mark.covers("KP9")
def test_the_error_of_a_batch_with_rows_of_two_threads_is_raised_in_both(
    start: Start, threads: tuple[Thread, Thread]
) -> None:
    producer = start(linger_ms=60_000, delivery_timeout_ms=120_000)
    for thread in threads:
        thread.run(producer.send_batch, rows("y"), topic="bad")
    for thread in threads:
        with pytest.raises(BrokerError, match=REFUSED):
            thread.run(producer.flush)
        thread.run(producer.flush)
    assert parts_of(producer).accumulator.incomplete.failures.count == 1
    producer.flush()
    producer.close()


@pytest.mark.covers("KP9")
def test_a_flush_for_others_raises_an_error_once_and_does_not_acknowledge_it_for_them(
    producer: Producer, threads: tuple[Thread, Thread]
) -> None:
    """A pool of workers that only send, and a main thread that only flushes."""
    worker, other = threads
    worker.run(producer.send_batch, rows("x"), topic="bad")
    with pytest.raises(BrokerError, match="'bad'"):
        producer.flush()
    producer.flush()
    worker.run(producer.send_batch, rows("y"), topic="good")
    producer.flush()
    worker.run(producer.send_batch, rows("z"), topic="other")
    failed(producer, 2)
    with pytest.raises(BrokerError, match="'other'"):
        worker.run(producer.send_batch, rows("z"), topic="good")
    for thread in (other, worker):
        with pytest.raises(BrokerError, match="'bad'"):
            thread.run(producer.flush)
    worker.run(producer.flush)


@pytest.mark.covers("KP9")
def test_a_later_error_is_raised_after_an_earlier_one(producer: Producer, threads: tuple[Thread, Thread]) -> None:
    for count, topic in enumerate(("bad", "other", "bad"), start=1):
        threads[0].run(producer.send_batch, rows("x"), topic=topic)
        failed(producer, count)
        with pytest.raises(BrokerError, match=repr(topic)):
            producer.flush()


@pytest.mark.covers("KP9")
def test_the_error_of_a_thread_that_has_ended_is_raised_by_the_next_flush(producer: Producer) -> None:
    Runner(lambda: producer.send_batch(rows("x"), topic="bad")).result()
    failed(producer)
    producer.send_batch(rows("mine"), topic="good")
    with pytest.raises(BrokerError, match=REFUSED):
        producer.flush()
    producer.flush()


@pytest.mark.covers("KP9")
def test_a_batch_that_fails_after_its_thread_has_ended_is_reported_too(
    cluster: ScriptedCluster, producer: Producer
) -> None:
    cluster.holding = True
    Runner(lambda: producer.send_batch(rows("x"), topic="bad")).result()
    cluster.wait_for_held(1)
    Runner(lambda: producer.send("good", "another thread's, which makes the accounts of ended ones go")).result()
    cluster.release()
    with pytest.raises(BrokerError, match=REFUSED):
        producer.flush()


@pytest.mark.covers("KP9")
def test_a_raised_error_is_not_raised_again_when_its_thread_ends(producer: Producer) -> None:
    worker = Thread()
    worker.run(producer.send_batch, rows("x"), topic="bad")
    with pytest.raises(BrokerError):
        producer.flush()
    worker.pool.shutdown()
    producer.flush()


@pytest.mark.covers("KP9")
def test_accounts_do_not_outlive_their_threads(producer: Producer) -> None:
    for _ in range(50):
        Runner(lambda: producer.send_batch(rows("x"), topic="good")).result()
    # What is kept of a thread that has ended shows nowhere but in memory.
    assert len(parts_of(producer).accumulator.incomplete.failures._threads) <= 2
    producer.flush()


@pytest.mark.covers("SN6")
def test_the_error_of_what_a_callback_sent_is_raised_by_the_next_flush(
    cluster: ScriptedCluster, producer: Producer
) -> None:
    cluster.produce_code = lambda _: 0
    producer.send("bad", "so that the topic is known").result(DEADLINE)
    cluster.produce_code = lambda tp: 0 if tp.topic == "good" else 29
    producer.send("good", "x", on_delivery=lambda *_: producer.send_batch(rows("y"), topic="bad")).result(DEADLINE)
    failed(producer)
    with pytest.raises(BrokerError, match=REFUSED):
        producer.flush()


@pytest.mark.covers("KP9")
def test_ctrl_c_in_a_flush_discards_no_error(
    cluster: ScriptedCluster, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.holding = True
    producer.send_batch(rows("x"), topic="bad")
    cluster.wait_for_held(1)

    def interrupt(_: float) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:  # patched, since no signal comes at a moment that a test can choose
        patch.setattr(parts_of(producer).accumulator.incomplete._completed, "wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            producer.flush()
    cluster.release()
    failed(producer)
    with monkeypatch.context() as patch:  # as late as can be
        patch.setattr(parts_of(producer).accumulator.incomplete, "check", lambda: interrupt(0))
        with pytest.raises(KeyboardInterrupt):
            producer.flush()
    with pytest.raises(BrokerError, match=REFUSED):
        producer.flush()


@pytest.mark.covers("KP9")
def test_the_end_of_a_with_statement_raises_what_no_flush_has_raised(
    start: Start, threads: tuple[Thread, Thread]
) -> None:
    made = start()

    def use() -> None:
        with made as producer:
            threads[0].run(producer.send_batch, rows("x"), topic="bad")
            producer.send_batch(rows("y"), topic="good")

    with pytest.raises(BrokerError, match=REFUSED):
        use()
    assert parts_of(made).failed


@pytest.mark.covers("KP8")
@pytest.mark.parametrize("reported_by", ["nothing", "flush", "send_batch", "future"])
def test_a_close_logs_an_error_that_no_call_has_raised(
    producer: Producer, caplog: pytest.LogCaptureFixture, reported_by: str
) -> None:
    if reported_by == "future":
        assert producer.send("bad", "x").exception(DEADLINE) is not None
    else:
        producer.send_batch(rows("x"), topic="bad")
        failed(producer)
    if reported_by == "flush":
        with pytest.raises(BrokerError):
            producer.flush()
    if reported_by == "send_batch":
        with pytest.raises(BrokerError):
            producer.send_batch(rows("x"), topic="good")
    producer.close()
    assert ("a producer was closed before a flush" in caplog.text) == (reported_by == "nothing")


@pytest.mark.covers("KP9")
def test_a_raised_error_is_not_kept(producer: Producer) -> None:
    producer.send_batch(rows("x"), topic="bad")
    with pytest.raises(BrokerError):
        producer.flush()
    accounts = parts_of(producer).accumulator.incomplete.failures
    assert (accounts.first_unreported(), accounts.mine().first, accounts.mine().latest) == (None, None, None)
    assert accounts.count == 1, "who began before the failure can see that there was one"
