"""A peer that is slow, silent, rude or absent ends in an error within its deadline, never in a hang or a busy loop."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable, Iterator

import pytest

from spark_producer.errors import ConnectionFailed, KafkaTimeout, RemoteProtocolError
from spark_producer.network.transport import ResolvedAddress
from spark_producer.protocol import METADATA, PRODUCE, messages
from tests.fakes.client_driver import Clock, Driver
from tests.fakes.scripted_server import Peer, Script, ScriptedServer

Drive = Callable[..., Driver]


@pytest.fixture
def refused() -> Iterator[tuple[str, int]]:
    """Yield an address that refuses connections: it is bound, so no other process gets it, and does not listen."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()


def send_two(driver: Driver, second_timeout: float | None = None) -> None:
    driver.until_ready()
    driver.client.send(-1, METADATA, messages.MetadataRequest(), tag="first")
    driver.client.send(-1, METADATA, messages.MetadataRequest(), tag="second", timeout=second_timeout)


def silent(peer: Peer) -> None:
    peer.negotiate()
    peer.wait_for_close()


def after_two_requests(act: Callable[[Peer], None]) -> Script:
    def script(peer: Peer) -> None:
        peer.negotiate()
        peer.read()
        peer.read()
        act(peer)

    return script


# Timeouts


@pytest.mark.covers("NW2")
@pytest.mark.parametrize(
    ("second_timeout", "errors"),
    [
        (None, [KafkaTimeout, KafkaTimeout]),
        (60.0, [KafkaTimeout, ConnectionFailed]),
        (1.0, [ConnectionFailed, KafkaTimeout]),
    ],
)
def test_a_timeout_closes_the_connection_and_fails_all_in_flight_in_the_order_sent(
    drive: Drive, clock: Clock, second_timeout: float | None, errors: list[type]
) -> None:
    with ScriptedServer(silent) as server:
        driver = drive([server.address], request_timeout=30)
        send_two(driver, second_timeout)
        clock.advance(0.9)
        assert driver.client.poll(0) == []
        clock.advance(0.2 if second_timeout == 1.0 else 29.2)
        done = driver.until_completed(2)
        assert [completion.tag for completion in done] == ["first", "second"]
        assert [type(completion.error) for completion in done] == errors
        assert driver.client.take_disconnected() == [-1]
        assert not driver.client.ready(-1)
        assert "did not answer Metadata within" in " ".join(str(completion.error) for completion in done)


@pytest.mark.covers("NW4")
def test_a_throttle_gives_what_is_in_flight_more_time(drive: Drive, clock: Clock) -> None:
    def throttle_first(peer: Peer) -> None:
        peer.negotiate()
        peer.answer(peer.read(), messages.MetadataResponse(throttle_time_ms=5000))
        peer.wait_for_close()

    with ScriptedServer(throttle_first) as server:
        driver = drive([server.address], request_timeout=30)
        send_two(driver)
        driver.until_completed(1)
        clock.advance(34)
        assert driver.client.poll(0) == []
        clock.advance(1)
        (done,) = driver.until_completed(1)
        assert (done.tag, type(done.error)) == ("second", KafkaTimeout)


@pytest.mark.covers("NW12")
def test_a_peer_that_accepts_and_is_silent_fails_at_the_request_timeout(drive: Drive, clock: Clock) -> None:
    with ScriptedServer(Peer.wait_for_close) as server:
        driver = drive([server.address], request_timeout=30)
        driver.client.ready(-1)
        driver.poll_until(lambda: server.accepted == 1, "the connection")
        for _ in range(10):
            driver.client.poll(0.01)
        clock.advance(30)
        assert driver.until_disconnected() == [-1]
        assert "did not answer ApiVersions within 30 s" in str(driver.client.last_error(-1))


@pytest.mark.covers("NW3")
def test_a_half_open_connection_fails_at_the_setup_timeout_which_then_grows(drive: Drive, clock: Clock) -> None:
    kept: list[HalfOpen] = []

    def open_half(address: ResolvedAddress, settings: object) -> HalfOpen:
        kept.append(HalfOpen())
        return kept[-1]

    settings = {"connection_setup_timeout": 10, "connection_setup_timeout_max": 30, "reconnect_backoff": 0}
    driver = drive([("127.0.0.1", 1)], **settings, open_transport=open_half)
    for shortest, longest in [(8, 12), (16, 24), (24, 30), (24, 30)]:
        assert not driver.client.ready(-1)
        clock.advance(shortest - 0.01)
        driver.client.poll(0)
        assert driver.client.take_disconnected() == []
        clock.advance(longest - shortest + 0.02)
        driver.client.poll(0)
        assert driver.client.take_disconnected() == [-1]
        assert "setup.timeout" in str(driver.client.last_error(-1))
        assert kept[-1].closed
        clock.advance(1)


