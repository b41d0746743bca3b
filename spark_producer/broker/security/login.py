"""The login of one connection as a state machine without any I/O: frames in, answers and decisions out.

It answers as Kafka's SaslServerAuthenticator does, also when a client logs in again during its session (KIP-368).
"""

from __future__ import annotations

import enum
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from spark_producer.broker.log_quoting import quoted
from spark_producer.broker.security.mechanisms import Authenticated, AuthenticationRefused, SaslExchange
from spark_producer.common.error_codes import Code
from spark_producer.errors import RemoteProtocolError
from spark_producer.protocol import (
    API_VERSIONS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Buffer,
    RequestFrame,
    decode_request,
    encode_response,
    messages,
)

MIN_REAUTHENTICATION_INTERVAL_S: Final = 1.0
"""Seconds from the start of one re-authentication to the next; a handshake within it is answered as out of place (Kafka's
KafkaChannel)."""

_HEADER = struct.Struct(">hh")
_SIZE = struct.Struct(">i")


class LoginState(enum.Enum):
    """The states of a connection, by what its client may send next."""

    FIRST = "ApiVersions or SaslHandshake"
    HANDSHAKE = "SaslHandshake"
    AUTHENTICATE = "SaslAuthenticate"
    BARE = "a message of the mechanism in a frame without a header"
    READY = "any request"
    OVER = "nothing more"


ALLOWED: Final = {
    LoginState.FIRST: frozenset({API_VERSIONS.key, SASL_HANDSHAKE.key}),
    LoginState.HANDSHAKE: frozenset({SASL_HANDSHAKE.key}),
    LoginState.AUTHENTICATE: frozenset({SASL_AUTHENTICATE.key}),
    LoginState.OVER: frozenset[int](),
}
"""The APIs that a client may use in each state. The frames of BARE name none, and in READY all may be used."""


class OrdinaryRequest(NamedTuple):
    """The frame is a request, to be answered as on any connection."""


class LoginReply(NamedTuple):
    """The frame was a step of the login; this is its answer."""

    buffers: list[Buffer]


class LoginRefusal(NamedTuple):
    """The connection is to be closed, after a pause and after this answer, if there is one."""

    buffers: list[Buffer]
    reason: str


LoginStep: TypeAlias = OrdinaryRequest | LoginReply | LoginRefusal

ORDINARY_REQUEST: Final = OrdinaryRequest()


@dataclass(frozen=True)
class LoginRules:
    """What is the same for all logins of a listener.

    mechanisms: those that are on, in the order in which they are told.
    begin: returns a started dialog of a mechanism.
    now_ms: the milliseconds since 1970, which tokens count in.
    max_session_ms: after so many milliseconds a client must log in again; 0 for never.
    """

    mechanisms: Sequence[str]
    begin: Callable[[str], SaslExchange]
    now_ms: Callable[[], float]
    max_session_ms: int = 0


