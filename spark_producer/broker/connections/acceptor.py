"""The acceptor takes new connections off the listening socket, or refuses them.

It keeps to the limit of connections, keeps a reserve of file descriptors free, and pauses after a failure.
"""

from __future__ import annotations

import contextlib
import resource
import socket
from typing import Final

from spark_producer.common.escape import escaping_logger

logger = escaping_logger(__name__)

RESERVED_DESCRIPTORS: Final = 32
"""File descriptors kept free for the logs, which open a file for each use: clients must not be able to stop all writing."""

ACCEPT_PAUSE: Final = 0.1
"""Seconds to pause after accepting has failed: while file descriptors are used up, the listener stays readable."""

QUIET: Final = 10.0
"""Seconds between two log lines about refusals, because anyone who connects can cause one."""


class Acceptor:
    """Accepts clients on `listener`, at most `most` at a time.

    After a failure `resume_at` is the time at which to accept again; otherwise it is None.
    """

    def __init__(self, listener: socket.socket, most: int) -> None:
        listener.setblocking(False)
        self.listener = listener
        self.resume_at: float | None = None
        self._most = most
        self._quiet_until = float("-inf")

    def accept(self, connected: int, now: float) -> tuple[socket.socket, str] | None:
        """Return the next client's non-blocking socket and address, or None if there is none.

        `connected` is the number of clients that are connected now. A client beyond the limits is closed. After an error the
        caller must not accept again before `resume_at`.
        """
        try:
            sock, address = self.listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return None
        except OSError as error:
            self.resume_at = now + ACCEPT_PAUSE
            self._warn_seldom(f"cannot accept connections for a moment: {error}", now)
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
            self._warn_seldom(f"refused {peer}: {refusal}", now)
        with contextlib.suppress(OSError):
            sock.close()
        return None

    def _refusal(self, sock: socket.socket, connected: int) -> str | None:
        if connected >= self._most:
            return f"there are {connected} connections, max_connections is {self._most}"
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        # The kernel gives out the lowest free descriptor, so a high one means that all below it are in use.
        if limit != resource.RLIM_INFINITY and sock.fileno() >= limit - RESERVED_DESCRIPTORS:
            return f"all but {RESERVED_DESCRIPTORS} of {limit} file descriptors are in use (ulimit -n)"
        return None

    def _warn_seldom(self, what: str, now: float) -> None:
        """Log a warning, unless there was one within the last `QUIET` seconds."""
        if now >= self._quiet_until:
            self._quiet_until = now + QUIET
            logger.warning("%s", what)
