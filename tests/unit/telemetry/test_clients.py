"""Producers and readers before a broker that asks for metrics, and before one that does not: what is sent, and what it delays."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from spark_producer import Producer
from spark_producer.broker import LocalBroker
from spark_producer.broker.context import HandlerResult
from spark_producer.broker.requests.handlers import HANDLERS
from spark_producer.common.cluster import TopicPartition
from spark_producer.consumer.offset_range import OffsetRange
from spark_producer.consumer.read_ranges import CONNECTIONS, read_ranges
from spark_producer.consumer.settings import FetchSettings
from spark_producer.errors import IllegalState, KafkaTimeout, ProducerClosed, PyProducerError, UnsupportedVersion
from spark_producer.network.addresses import parse_bootstrap_servers
from spark_producer.network.settings import ConnectionSettings
from spark_producer.producer import parts_of
from spark_producer.protocol import (
    APIS,
    GET_TELEMETRY_SUBSCRIPTIONS,
    INIT_PRODUCER_ID,
    METADATA,
    PRODUCE,
    PUSH_TELEMETRY,
    AnyApi,
    messages,
)
from spark_producer.telemetry import pusher
from tests.fakes.scripted_server import ALL_VERSIONS, Peer, ScriptedServer
from tests.support.waiting import wait_until
from tests.unit.telemetry.pushed import pushed
from tests.unit.telemetry.test_reporter import ANSWER, SENT

TELEMETRY = (GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY)
OFFERED = ALL_VERSIONS._replace(
    api_keys=(*ALL_VERSIONS.api_keys, *(messages.ApiVersion(api.key, 0, 0) for api in TELEMETRY))
)


class AskingBroker:
    """A broker of one topic that takes metrics, and answers what `answers` has for an API, or nothing if that is None."""

    def __init__(self) -> None:
        self.versions = OFFERED
        self.answers: dict[int, Callable[[Any], object] | None] = {
            METADATA.key: self._metadata,
            INIT_PRODUCER_ID.key: lambda _: messages.InitProducerIdResponse(producer_id=5, producer_epoch=0),
            PRODUCE.key: self._produce,
            GET_TELEMETRY_SUBSCRIPTIONS.key: lambda _: ANSWER,
            PUSH_TELEMETRY.key: lambda _: messages.PushTelemetryResponse(),
        }
        self.requests: list[tuple[AnyApi, Any]] = []
        self.server = ScriptedServer(self._serve)

    @property
    def bootstrap_servers(self) -> str:
        return f"{self.server.host}:{self.server.port}"

    def bodies(self, api: AnyApi) -> list[Any]:
        return [body for found, body in list(self.requests) if found is api]

    def _serve(self, peer: Peer) -> None:
        peer.negotiate(self.versions)
        while True:
            request = peer.read()
            body = request.body
            if request.api is PUSH_TELEMETRY:  # the frame's memory is used again
                body = body._replace(metrics=bytes(body.metrics))
            self.requests.append((request.api, body))
            answer = self.answers[request.api.key]
            if answer is not None:
                peer.answer(request, answer(request.body))

    def _metadata(self, _request: messages.MetadataRequest) -> messages.MetadataResponse:
        broker = messages.MetadataResponseBroker(1, self.server.host, self.server.port)
        partition = messages.MetadataResponsePartition(leader_id=1)
        return messages.MetadataResponse(
            brokers=(broker,), topics=(messages.MetadataResponseTopic(name="t", partitions=(partition,)),)
        )

    def _produce(self, request: messages.ProduceRequest) -> messages.ProduceResponse:
        rows = [messages.ProducePartitionResponse(row.index, 0, 0) for row in request.topic_data[0].partition_data]
        return messages.ProduceResponse((messages.ProduceTopicResponse("t", partition_responses=tuple(rows)),))


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[AskingBroker]:
    for api in TELEMETRY:
        monkeypatch.setitem(APIS, api.key, api)  # the server decodes them
    monkeypatch.setattr(pusher, "FIRST_REQUEST_S", 0.0)
    monkeypatch.setattr(pusher, "RECHECK_S", 0.0)
    broker = AskingBroker()
    with broker.server:
        yield broker


@contextmanager
def producing(servers: str, **options: object) -> Iterator[Producer]:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0, **options})
    try:
        yield producer
    finally:
        producer.close(timeout=0)


def send(producer: Producer) -> None:
    producer.send("t", b"value")
    producer.flush()


def test_a_closed_producer_has_pushed_what_it_sent(broker: AskingBroker) -> None:
    with producing(broker.bootstrap_servers, **{"client.rack": "b"}) as producer:
        send(producer)
        producer.client_instance_id(20)
        send(producer)
        producer.close()
    (push,) = broker.bodies(PUSH_TELEMETRY)
    assert push.terminating
    assert pushed(push).value(SENT) == 2
    assert pushed(push).resource == {"client_rack": "b"}


def test_a_producer_without_a_response_is_not_delayed(broker: AskingBroker) -> None:
    """The broker answers no request for metrics: nothing waits, though responses come in the order of requests."""
    broker.answers[PUSH_TELEMETRY.key] = None
    with producing(broker.bootstrap_servers) as producer:
        send(producer)
        producer.client_instance_id(20)
        producer.close(timeout=0)
        assert not parts_of(producer).io_thread.is_alive
    wait_until(lambda: broker.bodies(PUSH_TELEMETRY), "the terminating push arrives all the same")


def test_a_short_life_has_no_request_for_it(broker: AskingBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pusher, "FIRST_REQUEST_S", 10.0)
    with producing(broker.bootstrap_servers) as producer:
        send(producer)
        producer.close()
    assert {api.name for api, _ in broker.requests} == {"Metadata", "InitProducerId", "Produce"}


@pytest.mark.parametrize("offered", [True, False])
def test_nothing_is_asked_that_is_not_offered_or_not_allowed(broker: AskingBroker, offered: bool) -> None:
    if not offered:
        broker.versions = ALL_VERSIONS
    with producing(broker.bootstrap_servers, **{"enable.metrics.push": not offered}) as producer:
        for _ in range(3):
            send(producer)
    assert not any(api in TELEMETRY for api, _ in broker.requests)


def test_its_id_is_waited_for_and_connects(broker: AskingBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pusher, "FIRST_REQUEST_S", 600.0)
    with producing(broker.bootstrap_servers) as producer:
        assert producer.client_instance_id(20) == "AAECAwQFBgcICQoLDA0ODw"


def test_the_id_wakes_those_who_wait_for_it_and_they_ask_for_nothing_meanwhile(
    broker: AskingBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four threads wait; the I/O thread steps for events of the network, not for clocks of theirs."""
    monkeypatch.setattr(pusher, "FIRST_REQUEST_S", 600.0)
    asked, answered = threading.Event(), threading.Event()

    def answer(_request: Any) -> object:
        asked.set()
        assert answered.wait(20)
        return ANSWER

    broker.answers[GET_TELEMETRY_SUBSCRIPTIONS.key] = answer
    waits: list[float | None] = []
    wait = threading.Event.wait

    def counted(self: threading.Event, timeout: float | None = None) -> bool:
        if threading.current_thread().name.startswith("waiting"):
            waits.append(timeout)
        return wait(self, timeout)

    monkeypatch.setattr(threading.Event, "wait", counted)
    with (
        producing(broker.bootstrap_servers) as producer,
        ThreadPoolExecutor(4, thread_name_prefix="waiting") as threads,
    ):
        found = [threads.submit(producer.client_instance_id, 20) for _ in range(4)]
        assert asked.wait(20)
        answered.set()
        assert {each.result(20) for each in found} == {"AAECAwQFBgcICQoLDA0ODw"}
    assert min(each or 20 for each in waits) > 1, "no wait is a short one"