class SaslServerAuthenticator:
    """The login of one connection; times are in seconds of the broker's clock.

    `user` is the name of the user once there is one, and stays while the client logs in again.
    """

    def __init__(self, rules: LoginRules) -> None:
        self._rules = rules
        self._state = LoginState.FIRST
        self._dialog: SaslExchange | None = None
        self._mechanism = ""
        self._next_mechanism = ""
        self._ends = math.inf
        self._reauthenticated = -math.inf
        self.user: str | None = None

    @property
    def state(self) -> LoginState:
        """What the client may send next."""
        return self._state

    def step(self, frame: memoryview, now: float) -> LoginStep:
        """Take the next frame of the client.

        Raises:
            RemoteProtocolError: it is not a request, or one of a version that is not spoken here.
        """
        if self._state is LoginState.BARE:
            return self._bare(bytes(frame), now)
        key, version = _header(frame)
        if self._state is LoginState.READY:
            if key != SASL_HANDSHAKE.key or now - self._reauthenticated < MIN_REAUTHENTICATION_INTERVAL_S:
                return self._in_session(now)
            self._reauthenticated = now
        elif key not in ALLOWED[self._state]:
            return self._refusal([], f"it sent a request of API {key} where {self._state.value} must come")
        if key == API_VERSIONS.key:
            if API_VERSIONS.min_version <= version <= API_VERSIONS.max_version:
                self._state = LoginState.HANDSHAKE  # another version is answered with ours, and asked again (KIP-511)
            return ORDINARY_REQUEST
        request = decode_request(frame)
        return self._handshake(request) if key == SASL_HANDSHAKE.key else self._authenticate(request, now)

    def _in_session(self, now: float) -> LoginStep:
        """A request is not processed once the session is over. Until then, nothing happens to a silent connection."""
        if now < self._ends:
            return ORDINARY_REQUEST
        return self._refusal([], "its session is over, and it did not log in again")

    def _handshake(self, request: RequestFrame[Any, Any]) -> LoginStep:
        asked: str = request.body.mechanism
        known = asked in self._rules.mechanisms
        code = Code.NONE if known else Code.UNSUPPORTED_SASL_MECHANISM
        answer = messages.SaslHandshakeResponse(code, tuple(self._rules.mechanisms))
        buffers = encode_response(SASL_HANDSHAKE, request.version, request.correlation_id, answer)
        if not known:
            return self._refusal(buffers, f"it wants to log in by {quoted(asked)}, which is not on")
        if self.user is not None and asked != self._mechanism:
            self._state = LoginState.OVER  # Kafka tells no error either, and closes at the next frame
            return LoginReply(buffers)
        self._next_mechanism = asked
        self._dialog = self._rules.begin(asked)
        self._state = LoginState.BARE if request.version == 0 else LoginState.AUTHENTICATE
        return LoginReply(buffers)

    def _authenticate(self, request: RequestFrame[Any, Any], now: float) -> LoginStep:
        def framed(answer: messages.SaslAuthenticateResponse) -> list[Buffer]:
            return encode_response(SASL_AUTHENTICATE, request.version, request.correlation_id, answer)

        try:
            told, lifetime_ms = self._send(bytes(request.body.auth_bytes), now)
        except AuthenticationRefused as refused:
            text = refused.client_message or self._generic_error()
            answer = messages.SaslAuthenticateResponse(Code.SASL_AUTHENTICATION_FAILED, text)
            return self._refusal(framed(answer), self._failed())
        return LoginReply(framed(messages.SaslAuthenticateResponse(Code.NONE, "", told, lifetime_ms)))

    def _bare(self, message: bytes, now: float) -> LoginStep:
        """Answer a client whose handshake was of version 0: it gets no errors and no lifetime, only the end."""
        try:
            told, _ = self._send(message, now)
        except AuthenticationRefused:
            return self._refusal([], self._failed())
        return LoginReply([_SIZE.pack(len(told)), told])

    def _send(self, message: bytes, now: float) -> tuple[bytes, int]:
        """Send a message to the mechanism; return its answer, and the lifetime of the session in milliseconds (0: unbounded).

        Raises:
            Refused: the login failed.
        """
        if self._dialog is None:
            raise AuthenticationRefused
        try:
            return self._dialog.send(message), 0
        except StopIteration as end:
            accepted: Authenticated = end.value
        if self.user not in (None, accepted.user):
            change = f"from {quoted(self.user)} to {quoted(accepted.user)}"
            raise AuthenticationRefused(f"Cannot change principals during re-authentication {change}")
        self._dialog, self._mechanism, self.user = None, self._next_mechanism, accepted.user
        self._state = LoginState.READY
        lifetime_ms = self._lifetime_ms(accepted)
        self._ends = math.inf if lifetime_ms is None else now + lifetime_ms / 1000
        return accepted.last, lifetime_ms or 0

    def _lifetime_ms(self, accepted: Authenticated) -> int | None:
        """Return how long the session may last: not longer than its token."""
        most = [self._rules.max_session_ms] if self._rules.max_session_ms else []
        if accepted.until_ms is not None:
            most.append(max(int(accepted.until_ms - self._rules.now_ms()), 0))
        return min(most, default=None)

    def _generic_error(self) -> str:
        """Return Kafka's words for every refusal whose reason is nobody's business."""
        again = "authentication" if self.user is None else "re-authentication"
        return f"Authentication failed during {again} due to invalid credentials with SASL mechanism {self._next_mechanism}"

    def _failed(self) -> str:
        return f"its login by {self._next_mechanism} failed"

    def _refusal(self, buffers: list[Buffer], reason: str) -> LoginRefusal:
        self._state = LoginState.OVER
        return LoginRefusal(buffers, reason)


def _header(frame: memoryview) -> tuple[int, int]:
    """Return the API and the version of a request.

    Raises:
        RemoteProtocolError: the frame is too short.
    """
    if len(frame) < _HEADER.size:
        raise RemoteProtocolError(f"a request header needs 10 bytes, the frame has {len(frame)}")
    key, version = _HEADER.unpack_from(frame)
    return key, version
