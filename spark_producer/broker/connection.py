"""The broker's end of one client's connection: its non-blocking socket, the frames received, and the bytes still to send."""

from __future__ import annotations

import contextlib
import socket
from collections import deque
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, TypeAlias

from spark_producer.broker.budget import Budget, Holding
from spark_producer.broker.patience import Patience, Stage
from spark_producer.broker.pending import Pending
from spark_producer.broker.security.login import Login, Refusal
from spark_producer.broker.security.strangers import LARGEST_FRAME
from spark_producer.broker.wire import TlsWire, Wire
from spark_producer.protocol import FETCH, Api, Buffer, FrameReader

_MOST_BUFFERS: Final = 1024
"""The most buffers that one sendmsg takes (IOV_MAX of Linux)."""

_FETCH: Final = FETCH.key.to_bytes(2, "big")
"""The first bytes of a Fetch's frame."""


class Unanswered(NamedTuple):
    """A request that is answered later, and what the frame of its answer needs."""

    api: Api[Any, Any]
    version: int
    correlation_id: int
    pending: Pending


Waiting: TypeAlias = Unanswered | Refusal
"""What waits on a connection: a request for its answer, or the refusal of a login for its pause."""


class ClientConnection:
    """Receives requests and sends responses, one at a time: it gives out the next request when the last answer has been sent.

    `events` are the events for which the selector watches the socket; 0 means that it does not. `login` is None where nobody has
    to log in, and `tls` where the bytes pass as they are. Only the server's thread uses it.
    """

    def __init__(
        self,
        sock: socket.socket,
        peer: str,
        largest_frame: int,
        budget: Budget[ClientConnection],
        patience: Patience,
        *,
        tls: TlsWire | None = None,
        login: Login | None = None,
    ) -> None:
        self.socket = sock
        self.peer = peer
        self.patience = patience
        self.events = 0
        self.login = login
        self._tls = tls
        self._wire: Wire = sock if tls is None else tls
        self._over = False
        self._waiting: Waiting | None = None
        self._holding = Holding(budget, self)
        self._largest_frame = min(largest_frame, budget.largest_request)
        first_frames = LARGEST_FRAME if self.is_stranger else self._largest_frame
        self._reader = FrameReader(min(first_frames, self._largest_frame), self._holding.admit)
        self._frames: deque[memoryview] = deque()
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._moved = 0
        self._transfers = 0

    @property
    def is_stranger(self) -> bool:
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

    def welcome(self) -> None:
        """Take large frames from now on: the client is no stranger any more."""
        self._reader.max_frame_size = self._largest_frame

    @property
    def waiting(self) -> Waiting | None:
        """What waits, if anything does."""
        return self._waiting

    def wait(self, request: Waiting, size: int) -> None:
        """Set `request`, which takes `size` bytes, aside to wait."""
        self._waiting = request
        self._holding.hold_wait(size)

    def end_wait(self) -> None:
        """Note that no request waits any more."""
        self._waiting = None
        self._holding.hold_wait(0)

    @property
    def has_request(self) -> bool:
        """Whether a request has come and may be handled now."""
        return bool(self._frames) and self._waiting is None and not self.wants_to_send and not self._over

    @property
    def has_buffered(self) -> bool:
        """Whether more is to be received at once, although the socket may not be readable: TLS has decrypted it already."""
        return self._tls is not None and self.wants_to_receive and self._tls.buffered

    @property
    def next_is_fetch(self) -> bool:
        """Whether the request that is answered next is a Fetch."""
        if self._waiting is not None:
            return isinstance(self._waiting, Unanswered) and self._waiting.pending.carries_records
        return bool(self._frames) and self._frames[0][: len(_FETCH)] == _FETCH

    @property
    def wants_to_receive(self) -> bool:
        """Whether to read more from the socket: not while requests wait, so that a client that only sends is held back."""
        return not self._frames and not self._reader.wanted and not self._over

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
            count = self._wire.recv_into(self._reader.space())
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
        frames = self._reader.received(count)
        self._reader.rest()
        self._frames.extend(frames)
        self._transfers += len(frames)

    def next_frame(self) -> memoryview | None:
        """Take the next whole request, or None if there is none that may be handled now; call `request_done` after it."""
        return self._frames.popleft() if self.has_request else None

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
            batch = [self._unsent[number] for number in range(min(len(self._unsent), _MOST_BUFFERS))]
            try:
                sent = self._wire.sendmsg(batch)
            except (BlockingIOError, InterruptedError):
                break
            self._moved += sent
            self._unsent_bytes -= sent
            while self._unsent and sent >= len(self._unsent[0]):
                sent -= len(self._unsent.popleft())
            if sent:
                self._unsent[0] = self._unsent[0][sent:]
        self._holding.hold_answer(self._unsent_bytes + (0 if self._tls is None else self._tls.unsent))

    @property
    def holds_memory(self) -> bool:
        """Whether a large request or an answer of this client holds memory that others may wait for."""
        return self._holding.holds

    def observe(self, now: float) -> None:
        """Tell `patience` what the connection waits for."""
        self.patience.observe(self._stage(), self._transfers, self._moved, now)

    def _stage(self) -> Stage:
        if self.wants_to_send:
            return Stage.SENDING
        if self._waiting is not None or self._frames or self._reader.wanted:
            return Stage.WORKING
        return Stage.RECEIVING if self._reader.in_frame else Stage.IDLE

    def close(self) -> None:
        """Close the socket, and free the memory that the connection holds.

        It is freed here, since the connection and its holding refer to each other: they live until Python looks for circles,
        which a broker that makes few objects seldom does.
        """
        self._holding.close()
        self._reader.forget()
        self._frames.clear()
        self._unsent.clear()
        with contextlib.suppress(OSError):  # the client has reset the connection meanwhile
            self.socket.close()