def test_a_producer_that_is_closed_ends_the_wait_for_its_id(broker: AskingBroker) -> None:
    broker.answers[GET_TELEMETRY_SUBSCRIPTIONS.key] = None
    with producing(broker.bootstrap_servers) as producer, ThreadPoolExecutor(1) as threads:
        found = threads.submit(producer.client_instance_id, 600)
        wait_until(lambda: broker.bodies(GET_TELEMETRY_SUBSCRIPTIONS), "the request")
        producer.close(timeout=0)
        with pytest.raises(ProducerClosed):
            found.result(20)


def test_there_is_no_id_without_an_answer(broker: AskingBroker) -> None:
    broker.answers[GET_TELEMETRY_SUBSCRIPTIONS.key] = None
    with producing(broker.bootstrap_servers) as producer:
        with pytest.raises(KafkaTimeout, match=r"no broker has assigned one within 0\.2 s"):
            producer.client_instance_id(0.2)
        with pytest.raises(PyProducerError, match=r"client_instance_id\(\) got the timeout -1"):
            producer.client_instance_id(-1)


def test_there_is_no_id_from_a_broker_that_takes_no_metrics() -> None:
    with (
        LocalBroker() as local,
        producing(local.bootstrap_servers) as producer,
        pytest.raises(UnsupportedVersion, match="the brokers take no metrics of clients"),
    ):
        producer.client_instance_id(20)


