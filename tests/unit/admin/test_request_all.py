"""Requests to several brokers at once: order, errors of unreachable brokers, connections that broke meanwhile."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from spark_producer.admin import BlockingClient
from spark_producer.admin.exchange import NodeRequest
from spark_producer.admin.exchange_client import MAX_IN_FLIGHT
from spark_producer.errors import (
    AuthenticationFailed,
    BrokersUnreachable,
    ConnectionFailed,
    KafkaTimeout,
    PyProducerError,
)
from spark_producer.network import ConnectionSettings
from spark_producer.protocol import END_TXN, METADATA, messages
from tests.fakes.hurry import RunningClock
from tests.fakes.scripted_server import Peer, Script, ScriptedServer

SHORT = 0.3
"""Seconds, for calls that time out whatever has happened until then."""

LONG = 30.0


@pytest.fixture
def refused() -> Iterator[tuple[str, int]]:
    """Yield an address that refuses connections."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()


def client_of(*addresses: tuple[str, int], timeout: float = LONG) -> BlockingClient:
    return BlockingClient(ConnectionSettings(addresses), timeout=timeout)


def waiting_until(happened: threading.Event, address: tuple[str, int]) -> BlockingClient:
    """A client whose time is up once something has happened."""
    clock = RunningClock()

    def look(_: float, __: str) -> None:
        if happened.is_set():
            clock.skip(LONG)

    return BlockingClient(ConnectionSettings((address,)), timeout=LONG, clock=clock, on_wait=look)


def calls(node: int | None, *ids: int) -> list[NodeRequest]:
    return [NodeRequest(node, END_TXN, messages.EndTxnRequest("id", each)) for each in ids]


def echo(requests: int, *, resets: bool = True) -> Script:
    """Answers up to `requests` requests with their producer id, then breaks the connection if it `resets`.

    A reset may overtake an answer that the client has not read yet.
    """

    def script(peer: Peer) -> None:
        peer.negotiate()
        for _ in range(requests):
            request = peer.read()
            peer.answer(request, messages.EndTxnResponse(producer_id=request.body.producer_id))
        if resets:
            peer.reset()

    return script


def test_answers_come_in_the_order_of_the_calls_and_requests_in_theirs() -> None:
    seen: list[int] = []

    def late(peer: Peer) -> None:
        peer.negotiate()
        requests = [peer.read() for _ in range(MAX_IN_FLIGHT)]  # as many as a client sends without a response
        for request in requests:
            seen.append(request.body.producer_id)
            peer.answer(request, messages.EndTxnResponse(producer_id=request.body.producer_id))
        request = peer.read()
        peer.answer(request, messages.EndTxnResponse(producer_id=request.body.producer_id))

    with ScriptedServer(late) as one, ScriptedServer(echo(2, resets=False)) as other:
        client = client_of((one.host, one.port), (other.host, other.port))
        mixed = [*calls(-1, 1, 2, 3), *calls(-2, 10), *calls(-1, 4, 5, 6), *calls(-2, 11)]
        answers: list[Any] = client.request_all(mixed, client.deadline())
        client.close()
    assert [answer.producer_id for answer in answers] == [1, 2, 3, 10, 4, 5, 6, 11]
    assert seen == [1, 2, 3, 4, 5]
    assert (client.requests, client.rounds) == (8, 1)


def test_an_unreachable_node_is_reported_at_once_and_the_others_respond(refused: tuple[str, int]) -> None:
    with ScriptedServer(echo(1, resets=False)) as server:
        client = client_of(refused, (server.host, server.port))
        answers: list[Any] = client.request_all([*calls(-1, 1), *calls(-2, 2), *calls(7, 3)], client.deadline())
        client.close()
    lost, found, unknown = answers
    assert isinstance(lost, BrokersUnreachable)
    assert f"127.0.0.1:{refused[1]}" in str(lost)
    assert found.producer_id == 2
    assert isinstance(unknown, BrokersUnreachable)
    assert "broker 7" in str(unknown)


