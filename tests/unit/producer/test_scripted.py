"""The producer's threads against a scripted cluster: pipelining, back-pressure, failures, ends. Ids: KP and SN."""

from __future__ import annotations

import contextlib
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from spark_producer import Producer
from spark_producer.accumulator.pool import new_memory
from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import (
    AuthenticationFailed,
    BrokerError,
    BrokersUnreachable,
    BufferExhausted,
    ConnectionFailed,
    DeliveryTimeout,
    MetadataTimeout,
    ProducerClosed,
    PyProducerError,
    TopicNotFound,
)
from spark_producer.producer import parts_of
from spark_producer.producer.internals import MAX_SLEEP_S
from spark_producer.protocol import PRODUCE
from tests.fakes.accumulator_fakes import Runner
from tests.fakes.fake_clock import FakeClock
from tests.fakes.hurry import impatient
from tests.fakes.scripted_cluster import SERVERS, ScriptedCluster, knowing_the_topic
from tests.support.waiting import wait_until
from tests.unit.producer.rows import FULL, table

PLACE = TopicPartition("t", 0)
Start = Callable[..., Producer]


@pytest.mark.covers("SN14")
@pytest.mark.parametrize(("in_flight", "expected"), [(5, 5), (1, 1), (3, 3)])
def test_batches_are_sent_ahead_up_to_max_in_flight(
    cluster: ScriptedCluster, start_small: Start, in_flight: int, expected: int
) -> None:
    cluster.holding = True
    producer = start_small(max_in_flight_requests_per_connection=in_flight)
    producer.send_batch(table(*FULL[:12]), topic="t")
    cluster.wait_for_held(1)
    cluster.release(1)
    cluster.wait_for_held(expected)
    flush = Runner(producer.flush)
    cluster.release(1)
    cluster.wait_for_held(expected)
    cluster.release()
    flush.result()
    assert cluster.log[PLACE] == FULL[:12]


@pytest.mark.covers("SN14")
def test_a_first_batch_that_is_refused_once_is_not_overtaken(cluster: ScriptedCluster, start_small: Start) -> None:
    """The fake broker checks no sequences, as Kafka where it does not know the producer in a partition."""
    codes = iter([19])
    cluster.produce_code = lambda _: next(codes, 0)
    producer = knowing_the_topic(start_small())
    cluster.wake(reachable=False)
    producer.send_batch(table(*FULL[:12]), topic="t")
    cluster.wake(reachable=True)
    producer.flush()
    assert cluster.log[PLACE] == FULL[:12]


def test_an_idle_producer_sleeps_until_something_happens(cluster: ScriptedCluster, start_small: Start) -> None:
    producer = start_small(linger_ms=0)
    producer.send("t", "x").result(20)
    cluster.wait_for(lambda: cluster.waits[-1] >= MAX_SLEEP_S, "the I/O thread has nothing to do")


