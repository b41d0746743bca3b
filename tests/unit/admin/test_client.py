from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from spark_producer.admin import BlockingClient
from spark_producer.config import producer_config
from spark_producer.errors import (
    BrokerError,
    BrokersUnreachable,
    ConnectionFailed,
    KafkaTimeout,
    MetadataTimeout,
    TopicNotFound,
)
from spark_producer.network import ConnectionSettings
from spark_producer.network.fatal_errors import MIN_CLOSES
from spark_producer.protocol import METADATA, messages
from tests.fakes.hurry import RunningClock
from tests.fakes.login_scripts import REFUSALS, Refusal
from tests.fakes.scripted_server import Peer, Script, ScriptedServer

pytestmark = pytest.mark.usefixtures("free_pauses")

SHORT = 0.3
"""Seconds, for calls that time out whatever has happened until then."""
TIMEOUT = 20.0
"""Seconds, for calls that time out once something has happened."""


def client_of(*addresses: tuple[str, int], **more: Any) -> BlockingClient:
    return BlockingClient(ConnectionSettings(addresses), **more)


def waiting_until(holds: Callable[[str], bool], *addresses: tuple[str, int], **more: Any) -> BlockingClient:
    """Return a client whose deadline passes once `holds` accepts the description of its wait."""
    clock = RunningClock()

    def look(_: float, subject: str) -> None:
        if holds(subject):
            clock.skip(TIMEOUT)

    return client_of(*addresses, timeout=TIMEOUT, clock=clock, on_wait=look, **more)


def has_been_answered(subject: str) -> bool:
    return "the brokers answer" in subject


@pytest.fixture
def refused() -> Iterator[tuple[str, int]]:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()


def cluster(server: ScriptedServer | None, *topics: messages.MetadataResponseTopic) -> messages.MetadataResponse:
    brokers = () if server is None else (messages.MetadataResponseBroker(3, server.host, server.port),)
    return messages.MetadataResponse(brokers=brokers, topics=topics)


def topic(*leaders: int, error_code: int = 0, partition_error: int = 0) -> messages.MetadataResponseTopic:
    partitions = tuple(
        messages.MetadataResponsePartition(partition_error, i, leader) for i, leader in enumerate(leaders)
    )
    return messages.MetadataResponseTopic(error_code, "topic", partitions=partitions)


def answering(*answers: messages.MetadataResponse) -> Script:
    """Gives these answers, the last one again and again."""
    left = list(answers)

    def script(peer: Peer) -> None:
        peer.negotiate()
        while True:
            peer.answer(peer.read(), left.pop(0) if len(left) > 1 else left[0])

    return script


def test_metadata_creates_no_topics_and_moves_on_to_the_cluster() -> None:
    asked: list[messages.MetadataRequest] = []
    servers: list[ScriptedServer] = []

    def script(peer: Peer) -> None:
        peer.negotiate()
        while True:
            request = peer.read()
            asked.append(request.body)
            peer.answer(request, cluster(servers[0], topic(3)))

    with ScriptedServer(script) as server:
        servers.append(server)
        with BlockingClient(ConnectionSettings((server.address,), "check"), timeout=10) as client:
            assert client.metadata(["topic"]).topics[0].name == "topic"
            client.metadata(None)
            client.metadata([], allow_auto_topic_creation=True)
            assert client.request(METADATA, messages.MetadataRequest(), node=3).brokers[0].node_id == 3
        assert [(body.topics and body.topics[0].name, body.allow_auto_topic_creation) for body in asked[:3]] == [
            ("topic", False), (None, False), ((), True),
        ]  # fmt: skip
        assert server.accepted == 2  # the bootstrap server's connection, then that of broker 3


def test_one_bootstrap_server_that_answers_is_enough(refused: tuple[str, int]) -> None:
    with (
        ScriptedServer(Peer.wait_for_close) as silent,
        ScriptedServer(answering(cluster(None))) as server,
        client_of(refused, silent.address, server.address, timeout=10) as client,
    ):
        assert client.metadata([]).brokers == ()


def test_unreachable_brokers_are_all_named_with_their_reasons(refused: tuple[str, int]) -> None:
    def others_have_failed(_: str) -> bool:
        return None not in (client._connections().last_error(-1), client._connections().last_error(-3))

    with (
        ScriptedServer(Peer.wait_for_close) as silent,
        waiting_until(others_have_failed, refused, silent.address, ("no-such-host.invalid", 9092)) as client,
        pytest.raises(BrokersUnreachable) as raised,
    ):
        client.metadata([])
    message = str(raised.value)
    assert f"127.0.0.1:{refused[1]}: cannot connect" in message
    assert "Connection refused" in message
    assert f"127.0.0.1:{silent.port}: " in message
    assert "no-such-host.invalid:9092: cannot resolve" in message
    assert "kafka.bootstrap.servers" in message


