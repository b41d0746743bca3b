"""One client connection: its non-blocking socket, the received frames, and the bytes still to send."""

from __future__ import annotations

import contextlib
import socket
from collections import deque
from collections.abc import Iterable
from typing import Final

from spark_producer.broker.connections.connection_timeouts import ConnectionStage, ConnectionTimeouts
from spark_producer.broker.connections.publish_buffer import UNLIMITED, PublishBuffer, Publisher
from spark_producer.broker.connections.response_queue import QueuedResponse
from spark_producer.broker.memory.budget import ConnectionMemory, MemoryHolding
from spark_producer.broker.security.sasl_authenticator import SaslServerAuthenticator
from spark_producer.broker.security.unauthenticated import MAX_FRAME_BYTES
from spark_producer.broker.transport import ServerTransport, TlsServerTransport
from spark_producer.protocol import FETCH, PRODUCE, Buffer, FrameReader

_MAX_BUFFERS: Final = 1024
"""Maximum number of buffers of one sendmsg (IOV_MAX of Linux)."""

_FETCH: Final = FETCH.key.to_bytes(2, "big")
_PRODUCE: Final = PRODUCE.key.to_bytes(2, "big")
"""The first two bytes of a frame, which are the API key: a request is classified before it is decoded."""


class ClientConnection:
    """Receives requests and sends responses in the same order.

    The next request is handed out once all responses are sent, or, for a Produce, while only Produces await their response.

    responses: the queued responses of handled requests, in order.
    events: the selector events that are registered for the socket; 0 if it is not registered.
    login: the state of the SASL login; None on a listener without SASL.

    Only the server's thread uses it. `tls` is None where the bytes are not encrypted.
    """

    def __init__(
        self,
        sock: socket.socket,
        peer: str,
        max_frame_bytes: int,
        budget: ConnectionMemory[ClientConnection],
        timeouts: ConnectionTimeouts,
        publish_buffer: PublishBuffer[ClientConnection] | None = None,
        *,
        tls: TlsServerTransport | None = None,
        login: SaslServerAuthenticator | None = None,
    ) -> None:
        self.socket = sock
        self.peer = peer
        self.timeouts = timeouts
        self.events = 0
        self.login = login
        self._tls = tls
        self._transport: ServerTransport = sock if tls is None else tls
        self._over = False
        self.responses: deque[QueuedResponse] = deque()
        self._holding = MemoryHolding(budget, self)
        self.publisher = Publisher(publish_buffer or PublishBuffer(UNLIMITED, budget.unconfirmed), self)
        self._max_frame_bytes = min(max_frame_bytes, budget.max_request_bytes)
        first_frames = MAX_FRAME_BYTES if self.is_unauthenticated else self._max_frame_bytes
        self._reader = FrameReader(min(first_frames, self._max_frame_bytes), self._admit)
        self._frames: deque[memoryview] = deque()
        self._next_key = b""
        self._may_ask = False
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._moved = 0
        self._transfers = 0

    @property
    def is_unauthenticated(self) -> bool:
        """Whether the client has still to log in, or to complete the TLS handshake."""
        return (self.login is not None and self.login.user is None) or (
            self._tls is not None and not self._tls.established
        )

    @property
    def user(self) -> str | None:
        """The user that has logged in, or the name in the client's certificate."""
        if self.login is not None:
            return self.login.user
        return None if self._tls is None else self._tls.peer_name

    def allow_large_frames(self) -> None:
        """Raise the frame limit to that of authenticated clients."""
        self._reader.max_frame_size = self._max_frame_bytes

    @property
    def first(self) -> QueuedResponse | None:
        """The first queued response; None if all responses are sent."""
        return self.responses[0] if self.responses else None

    def queue(self, request: QueuedResponse) -> None:
        """Queue a response after all earlier ones."""
        self.responses.append(request)
        if request.produce_bytes is None:
            self._holding.hold_waiting(request.size)
        else:
            self.publisher.hold(request.produce_bytes, request.size)

    def pop_first(self) -> None:
        """Remove the first queued response, which is about to be sent."""
        request = self.responses.popleft()
        if request.produce_bytes is None:
            self._holding.hold_waiting(0)
        else:
            self.publisher.release(request.produce_bytes, request.size)

    @property
    def is_due(self) -> bool:
        """Whether the first queued response can be sent now."""
        return self.responses[0].is_due and not self.wants_to_send if self.responses else False

    @property
    def has_request(self) -> bool:
        """Whether a received request can be handled now."""
        if not self._frames or self.wants_to_send or self._over:
            return False
        if self._next_key != _PRODUCE:
            return not self.responses
        if self.responses and self.responses[-1].produce_bytes is None:
            return False
        return not self.publisher.is_paused

    @property
    def has_buffered(self) -> bool:
        """Whether TLS has decrypted bytes that the socket no longer signals."""
        return self._tls is not None and self.wants_to_receive and self._tls.buffered

    @property
    def next_is_fetch(self) -> bool:
        """Whether the next step is the response to a Fetch."""
        if self.responses and self.responses[0].is_due:
            return self.responses[0].carries_records
        return self._next_key == _FETCH

    @property
    def next_produce_bytes(self) -> int:
        """The size of the next request in bytes if it is a Produce, else 0."""
        return len(self._frames[0]) if self._next_key == _PRODUCE else 0

    @property
    def wants_to_receive(self) -> bool:
        """Whether to read from the socket: not while received requests wait to be handled, or while the producer is paused."""
        return not self._frames and not self._reader.wanted and not self._over and not self.publisher.is_paused

    @property
    def wants_to_send(self) -> bool:
        """Whether there are bytes that the socket has not taken yet."""
        return bool(self._unsent) or (self._tls is not None and self._tls.unsent > 0)

    @property
    def is_over(self) -> bool:
        """Whether the connection can be closed because its last response is sent."""
        return self._over and not self.wants_to_send

    def receive(self) -> bool:
        """Read once from the socket; return False if the client has closed it.

        Raises:
            RemoteProtocolError: the client sent an impossible frame.
            TlsFailed: the handshake failed, or the client sent bytes that are not TLS.
            OSError: the connection broke.
        """
        try:
            count = self._transport.recv_into(self._reader.space())
        except (BlockingIOError, InterruptedError):
            return True
        self._take(count)
        return count > 0

    def resume(self) -> None:
        """Request the memory of a postponed frame again.

        Raises:
            RemoteProtocolError: the client sent an impossible frame.
        """
        self._take(0)

    def _take(self, count: int) -> None:
        self._moved += count
        self._enter(self._reader.received(count))
        if self._reader.wanted:  # the requests before the large frame are known only now
            self._ask_for_memory()
        self._reader.rest()

    def _ask_for_memory(self) -> None:
        """Request the memory of a large frame, unless an earlier request may be delayed: the memory would be held meanwhile."""
        if self._allows_produce:
            self._may_ask = True
            self._enter(self._reader.received(0))
            self._may_ask = False
        else:
            self._holding.withdraw()

    def _enter(self, frames: list[memoryview]) -> None:
        if frames and not self._frames:
            self._next_key = bytes(frames[0][:2])
        self._frames.extend(frames)
        self._transfers += len(frames)

    def _admit(self, size: int) -> bool:
        return self._may_ask and self._holding.admit(size)

    @property
    def _allows_produce(self) -> bool:
        """Whether all requests before the frame that is being received are Produces."""
        return all(each.produce_bytes is not None for each in self.responses) and all(
            frame[:2] == _PRODUCE for frame in self._frames
        )

    @property
    def is_postponed(self) -> bool:
        """Whether a large frame was postponed for earlier requests that are done now, so that the connection can `resume`."""
        return bool(self._reader.wanted) and not self._holding.is_queued and self._allows_produce

    def next_frame(self) -> memoryview:
        """Remove and return the next complete request; `has_request` must be true. Call `request_done` after it."""
        frame = self._frames.popleft()
        self._next_key = bytes(self._frames[0][:2]) if self._frames else b""
        return frame

    def request_done(self) -> None:
        """Release the memory of the last request. A large request is received alone, so no other one holds memory."""
        if not self._frames and not self._reader.in_large_frame:
            self._holding.request_done()

    def send(self, buffers: Iterable[Buffer]) -> None:
        """Send a response, as far as the socket takes it now; the rest is sent later.

        Raises:
            OSError: the connection broke.
        """
        views = [memoryview(buffer).cast("B") for buffer in buffers if len(buffer)]
        self._unsent.extend(views)
        self._unsent_bytes += sum(map(len, views))
        self._transfers += 1
        self.send_more()

    def end_with(self, buffers: Iterable[Buffer]) -> None:
        """Send a last response; after it the connection `is_over`.

        Raises:
            OSError: the connection broke.
        """
        self._over = True
        self.send(buffers)

    def send_more(self) -> None:
        """Send as many bytes as the socket takes now.

        Raises:
            OSError: the connection broke.
        """
        if self._tls is not None and not self._tls.flush():
            return
        while self._unsent:
            batch = [self._unsent[number] for number in range(min(len(self._unsent), _MAX_BUFFERS))]
            try:
                sent = self._transport.sendmsg(batch)
            except (BlockingIOError, InterruptedError):
                break
            self._moved += sent
            self._unsent_bytes -= sent
            while self._unsent and sent >= len(self._unsent[0]):
                sent -= len(self._unsent.popleft())
            if sent:
                self._unsent[0] = self._unsent[0][sent:]
        self._holding.hold_response(self._unsent_bytes + (0 if self._tls is None else self._tls.unsent))

    @property
    def holds_memory(self) -> bool:
        """Whether a large request or a response of this client holds memory that other clients may wait for."""
        return self._holding.holds

    def observe(self, now: float) -> None:
        """Update the timeouts with the current stage of the connection."""
        self.timeouts.observe(self._stage(), self._transfers, self._moved, now)

    def _stage(self) -> ConnectionStage:
        if self.wants_to_send:
            return ConnectionStage.SENDING
        if self.responses or self._frames or self._reader.wanted or self.publisher.is_paused:
            return ConnectionStage.WORKING
        return ConnectionStage.RECEIVING if self._reader.in_frame else ConnectionStage.IDLE

    def close(self) -> None:
        """Close the socket, and release the memory that the connection holds."""
        # The connection and its holding refer to each other, so without this they would live until Python's cycle collector
        # runs, which is rare in a broker that creates few objects.
        self._holding.close()
        self.publisher.close()
        self.responses.clear()
        self._reader.forget()
        self._frames.clear()
        self._unsent.clear()
        with contextlib.suppress(OSError):  # the client has reset the connection meanwhile
            self.socket.close()
