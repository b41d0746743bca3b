"""One non-blocking TCP connection, with its socket options and partial writes.

Only this module maps OSError to `ConnectionFailed`. `Transport` is the interface of all connections, encrypted ones and those of
tests included.
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

from spark_producer.common.addresses import format_address
from spark_producer.common.escape import for_log
from spark_producer.errors import ConnectionFailed
from spark_producer.network.addresses import LAST_PORT
from spark_producer.network.settings import KERNEL_DEFAULT, ConnectionSettings
from spark_producer.protocol import Buffer

IOV_MAX = 1024
"""Maximum number of buffers in one sendmsg on Linux and macOS."""

CONNECTING = "connecting"
"""The `step` of a transport until TCP has connected."""


class ResolvedAddress(NamedTuple):
    """One resolved address: `host` and `port` as configured, and the arguments of the socket."""

    host: str
    port: int
    family: int
    socket_address: tuple[Any, ...]

    def __str__(self) -> str:
        written = format_address(self.host, self.port)
        numeric = str(self.socket_address[0])
        return written if numeric == self.host else f"{written} ({numeric})"


class Transport(Protocol):
    """A byte-stream connection. Every method may raise `ConnectionFailed`; none blocks."""

    @property
    def queued(self) -> int:
        """The number of bytes that wait to be written. At 0 all queued buffers are released."""

    @property
    def wants(self) -> int:
        """The events of `selectors` to wait for while connecting; they may change with each `finish_connect`."""

    @property
    def buffered(self) -> bool:
        """Whether `receive_into` may return bytes although the socket has none, so that a selector must not be waited for."""

    @property
    def step(self) -> str:
        """Name of the current step of connecting, for messages."""

    def fileno(self) -> int:
        """Return the file descriptor for a selector, which does not change until `close`."""

    def finish_connect(self) -> bool:
        """Continue to connect, and return whether the connection is established. Called at each event of `wants` until it is."""

    def write(self, buffers: Iterable[Buffer]) -> bool:
        """Queue `buffers`, which must not change before they are written, and flush."""

    def flush(self) -> bool:
        """Write what the kernel takes now. Return True once nothing is queued."""

    def receive_into(self, space: memoryview) -> int | None:
        """Receive at most `len(space)` bytes. Return None if there are none now, and 0 if the peer has closed."""

    def close(self) -> None:
        """Close, and release all queued buffers. It does not raise; a second call does nothing."""


def resolve(host: str, port: int) -> list[ResolvedAddress]:
    """Return all addresses of `host` in the resolver's order. It blocks until the resolver returns.

    Raises:
        ConnectionFailed: the name is unknown, or the port is out of range: brokers may advertise any number, which the resolver
            would truncate.
    """
    if not 0 < port <= LAST_PORT:
        raise ConnectionFailed(
            f"cannot connect to {format_address(host, port)}: the port must be from 1 to {LAST_PORT}"
        )
    with _mapping_errors(f"cannot resolve {for_log(host)!r}"):
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(ResolvedAddress(host, port, row[0], row[4]) for row in found))


class TcpTransport:
    """A plain TCP connection. The constructor begins to connect."""

    wants = selectors.EVENT_WRITE
    buffered = False
    step = CONNECTING

    def __init__(self, address: ResolvedAddress, settings: ConnectionSettings) -> None:
        self._address = address
        self._broke = f"the connection to {address} broke"
        self._queue: deque[memoryview] = deque()
        self.queued = 0
        with _mapping_errors(f"cannot connect to {address}"):
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
        """Return whether the connection is established; raise `ConnectionFailed` if it was refused."""
        with _mapping_errors(f"cannot connect to {self._address}"):
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
                view = memoryview(buffer)
                if view.nbytes != len(view):
                    view = view.cast("B")
                self._queue.append(view)
                self.queued += len(view)
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
        # Requests are written whole, so Nagle's algorithm would only add latency.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # Before connecting: the handshake fixes the window scale, which would be too small for larger buffers.
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
        if not self.queued:
            self._queue.clear()
            return
        while count:
            head = self._queue[0]
            if count < len(head):
                self._queue[0] = head[count:]
                return
            count -= len(head)
            self._queue.popleft()


@contextmanager
def _mapping_errors(failure: str) -> Iterator[None]:
    """Map an OSError of the body, which resolves or connects, to `ConnectionFailed`."""
    try:
        yield
    except OSError as error:
        raise _failed(failure, error) from error
    except (ValueError, OverflowError) as error:  # a broker advertised a host name or port that no socket accepts
        raise ConnectionFailed(f"{failure}: {error}") from error


def _failed(failure: str, error: OSError) -> ConnectionFailed:
    """Return `ConnectionFailed` for an OSError; no other function maps one."""
    reason = error.strerror or str(error) or type(error).__name__
    return ConnectionFailed(f"{failure}: {reason}", errno=error.errno)