def test_there_is_no_id_if_metrics_are_not_pushed() -> None:
    with (
        producing("localhost:1", **{"enable.metrics.push": "false"}) as producer,
        pytest.raises(IllegalState, match=r"enable\.metrics\.push is false"),
    ):
        producer.client_instance_id(20)


def test_a_response_of_a_million_prefixes_is_not_decoded_and_harms_no_record(broker: AskingBroker) -> None:
    many = tuple(f"org.apache.kafka.{number}.*" for number in range(100_000))
    broker.answers[GET_TELEMETRY_SUBSCRIPTIONS.key] = lambda _: ANSWER._replace(requested_metrics=many)
    with producing(broker.bootstrap_servers) as producer:
        send(producer)
        with pytest.raises(UnsupportedVersion):
            producer.client_instance_id(20)
        send(producer)
        producer.close()
    assert broker.server.accepted <= 2, "the connection stays"
    assert not broker.bodies(PUSH_TELEMETRY)


def test_a_bug_in_it_ends_it_alone(broker: AskingBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_producer.telemetry.reporter.subscription_of", None)
    with producing(broker.bootstrap_servers) as producer:
        send(producer)
        with pytest.raises(UnsupportedVersion):
            producer.client_instance_id(20)
        send(producer)


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[LocalBroker, list[Any]]]:
    """The embedded broker with a plugin that takes metrics, and the pushes that it got."""
    pushes: list[Any] = []

    def push(_context: object, _version: int, request: messages.PushTelemetryRequest) -> HandlerResult[Any]:
        pushes.append(request._replace(metrics=bytes(request.metrics)))
        return HandlerResult(messages.PushTelemetryResponse())

    for api in TELEMETRY:
        monkeypatch.setitem(APIS, api.key, api)
    monkeypatch.setitem(HANDLERS, GET_TELEMETRY_SUBSCRIPTIONS.key, lambda *_: HandlerResult(ANSWER))
    monkeypatch.setitem(HANDLERS, PUSH_TELEMETRY.key, push)
    monkeypatch.setattr(pusher, "FIRST_REQUEST_S", 0.0)
    monkeypatch.setattr(pusher, "RECHECK_S", 0.0)
    CONNECTIONS.clear()
    with LocalBroker() as local:
        yield local, pushes
        CONNECTIONS.clear()