@pytest.mark.parametrize("partitions", [1, 1000])
def test_the_memory_of_batches_never_exceeds_buffer_memory(
    cluster: ScriptedCluster, start_small: Start, partitions: int
) -> None:
    """With a broker that does not answer: send blocks, and goes on as answers come."""
    made: list[weakref.ref[Any]] = []
    most = [0]

    def alive() -> int:
        return sum(array.nbytes for reference in made if (array := reference()) is not None)

    def counted(size: int) -> memoryview:
        buffer = new_memory(size)
        made.append(weakref.ref(buffer.obj))
        # A thread that has just given a buffer back may not have left that call yet.
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: alive() <= 65536, "released memory is gone", seconds=1, pause=0.001)
        most[0] = max(most[0], alive())
        return buffer

    cluster.holding, cluster.topics["t"] = True, partitions
    producer = start_small(memory=counted, buffer_memory=65536, max_block_ms=60_000)
    rows = [FULL[number % 200] + b"!" * (number % 7 * 300) for number in range(max(400, 2 * partitions))]
    topic_partitions = pa.array([number % partitions for number in range(len(rows))], pa.int32())
    batch = table(*rows).append_column("partition", topic_partitions)
    sending = Runner(lambda: producer.send_batch(batch, topic="t"))
    wait_until(lambda: parts_of(producer).accumulator.pool.waiting > 0, "send waits for memory")
    if partitions == 1:
        cluster.wait_for_held(1)
        cluster.release(1)
    # With a thousand partitions one request may hold all batches of the memory.
    cluster.wait_for(lambda: len(cluster.held) >= (5 if partitions == 1 else 1), "requests are in flight")
    assert not sending.done.is_set()
    while not sending.done.is_set():
        wait_until(lambda: bool(cluster.held) or sending.done.is_set(), "another request", pause=0.001)
        if cluster.held:
            cluster.release(1)
    sending.result()
    cluster.release()
    producer.flush()
    assert [cluster.log[TopicPartition("t", partition)] for partition in range(partitions)] == [
        rows[partition::partitions] for partition in range(partitions)
    ]
    assert 32_000 < most[0] <= 65536
    assert parts_of(producer).accumulator.pool.available == 65536


@pytest.mark.covers("BP4")
def test_a_broker_that_never_answers_exhausts_the_memory(cluster: ScriptedCluster, start_small: Start) -> None:
    cluster.holding = True
    producer = knowing_the_topic(start_small(buffer_memory=65536, max_block_ms=30))
    with pytest.raises(BufferExhausted, match=r"0\.030 s \(kafka\.max\.block\.ms\): kafka\.buffer\.memory is 65536"):
        producer.send_batch(table(*FULL), topic="t")
    assert not parts_of(producer).failed, "what was queued is still on its way"
    cluster.release()
    producer.flush()
    sent = cluster.log[PLACE]
    assert sent == FULL[: len(sent)]


@pytest.mark.covers("BP4")
@pytest.mark.parametrize("single", [False, True])
def test_the_error_of_exhausted_memory_names_the_broker_that_is_gone(
    cluster: ScriptedCluster, start_small: Start, single: bool
) -> None:
    cluster.holding = True
    producer = knowing_the_topic(start_small(buffer_memory=65536, max_block_ms=30))
    cluster.reachable, cluster.last_error = False, ConnectionFailed("connection refused by broker:9092")
    cluster.wake()
    wait_until(lambda: parts_of(producer).topics.last_error is not None, "the connection is refused")

    def fill() -> None:
        for row in FULL:
            producer.send("t", row) if single else producer.send_batch(table(*FULL), topic="t")

    with pytest.raises(
        BufferExhausted,
        match=r"faster than the brokers take them, or no broker answers\. Last error: connection refused",
    ):
        fill()
    cluster.reachable, cluster.holding = True, False
    cluster.release()
    cluster.wake()
    producer.flush()


def test_delivery_timeout_fails_the_batch_and_the_flush_and_the_producer_goes_on(
    cluster: ScriptedCluster, start_small: Start
) -> None:
    cluster.holding = True
    producer = start_small()
    future = producer.send("t", "x")
    cluster.wait_for_held(1)
    usual, parts_of(producer).accumulator.incomplete.delivery_timeout = (
        parts_of(producer).accumulator.incomplete.delivery_timeout,
        0.05,
    )
    cluster.wake()
    with pytest.raises(DeliveryTimeout, match=r"topic 't', partition 0 .*kafka\.delivery\.timeout\.ms"):
        producer.flush()
    assert isinstance(future.exception(0), DeliveryTimeout)
    assert not parts_of(producer).failed
    parts_of(producer).accumulator.incomplete.delivery_timeout = usual
    cluster.release()
    assert producer.send("t", "y").result(20).offset == 1
    producer.flush()


