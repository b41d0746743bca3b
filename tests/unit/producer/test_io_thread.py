"""The start and the end of the I/O thread as other threads see them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_producer import Producer
from spark_producer.errors import ProducerClosed, PyProducerError
from spark_producer.producer import parts_of
from tests.fakes.accumulator_fakes import Runner
from tests.fakes.scripted_cluster import ScriptedCluster
from tests.support.waiting import wait_until

Start = Callable[..., Producer]


def test_it_ends_only_when_what_is_queued_is_acknowledged_and_takes_no_more_meanwhile(
    cluster: ScriptedCluster, start: Start
) -> None:
    cluster.holding = True
    producer = start()
    parts = parts_of(producer)
    future = producer.send("t", "x")
    cluster.wait_for_held(1)
    closing = Runner(producer.close)
    wait_until(lambda: parts.accumulator.incomplete.closing, "close has begun")
    assert parts.failed, "the data source must not use it any more"
    assert parts.io_thread.is_alive
    with pytest.raises(ProducerClosed, match="this producer is closed"):
        producer.send("t", "y")
    cluster.release()
    closing.result()
    assert (future.result(0).offset, parts.io_thread.is_alive) == (0, False)


@pytest.mark.covers("KP8")
@pytest.mark.parametrize("killed", [False, True], ids=["close", "killed"])
def test_its_end_wakes_those_who_wait_for_topics(cluster: ScriptedCluster, start: Start, killed: bool) -> None:
    """They check for metadata rarely, so the end of the thread must wake them."""
    cluster.reachable = False
    producer = start(max_block_ms=600_000, max_sleep=1000)
    sending = Runner(lambda: producer.send("t", "x"))
    wait_until(lambda: parts_of(producer).metadata.due_at() == 0.0, "metadata is waited for")
    cluster.wake(poll_error=SystemExit("killed")) if killed else producer.close()
    with pytest.raises(PyProducerError, match="SystemExit") if killed else pytest.raises(ProducerClosed):
        sending.result()


def test_a_join_on_the_thread_itself_does_not_wait(cluster: ScriptedCluster, start: Start) -> None:
    cluster.holding = True
    producer = start()
    seen: list[bool] = []

    def close(*_: object) -> None:
        producer.close(timeout=600)
        seen.append(parts_of(producer).io_thread.is_current)

    future = producer.send("t", "x", on_delivery=close)
    cluster.release()
    assert future.result(20).offset == 0
    wait_until(lambda: not parts_of(producer).io_thread.is_alive, "it ends after the callback")
    assert seen == [True]
