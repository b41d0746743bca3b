"""The login of a connection, frame by frame, without a socket."""

from __future__ import annotations

from typing import Any

import pytest

from spark_producer.broker import Users
from spark_producer.broker.security.mechanisms import start
from spark_producer.broker.security.sasl_authenticator import (
    ALLOWED,
    MIN_REAUTHENTICATION_INTERVAL_S,
    LoginRefusal,
    LoginReply,
    LoginRules,
    LoginState,
    LoginStep,
    OrdinaryRequest,
    SaslServerAuthenticator,
)
from spark_producer.common.error_codes import Code
from spark_producer.errors import RemoteProtocolError, UnsupportedVersion
from spark_producer.protocol import (
    API_VERSIONS,
    METADATA,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Api,
    RequestBody,
    decode_response,
    encode_request,
    messages,
)
from tests.unit.broker.security.secured_broker import PASSWORD, messages_of, token

APP = Users({"app": "app-pw"})
LISTED = ("PLAIN", "SCRAM-SHA-512", "SCRAM-SHA-256", "OAUTHBEARER")
WALL_MS = 5_000_000.0


def login_of(users: Users, max_session_ms: int = 0) -> SaslServerAuthenticator:
    return SaslServerAuthenticator(
        LoginRules(LISTED, lambda mechanism: start(mechanism, users, lambda: WALL_MS), lambda: WALL_MS, max_session_ms)
    )


def frame(api: Api[RequestBody, Any], body: RequestBody, version: int | None = None) -> memoryview:
    chosen = api.max_version if version is None else version
    return memoryview(b"".join(encode_request(api, chosen, 7, "test", body)))[4:]


def handshake(mechanism: str, version: int = 1) -> memoryview:
    return frame(SASL_HANDSHAKE, messages.SaslHandshakeRequest(mechanism), version)


def authenticate(message: bytes, version: int = 2) -> memoryview:
    return frame(SASL_AUTHENTICATE, messages.SaslAuthenticateRequest(message), version)


def answered(step: LoginStep, version: int = 2) -> messages.SaslAuthenticateResponse:
    assert isinstance(step, LoginReply | LoginRefusal)
    whole = memoryview(b"".join(map(bytes, step.buffers)))
    return decode_response(SASL_AUTHENTICATE, version, whole[4:])[1]


def log_in(
    login: SaslServerAuthenticator, mechanism: str, user: str, password: str, now: float = 0.0
) -> messages.SaslAuthenticateResponse:
    assert isinstance(login.step(handshake(mechanism), now), LoginReply)
    dialog = messages_of(mechanism, user, password)
    message = next(dialog)
    while True:
        step = login.step(authenticate(message), now)
        response = answered(step)
        if isinstance(step, LoginRefusal):
            return response
        try:
            message = dialog.send(bytes(response.auth_bytes))
        except StopIteration:
            return response


METADATA_FRAME = frame(METADATA, messages.MetadataRequest())
VERSIONS_FRAME = frame(API_VERSIONS, messages.ApiVersionsRequest())
HANDSHAKE_C = "0011 0001 00000001 0003 6c6162 0005 504c41494e"
HANDSHAKE_S = (
    "0000003c 00000001 0000 00000004 0005504c41494e 000d534352414d2d5348412d353132 000d534352414d2d5348412d323536"
    "000b4f41555448424541524552"
)
V1_C = "0024 0001 00000002 0003 6c6162 0000000b 00617070006170702d7077"
V1_S = "00000014 00000002 0000 0000 00000000 0000000000000000"
V2_C = "0024 0002 00000002 0003 6c6162 00 0c 00617070006170702d7077 00"
V2_S = "00000012 00000002 00 0000 01 01 0000000000000bb8 00"
WRONG_C = "0024 0001 00000002 0003 6c6162 0000000b 00617070006170702d7078"
WRONG_S = (
    "00000047 00000002 003a 0033"
    + b"Authentication failed: Invalid username or password".hex()
    + "00000000 0000000000000000"
)
OTHER_C = "0011 0001 00000001 0003 6c6162 0006 475353415049"
OTHER_S = HANDSHAKE_S.replace("00000001 0000", "00000001 0021", 1)


@pytest.mark.parametrize(
    ("lifetime", "dialog", "refused"),
    [
        (0, [(HANDSHAKE_C, HANDSHAKE_S), (V1_C, V1_S)], False),
        (3000, [(HANDSHAKE_C, HANDSHAKE_S), (V2_C, V2_S)], False),
        (0, [(HANDSHAKE_C, HANDSHAKE_S), (WRONG_C, WRONG_S)], True),
        (0, [(OTHER_C, OTHER_S)], True),
    ],
)
def test_the_answers_are_those_of_kafkas_brokers(lifetime: int, dialog: list[tuple[str, str]], refused: bool) -> None:
    """Frames captured between a client named `lab` and Kafka 4.3."""
    login = login_of(APP, lifetime)
    for sent, expected in dialog:
        step = login.step(memoryview(bytes.fromhex(sent)), 0.0)
        assert isinstance(step, LoginReply | LoginRefusal)
        assert b"".join(map(bytes, step.buffers)).hex() == bytes.fromhex(expected).hex()
    assert isinstance(step, LoginRefusal) is refused
    assert login.user == (None if refused else "app")


