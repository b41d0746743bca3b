"""A broker that will never let us in ends every wait of a producer at once, although `max.block.ms` is ten minutes."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

from spark_producer import Producer
from spark_producer.errors import AuthenticationFailed, PyProducerError
from spark_producer.network.fatal_errors import MIN_CLOSES
from spark_producer.producer import parts_of
from tests.fakes.accumulator_fakes import DEADLINE, Runner
from tests.fakes.login_scripts import PASSWORD, REFUSALS, Refusal
from tests.fakes.scripted_cluster import ScriptedCluster
from tests.fakes.scripted_server import ScriptedServer
from tests.support.waiting import wait_until

Start = Callable[..., Producer]
PATIENT = {"max.block.ms": 600_000, "delivery.timeout.ms": 600_000}


@pytest.mark.covers("SEC20–SEC25")
@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS.keys())
def test_a_wait_for_a_topic_fails(refusal: Refusal) -> None:
    with ScriptedServer(refusal.script) as server:
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{server.port}", **PATIENT, **refusal.options})
        with pytest.raises(refusal.error) as caught:
            Runner(lambda: producer.send("t", "x")).result()
        for text in (*refusal.texts, f"127.0.0.1:{server.port}"):
            assert text in str(caught.value)
        again = pickle.loads(pickle.dumps(caught.value))
        assert (type(again), str(again)) == (refusal.error, str(caught.value))
        assert PASSWORD not in repr(caught.value)
        wait_until(lambda: not parts_of(producer).io_thread.is_alive, "the thread has ended")
        producer.close()
        assert server.accepted <= MIN_CLOSES


@pytest.mark.covers("SEC25")
def test_all_that_waits_ends_with_the_refusal(cluster: ScriptedCluster, start_small: Start) -> None:
    refusal = AuthenticationFailed("the broker refuses user 'app'", fatal=True)
    cluster.holding = True
    producer = start_small()
    future = producer.send("t", "in flight")
    cluster.wait_for_held(1)
    waiting = Runner(producer.flush)
    cluster.wake(fatal_error=refusal, reachable=False)
    for end in (waiting.result, lambda: future.result(DEADLINE), lambda: producer.send("t", "later")):
        with pytest.raises(AuthenticationFailed, match="refuses user 'app'"):
            end()
    assert parts_of(producer).failed


@pytest.mark.covers("SEC25")
def test_a_wait_for_memory_fails(cluster: ScriptedCluster, start_small: Start) -> None:
    cluster.holding = True
    producer = start_small(max_block_ms=600_000, buffer_memory=65536)
    filled: list[object] = []

    def fill() -> None:
        while True:
            filled.append(producer.send("t", "x" * 1000))

    filling = Runner(fill)
    wait_until(lambda: parts_of(producer).pool.waiting == 1, "memory is waited for")
    cluster.wake(fatal_error=AuthenticationFailed("refused", fatal=True), reachable=False)
    with pytest.raises(AuthenticationFailed, match="refused"):
        filling.result()


def test_an_error_that_passes_ends_nothing(cluster: ScriptedCluster, start_small: Start) -> None:
    producer = start_small()
    cluster.wake(reachable=False, last_error=PyProducerError("the broker closed it"))
    sent = Runner(lambda: producer.send("t", "x").result(DEADLINE))
    cluster.wait_for(lambda: len(cluster.waits) > 3, "it goes on")
    cluster.wake(reachable=True)
    assert sent.result().offset == 0