def test_requests_without_a_response_are_distinguished_from_unsent_ones() -> None:
    asked = threading.Event()

    def silent(peer: Peer) -> None:
        peer.negotiate()
        peer.read()
        asked.set()
        peer.wait_for_close()

    def dying(peer: Peer) -> None:
        peer.negotiate()
        peer.read()
        peer.reset()

    with ScriptedServer(silent) as server:
        client = waiting_until(asked, server.address)
        [answer] = client.request_all(calls(-1, 1), client.deadline())
        client.close()
    assert isinstance(answer, KafkaTimeout)
    assert not isinstance(answer, BrokersUnreachable)
    assert "EndTxn" in str(answer)
    with ScriptedServer(dying) as server:
        client = client_of((server.host, server.port))
        [answer] = client.request_all(calls(-1, 1), client.deadline())
        client.close()
    assert isinstance(answer, ConnectionFailed)


def test_any_broker_is_asked_that_can_be_reached(refused: tuple[str, int]) -> None:
    with ScriptedServer(echo(1)) as server:
        client = client_of(refused, (server.host, server.port))
        assert client.request(*calls(None, 5)[0][1:]).producer_id == 5
        client.close()
    client = client_of(refused, timeout=SHORT)
    with pytest.raises(BrokersUnreachable, match="no broker could be reached"):
        client.request(*calls(None, 5)[0][1:])
    client.close()


def reset(peer: Peer) -> None:
    peer.reset()


def send_garbage(peer: Peer) -> None:
    peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    peer.wait_for_close()


@pytest.mark.parametrize("fail", [reset, send_garbage])
def test_metadata_is_requested_again_when_the_connection_breaks(fail: Script) -> None:
    def dying(peer: Peer) -> None:
        peer.negotiate()
        peer.read()
        fail(peer)

    def answering(peer: Peer) -> None:
        peer.negotiate()
        request = peer.read()
        assert request.api.key == METADATA.key
        peer.answer(request, messages.MetadataResponse(brokers=(messages.MetadataResponseBroker(4, "localhost", 1),)))

    with ScriptedServer(dying, answering) as server:
        client = client_of((server.host, server.port))
        answer = client.metadata(["rows"], client.deadline())
        client.close()
    assert answer.brokers[0].node_id == 4
    assert client.brokers == {4: ("localhost", 1)}


def test_another_broker_is_asked_when_one_is_frozen() -> None:
    """The broker took the connection and the request, and the whole step ended with it although there was time left."""

    asked = threading.Event()

    def frozen(peer: Peer) -> None:
        peer.negotiate()
        peer.read()
        asked.set()
        peer.wait_for_close()

    def answering(peer: Peer) -> None:
        peer.negotiate()
        peer.answer(
            peer.read(), messages.MetadataResponse(brokers=(messages.MetadataResponseBroker(4, "localhost", 1),))
        )

    with ScriptedServer(frozen, answering) as server:
        settings = ConnectionSettings(((server.host, server.port),), request_timeout=SHORT)
        client = BlockingClient(settings, timeout=LONG)
        assert client.metadata([], client.deadline()).brokers[0].node_id == 4
        client.close()
    asked.clear()
    with ScriptedServer(frozen) as server:
        client = waiting_until(asked, server.address)
        with pytest.raises(KafkaTimeout, match="did not answer Metadata"):
            client.metadata([], client.deadline())
        client.close()


def test_no_call_is_no_round() -> None:
    client = client_of(("127.0.0.1", 1))
    answers: list[PyProducerError] = client.request_all([], client.deadline())
    client.close()
    assert answers == []
    assert client.rounds == 0


def test_exchanges_that_are_begun_together_are_one_round() -> None:
    with ScriptedServer(echo(2, resets=False)) as one, ScriptedServer(echo(1, resets=False)) as other:
        client = client_of((one.host, one.port), (other.host, other.port))
        first, second = client.begin(calls(-1, 1)), client.begin(calls(-2, 2))
        third: list[Any] = client.request_all(calls(-1, 3), client.deadline())
        found: list[Any] = [*client.finish(first), *client.finish(second), *third]
        client.close()
    assert [each.producer_id for each in found] == [1, 2, 3]
    assert (client.requests, client.rounds) == (3, 1)


