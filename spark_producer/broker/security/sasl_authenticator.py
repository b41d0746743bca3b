"""The SASL login of one connection as a state machine without I/O: frames in, responses and decisions out.

It behaves as Kafka's SaslServerAuthenticator, also in re-authentication (KIP-368).
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
"""Minimum time between two re-authentications in seconds; an earlier handshake gets an illegal-state error (Kafka's
KafkaChannel)."""

_HEADER = struct.Struct(">hh")
_SIZE = struct.Struct(">i")


class LoginState(enum.Enum):
    """The states of a login, by the frames that the client may send next."""

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
"""The APIs that a client may use in each state. The frames of BARE have no API key, and READY allows all."""


class OrdinaryRequest(NamedTuple):
    """A frame that is no step of a login, but a request for the handlers."""


class LoginReply(NamedTuple):
    """The response to a frame that was a step of the login."""

    buffers: list[Buffer]


class LoginRefusal(NamedTuple):
    """The refusal of a login: the connection is closed after a pause, and after this response, if there is one."""

    buffers: list[Buffer]
    reason: str


LoginStep: TypeAlias = OrdinaryRequest | LoginReply | LoginRefusal

ORDINARY_REQUEST: Final = OrdinaryRequest()


@dataclass(frozen=True)
class LoginRules:
    """The settings that all logins of a listener share.

    mechanisms: the enabled mechanisms, in the order in which clients are offered them.
    begin: returns a started exchange of a mechanism.
    now_ms: returns the milliseconds since 1970, for the lifetime of tokens.
    max_session_ms: the milliseconds after which a client must re-authenticate; 0 for never.
    """

    mechanisms: Sequence[str]
    begin: Callable[[str], SaslExchange]
    now_ms: Callable[[], float]
    max_session_ms: int = 0


class SaslServerAuthenticator:
    """The login of one connection; times are in seconds of the broker's clock.

    `user` is the name of the authenticated user, and stays during re-authentication.
    """

    def __init__(self, rules: LoginRules) -> None:
        self._rules = rules
        self._state = LoginState.FIRST
        self._exchange: SaslExchange | None = None
        self._mechanism = ""
        self._next_mechanism = ""
        self._session_end = math.inf
        self._reauthenticated_at = -math.inf
        self.user: str | None = None

    @property
    def state(self) -> LoginState:
        """The state of the login."""
        return self._state

    def step(self, frame: memoryview, now: float) -> LoginStep:
        """Process the next frame of the client.

        Raises:
            RemoteProtocolError: it is not a request, or has an unsupported version.
        """
        if self._state is LoginState.BARE:
            return self._bare(bytes(frame), now)
        key, version = _header(frame)
        if self._state is LoginState.READY:
            if key != SASL_HANDSHAKE.key or now - self._reauthenticated_at < MIN_REAUTHENTICATION_INTERVAL_S:
                return self._in_session(now)
            self._reauthenticated_at = now
        elif key not in ALLOWED[self._state]:
            return self._refusal([], f"it sent a request of API {key}, expected {self._state.value}")
        if key == API_VERSIONS.key:
            if API_VERSIONS.min_version <= version <= API_VERSIONS.max_version:
                self._state = LoginState.HANDSHAKE  # after another version the client retries with ours (KIP-511)
            return ORDINARY_REQUEST
        request = decode_request(frame)
        return self._handshake(request) if key == SASL_HANDSHAKE.key else self._authenticate(request, now)

    def _in_session(self, now: float) -> LoginStep:
        """Refuse a request after the end of the session. A silent connection stays open until its next request."""
        if now < self._session_end:
            return ORDINARY_REQUEST
        return self._refusal([], "its session has ended, and it did not re-authenticate")

    def _handshake(self, request: RequestFrame[Any, Any]) -> LoginStep:
        mechanism: str = request.body.mechanism
        known = mechanism in self._rules.mechanisms
        code = Code.NONE if known else Code.UNSUPPORTED_SASL_MECHANISM
        response = messages.SaslHandshakeResponse(code, tuple(self._rules.mechanisms))
        buffers = encode_response(SASL_HANDSHAKE, request.version, request.correlation_id, response)
        if not known:
            return self._refusal(buffers, f"it wants to log in by {quoted(mechanism)}, which is not enabled")
        if self.user is not None and mechanism != self._mechanism:
            self._state = LoginState.OVER  # Kafka sends no error either, and closes at the next frame
            return LoginReply(buffers)
        self._next_mechanism = mechanism
        self._exchange = self._rules.begin(mechanism)
        self._state = LoginState.BARE if request.version == 0 else LoginState.AUTHENTICATE
        return LoginReply(buffers)

    def _authenticate(self, request: RequestFrame[Any, Any], now: float) -> LoginStep:
        def framed(response: messages.SaslAuthenticateResponse) -> list[Buffer]:
            return encode_response(SASL_AUTHENTICATE, request.version, request.correlation_id, response)

        try:
            server_message, lifetime_ms = self._send(bytes(request.body.auth_bytes), now)
        except AuthenticationRefused as refused:
            text = refused.client_message or self._generic_error()
            response = messages.SaslAuthenticateResponse(Code.SASL_AUTHENTICATION_FAILED, text)
            return self._refusal(framed(response), self._failed())
        return LoginReply(framed(messages.SaslAuthenticateResponse(Code.NONE, "", server_message, lifetime_ms)))

    def _bare(self, message: bytes, now: float) -> LoginStep:
        """Process a raw SASL message after a handshake of version 0: the client gets no error and no lifetime, only the end."""
        try:
            server_message, _ = self._send(message, now)
        except AuthenticationRefused:
            return self._refusal([], self._failed())
        return LoginReply([_SIZE.pack(len(server_message)), server_message])

    def _send(self, message: bytes, now: float) -> tuple[bytes, int]:
        """Send a message to the mechanism; return its response, and the lifetime of the session in milliseconds (0: unlimited).

        Raises:
            AuthenticationRefused: the login failed.
        """
        if self._exchange is None:
            raise AuthenticationRefused
        try:
            return self._exchange.send(message), 0
        except StopIteration as end:
            accepted: Authenticated = end.value
        if self.user not in (None, accepted.user):
            change = f"from {quoted(self.user)} to {quoted(accepted.user)}"
            raise AuthenticationRefused(f"Cannot change principals during re-authentication {change}")
        self._exchange, self._mechanism, self.user = None, self._next_mechanism, accepted.user
        self._state = LoginState.READY
        lifetime_ms = self._lifetime_ms(accepted)
        self._session_end = math.inf if lifetime_ms is None else now + lifetime_ms / 1000
        return accepted.last, lifetime_ms or 0

    def _lifetime_ms(self, accepted: Authenticated) -> int | None:
        """Return the lifetime of the session in milliseconds, at most that of its token; None without a limit."""
        limits = [self._rules.max_session_ms] if self._rules.max_session_ms else []
        if accepted.until_ms is not None:
            limits.append(max(int(accepted.until_ms - self._rules.now_ms()), 0))
        return min(limits, default=None)

    def _generic_error(self) -> str:
        """Return Kafka's error message for refusals whose reason is confidential."""
        again = "authentication" if self.user is None else "re-authentication"
        return f"Authentication failed during {again} due to invalid credentials with SASL mechanism {self._next_mechanism}"

    def _failed(self) -> str:
        return f"its login by {self._next_mechanism} failed"

    def _refusal(self, buffers: list[Buffer], reason: str) -> LoginRefusal:
        self._state = LoginState.OVER
        return LoginRefusal(buffers, reason)


def _header(frame: memoryview) -> tuple[int, int]:
    """Return the API key and the version of a request.

    Raises:
        RemoteProtocolError: the frame is too short.
    """
    if len(frame) < _HEADER.size:
        raise RemoteProtocolError(f"a request header needs 10 bytes, the frame has {len(frame)}")
    key, version = _HEADER.unpack_from(frame)
    return key, version