@pytest.mark.parametrize("mechanism", LISTED)
def test_a_login_by_each_mechanism(users: Users, mechanism: str) -> None:
    login = login_of(users)
    assert login.step(frame(API_VERSIONS, messages.ApiVersionsRequest()), 0.0) == OrdinaryRequest()
    assert log_in(login, mechanism, "ada", PASSWORD).error_code == Code.NONE
    assert (login.user, login.state) == ("ada", LoginState.READY)
    assert login.step(METADATA_FRAME, 1e9) == OrdinaryRequest()


@pytest.mark.covers("SEC37")
@pytest.mark.parametrize("mechanism", LISTED[:3])
def test_unknown_users_and_wrong_passwords_get_the_same_error(users: Users, mechanism: str) -> None:
    if mechanism == "PLAIN":
        message = "Authentication failed: Invalid username or password"
    else:
        message = (
            f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
        )
    for user, password in (("ada", "wrong"), ("eve", PASSWORD)):
        login = login_of(users)
        response = log_in(login, mechanism, user, password)
        assert (response.error_code, response.error_message) == (Code.SASL_AUTHENTICATION_FAILED, message)
        assert login.user is None
        assert isinstance(login.step(METADATA_FRAME, 0.0), LoginRefusal)


APIS_TRIED = (PRODUCE.key, METADATA.key, API_VERSIONS.key, SASL_HANDSHAKE.key, SASL_AUTHENTICATE.key, 99)


@pytest.mark.covers("SEC35")
@pytest.mark.parametrize(
    ("state", "api"), [(state, api) for state, allowed in ALLOWED.items() for api in APIS_TRIED if api not in allowed]
)
def test_before_the_login_only_its_own_requests_are_taken(users: Users, state: LoginState, api: int) -> None:
    login = login_of(users)
    before: dict[LoginState, list[memoryview]] = {
        LoginState.FIRST: [],
        LoginState.HANDSHAKE: [VERSIONS_FRAME],
        LoginState.AUTHENTICATE: [VERSIONS_FRAME, handshake("PLAIN")],
        LoginState.OVER: [VERSIONS_FRAME, handshake("PLAIN"), authenticate(b"wrong")],
    }
    for sent in before[state]:
        login.step(sent, 0.0)
    assert login.state is state
    step = login.step(memoryview(api.to_bytes(2, "big") + bytes(1000)), 0.0)
    assert isinstance(step, LoginRefusal)
    assert step.buffers == []


@pytest.mark.covers("SEC35")
def test_the_allowed_requests() -> None:
    assert {
        LoginState.FIRST: {18, 17},
        LoginState.HANDSHAKE: {17},
        LoginState.AUTHENTICATE: {36},
        LoginState.OVER: set(),
    } == ALLOWED


def test_api_versions_of_an_unknown_version_may_be_asked_again(users: Users) -> None:
    login = login_of(users)
    unknown = memoryview(bytes.fromhex("0012 0009 00000001 0003 6c6162 00"))
    assert [login.step(sent, 0.0) for sent in (unknown, VERSIONS_FRAME)] == [OrdinaryRequest(), OrdinaryRequest()]
    assert isinstance(login.step(VERSIONS_FRAME, 0.0), LoginRefusal), "one had a response"


def test_what_is_no_request_is_an_error_of_the_peer(users: Users) -> None:
    for short in (b"", b"\x00\x12\x00"):
        with pytest.raises(RemoteProtocolError):
            login_of(users).step(memoryview(short), 0.0)
    with pytest.raises(UnsupportedVersion):
        login_of(users).step(memoryview(bytes.fromhex("0011 0009 00000001 0003 6c6162 0000")), 0.0)
    with pytest.raises(RemoteProtocolError):
        login_of(users).step(memoryview(bytes.fromhex("0011 0001 00000001 0003 6c6162 7fff")), 0.0)


def test_a_handshake_of_version_0_is_followed_by_bare_frames(users: Users) -> None:
    login = login_of(users, 3000)
    assert isinstance(login.step(handshake("SCRAM-SHA-256", 0), 0.0), LoginReply)
    dialog = messages_of("SCRAM-SHA-256")
    first = login.step(memoryview(next(dialog)), 0.0)
    assert isinstance(first, LoginReply)
    size, challenge = map(bytes, first.buffers)
    assert int.from_bytes(size, "big") == len(challenge)
    last = login.step(memoryview(dialog.send(challenge)), 0.0)
    assert isinstance(last, LoginReply)
    with pytest.raises(StopIteration):
        dialog.send(bytes(last.buffers[1]))
    assert login.user == "ada"
    assert login.step(METADATA_FRAME, 2.9) == OrdinaryRequest()
    assert isinstance(login.step(METADATA_FRAME, 3.0), LoginRefusal), (
        "its session ends too, although it got no lifetime"
    )


