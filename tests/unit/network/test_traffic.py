"""The traffic of connections in the metrics. Ids (tests/ids.md): SN."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from spark_producer.metrics import Levels, ProducerMetrics
from spark_producer.metrics.metric_table import CLIENT, NODE, OWN
from spark_producer.protocol import METADATA, PRODUCE, messages
from tests.fakes.client_driver import Clock, Driver
from tests.fakes.metric_events import new_metrics
from tests.fakes.scripted_server import ALL_VERSIONS, Peer, ScriptedServer
from tests.unit.network.test_client import MIB, produce, serve_metadata

Drive = Callable[..., Driver]
BOOTSTRAP = "node--1"


@pytest.fixture
def metrics(clock: Clock) -> ProducerMetrics:
    return new_metrics(clock.now)


def values(metrics: ProducerMetrics, clock: Clock, group: str, *names: str) -> list[float]:
    snapshot = metrics.snapshot(Levels(), clock.now)
    return [snapshot.value(group, name, BOOTSTRAP if group == NODE else "") for name in names]


@pytest.mark.covers("SN2")
def test_every_response_reports_its_throttle_time_even_zero(
    drive: Drive, clock: Clock, metrics: ProducerMetrics
) -> None:
    def throttling(peer: Peer) -> None:
        peer.negotiate(ALL_VERSIONS._replace(throttle_time_ms=0))
        for milliseconds in (400, 200):
            peer.answer(peer.read(), messages.MetadataResponse(throttle_time_ms=milliseconds))
        peer.wait_for_close()

    with ScriptedServer(throttling) as server:
        driver = drive([server.address], metrics=metrics)
        for _ in range(2):
            driver.until_ready()
            driver.client.send(-1, METADATA, messages.MetadataRequest(), tag=0)
            driver.until_completed()
            clock.advance(0.5)
    names = "produce-throttle-time-avg", "produce-throttle-time-max"
    assert values(metrics, clock, CLIENT, *names) == [200, 400]
    assert values(metrics, clock, OWN, "throttled-time-avg") == [300]


def test_requests_responses_and_connections_count(drive: Drive, clock: Clock, metrics: ProducerMetrics) -> None:
    with ScriptedServer(serve_metadata) as server:
        driver = drive([server.address], metrics=metrics)
        assert driver.client.load() == (0, 0)
        driver.until_ready()
        driver.client.send(-1, METADATA, messages.MetadataRequest(), tag=0)
        assert driver.client.load() == (1, 1)
        driver.until_completed()
        assert driver.client.load() == (1, 0)
        assert values(metrics, clock, CLIENT, "connection-creation-total", "connection-close-total") == [1, 0]
    driver.until_disconnected()
    assert driver.client.load() == (0, 0)
    assert values(metrics, clock, CLIENT, "connection-creation-total", "connection-close-total") == [1, 1]
    for group in (CLIENT, NODE):
        assert values(metrics, clock, group, "request-total", "response-total") == [2, 2]  # ApiVersions was the first
        sent, size, received = values(
            metrics, clock, group, "outgoing-byte-total", "request-size-avg", "incoming-byte-total"
        )
        assert (sent > 0, sent, received > 0) == (True, 2 * size, True)
    assert values(metrics, clock, CLIENT, "select-total") == [driver.polls]


def test_a_connection_that_was_never_made_does_not_count(drive: Drive, clock: Clock, metrics: ProducerMetrics) -> None:
    driver = drive([("127.0.0.1", 1)], metrics=metrics)
    driver.client.ready(-1)
    driver.until_disconnected()
    assert values(metrics, clock, CLIENT, "connection-creation-total", "connection-close-total") == [0, 0]


@pytest.mark.parametrize("read", [True, False], ids=["read", "lost"])
def test_a_request_in_many_parts_counts_once_and_only_when_it_is_out(
    drive: Drive, clock: Clock, metrics: ProducerMetrics, read: bool
) -> None:
    may_go_on = threading.Event()

    def slow(peer: Peer) -> None:
        peer.negotiate()
        assert may_go_on.wait(20)
        if read:
            peer.answer(peer.read(), messages.ProduceResponse(throttle_time_ms=0))
            peer.wait_for_close()

    with ScriptedServer(slow, receive_buffer_bytes=64 * 1024) as server:
        driver = drive([server.address], send_buffer_bytes=64 * 1024, metrics=metrics)
        driver.until_ready()
        (before,) = values(metrics, clock, CLIENT, "outgoing-byte-total")
        driver.client.send(-1, PRODUCE, produce(bytes(8 * MIB)), tag="big")
        begun, requests = values(metrics, clock, CLIENT, "outgoing-byte-total", "request-total")
        assert before < begun < 8 * MIB
        assert requests == 1
        may_go_on.set()
        driver.until_completed()
    sent, requests, largest = values(metrics, clock, CLIENT, "outgoing-byte-total", "request-total", "request-size-max")
    assert requests == 1 + read
    assert (largest == sent - before > 8 * MIB) if read else (sent < 8 * MIB)
