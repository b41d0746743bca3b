"""A client's login: the order of its requests, its deadlines, and the errors of a wrong one."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable

import pytest

from spark_producer.common.secret import Secret
from spark_producer.errors import (
    AuthenticationFailed,
    ConfigError,
    ConnectionFailed,
    KafkaTimeout,
    PyProducerError,
    TlsFailed,
)
from spark_producer.network.fatal_errors import MIN_CLOSES
from spark_producer.network.node import NodeConnection, with_broker_name
from spark_producer.protocol import METADATA, messages
from spark_producer.security import SaslSettings, SecuritySettings
from spark_producer.security.sasl_login import SaslLogin, sasl_login
from tests.fakes.client_driver import Clock, Driver
from tests.fakes.login_scripts import (
    PASSWORD,
    PLAIN_LOGIN,
    offer_nothing,
    offer_scram,
    refuse_login,
    serve,
    shake_hands,
    take_login,
    want_login,
    want_tls,
)
from tests.fakes.scripted_server import Peer, Script, ScriptedServer

Drive = Callable[..., Driver]


def ask(driver: Driver, tag: object = "tag") -> None:
    driver.until_ready()
    driver.client.send(-1, METADATA, messages.MetadataRequest(), tag=tag)


def until_hopeless(driver: Driver) -> PyProducerError:
    def given_up() -> bool:
        driver.client.ready(-1)
        return driver.client.fatal_error() is not None

    driver.poll_until(given_up, "the client to give up")
    error = driver.client.fatal_error()
    assert error is not None
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.__dict__) == (type(error), str(error), error.__dict__)
    assert PASSWORD not in repr(error)
    return error


@pytest.mark.covers("SEC13")
def test_requests_go_out_after_the_login(drive: Drive) -> None:
    with ScriptedServer(serve()) as server:
        driver = drive([server.address], security=PLAIN_LOGIN)
        ask(driver)
        (done,) = driver.until_completed()
        assert (done.tag, done.error) == ("tag", None)
        assert (driver.client.fatal_error(), driver.client.last_error(-1)) == (None, None)


@pytest.mark.covers("SEC34")
def test_a_login_may_come_byte_by_byte(drive: Drive) -> None:
    def drop_by_drop(peer: Peer) -> None:
        def send(data: bytes) -> None:
            for byte in data:
                peer.socket.sendall(bytes([byte]))

        peer.send = send  # type: ignore[method-assign]
        serve()(peer)

    with ScriptedServer(drop_by_drop) as server:
        driver = drive([server.address], security=PLAIN_LOGIN)
        ask(driver)
        assert driver.until_completed()[0].error is None


def reset_before_the_password(peer: Peer) -> None:
    peer.negotiate()
    shake_hands(peer)
    peer.reset()


@pytest.mark.covers("SEC40")
def test_no_frame_of_a_broken_login_is_kept_whose_variables_hold_the_password(drive: Drive) -> None:
    with ScriptedServer(reset_before_the_password) as server:
        driver = drive([server.address], security=PLAIN_LOGIN)
        driver.client.ready(-1)
        driver.until_disconnected()
        error = driver.client.last_error(-1)
    assert isinstance(error, ConnectionFailed)
    reported = traceback.TracebackException.from_exception(error, capture_locals=True)
    assert PASSWORD not in "".join(reported.format())
    assert error.__traceback__ is None


def broken_beside(context: Exception) -> None:
    try:
        raise context
    except ValueError:
        raise ConnectionFailed("it broke") from OSError(5, "broken")


@pytest.mark.covers("SEC40")
def test_neither_the_causes_nor_the_contexts_of_an_error_keep_frames() -> None:
    context = ValueError(PASSWORD)
    with pytest.raises(ConnectionFailed) as raised:
        broken_beside(context)
    context.__context__ = raised.value  # a chain may come back to where it was
    assert with_broker_name(NodeConnection(-1, "localhost", 1), raised.value) is raised.value
    assert (raised.value.__traceback__, context.__traceback__) == (None, None)


# Refusals before the first success


@pytest.mark.covers("SEC25")
def test_a_wrong_password_ends_every_wait_at_once(drive: Drive) -> None:
    with ScriptedServer(refuse_login) as server:
        driver = drive([server.address], security=PLAIN_LOGIN)
        error = until_hopeless(driver)
        assert server.accepted == 1
        assert isinstance(error, AuthenticationFailed)
        assert error.fatal
        for text in (
            f"127.0.0.1:{server.port}",
            "'app'",
            "PLAIN",
            "Invalid username or password",
            "kafka.sasl.password",
        ):
            assert text in str(error)


@pytest.mark.covers("SEC24")
def test_a_mechanism_that_is_off_ends_every_wait_and_shows_no_password(drive: Drive) -> None:
    with ScriptedServer(offer_scram) as server:
        driver = drive([server.address], security=PLAIN_LOGIN)
        error = until_hopeless(driver)
        assert isinstance(error, AuthenticationFailed)
        assert "PLAIN here, but SCRAM-SHA-512" in str(error)


@pytest.mark.covers("SEC23")
def test_a_login_at_a_listener_without_sasl_ends_every_wait(drive: Drive) -> None:
    with ScriptedServer(offer_nothing) as server:
        error = until_hopeless(drive([server.address], security=PLAIN_LOGIN))
        assert "the listener takes no logins" in str(error)


@pytest.mark.covers("SEC22")
def test_no_login_at_a_listener_with_sasl_is_reported_after_closes_in_a_row(drive: Drive, clock: Clock) -> None:
    with ScriptedServer(want_login) as server:
        driver = drive([server.address], reconnect_backoff=0, reconnect_backoff_max=0)
        for tag in range(MIN_CLOSES):
            assert driver.client.fatal_error() is None
            ask(driver, tag)
            (done,) = driver.until_completed()
            assert isinstance(done.error, AuthenticationFailed if tag == MIN_CLOSES - 1 else ConnectionFailed)
        error = driver.client.fatal_error()
        assert isinstance(error, AuthenticationFailed)
        assert "set kafka.security.protocol to SASL_PLAINTEXT or SASL_SSL" in str(error)
        assert server.accepted == MIN_CLOSES


@pytest.mark.covers("SEC22")
def test_a_listener_that_has_ever_answered_wants_no_login(drive: Drive) -> None:
    def once(peer: Peer) -> None:
        peer.negotiate()
        peer.answer(peer.read(), messages.MetadataResponse())
        peer.read()

    with ScriptedServer(once, want_login) as server:
        driver = drive([server.address], reconnect_backoff=0, reconnect_backoff_max=0)
        ask(driver)
        assert driver.until_completed()[0].error is None
        for _ in range(5):
            ask(driver)
            assert isinstance(driver.until_completed()[0].error, ConnectionFailed)
        assert driver.client.fatal_error() is None


@pytest.mark.covers("SEC20")
def test_plain_text_at_a_tls_port_ends_every_wait(drive: Drive) -> None:
    with ScriptedServer(want_tls) as server:
        error = until_hopeless(drive([server.address]))
        assert isinstance(error, TlsFailed)
        assert "Set kafka.security.protocol to SSL or SASL_SSL" in str(error)


@pytest.mark.covers("SEC20")
def test_another_bootstrap_server_is_tried_before_tls_is_given_up(drive: Drive) -> None:
    def fine(peer: Peer) -> None:
        peer.negotiate()
        peer.wait_for_close()

    with ScriptedServer(want_tls) as wrong, ScriptedServer(fine) as right:
        driver = drive([wrong.address, right.address])
        driver.client.ready(-1)
        assert driver.until_disconnected() == [-1]
        assert driver.client.fatal_error() is None
        driver.until_ready(-2)
        assert driver.client.fatal_error() is None


@pytest.mark.covers("SEC16")
def test_a_broker_of_0_10_that_keeps_closing_has_refused_the_password(drive: Drive) -> None:
    def refuses(peer: Peer) -> None:
        peer.negotiate(messages.ApiVersionsResponse(0, tuple(messages.ApiVersion(key, 0, 0) for key in (3, 17, 18))))
        shake_hands(peer)
        assert peer.socket.recv(100).endswith(PASSWORD.encode())

    with ScriptedServer(refuses) as server:
        driver = drive([server.address], security=PLAIN_LOGIN, reconnect_backoff=0, reconnect_backoff_max=0)
        error = until_hopeless(driver)
        assert isinstance(error, AuthenticationFailed)
        assert "user 'app' with PLAIN" in str(error)
        assert server.accepted == MIN_CLOSES


@pytest.mark.covers("SEC41")
def test_a_reference_that_cannot_be_resolved_ends_every_wait(drive: Drive) -> None:
    security = SecuritySettings(sasl=SaslSettings("PLAIN", "app", Secret("${env:NOT_THERE_AT_ALL}")))
    with ScriptedServer(silent_at("SaslAuthenticate")) as server:
        error = until_hopeless(drive([server.address], security=security))
        assert isinstance(error, ConfigError)
        assert "kafka.sasl.password" in str(error)


# Deadlines and ends at each step


def silent_at(step: str) -> Script:
    def script(peer: Peer) -> None:
        if step != "ApiVersions":
            peer.negotiate()
        if step == "SaslAuthenticate":
            shake_hands(peer)
        peer.read()
        peer.wait_for_close()

    return script


@pytest.mark.covers("SEC34")
@pytest.mark.parametrize("step", ["ApiVersions", "SaslHandshake", "SaslAuthenticate"])
def test_a_broker_that_falls_silent_is_given_up_and_the_step_is_named(drive: Drive, clock: Clock, step: str) -> None:
    with ScriptedServer(silent_at(step)) as server:
        driver = drive([server.address], security=PLAIN_LOGIN, request_timeout=5)
        driver.client.ready(-1)

        def waits_for_step() -> bool:
            node = driver.client._nodes.find(-1)
            return node is not None and node.connection is not None and node.connection.step == step

        driver.poll_until(waits_for_step, f"{step} to be asked")
        clock.advance(5)
        assert driver.until_disconnected() == [-1]
        error = driver.client.last_error(-1)
        assert isinstance(error, KafkaTimeout)
        assert f"{step}" in str(error)
        assert "5 s" in str(error)
        assert driver.client.fatal_error() is None


@pytest.mark.covers("SEC34")
@pytest.mark.parametrize("step", ["ApiVersions", "SaslHandshake", "SaslAuthenticate"])
@pytest.mark.parametrize("close", [lambda peer: None, Peer.reset], ids=["closed", "reset"])
def test_a_broker_that_closes_in_the_midst_of_a_login_is_tried_again_after_the_backoff(
    drive: Drive, clock: Clock, step: str, close: Script
) -> None:
    def script(peer: Peer) -> None:
        if step != "ApiVersions":
            peer.negotiate()
        if step == "SaslAuthenticate":
            shake_hands(peer)
        peer.read()
        close(peer)

    with ScriptedServer(script) as server:
        driver = drive([server.address], security=PLAIN_LOGIN, reconnect_backoff=1, reconnect_backoff_max=10)
        for attempt in range(4):
            driver.client.ready(-1)
            assert driver.until_disconnected() == [-1]
            assert server.accepted == attempt + 1
            assert driver.client.next_attempt_in(-1) >= 0.8 * 2**attempt, "each failed login counts"
            clock.advance(driver.client.next_attempt_in(-1))
        assert driver.client.fatal_error() is None


# Refusals after a success


@pytest.mark.covers("SEC43")
def test_after_a_success_a_refusal_is_tried_once_more_after_the_longest_backoff(drive: Drive, clock: Clock) -> None:
    def lost(peer: Peer) -> None:
        peer.negotiate()
        take_login(peer)

    with ScriptedServer(lost, refuse_login, lost, refuse_login, refuse_login) as server:
        driver = drive([server.address], security=PLAIN_LOGIN, reconnect_backoff=0.1, reconnect_backoff_max=7)
        refused = 0
        for script in (lost, refuse_login, lost, refuse_login, refuse_login):
            assert driver.client.fatal_error() is None
            clock.advance(driver.client.next_attempt_in(-1))
            driver.client.ready(-1)
            assert driver.until_disconnected() == [-1]
            if script is refuse_login:
                refused += 1
                assert driver.client.next_attempt_in(-1) == pytest.approx(7)
        assert (server.accepted, refused) == (5, 3)
        assert isinstance(driver.client.fatal_error(), AuthenticationFailed)


# Tokens that are not there yet


class Tokens:
    """Logins that wait for a token."""

    def __init__(self) -> None:
        self.there = False
        self.refusal: PyProducerError | None = None
        self.hosts: list[str] = []
        self.closed = False

    def ready(self, host: str = "", port: int = 0) -> bool:
        return self.there

    def error(self, host: str = "", port: int = 0) -> PyProducerError | None:
        return self.refusal

    def for_host(self, host: str, port: int = 0) -> SaslLogin:
        self.hosts.append(host)
        assert PLAIN_LOGIN.sasl is not None
        return sasl_login(PLAIN_LOGIN.sasl, ())

    def close(self) -> None:
        self.closed = True


@pytest.mark.covers("SEC18")
def test_without_a_token_no_connection_is_begun(drive: Drive, clock: Clock) -> None:
    tokens = Tokens()
    with ScriptedServer(serve()) as server:
        driver = drive([server.address], security=PLAIN_LOGIN, logins=tokens)
        assert not driver.client.ready(-1)
        assert driver.client.least_loaded() == -1, "it stays a candidate, so that its error is reported"
        assert 0 < driver.client.next_attempt_in(-1) <= 0.1
        assert driver.client.take_disconnected() == []
        tokens.refusal = AuthenticationFailed("no token yet", fatal=False)
        for _ in range(3):
            assert not driver.client.ready(-1)
        assert driver.client.take_disconnected() == [-1], "it is reported once"
        assert driver.client.last_error(-1) is tokens.refusal
        assert driver.client.fatal_error() is None
        assert server.accepted == 0
        tokens.there = True
        assert driver.client.least_loaded() == -1
        driver.until_ready()
        assert tokens.hosts == ["127.0.0.1"]
        driver.client.close()
        assert tokens.closed


@pytest.mark.covers("SEC17")
def test_a_token_that_can_never_be_had_ends_every_wait(drive: Drive) -> None:
    tokens = Tokens()
    tokens.refusal = AuthenticationFailed("the endpoint refuses the client secret", fatal=True)
    driver = drive([("127.0.0.1", 1)], security=PLAIN_LOGIN, logins=tokens)
    assert not driver.client.ready(-1)
    assert driver.client.take_disconnected() == [-1]
    assert driver.client.fatal_error() is tokens.refusal
