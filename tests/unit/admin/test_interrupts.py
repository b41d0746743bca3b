"""Ctrl-C in the middle of a request: the next request gets its own response, whatever the interrupted one has left half done."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from spark_producer.admin import BlockingClient
from spark_producer.network import ConnectionSettings
from spark_producer.network.poller import Poller
from spark_producer.network.transport import TcpTransport
from spark_producer.protocol import Connection, FrameReader, messages
from tests.fakes.scripted_server import Peer, ScriptedServer

POINTS: dict[str, tuple[type, str, bool]] = {
    "before the request is encoded": (Connection, "send", False),
    "before the bytes are taken": (Connection, "outgoing", False),
    "after the bytes are taken": (Connection, "outgoing", True),
    "before the bytes are sent": (TcpTransport, "write", False),
    "after the bytes are sent": (TcpTransport, "write", True),
    "before the wait": (Poller, "wait", False),
    "after the wait": (Poller, "wait", True),
    "before the response is received": (TcpTransport, "receive_into", False),
    "after the response is received": (TcpTransport, "receive_into", True),
    "after the frames are cut": (FrameReader, "received", True),
    "after the response is decoded": (Connection, "received", True),
}
"""The function that an interrupt comes in, and whether that has done its work."""

STRIDE = 5
"""Every fifth line is interrupted; each run takes another connection."""


@contextmanager
def cluster() -> Iterator[ScriptedServer]:
    """A broker that answers Metadata with the topics that were asked for."""

    def script(peer: Peer) -> None:
        peer.negotiate()
        while True:
            request = peer.read()
            topics = tuple(messages.MetadataResponseTopic(0, each.name) for each in request.body.topics)
            broker = messages.MetadataResponseBroker(3, server.host, server.port)
            peer.answer(request, messages.MetadataResponse(brokers=(broker,), topics=topics))

    with ScriptedServer(script) as server:
        yield server


def topics_of(client: BlockingClient, *topics: str) -> list[str | None]:
    return [row.name for row in client.metadata(topics).topics]


@pytest.mark.parametrize("point", POINTS)
def test_the_next_request_gets_its_own_response(point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, done = POINTS[point]
    original: Callable[..., Any] = getattr(owner, name)

    def interrupted(*arguments: Any, **named: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():  # the peer's
            return original(*arguments, **named)
        monkeypatch.setattr(owner, name, original)
        if done:
            original(*arguments, **named)
        raise KeyboardInterrupt

    with cluster() as server, BlockingClient(ConnectionSettings((server.address,)), timeout=20) as client:
        assert topics_of(client, "warm") == ["warm"]
        monkeypatch.setattr(owner, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            topics_of(client, "interrupted")
        assert topics_of(client, "next") == ["next"]
        assert topics_of(client, "last") == ["last"]


def interrupted_at(line: int, action: Callable[[], object]) -> bool:
    """Run `action` with an interrupt at its n-th line in the package; return whether it came so far."""
    count = itertools.count()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if "spark_producer" not in frame.f_code.co_filename:
            return None
        if event == "line" and next(count) == line:
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a socket without an owner yet
@pytest.mark.parametrize("warm", [True, False], ids=["on an open connection", "while it connects"])
def test_an_interrupt_at_any_line_leaves_a_client_that_works(warm: bool) -> None:
    with cluster() as server:
        for line in range(0, 10_000, STRIDE):
            with BlockingClient(ConnectionSettings((server.address,)), timeout=20) as client:
                if warm:
                    topics_of(client, "warm")
                interrupted = interrupted_at(line, lambda: topics_of(client, "interrupted"))
                assert topics_of(client, "next") == ["next"], f"after an interrupt at line {line}"
            if not interrupted:
                break
    assert line > 100, "the request has many lines"