class HalfOpen:
    """A transport whose connection is never established."""

    wants = selectors.EVENT_READ
    buffered = False
    queued = 0
    step = "connecting"

    def __init__(self) -> None:
        self._sockets = socket.socketpair()
        self.closed = False

    def fileno(self) -> int:
        return self._sockets[0].fileno()

    def finish_connect(self) -> bool:
        return False

    def write(self, buffers: object) -> bool:
        raise AssertionError

    def flush(self) -> bool:
        raise AssertionError

    def receive_into(self, space: memoryview) -> int | None:
        raise AssertionError

    def close(self) -> None:
        self.closed = True
        for end in self._sockets:
            end.close()


# Rude peers


@pytest.mark.covers("NW1")
@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (lambda peer: None, ConnectionFailed, "the broker closed it"),
        (Peer.reset, ConnectionFailed, "reset"),
        (lambda peer: peer.socket.sendall(b"HTTP/1.1 400 Bad Request\r\n"), RemoteProtocolError, "web server"),
        (lambda peer: peer.socket.sendall(b"\0\0\0\x04\0\0\0\x63"), RemoteProtocolError, "response 99 where"),
        (lambda peer: peer.socket.sendall(b"\0\0\0\x02\0"), ConnectionFailed, "the broker closed it"),
    ],
    ids=["close", "reset", "http", "wrong correlation id", "close within a frame"],
)
def test_a_connection_that_breaks_fails_all_in_flight_in_the_order_sent(
    drive: Drive, act: Callable[[Peer], None], error: type, message: str
) -> None:
    with ScriptedServer(after_two_requests(act), silent) as server:
        driver = drive([server.address])
        send_two(driver)
        done = driver.until_completed(2)
        assert [(completion.tag, type(completion.error)) for completion in done] == [
            ("first", error),
            ("second", error),
        ]
        assert message in str(done[0].error).lower()
        assert str(server.address[1]) in str(done[0].error), "who it was"
        assert driver.client.take_disconnected() == [-1]


def test_what_was_answered_before_the_fault_is_not_lost(drive: Drive) -> None:
    def answer_one(peer: Peer) -> None:
        peer.negotiate()
        first, _ = peer.read(), peer.read()
        peer.answer(first, messages.MetadataResponse(controller_id=3))

    with ScriptedServer(answer_one, silent) as server:
        driver = drive([server.address])
        send_two(driver)
        first, second = driver.until_completed(2)
        assert (first.tag, first.body.controller_id, first.error) == ("first", 3, None)
        assert (second.tag, type(second.error)) == ("second", ConnectionFailed)


def test_a_connection_that_breaks_within_a_large_request_fails_it_and_frees_its_buffers(drive: Drive) -> None:
    def cut(peer: Peer) -> None:
        peer.negotiate()
        peer.socket.recv(1000)
        peer.reset()

    payload = bytearray(8 << 20)
    with ScriptedServer(cut, silent, receive_buffer_bytes=64 * 1024) as server:
        driver = drive([server.address], send_buffer_bytes=64 * 1024)
        driver.until_ready()
        topic = messages.ProduceTopic("topic", partition_data=(messages.ProducePartition(0, payload),))
        driver.client.send(-1, PRODUCE, messages.ProduceRequest(topic_data=(topic,)), tag=0)
        (done,) = driver.until_completed()
        assert isinstance(done.error, ConnectionFailed)
        payload.append(0)  # BufferError if a view of it were still queued


@pytest.mark.covers("NW10")
@pytest.mark.parametrize(
    "script",
    [lambda peer: None, Peer.reset, lambda peer: peer.socket.sendall(b"HTTP/1.1 400 Bad Request")],
    ids=["close", "reset", "http"],
)
def test_a_peer_that_ends_every_connection_is_not_tried_again_before_the_backoff(
    drive: Drive, clock: Clock, script: Script
) -> None:
    with ScriptedServer(script) as server:
        driver = drive([server.address], reconnect_backoff=1, reconnect_backoff_max=10)
        for attempt in (1, 2, 3):
            driver.client.ready(-1)
            assert driver.until_disconnected() == [-1]
            for _ in range(5):
                assert not driver.client.ready(-1)
                driver.client.poll(0)
            assert server.accepted == attempt
            assert 0.8 * 2 ** (attempt - 1) <= driver.client.next_attempt_in(-1) <= 1.2 * 2 ** (attempt - 1)
            clock.advance(driver.client.next_attempt_in(-1))


