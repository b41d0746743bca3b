"""The request loop of a connection: each request is handled in its turn, and the responses are sent in the same order.

A request is handled once all earlier ones have their response. Only Produces do not wait for each other: while the batches of
some are not confirmed, the next ones are handled, so that the storage can confirm many together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from functools import partial
from typing import Final

from spark_producer.broker.connections.connection import ClientConnection
from spark_producer.broker.connections.publish_buffer import Publisher
from spark_producer.broker.connections.purgatory import Purgatory
from spark_producer.broker.connections.response_queue import (
    QueuedResponse,
    failing_response,
    ready_response,
    refusal_response,
)
from spark_producer.broker.context import Context
from spark_producer.broker.deferred_response import DeferredResponse
from spark_producer.broker.memory.budget import ConnectionMemory
from spark_producer.broker.requests import cluster
from spark_producer.broker.requests.handlers import handle
from spark_producer.broker.security.sasl_authenticator import LoginRefusal, OrdinaryRequest, SaslServerAuthenticator
from spark_producer.broker.security.unauthenticated import REFUSAL_DELAY_S
from spark_producer.errors import ProtocolError, SecurityError, UnsupportedVersion
from spark_producer.protocol import (
    API_VERSIONS,
    Api,
    Buffer,
    RequestBody,
    RequestFrame,
    ResponseBody,
    decode_request,
    encode_response,
)

_MAX_RESPONSES_TOGETHER: Final = 100
"""Maximum number of responses that are sent together, before other connections have their turn."""


class RequestLoop:
    """Handles requests and sends responses, one connection after the other. Only the server's thread uses it.

    `changed` collects the keys of `HandlerResult.changed`. `purgatory` holds connections whose first queued response is delayed.
    `refuse` is called with a connection and the reason why its login was refused.
    """

    def __init__(
        self,
        context: Context,
        budget: ConnectionMemory[ClientConnection],
        purgatory: Purgatory[ClientConnection],
        clock: Callable[[], float],
        refuse: Callable[[ClientConnection, str], None],
    ) -> None:
        self._context = context
        self._budget = budget
        self._purgatory = purgatory
        self._clock = clock
        self._refuse = refuse
        self.changed: dict[Hashable, None] = {}

    def handle_next(self, connection: ClientConnection) -> None:
        """Handle the next request, unless it is a Produce for which the storage has no space.

        Raises:
            ProtocolError: the connection must be dropped.
        """
        produced = connection.next_produce_bytes
        if produced and not self._admits(connection.publisher, produced):
            return
        frame = connection.next_frame()
        try:
            if connection.login is None or self._is_ordinary(connection, connection.login, frame):
                self._handle(connection, frame)
        except (ProtocolError, SecurityError) as error:
            if connection.first is None:
                raise
            connection.queue(failing_response(error))
        connection.request_done()

    def _admits(self, publisher: Publisher[ClientConnection], size: int) -> bool:
        """Return whether a Produce of `size` bytes can be handled, or has to wait for space."""
        if not publisher.produces:
            publisher.begin()
        has_space = self._context.topics.has_space(size)
        if not has_space and publisher.may_wait_for_space(self._clock(), self._context.settings.throttle_s):
            return False
        publisher.deadline = math.inf
        return True

    def _is_ordinary(self, connection: ClientConnection, login: SaslServerAuthenticator, frame: memoryview) -> bool:
        """Pass a frame to the login first; return whether it is a request for the handlers."""
        now = self._clock()
        step = login.step(frame, now)
        if isinstance(step, OrdinaryRequest):
            return True
        if isinstance(step, LoginRefusal):
            self._refuse(connection, step.reason)
            self._queue(connection, refusal_response(step.buffers, now + REFUSAL_DELAY_S))
        else:
            self._send(connection, step.buffers, len(frame))
        return False

    def _handle(self, connection: ClientConnection, frame: memoryview) -> None:
        try:
            request = decode_request(frame)
        except UnsupportedVersion as error:
            details = vars(error)
            if details["api_key"] != API_VERSIONS.key:
                raise
            body = cluster.unsupported_api_versions()
            self._send(connection, encode_response(API_VERSIONS, 0, details["correlation_id"], body), len(frame))
            return
        result = handle(self._context, request, connection.peer.rpartition(":")[0])
        self.changed.update(dict.fromkeys(result.changed))
        if result.deferred is not None:
            self._defer(connection, request, result.deferred, len(frame))
        elif result.body is not None:
            buffers = encode_response(request.api, request.version, request.correlation_id, result.body)
            self._send(connection, buffers, len(frame))
        if result.close:
            raise ProtocolError(f"a {request.api.name} request without a response failed")

    def _send(self, connection: ClientConnection, buffers: list[Buffer], size: int) -> None:
        """Send the response to a request of `size` bytes, after the queued responses."""
        if connection.responses:
            connection.queue(ready_response(buffers, size))
        else:
            connection.send(buffers)

    def _defer(
        self,
        connection: ClientConnection,
        request: RequestFrame[RequestBody, ResponseBody],
        deferred: DeferredResponse,
        size: int,
    ) -> None:
        """Delay the response until it is ready or its deadline has passed; do not delay it if either is true now.

        The response to a Fetch is also sent at once if there is no memory for it to wait.
        """
        seconds = min(
            deferred.wait_s, self._context.settings.idle_timeout
        )  # a client that has gone could ask for weeks
        if deferred.carries_records and not self._budget.may_wait(deferred.size):
            seconds = 0.0
        waiting = QueuedResponse(
            partial(_encoded, request.api, request.version, request.correlation_id, deferred),
            self._clock() + seconds,
            deferred.size,
            deferred,
            size if deferred.allows_next_produce else None,
        )
        if connection.first is None and (seconds <= 0 or deferred.is_ready()):
            connection.send(waiting.encode(self._budget.max_fetch_bytes))
        else:
            self._queue(connection, waiting)

    def _queue(self, connection: ClientConnection, waiting: QueuedResponse) -> None:
        connection.queue(waiting)
        if connection.first is waiting:
            self._purgatory.add(connection, waiting.keys, waiting.deadline)

    def check_first(self, connection: ClientConnection) -> bool:
        """Return whether the first queued response of the connection is due, and remove it from the purgatory if so."""
        first = connection.first
        if first is None or not first.check_due(self._clock()):
            return False
        self._purgatory.remove(connection)
        return True

    def send_due(self, connection: ClientConnection) -> None:
        """Send the queued responses that are due, up to the first that is not.

        Raises:
            ProtocolError: the connection must be dropped.
            OSError: the connection broke.
        """
        buffers: list[Buffer] = []
        for _ in range(_MAX_RESPONSES_TOGETHER):
            first = connection.first
            if first is None or not first.is_due or (buffers and first.fails):
                break
            connection.pop_first()
            buffers += first.encode(self._budget.max_fetch_bytes)
            if first.closes:
                connection.end_with(buffers)
                return
            following = connection.first
            if following is not None and not following.check_due(self._clock()):
                self._purgatory.add(connection, following.keys, following.deadline)
        connection.send(buffers)


def _encoded(
    api: Api[RequestBody, ResponseBody], version: int, correlation_id: int, deferred: DeferredResponse, max_bytes: int
) -> list[Buffer]:
    return encode_response(api, version, correlation_id, deferred.response(max_bytes))
