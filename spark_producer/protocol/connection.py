"""The client's side of one connection, without the socket: its set-up, and the correlation and order of responses.

Rules:
1. Every change of state goes through `TRANSITIONS`; a change that is not in the table is a `LocalProtocolError`.
2. Bytes to send wait in `outgoing()`; bytes received are put into `space()` and announced by `received()`.
3. A broker responds to requests in order. A response that is out of order, or to no request, closes the connection.
4. A connection with a `fault` is closed; `close()` still returns the tags of the requests in flight.
5. A re-authentication follows the requests in flight, and no request is sent before it is done: a broker closes a connection on
   which a request arrives between SaslHandshake and SaslAuthenticate (measured with Kafka 3.9 to 4.3).
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from spark_producer.errors import LocalProtocolError, PyProducerError, RemoteProtocolError, UnsupportedVersion
from spark_producer.protocol.apis import MAX_RESPONSE_BYTES, SASL_AUTHENTICATE, AnyApi, Api, RequestBody
from spark_producer.protocol.codec import correlation_id_of, decode_response, encode_request
from spark_producer.protocol.credentials import BARE, SaslCredentials
from spark_producer.protocol.fields import Buffer
from spark_producer.protocol.frames import DEFAULT_MAX_FRAME_SIZE, FrameReader
from spark_producer.protocol.messages import ApiVersionsResponse
from spark_producer.protocol.negotiation import BrokerIdentity, Negotiation, SetupRequest

if TYPE_CHECKING:  # only connections that log in import it and its messages
    from spark_producer.protocol.sasl_dialog import SaslDialog

MAX_BYTES_BEFORE_OPEN = 512 * 1024
"""Maximum bytes of a response before versions and login are done, since brokers accept no longer token (512 KiB): until then the
peer is not authenticated."""

_LAST_CORRELATION_ID = 0x7FFFFFFF

RequestTag = TypeVar("RequestTag")


class ConnectionState(enum.Enum):
    """The state of a connection."""

    NEW = "new"
    NEGOTIATING = "negotiating"
    AUTHENTICATING = "authenticating"
    READY = "ready"
    REAUTHENTICATING = "authenticating again"
    CLOSED = "closed"


class ConnectionEvent(enum.Enum):
    """An event that changes the state of a connection."""

    START = "start"
    RETRY = "retry the versions"
    AGREE = "agree"
    LOG_IN = "log in"
    AUTHENTICATED = "be authenticated"
    CLOSE = "close"


TRANSITIONS: Mapping[ConnectionState, Mapping[ConnectionEvent, ConnectionState]] = {
    ConnectionState.NEW: {
        ConnectionEvent.START: ConnectionState.NEGOTIATING,
        ConnectionEvent.CLOSE: ConnectionState.CLOSED,
    },
    ConnectionState.NEGOTIATING: {
        ConnectionEvent.RETRY: ConnectionState.NEGOTIATING,
        ConnectionEvent.AGREE: ConnectionState.READY,
        ConnectionEvent.LOG_IN: ConnectionState.AUTHENTICATING,
        ConnectionEvent.CLOSE: ConnectionState.CLOSED,
    },
    ConnectionState.AUTHENTICATING: {
        ConnectionEvent.AUTHENTICATED: ConnectionState.READY,
        ConnectionEvent.CLOSE: ConnectionState.CLOSED,
    },
    ConnectionState.READY: {
        ConnectionEvent.LOG_IN: ConnectionState.REAUTHENTICATING,
        ConnectionEvent.CLOSE: ConnectionState.CLOSED,
    },
    ConnectionState.REAUTHENTICATING: {
        ConnectionEvent.AUTHENTICATED: ConnectionState.READY,
        ConnectionEvent.CLOSE: ConnectionState.CLOSED,
    },
    ConnectionState.CLOSED: {ConnectionEvent.CLOSE: ConnectionState.CLOSED},
}


class Response(NamedTuple, Generic[RequestTag]):
    """A response, with the tag of its request; `body` is the API's response message, or None if it was too long."""

    tag: RequestTag
    api: AnyApi
    version: int
    body: Any


class _InFlight(NamedTuple, Generic[RequestTag]):
    correlation_id: int
    api: AnyApi
    version: int
    tag: RequestTag