def test_a_failed_raw_login_gets_no_error(users: Users) -> None:
    login = login_of(users)
    login.step(handshake("PLAIN", 0), 0.0)
    step = login.step(memoryview(b"\0ada\0wrong"), 0.0)
    assert isinstance(step, LoginRefusal)
    assert step.buffers == []


def test_a_session_ends_at_the_next_request_unless_the_client_logs_in_again(users: Users) -> None:
    login = login_of(users, 3000)
    assert log_in(login, "PLAIN", "ada", PASSWORD).session_lifetime_ms == 3000
    assert login.step(METADATA_FRAME, 2.9) == OrdinaryRequest()
    assert log_in(login, "PLAIN", "ada", PASSWORD, now=5.0).session_lifetime_ms == 3000, "late, but taken"
    assert login.step(METADATA_FRAME, 7.9) == OrdinaryRequest()
    step = login.step(METADATA_FRAME, 8.0)
    assert isinstance(step, LoginRefusal)
    assert step.buffers == []


def test_a_session_is_not_longer_than_its_token(users: Users) -> None:
    ends = WALL_MS / 1000 + 2
    for limit, expected in ((0, 2000), (1500, 1500), (9000, 2000)):
        login = login_of(users, limit)
        login.step(handshake("OAUTHBEARER"), 0.0)
        message = f"n,,\x01auth=Bearer {token('eve', ends)}\x01\x01".encode()
        assert answered(login.step(authenticate(message), 0.0)).session_lifetime_ms == expected


def test_a_token_that_is_refused_is_refused_in_two_steps(users: Users) -> None:
    login = login_of(users)
    login.step(handshake("OAUTHBEARER"), 0.0)
    first = login.step(authenticate(b"n,,\x01auth=Bearer nonsense\x01\x01"), 0.0)
    assert isinstance(first, LoginReply)
    error_bytes = b'{"status":"invalid_token"}'
    assert (answered(first).error_code, bytes(answered(first).auth_bytes)) == (Code.NONE, error_bytes)
    second = login.step(authenticate(b"\x01"), 0.0)
    assert isinstance(second, LoginRefusal)
    assert answered(second).error_message == error_bytes.decode()


def test_who_logs_in_again_must_be_the_same(users: Users) -> None:
    login = login_of(users)
    log_in(login, "PLAIN", "ada", PASSWORD)
    response = log_in(login, "PLAIN", "bob", "bobs", now=10.0)
    assert response.error_code == Code.SASL_AUTHENTICATION_FAILED
    assert (response.error_message or "").startswith(
        "Cannot change principals during re-authentication from 'ada' to 'bob'"
    )


def test_a_wrong_password_ends_a_session_too(users: Users) -> None:
    login = login_of(users)
    log_in(login, "SCRAM-SHA-512", "ada", PASSWORD)
    response = log_in(login, "SCRAM-SHA-512", "ada", "wrong", now=10.0)
    assert "during re-authentication due to invalid credentials" in (response.error_message or "")
    assert isinstance(login.step(METADATA_FRAME, 10.0), LoginRefusal)


def test_who_logs_in_again_by_another_mechanism_is_dropped_at_the_next_frame(users: Users) -> None:
    login = login_of(users)
    log_in(login, "PLAIN", "ada", PASSWORD)
    assert isinstance(login.step(handshake("SCRAM-SHA-256"), 10.0), LoginReply)
    step = login.step(authenticate(next(messages_of("SCRAM-SHA-256"))), 10.0)
    assert isinstance(step, LoginRefusal)
    assert step.buffers == []


def test_a_second_login_within_a_second_is_out_of_place(users: Users) -> None:
    login = login_of(users)
    log_in(login, "PLAIN", "ada", PASSWORD)
    log_in(login, "PLAIN", "ada", PASSWORD, now=10.0)
    early = 10.0 + MIN_REAUTHENTICATION_INTERVAL_S - 0.001
    assert login.step(handshake("PLAIN"), early) == OrdinaryRequest(), "the handlers return ILLEGAL_SASL_STATE"
    assert login.step(METADATA_FRAME, early) == OrdinaryRequest()
    log_in(login, "PLAIN", "ada", PASSWORD, now=10.0 + MIN_REAUTHENTICATION_INTERVAL_S)


def test_a_request_within_a_second_login_ends_the_connection(users: Users) -> None:
    login = login_of(users)
    log_in(login, "PLAIN", "ada", PASSWORD)
    login.step(handshake("PLAIN"), 10.0)
    assert isinstance(login.step(METADATA_FRAME, 10.0), LoginRefusal)
