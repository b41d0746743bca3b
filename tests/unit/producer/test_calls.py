"""A producer that is made, called and closed, and no more than that. Ids (tests/ids.md): KP."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from spark_producer import MockProducer, Producer
from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import ProducerClosed, PyProducerError, RecordError, RecordTooLarge
from spark_producer.network.metadata_wait import PARTITION_GRACE
from spark_producer.producer import parts_of
from tests.fakes.accumulator_fakes import Runner
from tests.fakes.fake_clock import FakeClock
from tests.fakes.scripted_cluster import ScriptedCluster
from tests.support.waiting import wait_until

PLACE = TopicPartition("t", 0)
PATIENT: dict[str, object] = {"linger_ms": 60_000, "delivery_timeout_ms": 120_000}
Start = Callable[..., Producer]


@pytest.mark.covers("KP2")
@pytest.mark.parametrize(("options", "name"), [({"client_id": "me"}, "me"), ({}, "pyproducer")])
def test_the_client_id_is_that_of_requests_and_metrics(
    cluster: ScriptedCluster, start: Start, options: dict[str, object], name: str
) -> None:
    producer = start(**options)
    assert [client.settings.client_id for client in cluster.clients] == [name]
    assert {dict(tags)["client-id"] for _, _, tags in producer.metrics()} == {name}


@pytest.mark.covers("KP3")
def test_a_producer_that_cannot_start_its_thread_leaves_nothing_open(
    cluster: ScriptedCluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError):
            start()
    assert [client.closed for client in cluster.clients] == [True]


# --- metadata -------------------------------------------------------------------------------------------------------


@pytest.mark.covers("KP6")
def test_a_topic_is_asked_for_once(cluster: ScriptedCluster, start: Start) -> None:
    producer = start()
    for number in range(50):
        producer.send("t", f"v{number}")
    producer.send_batch(pa.record_batch({"value": ["a", "b"]}), topic="t")
    producer.flush()
    assert cluster.questions == 1


@pytest.mark.covers("KP6")
def test_metadata_that_is_old_is_asked_for_again(cluster: ScriptedCluster, start: Start) -> None:
    start(metadata_max_age_ms=1).send("t", "x").result(20)
    cluster.wait_for(lambda: cluster.questions > 3, "the topic is asked for again and again")


@pytest.mark.covers("KP6")
def test_a_partition_that_appears_later_is_written_to_and_one_that_is_not_there_is_named(
    cluster: ScriptedCluster, start: Start
) -> None:
    clock = FakeClock()
    producer = start(clock=clock)
    producer.send("t", "x").result(20)
    sending = Runner(lambda: producer.send("t", "early", partition=2))

    def given_up() -> bool:
        clock.advance(PARTITION_GRACE / 200)
        cluster.wake()
        return sending.done.is_set()

    wait_until(given_up, "the partition is waited for no longer", pause=0.002)
    with pytest.raises(RecordError, match="partition 2 does not exist"):
        sending.result()
    asked = cluster.questions
    assert asked > 2, "the topic might have grown, and the first answer come from a broker that has not heard of it"
    cluster.topics["t"] = 3
    assert producer.send("t", "late", partition=2).result(20).partition == 2
    producer.send("t", "more", partition=1).result(20)
    assert cluster.questions == asked + 1


# --- send -----------------------------------------------------------------------------------------------------------


@pytest.mark.covers("KP7")
def test_what_was_sent_is_a_copy(cluster: ScriptedCluster, start: Start) -> None:
    """Nothing need be frozen, as Java freezes headers: rows are encoded before the call returns."""
    producer = start(**PATIENT)
    memory = np.frombuffer(b"first" + b"other", dtype=np.uint8).copy()
    offsets = pa.py_buffer(np.array([0, 5, 10], dtype=np.int32).data)
    values = pa.Array.from_buffers(pa.binary(), 2, [None, offsets, pa.py_buffer(memory.data)])
    producer.send_batch(pa.record_batch({"value": values}), topic="t")
    memory[:] = ord("!")
    headers: list[tuple[str, bytes | None]] = [("a", b"1")]
    future = producer.send("t", b"last", headers=headers)
    headers.append(("late", b"2"))
    encoded = bytes(parts_of(producer).accumulator.incomplete.queues[PLACE].batches[0].data)
    producer.flush()
    assert cluster.log[PLACE] == [b"first", b"other", b"last"]
    assert b"\x02\x02a\x021" in encoded
    assert b"late" not in encoded
    assert future.result(0).offset == 2


@pytest.mark.covers("KP10")
def test_a_record_that_is_too_large_is_refused_by_the_call_itself(cluster: ScriptedCluster, start: Start) -> None:
    """No future and no callback, as for every complaint about a record itself: the caller has the error in hand."""
    producer = start(max_request_size=2048, batch_size=1024)
    called: list[object] = []
    with pytest.raises(RecordTooLarge, match=r"topic 't'.*kafka\.max\.request\.size \(2048\)"):
        producer.send("t", "x" * 3000, on_delivery=lambda *reported: called.append(reported))
    assert producer.send("t", "y", on_delivery=lambda *reported: called.append(reported)).result(20).offset == 0
    assert len(called) == 1


@pytest.mark.covers("KP15")
def test_a_record_needs_a_topic(cluster: ScriptedCluster, start: Start) -> None:
    with pytest.raises(PyProducerError, match="no topic"):
        start().send(None, "x")  # type: ignore[arg-type]
    assert cluster.questions == 0


# --- flush and close ------------------------------------------------------------------------------------------------


@pytest.mark.covers("KP9")
def test_a_flush_completes_everything_that_was_sent(cluster: ScriptedCluster, start: Start) -> None:
    cluster.topics = {"t": 3, "u": 1}
    producer = start(**PATIENT)
    futures = [producer.send("t", "v", partition=number % 3) for number in range(60)] + [producer.send("u", "v")]
    assert not any(future.done() for future in futures)
    producer.flush()
    assert all(future.exception(0) is None for future in futures)
    assert sum(map(len, cluster.log.values())) == 61


@pytest.mark.covers("KP8")
@pytest.mark.parametrize("make", ["producer", "double"])
def test_a_negative_timeout_is_refused_and_nothing_is_closed(cluster: ScriptedCluster, start: Start, make: str) -> None:
    made = start() if make == "producer" else MockProducer()
    for bad, shown in ((-0.5, r"-0\.5"), (float("nan"), "nan")):
        with pytest.raises(PyProducerError, match=rf"close\(\) got the timeout {shown}"):
            made.close(bad)
    future = made.send("t", "x")
    made.close(float("inf"))
    assert future.result(0).offset == 0


@pytest.mark.covers("KP8")
def test_a_forced_close_does_not_wait_for_a_producer_id(cluster: ScriptedCluster, start: Start) -> None:
    cluster.holding_ids = True
    producer = start()
    future = producer.send("t", "x")
    cluster.wait_for(lambda: cluster.ids_asked == 1, "the id is asked for")
    Runner(lambda: producer.close(0)).result()
    assert isinstance(future.exception(20), ProducerClosed)
    wait_until(lambda: not parts_of(producer).io_thread.is_alive, "the I/O thread ends")
    assert parts_of(producer).accumulator.pool.available == parts_of(producer).accumulator.pool.total
