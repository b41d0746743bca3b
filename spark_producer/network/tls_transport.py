"""A connection that encrypts what it carries: TLS over a `TcpTransport`.

Only a client with `security.protocol` SSL or SASL_SSL imports this module, and Python's `ssl` with it.
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
"""The most plaintext that is encrypted at once, and so the most ciphertext that waits for the kernel.

Smaller slices are slower: encryption frees the GIL, and each slice waits to get it back, behind busy Python threads. With larger
ones a connection that waits for the kernel holds more than 512 KiB: 502 KiB were measured with these, 625 KiB with 256 KiB."""

JOINED_BELOW = 4 * 1024
"""Buffers with fewer bytes are joined: each call costs 0.8 µs, and each record 22 bytes."""

RECEIVE_BYTES = 64 * 1024
"""The most ciphertext that one call of the system gives: four records of the largest size."""

READS_PER_CALL = 4
"""The most reads of the socket in one call. TLS has messages that end no handshake and carry no plaintext (HelloRequest, new
tickets, updates of keys), and a peer that never stops sending them must not keep the thread from other connections and deadlines.
64 KiB of updates take 0.2 s."""


class TlsConnector:
    """Opens the connections of one client: `Client(…, open_transport=TlsConnector(security.tls, security.allowed_secrets))`.

    The first call reads keys and certificates, and later ones read them again after a file has changed. Calling it raises
    `ConnectionFailed` like `TcpTransport`, and `TlsFailed` with `fatal` if keys or certificates cannot be used. It is not
    pickled: each process makes its own from the settings.
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
        """The plaintext that is not encrypted yet, and the ciphertext that is not sent yet, in bytes."""
        return self._plaintext_bytes + self._tcp.queued

    @property
    def wants(self) -> int:
        """The events to wait for until `finish_connect` is called again."""
        if not self._connected:
            return self._tcp.wants
        return selectors.EVENT_READ | selectors.EVENT_WRITE if self._tcp.queued else selectors.EVENT_READ

    @property
    def buffered(self) -> bool:
        """Whether `receive_into` may give something although the socket has nothing."""
        return self._stream.buffered

    @property
    def step(self) -> str:
        """What is being done while it connects."""
        return "TLS handshake" if self._connected else self._tcp.step

    def fileno(self) -> int:
        """Return the socket's file descriptor."""
        return self._tcp.fileno()

    def finish_connect(self) -> bool:
        """Go on with connecting, and then with the handshake. Return True once it is done.

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
            # A peer that closes without having read all of our ClientHello resets the connection: that is an end, too.
            self._stream.feed_eof()
            self._stream.handshake()
            raise

    def write(self, buffers: Iterable[Buffer]) -> bool:
        """Queue `buffers`, and encrypt and write what the kernel takes now. Return True once nothing is queued."""
        for buffer in buffers:
            if len(buffer):
                self._plaintext.append(memoryview(buffer).cast("B"))
                self._plaintext_bytes += len(self._plaintext[-1])
        return self.flush()

    def flush(self) -> bool:
        """Write what the kernel takes now. The next slice is encrypted only when the one before it is out."""
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
        """Fill `space` from what is there. Return None if there is nothing now, and 0 if the peer has closed."""
        filled = reads = 0
        while filled < len(space):
            count = self._read(space[filled:])
            if count is not None:
                filled += count
                if self._stream.buffered:  # the space is full; or the end comes next, or an error
                    break
            elif reads == READS_PER_CALL or not self._receive_or_explain():
                return filled or None
            else:
                reads += 1
        return filled

    def close(self) -> None:
        """Tell the peer if the kernel takes it now, close the socket, and release every queued buffer."""
        self._plaintext.clear()
        self._plaintext_bytes = 0
        self._stream.close()
        if self._connected:
            self._tell()
        self._connected = False
        self._tcp.close()

    def _handshake(self) -> bool:
        """Take one step of the handshake, and send what it gives, which is an alert if it fails."""
        try:
            done = self._stream.handshake()
        except TlsFailed:
            self._tell()
            raise
        self._tcp.write([self._stream.take_outgoing()])
        return done

    def _read(self, space: memoryview) -> int | None:
        """Decrypt what has arrived, and send what this gives: updates of keys, and alerts."""
        try:
            return self._stream.read_into(space)
        finally:
            self._tell()

    def _tell(self) -> None:
        """Send what the peer should know. If that fails, the next call that reads or writes will say why."""
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
        left = SLICE_BYTES
        while self._plaintext and left:
            part = self._take(left)
            self._stream.write(part)
            left -= len(part)

    def _take(self, most: int) -> bytes | memoryview:
        """Return the next plaintext of the queue: a part of a large buffer as it is, or small buffers joined."""
        head = self._plaintext[0]
        part: bytes | memoryview
        if len(head) >= min(JOINED_BELOW, most):
            part, rest = head[:most], head[most:]
            if rest:
                self._plaintext[0] = rest
            else:
                self._plaintext.popleft()
        else:
            parts: list[memoryview] = []
            room = min(JOINED_BELOW, most)
            while self._plaintext and len(self._plaintext[0]) < room and most >= len(self._plaintext[0]):
                parts.append(self._plaintext.popleft())
                most -= len(parts[-1])
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
        """Raise what an error of TCP may mean before the first answer; later it means what it says.

        With TLS 1.3 a broker refuses our certificate after our handshake: it says so and closes. Its words may lie unread
        behind a failed write, or be lost, since a reset of the connection overtakes them.

        Raises:
            TlsFailed: these words are there.
            ConnectionFailed: they are not, but it is before the first answer.
        """
        if not self._stream.established or self._stream.answered:
            return
        with contextlib.suppress(ConnectionFailed):
            self._receive()
        self._stream.read_into(memoryview(bytearray(1)))
        raise ConnectionFailed(
            f"{error}, after the TLS handshake and before the first answer: the broker may want a certificate of the client, or "
            "have refused ours (ssl.keystore.location)",
            **vars(error),
        ) from error


def _server_name(host: str) -> str:
    """Return a host as certificates name it: without brackets, a zone (RFC 4007), or the dot of a full name (RFC 6066, 3)."""
    return host.strip("[]").partition("%")[0].removesuffix(".")


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
