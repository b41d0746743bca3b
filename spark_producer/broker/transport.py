"""The transports of a connection: its plain socket, or TLS over it.

`TlsServerTransport` has the two methods of a socket that a connection uses, so that the connection need not know which it has.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from spark_producer.security.tls_stream import TlsStream

_RECEIVED: Final = 64 * 1024
"""Maximum bytes of ciphertext of one receive."""

_SLICE: Final = 256 * 1024
"""Maximum bytes that are encrypted at once. The socket must take them before the next ones, so no more ciphertext is held."""

_SMALL: Final = 4096
"""Buffers below this size in bytes are joined before they are encrypted: each piece becomes a TLS record with its own header."""


class ServerTransport(Protocol):
    """The socket methods that a connection uses; both raise BlockingIOError when the socket is not ready."""

    def recv_into(self, buffer: memoryview, /) -> int:
        """Receive into `buffer`; return the number of bytes, 0 if the client has closed."""

    def sendmsg(self, buffers: Sequence[memoryview], /) -> int:
        """Send from `buffers`; return the number of bytes that need not be sent again."""


class TlsServerTransport:
    """TLS over a non-blocking socket, which the caller owns and closes.

    Raises of all methods:
        TlsFailed: the handshake failed, or the client sent bytes that are not TLS.
        OSError: the connection broke.
    """

    def __init__(self, sock: socket.socket, stream: TlsStream) -> None:
        self._socket = sock
        self._stream = stream
        self._ciphertext = memoryview(b"")
        self._ended = False
        self.established = False

    @property
    def buffered(self) -> bool:
        """Whether decrypted bytes can be received although the socket is not readable."""
        return self.established and self._stream.buffered

    @property
    def unsent(self) -> int:
        """Number of bytes of ciphertext that the socket has not taken yet."""
        return len(self._ciphertext)

    @property
    def peer_name(self) -> str | None:
        """The common name of the client's certificate, if it has sent one."""
        return self._stream.peer_name() if self.established else None

    def recv_into(self, space: memoryview, /) -> int:
        """Advance the handshake, then receive plaintext into `space`; return 0 at the client's end."""
        count = self._read(space) if self.buffered else None
        if count is None:
            data = self._socket.recv(_RECEIVED)
            if data:
                self._stream.feed(data)
            else:
                self._ended = True
                self._stream.feed_eof()
            count = self._read(space)
        if count is not None:
            return count
        if self._ended:
            return 0
        raise BlockingIOError("no complete TLS record has been received")

    def sendmsg(self, buffers: Sequence[memoryview], /) -> int:
        """Encrypt as many bytes of `buffers` as the socket may take; return their number."""
        if not self.flush():
            raise BlockingIOError("the socket has not taken the earlier ciphertext")
        piece = _first_slice(buffers)
        self._stream.write(piece)
        self.flush()
        return len(piece)

    def flush(self) -> bool:
        """Send the waiting ciphertext; return whether the socket has taken all of it."""
        fresh = self._stream.take_outgoing()
        if fresh:
            self._ciphertext = memoryview(bytes(self._ciphertext) + fresh if self._ciphertext else fresh)
        while self._ciphertext:
            try:
                sent = self._socket.send(self._ciphertext)
            except (BlockingIOError, InterruptedError):
                return False
            self._ciphertext = self._ciphertext[sent:]
        return True

    def _read(self, space: memoryview) -> int | None:
        try:
            if not self.established:
                self.established = self._stream.handshake()
            return self._stream.read_into(space) if self.established else None
        finally:  # a message of the handshake, or the alert that says why it failed
            with contextlib.suppress(OSError):
                self.flush()


def _first_slice(buffers: Sequence[memoryview]) -> memoryview | bytes:
    """Return the first bytes of `buffers`, without a copy unless they are small."""
    first = buffers[0]
    if len(first) >= _SMALL or len(buffers) == 1:
        return first[:_SLICE]
    parts, remaining = [], _SLICE
    for buffer in buffers:
        parts.append(buffer[:remaining])
        remaining -= len(parts[-1])
        if not remaining:
            break
    return b"".join(parts)