# Reconnecting


@pytest.mark.covers("NW7")
def test_backoff_doubles_up_to_the_maximum_with_jitter(drive: Drive, clock: Clock, refused: tuple[str, int]) -> None:
    driver = drive([refused], reconnect_backoff=0.05, reconnect_backoff_max=1)
    for expected in (0.05, 0.1, 0.2, 0.4, 0.8):
        assert not driver.client.ready(-1)
        assert driver.until_disconnected() == [-1]
        assert 0.8 * expected <= driver.client.next_attempt_in(-1) <= min(1.2 * expected, 1.0)
        assert driver.client.least_loaded() is None
        clock.advance(driver.client.next_attempt_in(-1))
        assert driver.client.least_loaded() == -1
    assert "refused" in str(driver.client.last_error(-1))


@pytest.mark.covers("NW7")
def test_backoff_starts_again_after_a_connection_that_was_ready(drive: Drive, clock: Clock) -> None:
    def end_after_negotiation(peer: Peer) -> None:
        peer.negotiate()

    with ScriptedServer(Peer.reset, Peer.reset, end_after_negotiation) as server:
        driver = drive([server.address], reconnect_backoff=1, reconnect_backoff_max=10)
        for expected in (1, 2, 1):
            driver.client.ready(-1)
            driver.until_disconnected()
            assert 0.8 * expected <= driver.client.next_attempt_in(-1) <= 1.2 * expected
            clock.advance(3)


def address(at: tuple[str, int]) -> ResolvedAddress:
    return ResolvedAddress("name", at[1], socket.AF_INET, at)


@pytest.mark.covers("NW11")
def test_all_addresses_of_a_host_are_tried_in_one_attempt(drive: Drive, refused: tuple[str, int]) -> None:
    with ScriptedServer(silent) as server:
        resolved = [address(refused), address(refused), address(server.address)]
        driver = drive([("name", 1)], resolver=lambda host, port: resolved)
        driver.until_ready()  # without any backoff: the clock is stopped
        assert driver.client.take_disconnected() == []


@pytest.mark.covers("NW11")
def test_after_a_lost_connection_another_address_comes_first(drive: Drive, clock: Clock) -> None:
    def end_after_negotiation(peer: Peer) -> None:
        peer.negotiate()

    with ScriptedServer(end_after_negotiation) as first, ScriptedServer(silent) as second:
        resolved = [address(first.address), address(second.address)]
        driver = drive([("name", 1)], resolver=lambda host, port: resolved)
        driver.client.ready(-1)
        driver.until_disconnected()
        clock.advance(2)
        driver.until_ready()
        assert (first.accepted, second.accepted) == (1, 1)


@pytest.mark.covers("NW11")
def test_a_host_that_moved_is_found_since_its_name_is_resolved_again(drive: Drive, clock: Clock) -> None:
    def end_after_negotiation(peer: Peer) -> None:
        peer.negotiate()

    with ScriptedServer(end_after_negotiation) as before, ScriptedServer(silent) as after:
        places = [[address(before.address)], [address(after.address)]]
        driver = drive([("name", 1)], resolver=lambda host, port: places.pop(0))
        driver.client.ready(-1)
        driver.until_disconnected()
        clock.advance(2)
        driver.until_ready()
        assert (before.accepted, after.accepted) == (1, 1)


@pytest.mark.covers("KP20")
def test_a_name_that_cannot_be_resolved_is_an_error_with_backoff(drive: Drive) -> None:
    driver = drive([("no-such-host.invalid", 9092)])
    assert not driver.client.ready(-1)
    assert driver.client.take_disconnected() == [-1]
    assert driver.client.next_attempt_in(-1) > 0
    assert "cannot resolve 'no-such-host.invalid'" in str(driver.client.last_error(-1))


@pytest.mark.parametrize("bad", [("a..b", 9092), ("nul\0", 9092), ("127.0.0.1", 70_000), ("127.0.0.1", -1)])
def test_an_address_that_no_socket_takes_is_an_error_too(drive: Drive, bad: tuple[str, int]) -> None:
    driver = drive([("127.0.0.1", 1)])
    driver.client.set_nodes({1: bad})  # as a broker could name it
    assert not driver.client.ready(1)
    assert driver.until_disconnected() == [1]
    assert isinstance(driver.client.last_error(1), ConnectionFailed)
