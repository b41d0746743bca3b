"""Sessions that end (KIP-368): a client re-authenticates in time, and no request is lost, doubled or overtaken by it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from spark_producer.errors import AuthenticationFailed, ConnectionFailed, KafkaTimeout
from spark_producer.network.node import MIN_REAUTHENTICATION_INTERVAL_S
from spark_producer.protocol import METADATA, SASL_HANDSHAKE, ConnectionState, messages
from tests.fakes.client_driver import Clock, Driver
from tests.fakes.login_scripts import PLAIN_LOGIN, refuse_login, serve, shake_hands, take_login
from tests.fakes.scripted_server import DEADLINE, Peer, ScriptedServer

Drive = Callable[..., Driver]
LIFETIME = 100.0
"""seconds of the clock of the test"""


def ask(driver: Driver, tag: object) -> None:
    driver.client.send(-1, METADATA, messages.MetadataRequest(), tag=tag)


def state_of(driver: Driver) -> ConnectionState | None:
    node = driver.client._nodes.find(-1)
    return node.connection.state if node is not None and node.connection is not None else None


def opened(peer: Peer, lifetime: float = LIFETIME) -> None:
    peer.negotiate()
    take_login(peer, int(lifetime * 1000))


@pytest.mark.covers("SEC28")
def test_a_busy_connection_reauthenticates_on_time_after_its_requests(drive: Drive, clock: Clock) -> None:
    may_answer = threading.Event()

    def script(peer: Peer) -> None:
        opened(peer)
        requests = [peer.read() for _ in range(3)]
        assert may_answer.wait(DEADLINE)
        handshake = peer.read()
        assert handshake.api is SASL_HANDSHAKE, "it comes before any answer, and before a later request"
        for number, request in enumerate(requests):
            peer.answer(request, messages.MetadataResponse(controller_id=number))
        peer.answer(handshake, messages.SaslHandshakeResponse(0, ("PLAIN",)))
        peer.answer(peer.read(), messages.SaslAuthenticateResponse(0, "", b"", 0))
        peer.answer(peer.read(), messages.MetadataResponse(controller_id=3))
        peer.wait_for_close()

    with ScriptedServer(script) as server:
        driver = drive([server.address], security=PLAIN_LOGIN, request_timeout=1000)
        driver.until_ready()
        for tag in "abc":
            ask(driver, tag)
        clock.advance(0.84 * LIFETIME)
        assert driver.client.poll(0) == []
        assert state_of(driver) is ConnectionState.READY, "it is too early"
        clock.advance(0.12 * LIFETIME)
        assert driver.client.poll(0) == []
        assert state_of(driver) is ConnectionState.REAUTHENTICATING
        assert not driver.client.ready(-1)
        may_answer.set()
        driver.until_ready()
        ask(driver, "d")
        done = driver.until_completed(4)
        assert [(row.tag, row.body.controller_id, row.error) for row in done] == [
            ("a", 0, None), ("b", 1, None), ("c", 2, None), ("d", 3, None),
        ]  # fmt: skip
        assert server.accepted == 1


@pytest.mark.covers("SEC28")
def test_an_idle_connection_reauthenticates_before_its_next_request(drive: Drive, clock: Clock) -> None:
    with ScriptedServer(serve(int(LIFETIME * 1000))) as server:
        driver = drive([server.address], security=PLAIN_LOGIN)
        driver.until_ready()
        clock.advance(LIFETIME)
        assert driver.client.poll(0) == []
        assert state_of(driver) is ConnectionState.READY, "no request needs it"
        assert driver.client.least_loaded() == -1, "it can be used, if only after a login"
        assert not driver.client.ready(-1)
        assert state_of(driver) is ConnectionState.REAUTHENTICATING


@pytest.mark.covers("SEC28")
def test_sessions_follow_one_another_without_a_new_connection(drive: Drive, clock: Clock) -> None:
    rounds = 5

    def script(peer: Peer) -> None:
        opened(peer)
        for _ in range(rounds):
            peer.answer(peer.read(), messages.MetadataResponse())
            take_login(peer, int(LIFETIME * 1000))
        peer.answer(peer.read(), messages.MetadataResponse())
        peer.wait_for_close()

    with ScriptedServer(script) as server:
        driver = drive([server.address], security=PLAIN_LOGIN)
        for number in range(rounds + 1):
            driver.until_ready()
            ask(driver, number)
            assert driver.until_completed()[0].error is None
            clock.advance(0.96 * LIFETIME)
        assert server.accepted == 1


@pytest.mark.covers("SEC28")
def test_no_login_comes_within_a_second_of_the_last(drive: Drive, clock: Clock) -> None:
    """A broker refuses it, however short the session is."""
    with ScriptedServer(serve(10)) as server:
        driver = drive([server.address], security=PLAIN_LOGIN)
        driver.until_ready()
        clock.advance(MIN_REAUTHENTICATION_INTERVAL_S - 0.01)
        assert driver.client.ready(-1)
        clock.advance(0.02)
        assert not driver.client.ready(-1)
        assert state_of(driver) is ConnectionState.REAUTHENTICATING


@pytest.mark.covers("SEC30")
def test_a_refused_reauthentication_fails_what_is_in_flight_and_the_node_is_tried_once_more(
    drive: Drive, clock: Clock
) -> None:
    def refuses_again(peer: Peer) -> None:
        opened(peer)
        request = peer.read()
        peer.answer(request, messages.MetadataResponse())
        shake_hands(peer)
        peer.answer(peer.read(), messages.SaslAuthenticateResponse(58, "the user is gone"))

    with ScriptedServer(refuses_again, refuse_login) as server:
        driver = drive([server.address], security=PLAIN_LOGIN, reconnect_backoff_max=3)
        driver.until_ready()
        ask(driver, "before")
        assert driver.until_completed()[0].error is None
        clock.advance(LIFETIME)
        assert not driver.client.ready(-1)
        assert driver.until_disconnected() == [-1]
        assert "the user is gone" in str(driver.client.last_error(-1))
        assert driver.client.fatal_error() is None
        assert driver.client.next_attempt_in(-1) == pytest.approx(3)
        clock.advance(3)
        driver.client.ready(-1)
        assert driver.until_disconnected() == [-1]
        assert isinstance(driver.client.fatal_error(), AuthenticationFailed)


@pytest.mark.covers("SEC30")
def test_a_broker_that_ends_the_session_fails_the_requests_in_flight_in_order(drive: Drive, clock: Clock) -> None:
    def expired(peer: Peer) -> None:
        opened(peer)
        peer.read()
        peer.read()

    with ScriptedServer(expired, serve()) as server:
        driver = drive([server.address], security=PLAIN_LOGIN)
        driver.until_ready()
        ask(driver, "first")
        ask(driver, "second")
        done = driver.until_completed(2)
        assert [(row.tag, type(row.error)) for row in done] == [
            ("first", ConnectionFailed), ("second", ConnectionFailed),
        ]  # fmt: skip
        clock.advance(driver.client.next_attempt_in(-1))
        driver.until_ready()
        assert driver.client.fatal_error() is None


@pytest.mark.covers("SEC34")
@pytest.mark.parametrize("step", ["SaslHandshake", "SaslAuthenticate"])
def test_a_broker_that_falls_silent_in_a_reauthentication_is_disconnected(
    drive: Drive, clock: Clock, step: str
) -> None:
    def script(peer: Peer) -> None:
        opened(peer)
        if step == "SaslAuthenticate":
            shake_hands(peer)
        peer.read()
        peer.wait_for_close()

    with ScriptedServer(script) as server:
        driver = drive([server.address], security=PLAIN_LOGIN, request_timeout=5)
        driver.until_ready()
        clock.advance(LIFETIME)
        assert not driver.client.ready(-1)
        node = driver.client._nodes.find(-1)
        assert node is not None
        connection = node.connection
        assert connection is not None
        driver.poll_until(lambda: connection.step == step, f"{step} to be asked")
        clock.advance(5)
        assert driver.until_disconnected() == [-1]
        assert isinstance(driver.client.last_error(-1), KafkaTimeout)
        assert f"did not answer {step} of a re-authentication within 5 s" in str(driver.client.last_error(-1))


@pytest.mark.covers("SEC28")
@pytest.mark.parametrize("throttled_at", [0.7, 0.96], ids=["before it", "after it"])
def test_a_throttle_gives_a_reauthentication_more_time(drive: Drive, clock: Clock, throttled_at: float) -> None:
    """A broker reads nothing from a connection that it throttles, so it does not answer the login (KIP-219)."""
    may_throttle, may_log_in = threading.Event(), threading.Event()

    def throttles(peer: Peer) -> None:
        opened(peer)
        request = peer.read()
        assert may_throttle.wait(DEADLINE)
        peer.answer(request, messages.MetadataResponse(throttle_time_ms=50_000))
        assert may_log_in.wait(DEADLINE)
        take_login(peer, int(LIFETIME * 1000))
        peer.wait_for_close()

    with ScriptedServer(throttles) as server:
        driver = drive([server.address], security=PLAIN_LOGIN, request_timeout=30)
        driver.until_ready()
        clock.advance(throttled_at * LIFETIME)
        ask(driver, "throttled")
        driver.client.poll(0)
        may_throttle.set()
        assert driver.until_completed()[0].error is None
        clock.advance((0.96 - throttled_at) * LIFETIME)
        driver.client.ready(-1)
        assert state_of(driver) is ConnectionState.REAUTHENTICATING
        clock.advance(45)
        driver.client.poll(0)
        may_log_in.set()
        assert driver.client.take_disconnected() == []
        driver.poll_until(lambda: state_of(driver) is ConnectionState.READY, "the login")
        clock.advance(10)
        driver.until_ready()
        assert server.accepted == 1
