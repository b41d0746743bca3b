"""A broker is gone for a while: the log says so once, and says once that it is back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_producer import Producer
from spark_producer.exactly_once import driver
from spark_producer.exactly_once.cluster import waits
from spark_producer.exactly_once.driver import SinkSettings
from spark_producer.exactly_once.protocol.task_messages import TaskOutcome
from tests.conftest import local_broker
from tests.fakes.accumulator_fakes import Runner
from tests.support.filled_tasks import Tasks, batch, committed, inline, prepared, settings
from tests.support.proxy import FaultProxy
from tests.support.read_confluent import count_and_check
from tests.support.waiting import wait_until


def test_an_outage_is_two_lines_of_the_log(topic: str, caplog: pytest.LogCaptureFixture) -> None:
    def said(text: str) -> Callable[[], bool]:
        return lambda: any(text in record.getMessage() for record in caplog.records)

    with FaultProxy() as proxy, local_broker(advertised=(proxy.host, proxy.port)) as broker:
        proxy.target = (proxy.host, broker.port)
        broker.create_topic(topic, 1)
        with Producer({"bootstrap.servers": proxy.address, "delivery.timeout.ms": 600_000}) as producer:
            producer.send(topic, "before").result(20)
            proxy.target = (proxy.host, 1)
            proxy.cut()
            future = producer.send(topic, "after")
            flushing = Runner(producer.flush)
            wait_until(said("lost broker "), "the loss is logged")
            attempts = proxy.accepted
            wait_until(lambda: proxy.accepted > attempts + 3, "more attempts to connect have failed")
            proxy.target = (proxy.host, broker.port)
            flushing.result()
            assert future.result(20).offset == 1
            wait_until(said("back after "), "the return is logged")
        assert count_and_check(broker.bootstrap_servers, topic).total == 2
    reported = [record.getMessage() for record in caplog.records if record.name == "pyproducer"]
    assert len(reported) == 2, reported
    assert "1 batch of " in reported[0]
    assert "(kafka.delivery.timeout.ms)" in reported[0]


@pytest.mark.parametrize("way", ["by the driver", "by a transaction"])
def test_an_outage_in_a_commit_is_two_lines_of_the_log(
    topic: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(waits, "LOG_AFTER_S", 0.5)
    reported: list[str] = []

    def said(text: str) -> bool:
        reported[:] = [record.getMessage() for record in caplog.records if record.name == waits.__name__]
        return any(text in each for each in reported)

    with FaultProxy() as proxy, local_broker(advertised=(proxy.host, proxy.port)) as broker:
        proxy.target = (proxy.host, broker.port)
        broker.create_topic(topic, 1)
        sink = SinkSettings(topic, settings(proxy.address))
        handle = driver.begin(sink)
        if way == "by the driver":
            message: TaskOutcome = inline(handle, 0, batch(topic, 0, "a"))
        else:
            tasks = Tasks(proxy.address, topic)
            message = prepared(handle, 0, tasks.fill(0, handle.transaction_version, {(topic, 0): ["a"]}))
            tasks.close()
        assert not said("waiting for ")
        proxy.target = (proxy.host, 1)
        proxy.cut()
        committing = Runner(lambda: driver.commit(sink, [message], 0))
        wait_until(lambda: said("waiting for "), "the loss is logged")
        proxy.target = (proxy.host, broker.port)
        committing.result()
        driver.close_all()
        assert said("continues after ")
        assert len(reported) == 2, reported
        assert f"exactlyOnceId {topic}: waiting for " in reported[0]
        assert "(kafka.max.block.ms)" in reported[0]
        assert committed(broker, topic) == ["a"]
