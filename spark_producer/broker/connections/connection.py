"""The broker's end of one client's connection: its non-blocking socket, the frames received, and the bytes still to send."""

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
from spark_producer.broker.security.login import SaslServerAuthenticator
from spark_producer.broker.security.unauthenticated import MAX_FRAME_BYTES
from spark_producer.broker.transport import TlsTransport, Transport
from spark_producer.protocol import FETCH, PRODUCE, Buffer, FrameReader

_MAX_BUFFERS: Final = 1024
"""The most buffers that one sendmsg takes (IOV_MAX of Linux)."""

_FETCH: Final = FETCH.key.to_bytes(2, "big")
_PRODUCE: Final = PRODUCE.key.to_bytes(2, "big")
"""The first bytes of a frame, by which its request is known before it is decoded."""


class ClientConnection:
    """Receives requests and sends responses, in the same order. It gives out the next request when the last answer has been sent,
    or a Produce while nothing but Produces is unanswered.

    `unanswered` are the requests that have been handled and whose answers are still to be sent. `events` are the events for which
    the selector watches the socket; 0 means that it does not. `login` is None where nobody has
    to log in, and `tls` where the bytes pass as they are. Only the server's thread uses it.
    """

    def __init__(
        self,
        sock: socket.socket,
        peer: str,
        max_frame_bytes: int,
        budget: ConnectionMemory[ClientConnection],
        timeouts: ConnectionTimeouts,
        published: PublishBuffer[ClientConnection] | None = None,
        *,
        tls: TlsTransport | None = None,
        login: SaslServerAuthenticator | None = None,
    ) -> None:
        self.socket = sock
        self.peer = peer
        self.timeouts = timeouts
        self.events = 0
        self.login = login
        self._tls = tls
        self._transport: Transport = sock if tls is None else tls
        self._over = False
        self.responses: deque[QueuedResponse] = deque()
        self._holding = MemoryHolding(budget, self)
        self.publisher = Publisher(published or PublishBuffer(UNLIMITED, budget.unconfirmed), self)
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
        """Whether the client has still to show who it is, or to end the handshake of TLS."""
        return (self.login is not None and self.login.user is None) or (
            self._tls is not None and not self._tls.established
        )

    @property
    def user(self) -> str | None:
        """Who has logged in, or the name in the client's certificate."""
        if self.login is not None:
            return self.login.user
        return None if self._tls is None else self._tls.peer_name

    def allow_large_frames(self) -> None:
        """Take large frames from now on: the client is no stranger any more."""
        self._reader.max_frame_size = self._max_frame_bytes

    @property
    def first(self) -> QueuedResponse | None:
        """The request that is answered next, of those that have been handled; None if all are answered."""
        return self.responses[0] if self.responses else None

    def queue(self, request: QueuedResponse) -> None:
        """Let `request` wait, behind all that are not answered yet."""
        self.responses.append(request)
        if request.published is None:
            self._holding.hold_waiting(request.size)
        else:
            self.publisher.hold(request.published, request.size)

    def pop_first(self) -> None:
        """Note that the first of the unanswered requests is being answered."""
        request = self.responses.popleft()
        if request.published is None:
            self._holding.hold_waiting(0)
        else:
            self.publisher.release(request.published, request.size)

    @property
    def is_due(self) -> bool:
        """Whether an answer may be sent now."""
        return self.responses[0].is_due and not self.wants_to_send if self.responses else False

    @property
    def has_request(self) -> bool:
        """Whether a request has come and may be handled now."""
        if not self._frames or self.wants_to_send or self._over:
            return False
        if self._next_key != _PRODUCE:
            return not self.responses
        if self.responses and self.responses[-1].published is None:
            return False
        return not self.publisher.is_paused

    @property
    def has_buffered(self) -> bool:
        """Whether more is to be received at once, although the socket may not be readable: TLS has decrypted it already."""
        return self._tls is not None and self.wants_to_receive and self._tls.buffered

    @property
    def next_is_fetch(self) -> bool:
        """Whether what is done next is to answer a Fetch."""
        if self.responses and self.responses[0].is_due:
            return self.responses[0].carries_records
        return self._next_key == _FETCH

    @property
    def next_produce_bytes(self) -> int:
        """The bytes of the request that is handled next, if it is a Produce, or else 0."""
        return len(self._frames[0]) if self._next_key == _PRODUCE else 0

    @property
    def wants_to_receive(self) -> bool:
        """Whether to read more from the socket: not while requests wait to be handled, so that a client that only sends is held
        back, nor while a producer is paused."""
        return not self._frames and not self._reader.wanted and not self._over and not self.publisher.is_paused

    @property
    def wants_to_send(self) -> bool:
        """Whether bytes wait for the socket to take them."""
        return bool(self._unsent) or (self._tls is not None and self._tls.unsent > 0)

    @property
    def is_over(self) -> bool:
        """Whether the connection is to be closed, since the last answer has been sent."""
        return self._over and not self.wants_to_send

    def receive(self) -> bool:
        """Read once from the socket; return False if the client has closed it.

        Raises:
            RemoteProtocolError: the client sent an impossible frame.
            TlsFailed: the handshake failed, or the client sent what is no TLS.
            OSError: the connection broke.
        """
        try:
            count = self._transport.recv_into(self._reader.space())
        except (BlockingIOError, InterruptedError):
            return True
        self._take(count)
        return count > 0

    def resume(self) -> None:
        """Ask again for the memory of the frame that could not be received.

        Raises:
            RemoteProtocolError: the client sent an impossible frame.
        """
        self._take(0)

    def _take(self, count: int) -> None:
        self._moved += count
        self._enter(self._reader.received(count))
        if self._reader.wanted:  # only now it is known what comes before the large frame
            self._ask_for_memory()
        self._reader.rest()

    def _ask_for_memory(self) -> None:
        """Ask for the memory of a large frame, unless a request before it may wait for long: the memory would wait with it."""
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
        """Whether all requests before the frame that is received let a Produce pass."""
        return all(each.published is not None for each in self.responses) and all(
            frame[:2] == _PRODUCE for frame in self._frames
        )

    @property
    def is_postponed(self) -> bool:
        """Whether a large frame waits for the requests before it, and has to wait no longer: the connection may `resume`."""
        return bool(self._reader.wanted) and not self._holding.is_queued and self._allows_produce

    def next_frame(self) -> memoryview:
        """Take the next whole request, which there is if it `has_request`; call `request_done` after it."""
        frame = self._frames.popleft()
        self._next_key = bytes(self._frames[0][:2]) if self._frames else b""
        return frame

    def request_done(self) -> None:
        """Free the memory of the last request. A large request comes alone, so no other one holds memory."""
        if not self._frames and not self._reader.in_large_frame:
            self._holding.request_done()

    def send(self, buffers: Iterable[Buffer]) -> None:
        """Queue a response, and send as much as the socket takes now.

        Raises:
            OSError: the connection broke.
        """
        views = [memoryview(buffer).cast("B") for buffer in buffers if len(buffer)]
        self._unsent.extend(views)
        self._unsent_bytes += sum(map(len, views))
        self._transfers += 1
        self.send_more()

    def end_with(self, buffers: Iterable[Buffer]) -> None:
        """Send a last answer; then the connection `is_over`.

        Raises:
            OSError: the connection broke.
        """
        self._over = True
        self.send(buffers)

    def send_more(self) -> None:
        """Send as much as the socket takes now.

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
        """Whether a large request or an answer of this client holds memory that others may wait for."""
        return self._holding.holds

    def observe(self, now: float) -> None:
        """Tell `patience` what the connection waits for."""
        self.timeouts.observe(self._stage(), self._transfers, self._moved, now)

    def _stage(self) -> ConnectionStage:
        if self.wants_to_send:
            return ConnectionStage.SENDING
        if self.responses or self._frames or self._reader.wanted or self.publisher.is_paused:
            return ConnectionStage.WORKING
        return ConnectionStage.RECEIVING if self._reader.in_frame else ConnectionStage.IDLE

    def close(self) -> None:
        """Close the socket, and free the memory that the connection holds.

        It is freed here, since the connection and its holding refer to each other: they live until Python looks for circles,
        which a broker that makes few objects seldom does.
        """
        self._holding.close()
        self.publisher.close()
        self.responses.clear()
        self._reader.forget()
        self._frames.clear()
        self._unsent.clear()
        with contextlib.suppress(OSError):  # the client has reset the connection meanwhile
            self.socket.close()
