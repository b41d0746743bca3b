"""The login in a connection as tables: bytes in, bytes out, no socket."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from spark_producer.errors import (
    AuthenticationFailed,
    LocalProtocolError,
    PyProducerError,
    RemoteProtocolError,
    UnsupportedVersion,
)
from spark_producer.protocol import METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE, Connection, ConnectionState, messages
from spark_producer.protocol.connection import MAX_BYTES_BEFORE_OPEN
from tests.fakes.scripted_login import ScriptedLogin
from tests.unit.protocol.test_connection import answer, asked, feed, send_metadata, versions_body

MODERN = {3: (0, 13), 17: (0, 1), 18: (0, 4), 36: (0, 2)}
OLD = {3: (0, 2), 17: (0, 0), 18: (0, 0)}
"""a broker of 0.10"""
TAKEN = messages.SaslHandshakeResponse(0, ("PLAIN", "SCRAM-SHA-512"))


def greeted(login: ScriptedLogin, ranges: dict[int, tuple[int, int]] = MODERN) -> Connection[str]:
    """A connection whose handshake lies in `outgoing`."""
    connection: Connection[str] = Connection("lab", credentials=login)
    connection.start()
    feed(connection, answer(asked(connection)[0], versions_body(ranges)))
    assert connection.state is ConnectionState.AUTHENTICATING
    return connection


def reply(connection: Connection[str], body: tuple[object, ...]) -> None:
    """Answer what the connection asks next."""
    (request,) = asked(connection)
    feed(connection, answer(request, body))


def says(auth_bytes: bytes = b"", lifetime: int = 0) -> messages.SaslAuthenticateResponse:
    return messages.SaslAuthenticateResponse(0, "", auth_bytes, lifetime)


def logged_in(login: ScriptedLogin | None = None, lifetime: int = 0) -> Connection[str]:
    connection = greeted(login or ScriptedLogin())
    reply(connection, TAKEN)
    reply(connection, says(lifetime=lifetime))
    assert connection.state is ConnectionState.READY
    return connection


def fault_of(connection: Connection[str], body: tuple[object, ...]) -> PyProducerError:
    reply(connection, body)
    assert connection.state is ConnectionState.CLOSED
    assert connection.fault is not None
    return connection.fault


# Captured from Kafka 4.3.0, client id `lab`; correlation ids are ours, which begin with ApiVersions


@pytest.mark.covers("SEC13")
def test_the_frames_are_those_of_a_real_broker() -> None:
    login = ScriptedLogin()
    connection = greeted(login)
    sent = b"".join(connection.outgoing())
    assert sent.hex() == "00000014001100010000000100036c61620005504c41494e"
    mechanisms = "000d534352414d2d5348412d353132000d534352414d2d5348412d323536000b4f41555448424541524552"
    feed(connection, bytes.fromhex("0000003c0000000100000000" + "0004" + "0005504c41494e" + mechanisms))
    sent = b"".join(connection.outgoing())
    assert sent.hex() == "0000001b002400020000000200036c6162000c00617070006170702d707700"
    feed(connection, bytes.fromhex("00000012000000020000000101" + "0000000000000bb800"))
    assert (connection.state, connection.session_lifetime_ms, login.received) == (
        ConnectionState.READY,
        3000,
        [b""],
    )


@pytest.mark.covers("SEC13")
def test_authenticate_1_is_used_where_2_is_not() -> None:
    connection = greeted(ScriptedLogin(), MODERN | {36: (0, 1)})
    reply(connection, TAKEN)
    sent = b"".join(connection.outgoing())
    assert sent.hex() == "0000001c002400010000000200036c61620000000b00617070006170702d7077"
    feed(connection, bytes.fromhex("0000001400000002" + "0000" + "0000" + "00000000" + "0000000000000000"))
    assert (connection.state, connection.session_lifetime_ms) == (ConnectionState.READY, 0)


@pytest.mark.covers("SEC16")
def test_brokers_without_authenticate_get_handshake_0_and_bare_tokens() -> None:
    login = ScriptedLogin((b"first", b"final"), "SCRAM-SHA-512", proof=b"v=signature")
    connection = greeted(login, OLD)
    (handshake,) = asked(connection)
    assert (handshake.api, handshake.version) == (SASL_HANDSHAKE, 0)
    feed(connection, answer(handshake, TAKEN))
    assert b"".join(connection.outgoing()) == b"\0\0\0\x05first"
    feed(connection, b"\0\0\0\x09challenge")
    assert b"".join(connection.outgoing()) == b"\0\0\0\x05final"
    feed(connection, b"\0\0\0\x0bv=signature")
    assert (connection.state, login.received, connection.session_lifetime_ms) == (
        ConnectionState.READY,
        [b"challenge", b"v=signature"],
        0,
    )
    assert send_metadata(connection, "tag").version == 2


@pytest.mark.covers("SEC16")
def test_a_broker_that_knows_no_handshake_is_too_old() -> None:
    connection: Connection[str] = Connection("lab", credentials=ScriptedLogin())
    connection.start()
    feed(connection, answer(asked(connection)[0], versions_body({3: (0, 2), 36: (0, 2)})))
    assert isinstance(connection.fault, UnsupportedVersion)


@pytest.mark.covers("SEC13")
def test_the_login_is_one_message_at_a_time() -> None:
    login = ScriptedLogin((b"first", b"final"), "SCRAM-SHA-512", proof=b"v=signature")
    connection = greeted(login)
    (handshake,) = asked(connection)
    assert handshake.body.mechanism == "SCRAM-SHA-512"
    assert login.started == 0  # the handshake has nothing but the mechanism
    feed(connection, answer(handshake, TAKEN))
    for message, challenge in ((b"first", b"challenge"), (b"final", b"v=signature")):
        (request,) = asked(connection)
        assert (request.api, request.version, request.body.auth_bytes) == (SASL_AUTHENTICATE, 2, message)
        feed(connection, answer(request, says(challenge)))
    assert (connection.state, connection.outgoing()) == (ConnectionState.READY, [])


# Refusals


@pytest.mark.covers("SEC24")
def test_a_mechanism_that_is_off_is_named_beside_those_that_are_on() -> None:
    refusal = messages.SaslHandshakeResponse(33, ("SCRAM-SHA-512", "OAUTH\nBEARER"))
    fault = fault_of(greeted(ScriptedLogin()), refusal)
    assert isinstance(fault, AuthenticationFailed)
    assert fault.fatal
    assert "does not take the mechanism PLAIN here, but SCRAM-SHA-512, OAUTH\\nBEARER" in str(fault)


@pytest.mark.covers("SEC23")
def test_a_listener_without_sasl_is_named() -> None:
    fault = fault_of(greeted(ScriptedLogin()), messages.SaslHandshakeResponse(34, ()))
    assert isinstance(fault, AuthenticationFailed)
    assert fault.fatal
    assert "set kafka.security.protocol to SSL or PLAINTEXT" in str(fault)


@pytest.mark.covers("SEC24")
@pytest.mark.parametrize("code", [34, 35, -1, 77])
def test_other_refusals_of_the_handshake_name_their_code(code: int) -> None:
    fault = fault_of(greeted(ScriptedLogin()), messages.SaslHandshakeResponse(code, ("PLAIN",)))
    assert isinstance(fault, AuthenticationFailed)
    assert f"({code})" in str(fault)


@pytest.mark.covers("SEC25")
def test_a_refused_user_is_named_with_mechanism_and_the_brokers_text_in_safe_letters() -> None:
    connection = greeted(ScriptedLogin(given_by="username and password in kafka.sasl.jaas.config"))
    reply(connection, TAKEN)
    fault = fault_of(connection, messages.SaslAuthenticateResponse(58, "no\x1b[2J " + "x" * 400))
    assert "What to do: check username and password in kafka.sasl.jaas.config, and that" in str(fault)
    assert isinstance(fault, AuthenticationFailed)
    assert fault.fatal
    assert "user 'app' with PLAIN" in str(fault)
    assert "no\\x1b[2J xxx" in str(fault)
    assert str(fault).count("x") < 320
    assert "app-pw" not in str(fault)


class Explaining(ScriptedLogin):
    """A login whose mechanism knows more of a refusal than the code says."""

    def start(self) -> Generator[bytes, bytes, None]:
        steps = super().start()
        try:
            yield from steps
        except AuthenticationFailed as refused:
            raise AuthenticationFailed(f"{refused} The token ended.", fatal=False) from None


@pytest.mark.covers("SEC19")
def test_a_refusal_is_thrown_into_the_mechanism_which_may_know_more() -> None:
    connection = greeted(Explaining(mechanism="OAUTHBEARER"))
    reply(connection, TAKEN)
    fault = fault_of(connection, messages.SaslAuthenticateResponse(58, "expired"))
    assert isinstance(fault, AuthenticationFailed)
    assert not fault.fatal
    assert "(58)" in str(fault)
    assert str(fault).endswith("The token ended.")


@pytest.mark.covers("SEC25")
def test_an_error_that_passes_is_not_fatal() -> None:
    connection = greeted(ScriptedLogin(user="", mechanism="OAUTHBEARER"))
    reply(connection, TAKEN)
    fault = fault_of(connection, messages.SaslAuthenticateResponse(7, None))
    assert isinstance(fault, AuthenticationFailed)
    assert not fault.fatal
    assert "the login with OAUTHBEARER" in str(fault)


# Peers that do not keep to the order


@pytest.mark.covers("SEC32")
def test_success_before_the_proof_is_no_success() -> None:
    connection = greeted(ScriptedLogin((b"first", b"final"), "SCRAM-SHA-512", proof=b"v="))
    reply(connection, TAKEN)
    fault = fault_of(connection, says(b""))
    assert isinstance(fault, AuthenticationFailed)
    assert fault.fatal
    assert "before it proved" in str(fault)
    assert connection.outgoing() == []


@pytest.mark.covers("SEC32")
def test_a_wrong_proof_is_no_success() -> None:
    connection = greeted(ScriptedLogin((b"first", b"final"), "SCRAM-SHA-512", proof=b"v="))
    reply(connection, TAKEN)
    reply(connection, says(b"challenge"))
    assert isinstance(fault_of(connection, says(b"v=other")), AuthenticationFailed)


@pytest.mark.covers("SEC31")
@pytest.mark.parametrize("frame", ["7fffffff", "ffffffff", "80000000", f"{MAX_BYTES_BEFORE_OPEN + 1:08x}"])
@pytest.mark.parametrize("step", ["versions", "handshake", "authenticate"])
def test_before_the_login_no_frame_is_longer_than_512_kib(step: str, frame: str) -> None:
    connection: Connection[str] = Connection("lab", credentials=ScriptedLogin())
    connection.start()
    if step != "versions":
        reply(connection, versions_body(MODERN))
    if step == "authenticate":
        reply(connection, TAKEN)
    feed(connection, bytes.fromhex(frame))
    assert isinstance(connection.fault, RemoteProtocolError)
    assert connection.state is ConnectionState.CLOSED


@pytest.mark.covers("SEC31")
def test_after_the_login_answers_may_be_long() -> None:
    connection = logged_in()
    request = send_metadata(connection, "tag")
    feed(connection, (MAX_BYTES_BEFORE_OPEN + 1).to_bytes(4, "big") + request.correlation_id.to_bytes(4, "big"))
    assert connection.fault is None


@pytest.mark.covers("SEC32")
@pytest.mark.parametrize("step", ["handshake", "authenticate"])
def test_an_answer_to_another_request_ends_the_login(step: str) -> None:
    connection = greeted(ScriptedLogin())
    if step == "authenticate":
        reply(connection, TAKEN)
    (request,) = asked(connection)
    body = TAKEN if step == "handshake" else says()
    feed(connection, answer(request._replace(correlation_id=request.correlation_id + 1), body))
    assert isinstance(connection.fault, RemoteProtocolError)
    assert request.api.name in str(connection.fault)


@pytest.mark.covers("SEC32")
@pytest.mark.parametrize("body", [b"", b"\0", b"\0\0\x7f\xff\xff\xff", b"\0\0\xff\xff\xff\xff"])
def test_an_answer_that_cannot_be_read_ends_the_login(body: bytes) -> None:
    connection = greeted(ScriptedLogin())
    (request,) = asked(connection)
    frame = request.correlation_id.to_bytes(4, "big") + body
    feed(connection, len(frame).to_bytes(4, "big") + frame)
    assert connection.outgoing() == []
    assert isinstance(connection.fault, RemoteProtocolError)


@pytest.mark.covers("SEC32")
def test_an_answer_too_many_ends_the_connection() -> None:
    connection = greeted(ScriptedLogin())
    reply(connection, TAKEN)
    (request,) = asked(connection)
    feed(connection, answer(request, says()) * 2)
    assert isinstance(connection.fault, RemoteProtocolError)
    assert "without a request" in str(connection.fault)


@pytest.mark.covers("SEC34")
def test_the_login_may_come_byte_by_byte() -> None:
    login = ScriptedLogin()
    connection: Connection[str] = Connection("lab", credentials=login)
    connection.start()
    for body in (versions_body(MODERN), TAKEN, says()):
        (request,) = asked(connection)
        assert connection.state is not ConnectionState.READY
        for byte in answer(request, body):
            assert feed(connection, bytes([byte])) == []
    assert connection.state is ConnectionState.READY


# Re-authentication (KIP-368)


@pytest.mark.covers("SEC28")
def test_a_reauthentication_comes_after_the_requests_in_flight() -> None:
    login = ScriptedLogin()
    connection = logged_in(login, lifetime=1000)
    requests = [send_metadata(connection, tag) for tag in "abc"]
    connection.reauthenticate(login)
    (handshake,) = asked(connection)
    assert handshake.api is SASL_HANDSHAKE
    assert connection.in_flight == 3
    with pytest.raises(LocalProtocolError, match="authenticating again"):
        connection.send(METADATA, messages.MetadataRequest(), "late")
    found = []
    for request in requests:
        found += feed(connection, answer(request, messages.MetadataResponse()))
    assert [response.tag for response in found] == ["a", "b", "c"]
    assert connection.state is ConnectionState.REAUTHENTICATING
    feed(connection, answer(handshake, TAKEN))
    reply(connection, says(lifetime=2000))
    assert (connection.state, connection.session_lifetime_ms, login.started) == (ConnectionState.READY, 2000, 2)
    request = send_metadata(connection, "d")
    assert [response.tag for response in feed(connection, answer(request, messages.MetadataResponse()))] == ["d"]


@pytest.mark.covers("SEC28")
def test_a_reauthentication_with_an_early_response_ends_the_connection() -> None:
    connection = logged_in()
    request = send_metadata(connection, "a")
    connection.reauthenticate(ScriptedLogin())
    (handshake,) = asked(connection)
    feed(connection, answer(handshake, TAKEN))
    assert isinstance(connection.fault, RemoteProtocolError)
    assert connection.close() == ["a"]
    assert request.correlation_id < handshake.correlation_id


@pytest.mark.covers("SEC30")
def test_a_refused_reauthentication_returns_what_was_in_flight() -> None:
    connection = logged_in()
    connection.reauthenticate(ScriptedLogin())
    reply(connection, TAKEN)
    fault = fault_of(connection, messages.SaslAuthenticateResponse(58, "Cannot change principals"))
    assert isinstance(fault, AuthenticationFailed)
    assert "Cannot change principals" in str(fault)


@pytest.mark.covers("SEC23")
def test_a_connection_knows_whether_its_first_request_was_answered() -> None:
    connection = logged_in()
    assert not connection.awaits_first_response
    first, second = send_metadata(connection, "a"), send_metadata(connection, "b")
    assert connection.awaits_first_response
    feed(connection, answer(first, messages.MetadataResponse()))
    assert not connection.awaits_first_response
    feed(connection, answer(second, messages.MetadataResponse()))
    assert not connection.awaits_first_response