def test_a_wait_that_ends_early_leaves_its_request_alone_and_others_on_the_connection() -> None:
    given_up = threading.Event()

    def late(peer: Peer) -> None:
        peer.negotiate()
        requests = [peer.read(), peer.read()]
        given_up.wait(LONG)
        for request in requests:
            peer.answer(request, messages.EndTxnResponse(producer_id=request.body.producer_id))

    with ScriptedServer(late) as server:
        client = client_of(server.address)
        slow, other = client.begin(calls(-1, 1)), client.begin(calls(-1, 2))
        [error] = client.finish(slow, client.clock() + SHORT)
        given_up.set()
        found: Any = client.finish(other)[0]
        client.close()
    assert isinstance(error, KafkaTimeout)
    assert found.producer_id == 2


def test_a_dropped_exchange_is_not_sent_any_more(refused: tuple[str, int]) -> None:
    with ScriptedServer(echo(1, resets=False)) as server:
        client = client_of(server.address)
        dropped = client.begin(calls(-1, 1))  # there is no connection yet
        client.drop(dropped)
        found: Any = client.request_all(calls(-1, 2), client.deadline())[0]
        client.close()
    assert found.producer_id == 2
    assert client.requests == 1


def test_an_interrupt_loses_what_was_begun() -> None:
    def interrupts(_: float, __: str) -> None:
        raise KeyboardInterrupt

    def silent(peer: Peer) -> None:
        peer.negotiate()
        peer.wait_for_close()

    with ScriptedServer(silent) as server:
        client = client_of(server.address)
        begun = client.begin(calls(-1, 1))
        client.on_wait = interrupts
        with pytest.raises(KeyboardInterrupt):
            client.request_all(calls(-1, 2), client.deadline())
        client.on_wait = None
        [error] = client.finish(begun)
        client.close()
    assert isinstance(error, ConnectionFailed)


def test_an_exchange_is_sent_when_only_responses_are_waited_for() -> None:
    """Requests beyond those that a connection takes at once wait for the responses to the first ones."""
    may_answer = threading.Event()

    def late(peer: Peer) -> None:
        peer.negotiate()
        first = peer.read()
        may_answer.wait(LONG)
        peer.answer(first, messages.EndTxnResponse(producer_id=first.body.producer_id))
        echoed = 1
        while echoed <= MAX_IN_FLIGHT + 1:
            request = peer.read()
            peer.answer(request, messages.EndTxnResponse(producer_id=request.body.producer_id))
            echoed += 1

    with ScriptedServer(late) as server:
        client = client_of(server.address)
        unconnected = client.begin(calls(-1, 0))
        assert not client.is_sent(unconnected)
        may_answer.set()
        client.finish(unconnected)
        assert client.is_sent(unconnected)
        many = client.begin(calls(-1, *range(MAX_IN_FLIGHT + 1)))
        assert many.unsent
        assert client.is_sent(many)
        client.drop(many)
        unknown = client.begin(calls(7, 1))
        assert not client.is_sent(unknown)
        assert isinstance(client.finish(unknown)[0], BrokersUnreachable)
        assert not client.is_sent(unknown)
        client.close()


def test_an_error_that_ends_the_client_stands_in_place_of_the_response_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request may be finished once more, when its write is cancelled."""

    def silent(peer: Peer) -> None:
        peer.negotiate()
        peer.wait_for_close()

    def ends(_: float) -> list[Any]:
        raise AuthenticationFailed("a login was refused", fatal=True)

    with ScriptedServer(silent) as server:
        client = client_of(server.address)
        begun = client.begin(calls(-1, 1))
        monkeypatch.setattr(client, "_poll", ends)
        with pytest.raises(AuthenticationFailed):
            client.finish(begun)
        [error] = client.finish(begun)
        client.close()
    assert isinstance(error, AuthenticationFailed)
