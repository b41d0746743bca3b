"""The broker's end of one client's connection: its socket, the frames that came, the bytes that wait to go.

Owns: non-blocking receiving and sending on one socket, and what it holds of the budget.
Must not know: what requests mean, other connections, or when a socket is ready (`clients`).
"""

from __future__ import annotations

import contextlib
import socket
from collections import deque
from collections.abc import Iterable
from typing import Final

from spark_producer.broker.budget import Account, Budget
from spark_producer.broker.patience import Patience, Stage
from spark_producer.protocol import FETCH, Buffer, FrameReader, RequestFrame

_MOST_BUFFERS: Final = 1024
"""IOV_MAX of Linux: buffers that one sendmsg takes."""

_FETCH: Final = FETCH.key.to_bytes(2, "big")
"""How the frame of a Fetch begins."""


class Connection:
    """Requests in, responses out, one at a time: the next request is looked at when the answer to the last is out.

    `events` are those for which the selector watches the socket, 0 if it does not. Belongs to the server's thread.
    """

    def __init__(
        self, sock: socket.socket, peer: str, largest_frame: int, budget: Budget[Connection], patience: Patience
    ) -> None:
        self.socket = sock
        self.peer = peer
        self.patience = patience
        self.events = 0
        self._waiting: RequestFrame | None = None
        self._account = Account(budget, self)
        self._reader = FrameReader(min(largest_frame, budget.largest_request), self._account.admit)
        self._frames: deque[memoryview] = deque()
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._moved = 0
        self._transfers = 0

    @property
    def waiting(self) -> RequestFrame | None:
        """The Fetch that waits for data; or a Produce that waits to be confirmed, with its response for a body: the request's
        memory is free again."""
        return self._waiting

    def wait(self, request: RequestFrame, size: int) -> None:
        """Put `request`, which takes `size` bytes, aside."""
        self._waiting = request
        self._account.hold_wait(size)

    def end_wait(self) -> None:
        """Nothing waits any more."""
        self._waiting = None
        self._account.hold_wait(0)

    @property
    def has_request(self) -> bool:
        """Whether a request is there and may be looked at."""
        return bool(self._frames) and self._waiting is None and not self._unsent

    @property
    def next_is_fetch(self) -> bool:
        """Whether what is to be answered next is a Fetch."""
        if self._waiting is not None:
            return self._waiting.api.key == FETCH.key
        return bool(self._frames) and self._frames[0][: len(_FETCH)] == _FETCH

    @property
    def wants_to_receive(self) -> bool:
        """Whether more should be read: not while requests wait, so that a client that only sends is held back."""
        return not self._frames and not self._reader.wanted

    @property
    def wants_to_send(self) -> bool:
        """Whether bytes wait for the socket to take them."""
        return bool(self._unsent)

    def receive(self) -> bool:
        """Read what is there, once; False if the client has closed.

        Raises:
            RemoteProtocolError: an impossible frame.
            OSError: the connection broke.
        """
        try:
            count = self.socket.recv_into(self._reader.space())
        except (BlockingIOError, InterruptedError):
            return True
        self._take(count)
        return count > 0

    def resume(self) -> None:
        """Ask again for the memory of the frame that could not be received.

        Raises:
            RemoteProtocolError: an impossible frame.
        """
        self._take(0)

    def _take(self, count: int) -> None:
        self._moved += count
        frames = self._reader.received(count)
        self._reader.rest()
        self._frames.extend(frames)
        self._transfers += len(frames)

    def next_frame(self) -> memoryview | None:
        """The next whole request, if it may be looked at; `request_done` must follow."""
        return self._frames.popleft() if self.has_request else None

    def request_done(self) -> None:
        """The last request's memory is free again. A large one comes alone, so there is no other."""
        if not self._frames and not self._reader.in_large_frame:
            self._account.request_done()

    def send(self, buffers: Iterable[Buffer]) -> None:
        """Queue a response and send what the socket takes now.

        Raises:
            OSError: the connection broke.
        """
        views = [memoryview(buffer).cast("B") for buffer in buffers if len(buffer)]
        self._unsent.extend(views)
        self._unsent_bytes += sum(map(len, views))
        self._transfers += 1
        self.send_more()

    def send_more(self) -> None:
        """Send what the socket takes now.

        Raises:
            OSError: the connection broke.
        """
        while self._unsent:
            batch = [self._unsent[number] for number in range(min(len(self._unsent), _MOST_BUFFERS))]
            try:
                sent = self.socket.sendmsg(batch)
            except (BlockingIOError, InterruptedError):
                break
            self._moved += sent
            self._unsent_bytes -= sent
            while self._unsent and sent >= len(self._unsent[0]):
                sent -= len(self._unsent.popleft())
            if sent:
                self._unsent[0] = self._unsent[0][sent:]
        self._account.hold_answer(self._unsent_bytes)

    @property
    def holds_memory(self) -> bool:
        """Whether a large request or an answer of this client takes memory that others may wait for."""
        return self._account.holds

    def observe(self, now: float) -> None:
        """Tell `patience` what is being waited for."""
        self.patience.observe(self._stage(), self._transfers, self._moved, now)

    def _stage(self) -> Stage:
        if self._unsent:
            return Stage.SENDING
        if self._waiting is not None or self._frames or self._reader.wanted:
            return Stage.WORKING
        return Stage.RECEIVING if self._reader.in_frame else Stage.IDLE

    def close(self) -> None:
        """Close the socket and give back what is held."""
        self._account.close()
        with contextlib.suppress(OSError):  # a reset that came meanwhile
            self.socket.close()
