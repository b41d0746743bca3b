"""Taking clients, refusing them, and pausing when that fails."""

import errno
import resource
import socket
from collections.abc import Iterator

import pytest

from spark_producer.broker.connections.acceptor import (
    ACCEPT_PAUSE_S,
    REFUSAL_LOG_INTERVAL_S,
    RESERVED_DESCRIPTORS,
    Acceptor,
)


class ScriptedListener:
    """A listening socket of which one decides what `accept` gives."""

    def __init__(self) -> None:
        self.next: list[socket.socket | OSError] = []

    def setblocking(self, _: bool) -> None:
        """As a listener must be able to."""

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        given = self.next.pop(0)
        if isinstance(given, OSError):
            raise given
        return given, ("10.0.0.1", 5000)


class ResetSocket(socket.socket):
    """A client that has gone before the broker could set anything."""

    def setblocking(self, _: bool) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")


@pytest.fixture
def listener() -> ScriptedListener:
    return ScriptedListener()


@pytest.fixture
def client() -> Iterator[socket.socket]:
    with socket.socket() as made:
        yield made


def acceptor(listener: ScriptedListener, most: int = 10) -> Acceptor:
    return Acceptor(listener, most)  # type: ignore[arg-type]


def test_a_client_is_taken_without_blocking(listener: ScriptedListener, client: socket.socket) -> None:
    listener.next = [client]
    assert acceptor(listener).accept(0, 0.0) == (client, "10.0.0.1:5000")
    assert not client.getblocking()


def test_a_group_without_members(listener: ScriptedListener) -> None:
    listener.next = [BlockingIOError(), ConnectionAbortedError()]
    accepting = acceptor(listener)
    assert [accepting.accept(0, 0.0), accepting.accept(0, 0.0)] == [None, None]
    assert accepting.resume_at is None


def test_without_descriptors_it_pauses_and_logs_rarely(
    listener: ScriptedListener, caplog: pytest.LogCaptureFixture
) -> None:
    listener.next = [OSError(errno.EMFILE, "Too many open files") for _ in range(4)]
    accepting = acceptor(listener)
    for now in (0.0, 1.0, REFUSAL_LOG_INTERVAL_S - 1, REFUSAL_LOG_INTERVAL_S + 1):
        assert accepting.accept(0, now) is None
        assert accepting.resume_at == now + ACCEPT_PAUSE_S
    assert caplog.text.count("Too many open files") == 2


def test_beyond_the_limit_of_connections_clients_are_closed(
    listener: ScriptedListener, client: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    listener.next = [client]
    accepting = acceptor(listener, most=3)
    assert accepting.accept(3, 0.0) is None
    assert client.fileno() == -1
    assert accepting.resume_at is None
    assert "10.0.0.1:5000: there are 3 connections, max_connections is 3" in caplog.text


def test_some_descriptors_are_kept_for_the_logs(
    listener: ScriptedListener, client: socket.socket, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    highest = client.fileno()
    for limit, taken in ((highest + RESERVED_DESCRIPTORS + 1, True), (highest + RESERVED_DESCRIPTORS, False)):
        # The true limit would be that of the tests, too.
        monkeypatch.setattr(resource, "getrlimit", lambda _, limit=limit: (limit, limit))
        listener.next = [client]
        assert (acceptor(listener).accept(0, 0.0) is not None) is taken
    assert f"all but {RESERVED_DESCRIPTORS} of {highest + RESERVED_DESCRIPTORS} file descriptors" in caplog.text


def test_a_client_that_was_reset_meanwhile_is_closed(listener: ScriptedListener) -> None:
    gone = ResetSocket()
    listener.next = [gone]
    assert acceptor(listener).accept(0, 0.0) is None
    assert gone.fileno() == -1
