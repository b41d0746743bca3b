"""One client's connection: its socket, the frames that came, the bytes that wait to go.

Owns: non-blocking receiving and sending on one socket.
Must not know: what requests mean, other connections, or when a socket is ready (`server`).
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Iterable
from typing import Final

from spark_producer.protocol import Buffer, FrameReader, RequestFrame

_MOST_BUFFERS: Final = 1024
"""IOV_MAX of Linux: buffers that one sendmsg takes."""


class Connection:
    """Requests in, responses out, one at a time: the next request is looked at when the answer to the last is out.

    `waiting` is the Fetch that waits for data, if one does. Belongs to the server's thread.
    """

    def __init__(self, sock: socket.socket, peer: str, largest_frame: int) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = sock
        self.peer = peer
        self.waiting: RequestFrame | None = None
        self._reader = FrameReader(largest_frame)
        self._frames: deque[memoryview] = deque()
        self._unsent: deque[memoryview] = deque()

    @property
    def idle(self) -> bool:
        """Whether the next request may be looked at."""
        return self.waiting is None and not self._unsent

    @property
    def wants_to_receive(self) -> bool:
        """Whether more should be read: not while requests wait, so that a client that only sends is held back."""
        return not self._frames

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
        if count:
            self._frames.extend(self._reader.received(count))
        return count > 0

    def next_frame(self) -> memoryview | None:
        """The next whole request, if the connection is idle and one is there."""
        return self._frames.popleft() if self._frames and self.idle else None

    def send(self, buffers: Iterable[Buffer]) -> None:
        """Queue a response and send what the socket takes now.

        Raises:
            OSError: the connection broke.
        """
        self._unsent.extend(memoryview(buffer).cast("B") for buffer in buffers if len(buffer))
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
                return
            while self._unsent and sent >= len(self._unsent[0]):
                sent -= len(self._unsent.popleft())
            if sent:
                self._unsent[0] = self._unsent[0][sent:]

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()
