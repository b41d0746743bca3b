"""The acceptor of new connections on the listening socket.

It enforces the limit of connections, keeps a reserve of file descriptors free, and pauses after a failure.
"""

from __future__ import annotations

import contextlib
import resource
import socket
from typing import Final

from spark_producer.common.escape import escaping_logger

logger = escaping_logger(__name__)

RESERVED_DESCRIPTORS: Final = 32
"""Number of file descriptors that clients cannot use: logs open a file for each use, and clients must not stop all writes."""

ACCEPT_PAUSE_S: Final = 0.1
"""Pause after a failed accept, in seconds: while file descriptors are used up, the listener stays readable."""

REFUSAL_LOG_INTERVAL_S: Final = 10.0
"""Minimum time between two log lines about refused connections, in seconds: anyone who connects can cause one."""


class Acceptor:
    """Accepts clients on `listener`, at most `max_connections` at a time.

    After a failure `resume_at` is the time at which to accept again; otherwise it is None.
    """

    def __init__(self, listener: socket.socket, max_connections: int) -> None:
        listener.setblocking(False)
        self.listener = listener
        self.resume_at: float | None = None
        self._max_connections = max_connections
        self._quiet_until = float("-inf")

    def accept(self, connected: int, now: float) -> tuple[socket.socket, str] | None:
        """Return the non-blocking socket and the address of the next client, or None if there is none.

        `connected` is the number of connected clients. A client beyond the limits is closed. After an error the caller must not
        accept again before `resume_at`.
        """
        try:
            sock, address = self.listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return None
        except OSError as error:
            self.resume_at = now + ACCEPT_PAUSE_S
            self._warn_rarely(f"cannot accept connections for a moment: {error}", now)
            return None
        peer = f"{address[0]}:{address[1]}"
        refusal = self._refusal(sock, connected)
        try:
            if refusal is None:
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return sock, peer
        except OSError as error:  # the client has reset the connection meanwhile
            logger.info("connection of %s broke: %s", peer, error)
        else:
            self._warn_rarely(f"refused {peer}: {refusal}", now)
        with contextlib.suppress(OSError):
            sock.close()
        return None

    def _refusal(self, sock: socket.socket, connected: int) -> str | None:
        if connected >= self._max_connections:
            return f"there are {connected} connections, max_connections is {self._max_connections}"
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        # The kernel assigns the lowest free descriptor, so a high one means that all lower ones are in use.
        if limit != resource.RLIM_INFINITY and sock.fileno() >= limit - RESERVED_DESCRIPTORS:
            return f"all but {RESERVED_DESCRIPTORS} of {limit} file descriptors are in use (ulimit -n)"
        return None

    def _warn_rarely(self, message: str, now: float) -> None:
        """Log a warning, unless one was logged within the last `REFUSAL_LOG_INTERVAL_S` seconds."""
        if now >= self._quiet_until:
            self._quiet_until = now + REFUSAL_LOG_INTERVAL_S
            logger.warning("%s", message)
