"""TLS over a `TcpTransport`.

Only a client with `security.protocol` SSL or SASL_SSL imports this module, and with it Python's `ssl`.
"""

from __future__ import annotations

import contextlib
import selectors
import time
from collections import deque
from collections.abc import Iterable, Sequence

from spark_producer.errors import ConfigError, ConnectionFailed, TlsFailed
from spark_producer.network.settings import ConnectionSettings
from spark_producer.network.transport import ResolvedAddress, TcpTransport
from spark_producer.protocol import Buffer
from spark_producer.security import TlsSettings
from spark_producer.security.rotation import reloading_client_context
from spark_producer.security.tls_errors import Peer
from spark_producer.security.tls_stream import TlsStream

SLICE_BYTES = 192 * 1024
"""Maximum bytes of plaintext that are encrypted at once, and so of ciphertext that waits for the kernel.

Smaller slices are slower: encryption releases the GIL, and after each slice busy Python threads delay its return. With larger
ones a connection that waits for the kernel holds more than 512 KiB: 502 KiB were measured with these, 625 KiB with 256 KiB."""

JOINED_BELOW = 4 * 1024
"""Maximum bytes of buffers that are joined before encryption: each call costs 0.8 µs, and each TLS record 22 bytes."""

RECEIVE_BYTES = 64 * 1024
"""Maximum bytes of ciphertext per system call: four TLS records of maximum size."""

READS_PER_CALL = 4
"""Maximum number of socket reads in one call. Some TLS messages neither end a handshake nor carry plaintext (HelloRequest, new
tickets, key updates); a peer that sends them without end must not block other connections. 64 KiB of key updates take 0.2 s."""


class TlsConnector:
    """Opens the connections of one client: `Client(…, open_transport=TlsConnector(security.tls, security.allowed_secrets))`.

    The first call reads keys and certificates; later calls read them again if a file has changed. A call raises
    `ConnectionFailed` like `TcpTransport`, and `TlsFailed` with `fatal` if keys or certificates cannot be used. It is not
    pickled: each process creates its own from the settings.
    """

    def __init__(self, settings: TlsSettings, allowed: Sequence[str] = ()) -> None:
        self._context = reloading_client_context(settings, tuple(allowed))

    def __call__(self, address: ResolvedAddress, settings: ConnectionSettings) -> TlsTransport:
        """Begin to connect to `address`."""
        try:
            context = self._context.current()
        except ConfigError as error:
            raise TlsFailed(str(error), fatal=True) from error
        known = (address.host, address.port) in settings.bootstrap
        peer = Peer(str(address), "bootstrap.servers" if known else "the brokers' advertised.listeners", _now)
        stream = TlsStream(context, _server_name(address.host), peer=peer)
        return TlsTransport(TcpTransport(address, settings), stream)


