"""The address of a broker leads to another cluster for a while (KIP-1242)."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from spark_producer import Producer
from tests.conftest import local_broker
from tests.support.proxy import FaultProxy
from tests.support.read_back import read_topic

SECONDS = 30
API_VERSIONS = 18
OPTIONS = {"linger.ms": 0, "request.timeout.ms": 2000}


def values(broker: Any, topic: str) -> list[bytes | None]:
    return [row.value for row in read_topic(broker.bootstrap_servers, topic, timeout=SECONDS)]


@pytest.mark.covers("NW9")
@pytest.mark.parametrize("checks", [True, False])
def test_rows_go_to_another_cluster_that_got_the_address_of_a_broker_only_without_the_check(checks: bool) -> None:
    """Both have a topic of the name, and a broker of the same number. With the check only ApiVersions reaches the other one."""
    topic = uuid.uuid4().hex
    with FaultProxy() as proxy, local_broker(advertised=(proxy.host, proxy.port)) as ours, local_broker() as theirs:
        proxy.target = (proxy.host, ours.port)
        for broker in (ours, theirs):
            broker.create_topic(topic, 1)
        options = OPTIONS | {"bootstrap.servers": f"{proxy.host}:{ours.port}", "metadata.cluster.check.enable": checks}
        with Producer(options) as producer:
            producer.send(topic, b"first").result(SECONDS)
            proxy.target = (proxy.host, theirs.port)
            before = proxy.requests.copy()
            proxy.cut()
            second = producer.send(topic, b"second")
            if not checks:
                second.result(SECONDS)
                assert values(theirs, topic) == [b"second"]
                return
            proxy.wait_for_requests(API_VERSIONS, before[API_VERSIONS] + 3)
            assert set(proxy.requests - before) == {API_VERSIONS}
            proxy.target = (proxy.host, ours.port)
            proxy.cut()
            second.result(SECONDS)
        assert values(theirs, topic) == []
        assert values(ours, topic) == [b"first", b"second"]
