"""A broker is gone for a while: the log says so once, and says once that it is back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_producer import Producer
from tests.conftest import local_broker
from tests.stages.workbench import Runner, until
from tests.support.proxy import FaultProxy
from tests.support.read_back import count_and_check


def test_an_outage_is_two_lines_of_the_log(topic: str, caplog: pytest.LogCaptureFixture) -> None:
    def said(words: str) -> Callable[[], bool]:
        return lambda: any(words in record.getMessage() for record in caplog.records)

    with FaultProxy() as proxy, local_broker(advertised=(proxy.host, proxy.port)) as broker:
        proxy.target = (proxy.host, broker.port)
        broker.create_topic(topic, 1)
        with Producer({"bootstrap.servers": proxy.address, "delivery.timeout.ms": 600_000}) as producer:
            producer.send(topic, "before").result(20)
            proxy.target = (proxy.host, 1)
            proxy.cut()
            future = producer.send(topic, "after")
            flushing = Runner(producer.flush)
            until(said("lost broker "), "the loss is told of")
            attempts = proxy.accepted
            until(lambda: proxy.accepted > attempts + 3, "more attempts to connect have failed")
            proxy.target = (proxy.host, broker.port)
            flushing.result()
            assert future.result(20).offset == 1
            until(said("back after "), "the return is told of")
        assert count_and_check(broker.bootstrap_servers, topic).total == 2
    told = [record.getMessage() for record in caplog.records if record.name == "pyproducer"]
    assert len(told) == 2, told
    assert "1 batch of " in told[0]
    assert "(kafka.delivery.timeout.ms)" in told[0]