def test_a_wait_is_reported_with_its_seconds_and_addresses_and_can_be_ended(refused: tuple[str, int]) -> None:
    reported: list[tuple[float, str]] = []

    def on_wait(seconds: float, addresses: str) -> None:
        reported.append((seconds, addresses))
        if len(reported) > 2:
            raise BrokenPipeError

    with (
        ScriptedServer(Peer.wait_for_close) as silent,
        client_of(refused, silent.address, timeout=20, on_wait=on_wait) as client,
        pytest.raises(BrokenPipeError),
    ):
        client.metadata([])
    assert len(reported) == 3
    assert [seconds for seconds, _ in reported] == sorted(seconds for seconds, _ in reported)
    assert {addresses for _, addresses in reported} == {f"127.0.0.1:{refused[1]}, 127.0.0.1:{silent.port}"}


def test_a_wait_for_a_response_is_reported_too() -> None:
    def negotiate_and_no_more(peer: Peer) -> None:
        peer.negotiate()
        peer.wait_for_close()

    def on_wait(seconds: float, addresses: str) -> None:
        if seconds >= SHORT:
            raise BrokenPipeError(addresses)

    with (
        ScriptedServer(negotiate_and_no_more) as server,
        client_of(server.address, timeout=20, on_wait=on_wait) as client,
        pytest.raises(BrokenPipeError, match=str(server.port)),
    ):
        client.metadata([])