def test_a_reader_pushes_what_it_has_read_and_keeps_its_connections(local: tuple[LocalBroker, list[Any]]) -> None:
    broker, pushes = local
    broker.create_topic("t", 1)
    with producing(broker.bootstrap_servers, **{"enable.metrics.push": False}) as producer:
        for _ in range(10):
            send(producer)
    settings = FetchSettings(
        ConnectionSettings(tuple(parse_bootstrap_servers(broker.bootstrap_servers))), client_rack="b", group_id="g"
    )
    for _ in range(3):
        rows = read_ranges(settings, [OffsetRange(TopicPartition("t", 0), 0, 10)])
        assert sum(batch.num_rows for _, batch in rows) == 10
        assert len(CONNECTIONS) == 1, "a response without a read does not cost a connection"
    connections = CONNECTIONS.take(settings.connection)
    assert connections.telemetry is not None
    assert connections.telemetry.client_instance_id is not None
    connections.close()
    wait_until(lambda: pushes, "the terminating push arrives")
    found = pushed(pushes[-1])
    assert pushes[-1].terminating
    assert found.resource == {"group_id": "g", "client_rack": "b"}
    assert found.value("org.apache.kafka.consumer.fetch.manager.records.consumed.total") == 30
    assert found.value("org.apache.kafka.consumer.fetch.manager.fetch.total") == 3
    assert found.value("org.apache.kafka.consumer.fetch.manager.bytes.consumed.total") > 10
    assert found.value("org.apache.kafka.consumer.fetch.manager.records.lag.max") == 0
    assert found.value("org.apache.kafka.consumer.connection.count") >= 1
    assert found.value("org.apache.kafka.consumer.fetch.manager.fetch.latency.max") > 0
    assert not any(name.startswith("org.apache.kafka.producer") for name, _ in found.points)


def test_a_reader_pushes_what_it_has_read_of_each_topic_and_its_lag(local: tuple[LocalBroker, list[Any]]) -> None:
    broker, pushes = local
    with producing(broker.bootstrap_servers, **{"enable.metrics.push": False}) as producer:
        for topic, records in (("long", 10), ("short", 3)):
            broker.create_topic(topic, 1)
            for _ in range(records):
                producer.send(topic, b"value")
                producer.flush()
    settings = FetchSettings(ConnectionSettings(tuple(parse_bootstrap_servers(broker.bootstrap_servers))))
    for _ in range(3):  # the subscription comes after the first read
        wanted = [OffsetRange(TopicPartition("long", 0), 0, 4), OffsetRange(TopicPartition("short", 0), 0, 3)]
        assert sum(batch.num_rows for _, batch in read_ranges(settings, wanted)) == 7
    CONNECTIONS.clear()
    wait_until(lambda: pushes, "the terminating push arrives")
    found, prefix = pushed(pushes[-1]), "org.apache.kafka.consumer.fetch.manager"
    by_topic = {
        topic: [found.value(f"{prefix}.{name}", topic) for name in ("records.consumed.total", "records.lag.max")]
        for topic in ("long", "short", "")
    }
    assert by_topic == {"long": [12, 6], "short": [9, 0], "": [21, 6]}
    assert found.value(f"{prefix}.bytes.consumed.total", "long") > found.value(f"{prefix}.fetch.size.max", "long") > 0


def test_a_reader_that_may_not_push_does_not(local: tuple[LocalBroker, list[Any]]) -> None:
    broker, pushes = local
    broker.create_topic("t", 1)
    with producing(broker.bootstrap_servers, **{"enable.metrics.push": False}) as producer:
        send(producer)
    servers = tuple(parse_bootstrap_servers(broker.bootstrap_servers))
    settings = FetchSettings(ConnectionSettings(servers), metrics_push=False)
    for _ in range(3):
        list(read_ranges(settings, [OffsetRange(TopicPartition("t", 0), 0, 1)]))
    connections = CONNECTIONS.take(settings.connection)
    connections.close()
    assert connections.telemetry is None
    assert not pushes


def test_it_needs_no_thread(broker: AskingBroker) -> None:
    with producing(broker.bootstrap_servers) as producer:
        send(producer)
        producer.client_instance_id(20)
        names = [thread.name for thread in threading.enumerate() if thread.name.startswith("pyproducer")]
        assert names == ["pyproducer-io"]
