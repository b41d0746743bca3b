"""Delayed responses of any kind in the turns of the connections."""

from __future__ import annotations

from collections.abc import Hashable

import pytest

from spark_producer.broker.context import Context, HandlerResult
from spark_producer.broker.deferred_response import DeferredResponse
from spark_producer.broker.requests.handlers import HANDLERS
from spark_producer.protocol import LIST_GROUPS, METADATA, messages
from tests.unit.broker.connections.test_lifecycle import SETTINGS, Broker, Peer, broker, peers

__all__ = ["broker", "peers"]


class Scripted(DeferredResponse):
    """A response that the test makes ready."""

    def __init__(self, keys: tuple[Hashable, ...] = ("key",), wait_s: float = 10.0, size: int | None = None) -> None:
        super().__init__(keys, wait_s, size)
        self.ready = False
        self.asked = 0

    def is_ready(self) -> bool:
        self.asked += 1
        return self.ready

    def response(self, _max_bytes: int) -> messages.ListGroupsResponse:
        return messages.ListGroupsResponse(throttle_time_ms=7 if self.ready else 8)


class ScriptedFetch(Scripted):
    """The same, with records in its response."""

    carries_records = True


def answer_with(monkeypatch: pytest.MonkeyPatch, *deferred: DeferredResponse) -> None:
    """Delay the responses to the next ListGroups, one by each of `pending`."""
    left = list(deferred)

    def later(_context: Context, _version: int, _request: object) -> HandlerResult[messages.ListGroupsResponse]:
        return HandlerResult(None, deferred=left.pop(0))

    monkeypatch.setitem(HANDLERS, LIST_GROUPS.key, later)


def ask(peer: Peer) -> None:
    peer.ask(LIST_GROUPS, messages.ListGroupsRequest())


def answered_as_ready(peer: Peer) -> bool:
    return peer.response(LIST_GROUPS).throttle_time_ms == 7


def test_it_is_answered_when_a_key_has_changed_and_it_is_ready(
    broker: Broker, peers: list[Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    deferred = Scripted(("a", "b"))
    answer_with(monkeypatch, deferred)
    ask(peers[0])
    broker.turns()
    broker.clients.changed("b")
    broker.turns()
    assert (peers[0].has_response(), deferred.asked) == (False, 2), "asked at first, and when the key changed"
    deferred.ready = True
    broker.clients.changed("c")
    broker.turns()
    assert (peers[0].has_response(), deferred.asked) == (False, 2), "nothing of its keys"
    broker.clients.changed("a")
    assert answered_as_ready(peers[0])
    assert broker.clients.budget.held == 0


def test_it_is_answered_as_it_is_when_its_time_is_up(
    broker: Broker, peers: list[Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_with(monkeypatch, Scripted(wait_s=10.0))
    ask(peers[0])
    broker.turns()
    assert broker.clients.next_deadline() == broker.now + 10.0
    broker.now += 10.0
    assert not answered_as_ready(peers[0])
    assert broker.clients.budget.held == 0


def test_it_waits_no_longer_than_a_silent_client_may(
    broker: Broker, peers: list[Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_with(monkeypatch, Scripted(wait_s=1e9))
    ask(peers[0])
    broker.turns()
    broker.now += SETTINGS.idle_timeout
    assert not answered_as_ready(peers[0])


def test_what_is_ready_or_has_no_time_is_answered_at_once(
    broker: Broker, peers: list[Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = Scripted()
    ready.ready = True
    answer_with(monkeypatch, ready, Scripted(wait_s=0.0))
    ask(peers[0])
    assert answered_as_ready(peers[0])
    ask(peers[0])
    assert not answered_as_ready(peers[0])


def test_without_memory_to_wait_those_with_records_are_answered_and_others_wait(
    broker: Broker, peers: list[Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    size = SETTINGS.max_buffered_bytes // 8 + 1
    answer_with(monkeypatch, ScriptedFetch(size=size), Scripted(size=size))
    ask(peers[0])
    assert not answered_as_ready(peers[0])
    ask(peers[0])
    broker.turns()
    assert not peers[0].has_response()
    assert broker.clients.budget.waits == size


def test_a_client_that_leaves_takes_its_pending_request_along(
    broker: Broker, peers: list[Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    deferred = Scripted()
    answer_with(monkeypatch, deferred)
    ask(peers[0])
    broker.turns()
    peers[0].socket.close()
    broker.turns()
    deferred.ready = True
    broker.clients.changed("key")
    broker.turns()
    assert deferred.asked == 1
    assert broker.clients.budget.held == 0


def test_no_later_response_overtakes_it(broker: Broker, peers: list[Peer], monkeypatch: pytest.MonkeyPatch) -> None:
    deferred = Scripted()
    answer_with(monkeypatch, deferred)
    ask(peers[0])
    peers[0].ask(METADATA, messages.MetadataRequest(()))
    broker.turns()
    assert not peers[0].has_response()
    deferred.ready = True
    broker.clients.changed("key")
    assert answered_as_ready(peers[0])
    assert peers[0].response(METADATA).topics == ()