def test_a_slow_name_look_up_does_not_hide_why_the_others_cannot_be_reached(
    refused: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system's look-up of the name takes all the time, although the rejection has arrived meanwhile."""
    look_up = socket.getaddrinfo

    def slow(host: str, *more: Any, **options: Any) -> Any:
        if host != refused[0]:
            time.sleep(2 * SHORT)  # the system looks the name up for longer than the client may wait
        return look_up(host, *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    addresses = [refused, ("no-such-host.invalid", 9092)]
    with client_of(*addresses, timeout=SHORT) as client, pytest.raises(BrokersUnreachable, match="refused"):
        client.metadata([])


def test_unreachable_advertised_addresses_are_distinguished_from_bootstrap_servers(refused: tuple[str, int]) -> None:
    body = messages.MetadataResponse(brokers=(messages.MetadataResponseBroker(1, *refused),))
    late = 0.0
    passes = 0.0

    def waited(_: float, __: str) -> None:
        nonlocal late
        late += passes

    with (
        ScriptedServer(answering(body)) as server,
        client_of(server.address, timeout=20, clock=lambda: time.monotonic() + late, on_wait=waited) as client,
    ):
        client.metadata([])
        passes = 15.0  # seconds at each look from now on
        with pytest.raises(BrokersUnreachable, match=r"advertised\.listeners"):
            client.request(METADATA, messages.MetadataRequest(), node=1)
        with pytest.raises(BrokersUnreachable, match="broker 9: it is not among the brokers"):
            client.request(METADATA, messages.MetadataRequest(), node=9)


def test_a_broker_that_is_reached_but_silent_is_a_timeout_of_the_request() -> None:
    asked = threading.Event()

    def silent(peer: Peer) -> None:
        peer.negotiate()
        peer.read()
        asked.set()
        peer.wait_for_close()

    option = "kafka.max.block.ms"
    with (
        ScriptedServer(silent) as server,
        waiting_until(lambda _: asked.is_set(), server.address, timeout_option=option) as client,
        pytest.raises(KafkaTimeout, match=rf"did not answer Metadata within {TIMEOUT:g} s \(kafka\.max\.block\.ms\)"),
    ):
        client.metadata([])


def test_a_lost_request_raises_and_a_lost_question_is_asked_again() -> None:
    def lose(peer: Peer) -> None:
        peer.negotiate()
        peer.read()

    with (
        ScriptedServer(lose, lose, answering(cluster(None, topic(3)))) as server,
        client_of(server.address, timeout=10) as client,
    ):
        with pytest.raises(ConnectionFailed, match="the broker closed it"):
            client.request(METADATA, messages.MetadataRequest())
        assert client.metadata(["topic"]).topics == (topic(3),)


def test_the_leader_is_waited_for_while_it_is_being_elected() -> None:
    answers = [cluster(None, topic(3, -1, partition_error=5)), cluster(None, topic(3, -1)), cluster(None, topic(3, 4))]
    with ScriptedServer(answering(*answers)) as server, client_of(server.address, timeout=10) as client:
        assert client.wait_for_topic("topic", partition=1)[1] == 4


def test_a_leader_without_an_address_is_waited_for() -> None:
    servers: list[ScriptedServer] = []
    leaders = [9, 9, 3]

    def script(peer: Peer) -> None:
        peer.negotiate()
        while True:
            peer.answer(peer.read(), cluster(servers[0], topic(leaders.pop(0))))

    with ScriptedServer(script) as server:
        servers.append(server)
        with client_of(server.address, timeout=10) as client:
            assert client.wait_for_topic("topic", partition=0)[0] == 3
    assert leaders == []


@pytest.mark.parametrize("indexes", [(0, 1, -5), (0, 0, 1), (0, 1, 7), (-1,)])
def test_partitions_that_do_not_count_from_0_are_those_of_a_topic_that_is_being_made(indexes: tuple[int, ...]) -> None:
    rows = tuple(messages.MetadataResponsePartition(0, index, 3) for index in indexes)
    odd = cluster(None, messages.MetadataResponseTopic(0, "topic", partitions=rows))
    for partition in (None, 0, indexes[-1]):
        with (
            ScriptedServer(answering(odd)) as server,
            waiting_until(has_been_answered, server.address) as client,
            pytest.raises(MetadataTimeout, match="LEADER_NOT_AVAILABLE"),
        ):
            client.wait_for_topic("topic", partition=partition)


def test_an_error_of_the_whole_answer_does_not_say_that_there_is_no_topic() -> None:
    refused = messages.MetadataResponse(error_code=31)
    with (
        ScriptedServer(answering(refused)) as server,
        client_of(server.address, timeout=10) as client,
        pytest.raises(BrokerError, match="CLUSTER_AUTHORIZATION_FAILED"),
    ):
        client.wait_for_topic("topic")


def test_a_missing_replica_does_not_hide_the_leader() -> None:
    script = answering(cluster(None, topic(3, partition_error=9)))
    with ScriptedServer(script) as server, client_of(server.address, timeout=10) as client:
        assert client.wait_for_topic("topic", partition=0)[0] == 3


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (cluster(None, topic(error_code=3)), TopicNotFound, "topic 'topic', partition 2"),
        (cluster(None), TopicNotFound, "UNKNOWN_TOPIC_OR_PARTITION"),
        (
            cluster(None, topic(1, 1)),
            TopicNotFound,
            "topic 'topic' has no partition 2: it has 2, and the first is 0. Correct",
        ),
        (cluster(None, topic(error_code=29)), BrokerError, "TOPIC_AUTHORIZATION_FAILED"),
        (cluster(None, topic(1, 1, -1)), MetadataTimeout, "partition 2 .*LEADER_NOT_AVAILABLE"),
    ],
)
def test_a_leader_that_there_is_not_is_an_error(answer: messages.MetadataResponse, error: type, message: str) -> None:
    with (
        ScriptedServer(answering(answer)) as server,
        waiting_until(has_been_answered, server.address) as client,
        pytest.raises(error, match=message),
    ):
        client.wait_for_topic("topic", partition=2)


# Refusals that would come again


@pytest.mark.covers("SEC20–SEC25")
@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS.keys())
@pytest.mark.parametrize("call", ["metadata", "wait_for_topic"])
def test_a_refusal_ends_every_wait_at_once(refusal: Refusal, call: str) -> None:
    with ScriptedServer(refusal.script) as server:
        config = producer_config({"bootstrap.servers": f"127.0.0.1:{server.port}", **refusal.options})
        with BlockingClient(ConnectionSettings.from_config(config), timeout=600) as client:
            ask = (lambda: client.metadata([])) if call == "metadata" else (lambda: client.wait_for_topic("t"))
            with pytest.raises(refusal.error) as caught:
                ask()
        for text in (*refusal.texts, f"127.0.0.1:{server.port}"):
            assert text in str(caught.value)
        assert server.accepted <= MIN_CLOSES


@pytest.mark.parametrize("partition", [-1, -2, -(2**31)])
def test_a_partition_that_no_topic_can_have_is_an_error(partition: int) -> None:
    """A broker may return any number."""
    with (
        ScriptedServer(lambda peer: answering(cluster(server, topic(3, 3)))(peer)) as server,
        client_of(server.address, timeout=20) as client,
        pytest.raises(TopicNotFound, match=rf"'topic' has no partition {partition}: it has 2"),
    ):
        client.leaders_of("topic", [0, partition])


