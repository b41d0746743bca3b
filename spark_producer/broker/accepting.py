"""Taking new connections off the listening socket, or refusing them.

Owns: the limit of connections, the reserve of file descriptors, the pause after a failure.
Must not know: what connections are for.
"""

from __future__ import annotations

import contextlib
import logging
import resource
import socket
from typing import Final

logger = logging.getLogger(__name__)

RESERVED_DESCRIPTORS: Final = 32
"""Kept free for the logs, whose files are opened for each use: clients must not be able to stop all writing."""

ACCEPT_PAUSE: Final = 0.1
"""Seconds without accepting after it failed: when file descriptors run out, the listener stays readable forever."""

QUIET: Final = 10.0
"""Seconds between two log lines about refusals, which whoever connects can cause."""


class Acceptor:
    """Accepts clients on `listener`, `most` at a time. `resume_at`: when to go on after a failure, else None."""

    def __init__(self, listener: socket.socket, most: int) -> None:
        listener.setblocking(False)
        self.listener = listener
        self.resume_at: float | None = None
        self._most = most
        self._quiet_until = float("-inf")

    def accept(self, connected: int, now: float) -> tuple[socket.socket, str] | None:
        """The next client's non-blocking socket and address, given that `connected` are there; None if there is none.

        A client beyond the limits is closed; after an error, accepting has to pause until `resume_at`.
        """
        try:
            sock, address = self.listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return None
        except OSError as error:
            self.resume_at = now + ACCEPT_PAUSE
            self._tell(f"cannot accept connections for a moment: {error}", now)
            return None
        peer = f"{address[0]}:{address[1]}"
        refusal = self._refusal(sock, connected)
        try:
            if refusal is None:
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return sock, peer
        except OSError as error:  # reset meanwhile
            logger.info("connection of %s broke: %s", peer, error)
        else:
            self._tell(f"refused {peer}: {refusal}", now)
        with contextlib.suppress(OSError):
            sock.close()
        return None

    def _refusal(self, sock: socket.socket, connected: int) -> str | None:
        if connected >= self._most:
            return f"there are {connected} connections, max_connections is {self._most}"
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        # The kernel gives out the lowest free descriptor: a high one says that those below are in use.
        if limit != resource.RLIM_INFINITY and sock.fileno() >= limit - RESERVED_DESCRIPTORS:
            return f"all but {RESERVED_DESCRIPTORS} of {limit} file descriptors are in use (ulimit -n)"
        return None

    def _tell(self, what: str, now: float) -> None:
        if now >= self._quiet_until:
            self._quiet_until = now + QUIET
            logger.warning("%s", what)
