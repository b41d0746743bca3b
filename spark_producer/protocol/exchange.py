"""The client's side of one connection, without the socket: version negotiation, correlation of answers, and their order.

Rules:
1. Every change of state goes through `TRANSITIONS`; a change that is not in the table is a `LocalProtocolError`.
2. Bytes to send wait in `outgoing()`; bytes received are put into `space()` and announced by `received()`.
3. A broker answers requests in order. An answer that is out of order, or to no request, ends the connection.
4. A connection with a `fault` is closed; `close()` still returns the tags of what was in flight.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from spark_producer.codes import Code
from spark_producer.errors import (
    LocalProtocolError,
    PyProducerError,
    RemoteProtocolError,
    UnsupportedVersion,
    broker_error,
)
from spark_producer.protocol.apis import API_VERSIONS, AnyApi, Api, RequestBody
from spark_producer.protocol.codec import correlation_id_of, decode_response, encode_request
from spark_producer.protocol.fields import Buffer
from spark_producer.protocol.frames import DEFAULT_MAX_FRAME_SIZE, FrameReader
from spark_producer.protocol.messages import ApiVersionsRequest, ApiVersionsResponse
from spark_producer.version import __version__

SOFTWARE_NAME = "pyproducer"
SOFTWARE_VERSION = __version__
"""The name and the version must match [a-zA-Z0-9](?:[a-zA-Z0-9\\-.]*[a-zA-Z0-9])?, or brokers refuse ApiVersions (KIP-511)."""

FIRST_ASKED_VERSION = 3
"""The version of ApiVersions that is asked first; 4 differs only in which features the broker names."""

_LAST_CORRELATION_ID = 0x7FFFFFFF

RequestTag = TypeVar("RequestTag")


class State(enum.Enum):
    """The state of a connection."""

    NEW = "new"
    NEGOTIATING = "negotiating"
    READY = "ready"
    CLOSED = "closed"


class Change(enum.Enum):
    """An event that changes the state of a connection."""

    START = "start"
    ASK_AGAIN = "ask again"
    AGREE = "agree"
    CLOSE = "close"


TRANSITIONS: Mapping[State, Mapping[Change, State]] = {
    State.NEW: {Change.START: State.NEGOTIATING, Change.CLOSE: State.CLOSED},
    State.NEGOTIATING: {
        Change.ASK_AGAIN: State.NEGOTIATING,
        Change.AGREE: State.READY,
        Change.CLOSE: State.CLOSED,
    },
    State.READY: {Change.CLOSE: State.CLOSED},
    State.CLOSED: {Change.CLOSE: State.CLOSED},
}


class Response(NamedTuple, Generic[RequestTag]):
    """A response, with the tag of its request; `body` is the API's response message."""

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

    def __init__(self, client_id: str | None, *, max_frame_size: int = DEFAULT_MAX_FRAME_SIZE) -> None:
        self.state = State.NEW
        self.api_versions: ApiVersionsResponse | None = None
        """The versions that the broker speaks, once they are negotiated."""
        self.fault: PyProducerError | None = None
        """The reason why the connection closed itself."""
        self._client_id = client_id
        self._frames = FrameReader(max_frame_size)
        self._outgoing: list[Buffer] = []
        self._in_flight: deque[_InFlight[RequestTag]] = deque()
        self._next_correlation_id = 0
        self._asked_version = FIRST_ASKED_VERSION
        self._asked_id = 0
        self._ranges: dict[int, tuple[int, int]] = {}

    @property
    def in_flight(self) -> int:
        """The number of requests that wait for their responses; the negotiation does not count."""
        return len(self._in_flight)

    def tags(self) -> list[RequestTag]:
        """Return the tags of the requests in flight, in the order in which they were sent."""
        return [request.tag for request in self._in_flight]

    def start(self) -> None:
        """Ask the broker which versions it speaks."""
        self._move(Change.START)
        self._ask()

    def send(
        self, api: Api[RequestBody, Any], body: RequestBody, tag: RequestTag, *, expect_response: bool = True
    ) -> int:
        """Put a request into `outgoing()`, in the newest version that both sides speak, and return that version.

        `expect_response` is False for Produce with acks=0, which a broker does not answer.

        Raises:
            LocalProtocolError: The versions are not negotiated yet, the connection is closed, or `body` does not fit.
            UnsupportedVersion: The broker and this package have no version in common.
        """
        if self.state is not State.READY:
            raise LocalProtocolError(f"{api.name} cannot be sent on a connection that is {self.state.value}")
        version = self.version_of(api)
        correlation_id = self._take_correlation_id()
        self._outgoing += encode_request(api, version, correlation_id, self._client_id, body)
        if expect_response:
            self._in_flight.append(_InFlight(correlation_id, api, version, tag))
        return version

    def version_of(self, api: AnyApi) -> int:
        """Return the newest version of `api` that both sides speak.

        Raises:
            UnsupportedVersion: There is none.
        """
        theirs = self._ranges.get(api.key)
        if theirs is None:
            raise UnsupportedVersion(f"the broker does not speak {api.name} at all")
        version = min(api.max_version, theirs[1])
        if version < max(api.min_version, theirs[0]):
            raise UnsupportedVersion(
                f"{api.name}: the broker speaks versions {theirs[0]} to {theirs[1]}, "
                f"this package {api.min_version} to {api.max_version}"
            )
        return version

    def outgoing(self) -> list[Buffer]:
        """Take the buffers that are to be sent now, in order."""
        buffers, self._outgoing = self._outgoing, []
        return buffers

    def space(self) -> memoryview:
        """Return the memory for the next received bytes, which is never empty."""
        return self._frames.space()

    def received(self, count: int) -> list[Response[RequestTag]]:
        """Note that `count` bytes were put into `space()`, and return the responses that are now complete.

        If the peer breaks the protocol, or refuses to tell its versions, the connection is closed and `fault` says why;
        the responses before the fault are still returned.
        """
        if self.state is State.CLOSED:
            raise LocalProtocolError("bytes were received on a closed connection")
        responses: list[Response[RequestTag]] = []
        try:
            frames = self._frames.received(count)
            while frames:
                for frame in frames:
                    responses += self._answer(frame)
                frames = self._frames.received(0)
        except PyProducerError as error:
            self.fault = error
            self._move(Change.CLOSE)
        return responses

    def close(self) -> list[RequestTag]:
        """End the connection, and return the tags of the requests in flight, in the order in which they were sent."""
        self._move(Change.CLOSE)
        self._outgoing = []
        tags = self.tags()
        self._in_flight.clear()
        return tags

    def _answer(self, frame: memoryview) -> list[Response[RequestTag]]:
        """Return the response that `frame` holds, in a list, or an empty list if it belongs to the negotiation."""
        if self.state is State.NEGOTIATING:
            self._negotiate(frame)
            return []
        correlation_id = correlation_id_of(frame)
        if not self._in_flight:
            raise RemoteProtocolError(f"the broker sent response {correlation_id} that nobody asked for")
        request = self._in_flight[0]
        if correlation_id != request.correlation_id:
            raise RemoteProtocolError(
                f"the broker sent response {correlation_id} where {request.correlation_id}, "
                f"that of {request.api.name}, is due"
            )
        # This is not strict, and neither is Java's client: librdkafka's mock ends Metadata 12 with a byte too many, for example.
        # ApiVersions, above, is read strictly: a body that does not fit is the sign to ask in version 0.
        _, body = decode_response(request.api, request.version, frame, strict=False)
        self._in_flight.popleft()
        return [Response(request.tag, request.api, request.version, body)]

    # Negotiation (KIP-35, KIP-511)

    def _ask(self) -> None:
        self._asked_id = self._take_correlation_id()
        body = ApiVersionsRequest(SOFTWARE_NAME, SOFTWARE_VERSION)
        self._outgoing += encode_request(API_VERSIONS, self._asked_version, self._asked_id, self._client_id, body)

    def _negotiate(self, frame: memoryview) -> None:
        if correlation_id_of(frame) != self._asked_id:
            raise RemoteProtocolError(
                f"the first response has correlation id {correlation_id_of(frame)}, not {self._asked_id}: "
                "the peer may not be a Kafka broker"
            )
        answer = self._decode_versions(frame)
        if answer is None:
            self._ask_again(0)
        elif answer.error_code == Code.UNSUPPORTED_VERSION:
            self._ask_again(self._version_to_fall_back_to(answer))
        elif answer.error_code:
            raise broker_error(answer.error_code, "ApiVersions, the first request of a connection")
        else:
            self.api_versions = answer
            self._ranges = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
            self._move(Change.AGREE)

    def _decode_versions(self, frame: memoryview) -> ApiVersionsResponse | None:
        """Return the answer, or None if it cannot be read: then version 0 is asked (librdkafka's mock answers 3 like this)."""
        error_code = int.from_bytes(frame[4:6], "big", signed=True)
        # KIP-511: with this error the body has the shape of version 0, whatever was asked.
        version = 0 if error_code == Code.UNSUPPORTED_VERSION else self._asked_version
        try:
            _, body = decode_response(API_VERSIONS, version, frame)
        except RemoteProtocolError:
            if self._asked_version == 0:
                raise
            return None
        return body

    def _version_to_fall_back_to(self, answer: ApiVersionsResponse) -> int:
        """Return the newest version of ApiVersions that both sides speak, or 0 if the broker does not tell."""
        newest = next((row.max_version for row in answer.api_keys if row.api_key == API_VERSIONS.key), 0)
        return max(0, min(newest, API_VERSIONS.max_version))

    def _ask_again(self, version: int) -> None:
        if version >= self._asked_version:
            version = 0  # the broker refused this version already, whatever it claims
        if self._asked_version == 0:
            raise UnsupportedVersion("the broker refuses every version of ApiVersions; it must be older than 0.10")
        self._asked_version = version
        self._move(Change.ASK_AGAIN)
        self._ask()

    def _take_correlation_id(self) -> int:
        taken = self._next_correlation_id
        self._next_correlation_id = 0 if taken == _LAST_CORRELATION_ID else taken + 1
        return taken

    def _move(self, change: Change) -> None:
        state = TRANSITIONS[self.state].get(change)
        if state is None:
            raise LocalProtocolError(f"a connection that is {self.state.value} cannot {change.value}")
        self.state = state