def test_the_leaders_of_many_partitions_are_one_question_and_one_more_for_each_election() -> None:
    asked = 0

    def script(peer: Peer) -> None:
        nonlocal asked
        peer.negotiate()
        while True:
            request = peer.read()
            asked += 1
            peer.answer(request, cluster(None, topic(*[3] * 500, 3 if asked > 2 else -1)))

    with ScriptedServer(script) as server, client_of(server.address, timeout=20) as client:
        assert client.leaders_of("topic", range(500)) == dict.fromkeys(range(500), 3)
        assert asked == 1
        assert client.leaders_of("topic", range(501))[500] == 3
        assert asked <= 4


def test_leaders_that_come_and_go_are_not_waited_for_longer_than_the_timeout() -> None:
    at = 0

    def script(peer: Peer) -> None:
        nonlocal at
        peer.negotiate()
        while True:
            request = peer.read()
            at += 1
            peer.answer(request, cluster(None, topic(*((3, -1) if at % 2 else (-1, 3)))))

    with (
        ScriptedServer(script) as server,
        client_of(server.address, timeout=SHORT) as client,
        pytest.raises((KafkaTimeout, MetadataTimeout, BrokersUnreachable)),
    ):
        client.leaders_of("topic", [0, 1])


def test_a_silent_broker_delays_no_other(refused: tuple[str, int]) -> None:
    servers: list[ScriptedServer] = []

    def script(peer: Peer) -> None:
        peer.negotiate()
        while True:
            nodes = (servers[0].address, servers[1].address, refused, servers[0].address)
            brokers = tuple(messages.MetadataResponseBroker(1 + at, *address) for at, address in enumerate(nodes))
            peer.answer(peer.read(), messages.MetadataResponse(brokers=brokers))

    asked = threading.Event()

    def negotiate_and_no_more(peer: Peer) -> None:
        peer.negotiate()
        peer.read()
        asked.set()
        peer.wait_for_close()

    clock = [0.0]

    def pass_time(_: float, subject: str) -> None:
        if str(servers[0].port) not in subject and asked.is_set():  # those that answer have answered
            clock[0] += 1.0

    with ScriptedServer(script) as server, ScriptedServer(negotiate_and_no_more) as silent:
        servers += [server, silent]
        with client_of(
            server.address, timeout=20, clock=lambda: time.monotonic() + clock[0], on_wait=pass_time
        ) as client:
            client.metadata([])
            reported = client.request_each(METADATA, messages.MetadataRequest((), False), [1, 2, 3, 4])
    assert isinstance(reported[1], messages.MetadataResponse)
    assert isinstance(reported[4], messages.MetadataResponse)
    assert isinstance(reported[2], KafkaTimeout)
    assert "did not answer Metadata within 20 s" in str(reported[2])
    assert isinstance(reported[3], BrokersUnreachable)
    assert clock[0] < 40, "one timeout for all of them"


@pytest.mark.parametrize("known", [True, False])
def test_a_topic_counts_as_unknown_only_if_no_broker_knows_it(known: bool) -> None:
    """The metadata of the broker that is asked first may lag."""
    servers: list[ScriptedServer] = []

    def cluster_of_two(reported: messages.MetadataResponseTopic) -> messages.MetadataResponse:
        rows = [messages.MetadataResponseBroker(3 + at, each.host, each.port) for at, each in enumerate(servers)]
        return messages.MetadataResponse(brokers=tuple(rows), topics=(reported,))

    def lagging(peer: Peer) -> None:
        peer.negotiate()
        for _ in range(2):
            peer.answer(peer.read(), cluster_of_two(topic(error_code=3)))
        while True:
            peer.answer(peer.read(), cluster_of_two(topic(3) if known else topic(error_code=3)))

    def ahead(peer: Peer) -> None:
        peer.negotiate()
        while True:
            peer.answer(peer.read(), cluster_of_two(topic(3) if known else topic(error_code=3)))

    with ScriptedServer(lagging) as first, ScriptedServer(ahead) as second:
        servers += [first, second]
        with client_of(first.address, timeout=TIMEOUT) as client:
            if known:
                assert client.wait_for_topic("topic", create=True, unknown_timeout=0) == (3,)
                assert second.accepted == 1
            else:
                with pytest.raises(TopicNotFound, match="for topic 'topic', still after 0 s"):
                    client.wait_for_topic("topic", create=True, unknown_timeout=0)