def test_an_exception_of_the_io_thread_wakes_flush_and_is_ours(cluster: ScriptedCluster, start_small: Start) -> None:
    cluster.holding = True
    producer = start_small()
    future = producer.send("t", "x")
    cluster.wait_for_held(1)
    flush = Runner(producer.flush)
    cluster.wake(poll_error=KeyError("surprise"))
    with pytest.raises(PyProducerError, match=r"I/O thread of the producer ended: KeyError\('surprise'\)") as raised:
        flush.result()
    assert isinstance(raised.value.__cause__, KeyError)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)
    assert future.exception(0) is raised.value
    assert parts_of(producer).failed
    for call in (lambda: producer.send("t", "y"), lambda: producer.send_batch(table(b"z"), topic="t"), producer.flush):
        with pytest.raises(PyProducerError, match="surprise"):
            call()


@pytest.mark.covers("KP6")
def test_unreachable_servers_are_named_with_the_last_error(cluster: ScriptedCluster, start_small: Start) -> None:
    cluster.reachable, cluster.last_error = False, ConnectionFailed("connection refused by broker:9092")
    producer = start_small(max_block_ms=20)
    cluster.wake()
    wait_until(lambda: parts_of(producer).topics.last_error is not None, "the connection is refused")
    with pytest.raises(BrokersUnreachable) as raised:
        producer.send("t", "x")
    for part in (
        SERVERS,
        "0.02 s (kafka.max.block.ms)",
        "connection refused by broker:9092. Check kafka.bootstrap.servers",
    ):
        assert part in str(raised.value)


@pytest.mark.covers("KP6")
def test_without_a_token_the_advice_is_not_about_the_servers(cluster: ScriptedCluster, start_small: Start) -> None:
    cluster.reachable, cluster.last_error = False, AuthenticationFailed("no token from the token endpoint idp:443")
    producer = start_small(max_block_ms=20)
    cluster.wake()
    wait_until(lambda: parts_of(producer).topics.last_error is not None, "the login fails")
    with pytest.raises(BrokersUnreachable, match=r"idp:443\. What to do: get a token or ticket first"):
        producer.send("t", "x")


@pytest.mark.covers("KP6")
def test_a_topic_that_appears_late_is_written_to(cluster: ScriptedCluster, start_small: Start) -> None:
    answers = iter([3, 5, 3])
    cluster.topic_codes = lambda _: next(answers, 0)
    assert start_small().send("t", "x").result(20).offset == 0


@pytest.mark.covers("KP6")
def test_a_topic_that_stays_unknown_for_max_block_ms_is_not_found(cluster: ScriptedCluster, start_small: Start) -> None:
    cluster.topic_codes = lambda _: 3
    with pytest.raises(
        TopicNotFound,
        match=r"UNKNOWN_TOPIC_OR_PARTITION \(3\) for topic 't', still after 20 s \(kafka.max.block.ms\).*create the topic",
    ) as raised:
        impatient(start_small(max_block_ms=20_000)).send("t", "x")
    assert raised.value.topic == "t"  # type: ignore[attr-defined]


@pytest.mark.covers("MT5")
@pytest.mark.parametrize(("code", "name"), [(17, "INVALID_TOPIC_EXCEPTION"), (29, "TOPIC_AUTHORIZATION_FAILED")])
def test_a_topic_that_is_refused_is_an_error_at_once(
    cluster: ScriptedCluster, start_small: Start, code: int, name: str
) -> None:
    cluster.topic_codes = lambda _: code
    with pytest.raises(BrokerError, match=f"{name} .* topic 't'"):
        start_small().send("t", "x")


@pytest.mark.covers("KP6")
def test_a_topic_without_leaders_times_out_with_what_the_brokers_say(
    cluster: ScriptedCluster, start_small: Start
) -> None:
    cluster.topic_codes = lambda _: 5
    said = r"topic 't' was not ready within 20 s \(kafka.max.block.ms\).*The brokers return LEADER_NOT_AVAILABLE"
    with pytest.raises(MetadataTimeout, match=said):
        impatient(start_small(max_block_ms=20_000)).send("t", "x")


