"""One non-blocking TCP connection that carries bytes, with its socket options and partial writes.

Only here an OSError becomes `ConnectionFailed`. `Transport` is the interface: any class with these few methods can carry a
connection, be it encrypted or one of a test.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple, Protocol

from spark_producer.common.escape import for_log
from spark_producer.errors import ConnectionFailed
from spark_producer.network.addresses import LAST_PORT, format_address
from spark_producer.network.settings import KERNEL_DEFAULT, ConnectionSettings
from spark_producer.protocol import Buffer

IOV_MAX = 1024
"""The most buffers that Linux and macOS take in one sendmsg."""

CONNECTING = "connecting"
"""The first `step` of every transport, until TCP has connected."""


class ResolvedAddress(NamedTuple):
    """One address of a host: `host` and `port` are as configured, and the other fields are for the socket."""

    host: str
    port: int
    family: int
    socket_address: tuple[Any, ...]

    def __str__(self) -> str:
        written = format_address(self.host, self.port)
        numeric = str(self.socket_address[0])
        return written if numeric == self.host else f"{written} ({numeric})"


class Transport(Protocol):
    """A connection that carries bytes. Every method may raise `ConnectionFailed`; none ever blocks."""

    @property
    def queued(self) -> int:
        """The bytes that wait to be written. Once it is 0 no queued buffer is read any more."""

    @property
    def wants(self) -> int:
        """The events of `selectors` to wait for while it connects; they may change with each `finish_connect`."""

    @property
    def buffered(self) -> bool:
        """Whether `receive_into` may give something although the socket has nothing: then nobody should wait for the socket."""

    @property
    def step(self) -> str:
        """What is being done while it connects, for messages."""

    def fileno(self) -> int:
        """Return the descriptor for a selector, which is the same number until `close`."""

    def finish_connect(self) -> bool:
        """Whether the connection is established. It is called at any event of those that it `wants`, until it returns True."""

    def write(self, buffers: Iterable[Buffer]) -> bool:
        """Queue `buffers`, which must not change before they are written, and `flush`."""

    def flush(self) -> bool:
        """Write what the kernel takes now. Return True once nothing is queued."""

    def receive_into(self, space: memoryview) -> int | None:
        """Receive at most `len(space)` bytes. Return None if there are none now, and 0 if the peer has closed."""

    def close(self) -> None:
        """Close, and release every queued buffer. It never raises; a second call does nothing."""


def resolve(host: str, port: int) -> list[ResolvedAddress]:
    """Return all addresses of `host`, in the resolver's order. It blocks for as long as the resolver does.

    Raises:
        ConnectionFailed: the name is unknown, or the port is none: brokers may tell any number, which the resolver would cut off.
    """
    if not 0 < port <= LAST_PORT:
        raise ConnectionFailed(
            f"cannot connect to {format_address(host, port)}: a port is a number from 1 to {LAST_PORT}"
        )
    with _mapped(f"cannot resolve {for_log(host)!r}"):
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(ResolvedAddress(host, port, row[0], row[4]) for row in found))


class TcpTransport:
    """A plain TCP connection, which begins to connect when it is made."""

    wants = selectors.EVENT_WRITE
    buffered = False
    step = CONNECTING

    def __init__(self, address: ResolvedAddress, settings: ConnectionSettings) -> None:
        self._address = address
        self._broke = f"the connection to {address} broke"
        self._queue: deque[memoryview] = deque()
        self.queued = 0
        with _mapped(f"cannot connect to {address}"):
            self._socket = socket.socket(address.family, socket.SOCK_STREAM)
            try:
                self._begin_connect(settings)
            except OSError:
                self._socket.close()
                raise

    def fileno(self) -> int:
        """Return the socket's file descriptor."""
        return self._socket.fileno()

    def finish_connect(self) -> bool:
        """Whether the connection is established. Raises `ConnectionFailed` if it was refused."""
        with _mapped(f"cannot connect to {self._address}"):
            error = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                raise OSError(error, os.strerror(error))
            try:
                self._socket.getpeername()
            except OSError as pending:
                if pending.errno == errno.ENOTCONN:
                    return False
                raise
            return True

    def write(self, buffers: Iterable[Buffer]) -> bool:
        """Queue `buffers` and write what the kernel takes now. Return True once nothing is queued."""
        for buffer in buffers:
            if len(buffer):
                self._queue.append(memoryview(buffer).cast("B"))
                self.queued += len(self._queue[-1])
        return self.flush()

    def flush(self) -> bool:
        """Write what the kernel takes now. Return True once nothing is queued."""
        try:
            while self._queue:
                self._written(self._socket.sendmsg(list(islice(self._queue, IOV_MAX))))
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            raise _failed(self._broke, error) from error
        return True

    def receive_into(self, space: memoryview) -> int | None:
        """Receive at most `len(space)` bytes. Return None if there are none now, and 0 if the peer has closed."""
        try:
            return self._socket.recv_into(space)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:
            raise _failed(self._broke, error) from error

    def close(self) -> None:
        """Close the socket and release every queued buffer."""
        self._queue.clear()
        self._socket.close()

    def _begin_connect(self, settings: ConnectionSettings) -> None:
        self._socket.setblocking(False)
        # Requests are written whole, so waiting for more to send would only add latency (Nagle).
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # This comes before connecting; later the window scale, which the handshake fixes, would be too small for them.
        if settings.send_buffer_bytes != KERNEL_DEFAULT:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.send_buffer_bytes)
        if settings.receive_buffer_bytes != KERNEL_DEFAULT:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer_bytes)
        error = self._socket.connect_ex(self._address.socket_address)
        if error not in (0, errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EINTR):
            raise OSError(error, os.strerror(error))

    def _written(self, count: int) -> None:
        """Drop `count` bytes from the front of the queue."""
        self.queued -= count
        while count:
            head = self._queue[0]
            if count < len(head):
                self._queue[0] = head[count:]
                return
            count -= len(head)
            self._queue.popleft()


@contextmanager
def _mapped(what: str) -> Iterator[None]:
    """Turn an OSError of the body into `ConnectionFailed`, while there is no connection yet."""
    try:
        yield
    except OSError as error:
        raise _failed(what, error) from error
    except (ValueError, OverflowError) as error:  # a broker gave a host name or port that no socket takes
        raise ConnectionFailed(f"{what}: {error}") from error


def _failed(what: str, error: OSError) -> ConnectionFailed:
    """Return the error of this package for an OSError; no other function converts one."""
    reason = error.strerror or str(error) or type(error).__name__
    return ConnectionFailed(f"{what}: {reason}", errno=error.errno)