class TlsTransport:
    """A TLS connection over a TCP connection that has begun to connect."""

    def __init__(self, tcp: TcpTransport, stream: TlsStream) -> None:
        self._tcp = tcp
        self._stream = stream
        self._connected = False
        self._plaintext: deque[memoryview] = deque()
        self._plaintext_bytes = 0
        self._ciphertext = memoryview(bytearray(RECEIVE_BYTES))

    @property
    def queued(self) -> int:
        """Bytes of plaintext that is not encrypted yet, and of ciphertext that is not sent yet."""
        return self._plaintext_bytes + self._tcp.queued

    @property
    def wants(self) -> int:
        """The events to wait for before the next `finish_connect`."""
        if not self._connected:
            return self._tcp.wants
        return selectors.EVENT_READ | selectors.EVENT_WRITE if self._tcp.queued else selectors.EVENT_READ

    @property
    def buffered(self) -> bool:
        """Whether `receive_into` may return bytes although the socket has none."""
        return self._stream.buffered

    @property
    def step(self) -> str:
        """Name of the current step of connecting."""
        return "TLS handshake" if self._connected else self._tcp.step

    def fileno(self) -> int:
        """Return the socket's file descriptor."""
        return self._tcp.fileno()

    def finish_connect(self) -> bool:
        """Continue to connect, and then the handshake. Return True once both are done.

        Raises:
            ConnectionFailed: the connection was refused.
            TlsFailed: the handshake failed; `fatal` says whether it would fail again.
        """
        if not self._connected:
            if not self._tcp.finish_connect():
                return False
            self._connected = True
        try:
            for _ in range(READS_PER_CALL):
                if self._handshake():
                    return True
                if not self._receive():
                    return False
            return self._handshake()
        except ConnectionFailed:
            # A peer that closes before it has read the whole ClientHello resets the connection: handle that as an end.
            self._stream.feed_eof()
            self._stream.handshake()
            raise

    def write(self, buffers: Iterable[Buffer]) -> bool:
        """Queue `buffers`, and encrypt and write as much as the kernel accepts. Return whether the queue is empty."""
        for buffer in buffers:
            if len(buffer):
                self._plaintext.append(memoryview(buffer).cast("B"))
                self._plaintext_bytes += len(self._plaintext[-1])
        return self.flush()

    def flush(self) -> bool:
        """Write as much as the kernel accepts. A slice is encrypted only after the previous one is written."""
        try:
            while self._tcp.write([self._stream.take_outgoing()]):
                if not self._plaintext:
                    return True
                self._encrypt_slice()
        except ConnectionFailed as error:
            self._explain(error)
            raise
        return False

    def receive_into(self, space: memoryview) -> int | None:
        """Fill `space`, and return the number of bytes; None if there are none now, and 0 if the peer has closed."""
        filled = reads = 0
        while filled < len(space):
            count = self._read(space[filled:])
            if count is not None:
                filled += count
                if self._stream.buffered:  # the space is full, or the end or an error comes next
                    break
            elif reads == READS_PER_CALL or not self._receive_or_explain():
                return filled or None
            else:
                reads += 1
        return filled

    def close(self) -> None:
        """Send close_notify if the kernel accepts it now, close the socket, and release all queued buffers."""
        self._plaintext.clear()
        self._plaintext_bytes = 0
        self._stream.close()
        if self._connected:
            self._send_output()
        self._connected = False
        self._tcp.close()

    def _handshake(self) -> bool:
        """Take one step of the handshake, and send its output, which is an alert if it fails."""
        try:
            done = self._stream.handshake()
        except TlsFailed:
            self._send_output()
            raise
        self._tcp.write([self._stream.take_outgoing()])
        return done

    def _read(self, space: memoryview) -> int | None:
        """Decrypt received bytes, and send the output: key updates and alerts."""
        try:
            return self._stream.read_into(space)
        finally:
            self._send_output()

    def _send_output(self) -> None:
        """Send the output of the stream. If that fails, the next read or write raises the reason."""
        outgoing = self._stream.take_outgoing()
        if outgoing:
            with contextlib.suppress(ConnectionFailed):
                self._tcp.write([outgoing])

    def _receive(self) -> bool:
        """Receive some ciphertext. Return False if there is none now."""
        count = self._tcp.receive_into(self._ciphertext)
        if count is None:
            return False
        if count:
            self._stream.feed(self._ciphertext[:count])
        else:
            self._stream.feed_eof()
        return True

    def _encrypt_slice(self) -> None:
        remaining = SLICE_BYTES
        while self._plaintext and remaining:
            part = self._take(remaining)
            self._stream.write(part)
            remaining -= len(part)

    def _take(self, limit: int) -> bytes | memoryview:
        """Return at most `limit` bytes of queued plaintext: a slice of a large buffer, or small buffers joined."""
        head = self._plaintext[0]
        part: bytes | memoryview
        if len(head) >= min(JOINED_BELOW, limit):
            part, rest = head[:limit], head[limit:]
            if rest:
                self._plaintext[0] = rest
            else:
                self._plaintext.popleft()
        else:
            parts: list[memoryview] = []
            join_limit = min(JOINED_BELOW, limit)
            while self._plaintext and len(self._plaintext[0]) < join_limit and limit >= len(self._plaintext[0]):
                parts.append(self._plaintext.popleft())
                limit -= len(parts[-1])
            part = b"".join(parts)
        self._plaintext_bytes -= len(part)
        return part

    def _receive_or_explain(self) -> bool:
        try:
            return self._receive()
        except ConnectionFailed as error:
            self._explain(error)
            raise

    def _explain(self, error: ConnectionFailed) -> None:
        """Raise the probable cause of a TCP error before the first response; return if there was a response.

        With TLS 1.3 a broker rejects a client certificate after the handshake: it sends an alert and closes. The alert may be
        unread when a write fails, or be lost in a reset of the connection.

        Raises:
            TlsFailed: the alert was received.
            ConnectionFailed: it was not, and there was no response yet.
        """
        if not self._stream.established or self._stream.answered:
            return
        with contextlib.suppress(ConnectionFailed):
            self._receive()
        self._stream.read_into(memoryview(bytearray(1)))
        raise ConnectionFailed(
            f"{error}, after the TLS handshake and before the first response: the broker may require a client certificate, or "
            "have rejected this one (ssl.keystore.location)",
            **vars(error),
        ) from error


def _server_name(host: str) -> str:
    """Return a host as in certificates: without brackets, zone (RFC 4007) and trailing dot (RFC 6066, 3)."""
    return host.strip("[]").partition("%")[0].removesuffix(".")


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