@pytest.mark.covers("SN7", "KP6")
def test_a_topic_that_was_idle_is_asked_for_again_when_it_is_written_to(
    cluster: ScriptedCluster, start_small: Start
) -> None:
    cluster.topics = {"t": 1, "u": 1}
    clock = FakeClock()
    producer = start_small(clock=clock, metadata_max_age_ms=1, metadata_max_idle_ms=5000)
    producer.send("t", "x").result(20)
    known = parts_of(producer).metadata
    clock.advance(6)

    def only_u() -> bool:
        clock.advance(0.002)
        producer.send("u", "y").result(20)
        return set(known.cluster.topics) == {"u"}

    wait_until(only_u, "the idle topic is forgotten, while the other one is written to")
    assert producer.send("t", "z").result(20).offset == 1
    assert "t" in known.cluster.topics


def test_one_missing_topic_does_not_stop_the_others(cluster: ScriptedCluster, start_small: Start) -> None:
    cluster.topic_codes = lambda name: 0 if name == "t" else 3
    producer = start_small()
    missing = Runner(lambda: producer.send("missing", "x"))
    cluster.wait_for(lambda: cluster.questions > 0, "the missing topic is asked for")
    assert producer.send("t", "y").result(20).topic == "t"
    producer.close(timeout=0)
    with pytest.raises(ProducerClosed):
        missing.result()


@pytest.mark.covers("KP8")
def test_close_sends_what_is_queued_and_may_be_called_again(cluster: ScriptedCluster, start_small: Start) -> None:
    producer = start_small(linger_ms=60_000, delivery_timeout_ms=120_000)
    future = producer.send("t", "x")
    producer.close()
    producer.close()
    assert future.result(0).offset == 0
    assert parts_of(producer).failed
    for call in (lambda: producer.send("t", "y"), lambda: producer.send_batch(table(b"z"), topic="t")):
        with pytest.raises(ProducerClosed, match="closed"):
            call()
    with pytest.raises(ProducerClosed, match=r"^the producer was closed$"):
        producer.flush()


@pytest.mark.covers("KP8")
def test_close_does_not_wait_longer_than_its_timeout(cluster: ScriptedCluster, start_small: Start) -> None:
    cluster.holding = True
    producer = start_small()
    future = producer.send("t", "x")
    cluster.wait_for_held(1)
    Runner(lambda: producer.close(timeout=0.01)).result()
    assert "before everything was acknowledged" in str(future.exception(0))
    assert isinstance(future.exception(0), ProducerClosed)
    assert parts_of(producer).pool.available == parts_of(producer).pool.total, (
        "what flew is not kept with the closed producer"
    )


def test_leaving_a_with_statement_flushes_and_raises_what_failed(cluster: ScriptedCluster, start_small: Start) -> None:
    cluster.produce_code = lambda _: 29
    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"), start_small() as producer:
        producer.send_batch(table(b"lost"), topic="t")
    assert parts_of(producer).failed, "it is closed"


def test_leaving_a_with_statement_by_an_error_does_not_wait(cluster: ScriptedCluster, start_small: Start) -> None:
    cluster.holding = True
    producer = start_small()

    def broken() -> None:
        with producer:
            producer.send_batch(table(b"x"), topic="t")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Runner(broken).result()
    assert parts_of(producer).failed


@pytest.mark.covers("LB4")
@pytest.mark.parametrize(("codec", "oldest"), [("none", 3), ("lz4", 3), ("zstd", 7)])
def test_zstd_asks_for_newer_brokers(cluster: ScriptedCluster, start_small: Start, codec: str, oldest: int) -> None:
    producer = start_small(compression_type=codec)
    producer.send_batch(table(*FULL[:30]), topic="t")
    producer.flush()
    assert cluster.log[PLACE] == FULL[:30]
    assert {api.min_version for api in cluster.apis if api.key == PRODUCE.key} == {oldest}