class Connection(Generic[RequestTag]):
    """One connection to one broker: call `start`, then `send` and `received` in any mixture, then `close`."""

    _dialog: SaslDialog

    def __init__(
        self,
        client_id: str | None,
        *,
        credentials: SaslCredentials | None = None,
        max_frame_size: int = DEFAULT_MAX_FRAME_SIZE,
        expected: BrokerIdentity | None = None,
    ) -> None:
        """With `credentials` the connection logs in before it is ready.

        `expected` is the broker that it is meant for, if the brokers can compare that (KIP-1242).
        """
        self.state = ConnectionState.NEW
        self.fault: PyProducerError | None = None
        """The reason why the connection closed itself."""
        self.step = ""
        """The last request of the set-up, for messages: an API's name."""
        self.session_lifetime_ms = 0
        """The milliseconds for which the last login is valid, from its response on; 0 for as long as the connection."""
        self._client_id = client_id
        self._credentials = credentials
        self._max_frame_size = max_frame_size
        self._frames = FrameReader(min(max_frame_size, MAX_BYTES_BEFORE_OPEN))
        self._outgoing: list[Buffer] = []
        self._in_flight: deque[_InFlight[RequestTag]] = deque()
        self._next_correlation_id = 0
        self._first_id: int | None = None
        """The correlation id of the user's first request, once the connection is ready for it."""
        self._setup_id: int | None = None
        self._negotiation = Negotiation(expected)
        self._ranges: dict[int, tuple[int, int]] = {}

    @property
    def api_versions(self) -> ApiVersionsResponse | None:
        """The versions that the broker supports, once they are negotiated."""
        return self._negotiation.response

    @property
    def awaits_first_response(self) -> bool:
        """Whether requests are in flight, and there was no response since the connection became ready."""
        return bool(self._in_flight) and self._in_flight[0].correlation_id == self._first_id

    @property
    def has_response(self) -> bool:
        """Whether a request on this connection got its response, or needed none."""
        return self._first_id not in (None, self._next_correlation_id) and not self.awaits_first_response

    @property
    def reports_session_lifetime(self) -> bool:
        """Whether the broker sends the session lifetime of a login, and supports re-authentication (KIP-368)."""
        return self._ranges.get(SASL_AUTHENTICATE.key, (0, 0))[1] >= 1

    @property
    def in_flight(self) -> int:
        """The number of requests without a response; negotiation and login do not count."""
        return len(self._in_flight)

    def tags(self) -> list[RequestTag]:
        """Return the tags of the requests in flight, in the order in which they were sent."""
        return [request.tag for request in self._in_flight]

    def start(self) -> None:
        """Request the versions that the broker supports; the login follows automatically."""
        self._move(ConnectionEvent.START)
        self._send_setup_request(self._negotiation.first())

    def reauthenticate(self, credentials: SaslCredentials) -> None:
        """Re-authenticate a connection that is ready, with the same mechanism and user (KIP-368).

        Responses to the requests in flight still arrive before it. No request can be sent until it is done.
        """
        self._move(ConnectionEvent.LOG_IN)
        self._begin_login(credentials)

    def send(
        self, api: Api[RequestBody, Any], body: RequestBody, tag: RequestTag, *, expect_response: bool = True
    ) -> int:
        """Put a request into `outgoing()`, in the newest version that both sides support, and return that version.

        `expect_response` is False for Produce with acks=0, which has no response.

        Raises:
            LocalProtocolError: The versions are not negotiated yet, the connection is closed, or `body` does not fit.
            UnsupportedVersion: The broker and this package have no version in common.
        """
        if self.state is not ConnectionState.READY:
            raise LocalProtocolError(f"{api.name} cannot be sent on a connection that is {self.state.value}")
        version = self.version_of(api)
        correlation_id = self._take_correlation_id()
        self._outgoing += encode_request(api, version, correlation_id, self._client_id, body)
        if expect_response:
            self._in_flight.append(_InFlight(correlation_id, api, version, tag))
        return version

    def version_of(self, api: AnyApi) -> int:
        """Return the newest version of `api` that both sides support.

        Raises:
            UnsupportedVersion: There is none.
        """
        theirs = self._ranges.get(api.key)
        if theirs is None:
            raise UnsupportedVersion(f"the broker does not support {api.name}")
        version = min(api.max_version, theirs[1])
        if version < max(api.min_version, theirs[0]):
            raise UnsupportedVersion(
                f"{api.name}: the broker supports versions {theirs[0]} to {theirs[1]}, "
                f"this package {api.min_version} to {api.max_version}"
            )
        return version

    def supports(self, api: AnyApi) -> bool:
        """Return whether there is a version of `api` that both sides support."""
        first, last = self._ranges.get(api.key, (0, -1))
        return max(first, api.min_version) <= min(last, api.max_version)

    def outgoing(self) -> list[Buffer]:
        """Take the buffers that are to be sent now, in order."""
        buffers, self._outgoing = self._outgoing, []
        return buffers

    def space(self) -> memoryview:
        """Return the memory for the next received bytes, which is never empty."""
        return self._frames.space()

    def received(self, count: int) -> list[Response[RequestTag]]:
        """Record that `count` bytes were put into `space()`, and return the responses that are now complete.

        If the peer violates the protocol, or refuses its versions or the login, the connection is closed, and `fault` has the
        reason; the responses before the fault are still returned.
        """
        if self.state is ConnectionState.CLOSED:
            raise LocalProtocolError("bytes were received on a closed connection")
        responses: list[Response[RequestTag]] = []
        try:
            frames = self._frames.received(count)
            while frames:
                for frame in frames:
                    responses += self._handle_frame(frame)
                frames = self._frames.received(0)
        except PyProducerError as error:
            self.fault = error
            self._move(ConnectionEvent.CLOSE)
        return responses

    def close(self) -> list[RequestTag]:
        """Close the connection, and return the tags of the requests in flight, in the order in which they were sent."""
        self._move(ConnectionEvent.CLOSE)
        self._outgoing = []
        tags = self.tags()
        self._in_flight.clear()
        return tags

    def _handle_frame(self, frame: memoryview) -> list[Response[RequestTag]]:
        """Return the response in `frame` as a list, which is empty if the response belongs to the set-up."""
        if self.state is not ConnectionState.READY and not (
            self.state is ConnectionState.REAUTHENTICATING and self._in_flight
        ):
            self._set_up(frame)
            return []
        correlation_id = correlation_id_of(frame)
        if not self._in_flight:
            raise RemoteProtocolError(f"the broker sent response {correlation_id} without a request")
        request = self._in_flight[0]
        if correlation_id != request.correlation_id:
            raise RemoteProtocolError(
                f"the broker sent response {correlation_id} where {request.correlation_id}, "
                f"that of {request.api.name}, is due"
            )
        # This is not strict, and neither is Java's client: librdkafka's mock ends Metadata 12 with a byte too many, for example.
        # ApiVersions (`Negotiation`) is read strictly: if a body does not fit, version 0 is requested.
        # One that is longer than its API allows is not decoded: `body` is None.
        body = None
        if len(frame) <= MAX_RESPONSE_BYTES.get(request.api.key, len(frame)):
            _, body = decode_response(request.api, request.version, frame, strict=False)
        self._in_flight.popleft()
        return [Response(request.tag, request.api, request.version, body)]

    # The set-up: the versions, then the login

    def _set_up(self, frame: memoryview) -> None:
        """Handle a response of the set-up, and continue the set-up."""
        if self._setup_id is not None and correlation_id_of(frame) != self._setup_id:
            first = " the peer may not be a Kafka broker" if self.state is ConnectionState.NEGOTIATING else ""
            raise RemoteProtocolError(
                f"the response to {self.step} has correlation id {correlation_id_of(frame)}, not {self._setup_id}:{first}"
            )
        if self.state is ConnectionState.NEGOTIATING:
            self._negotiated(self._negotiation.received(frame))
        else:
            self._logged_in(self._dialog.received(frame))

    def _negotiated(self, retry: SetupRequest | None) -> None:
        if retry is not None:
            self._move(ConnectionEvent.RETRY)
            self._send_setup_request(retry)
            return
        response = self._negotiation.response
        assert response is not None
        self._ranges = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
        if self._credentials is None:
            self._move(ConnectionEvent.AGREE)
            self._opened()
        else:
            self._move(ConnectionEvent.LOG_IN)
            self._begin_login(self._credentials)

    def _begin_login(self, credentials: SaslCredentials) -> None:
        from spark_producer.protocol.sasl_dialog import SaslDialog

        authenticates = SASL_AUTHENTICATE.key in self._ranges
        self._dialog = SaslDialog(credentials, self.version_of, speaks_authenticate=authenticates)
        self._send_setup_request(self._dialog.first())

    def _logged_in(self, following: SetupRequest | bytes | None) -> None:
        if following is not None:
            self._send_setup_request(following)
            return
        self.session_lifetime_ms = self._dialog.session_lifetime_ms
        opened = self.state is ConnectionState.AUTHENTICATING
        self._move(ConnectionEvent.AUTHENTICATED)
        if opened:
            self._opened()

    def _opened(self) -> None:
        self._frames.max_frame_size = self._max_frame_size
        self._first_id = self._next_correlation_id

    def _send_setup_request(self, request: SetupRequest | bytes) -> None:
        if isinstance(request, bytes):
            self.step, self._setup_id = BARE, None
            self._outgoing += [len(request).to_bytes(4, "big") + request]
            return
        self.step, self._setup_id = request.api.name, self._take_correlation_id()
        self._outgoing += encode_request(request.api, request.version, self._setup_id, self._client_id, request.body)

    def _take_correlation_id(self) -> int:
        correlation_id = self._next_correlation_id
        self._next_correlation_id = 0 if correlation_id == _LAST_CORRELATION_ID else correlation_id + 1
        return correlation_id

    def _move(self, change: ConnectionEvent) -> None:
        state = TRANSITIONS[self.state].get(change)
        if state is None:
            raise LocalProtocolError(f"a connection that is {self.state.value} cannot {change.value}")
        self.state = state
