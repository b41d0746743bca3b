"""TLS without sockets, for clients and servers: callers feed ciphertext and take the outgoing ciphertext."""

from __future__ import annotations

import ssl
from typing import Any

from spark_producer.errors import TlsFailed
from spark_producer.security.contexts import ContextInfo, TlsContext
from spark_producer.security.tls_errors import NOT_TLS, HandshakePhase, Peer, client_tls_error, server_tls_error
from spark_producer.security.x509 import read_certificate

_DER = 2
"""X509_FILETYPE_ASN1 of OpenSSL."""

_ALERT_OF_KAFKA = bytes.fromhex("15030300020250")
"""The response of Kafka's brokers to a client without TLS: a fatal alert, internal_error. OpenSSL sends none."""


class TlsStream:
    """The TLS of one connection. The thread that owns the connection uses it.

    Received bytes go to `feed`, and after every other call `take_outgoing` has the bytes to send: reading too can produce
    handshake messages, alerts and key updates. Every method except `take_outgoing` may raise `TlsFailed`.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        server_hostname: str | None,
        server_side: bool = False,
        *,
        peer: Peer | None = None,
    ) -> None:
        self._peer = peer or Peer()
        self._server_side = server_side
        self._facts = context.info if isinstance(context, TlsContext) else ContextInfo()
        self._host = server_hostname
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._failure: TlsFailed | None = None
        self._received = self._established = self._answered = False
        self._readable = False
        try:
            self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side, server_hostname)
        except ValueError as error:
            raise TlsFailed(f"{server_hostname!r} is not a valid name of a TLS server: {error}", fatal=True) from error

    @property
    def buffered(self) -> bool:
        """Whether `read_into` may return bytes without more ciphertext."""
        return self._readable

    @property
    def established(self) -> bool:
        """Whether the handshake is done."""
        return self._established

    @property
    def answered(self) -> bool:
        """Whether data of the peer was decrypted after the handshake; until then it may reject the client's certificate."""
        return self._answered

    def handshake(self) -> bool:
        """Continue the handshake with the received ciphertext. Return whether it is done."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            if self._server_side and error.reason in NOT_TLS:
                self._outgoing.write(_ALERT_OF_KAFKA)
            raise self._translated(error) from error
        self._established = True
        self._readable = self._incoming.pending > 0
        return True

    def feed(self, ciphertext: bytes | memoryview) -> None:
        """Add received ciphertext, without decrypting it."""
        self._received = self._received or len(ciphertext) > 0
        self._incoming.write(ciphertext)
        self._readable = self._established

    def feed_eof(self) -> None:
        """Record the end of the received ciphertext."""
        self._incoming.write_eof()
        self._readable = self._established

    def read_into(self, space: memoryview) -> int | None:
        """Fill `space` with plaintext from the received ciphertext.

        Returns:
            The number of bytes; None if more ciphertext is needed; 0 if the peer has closed, with or without close_notify, which
            Kafka's brokers do not send. Messages have a length, so that truncation is noticed.
        """
        if self._failure is not None:
            raise self._failure
        filled = 0
        needs_more = ended = False
        while filled < len(space) and not (needs_more or ended or self._failure):
            try:
                count: int = self._tls.read(len(space) - filled, space[filled:])  # type: ignore[assignment]
            except ssl.SSLWantReadError:
                needs_more = True
            except ssl.SSLEOFError:
                ended = True
            except ssl.SSLError as error:
                self._failure = self._translated(error)
            else:
                filled += count
                ended = count == 0
                self._answered = self._answered or count > 0
        if self._failure is not None and not filled:
            raise self._failure
        more = self._tls.pending() or self._incoming.pending or self._incoming.eof
        self._readable = not needs_more and bool(ended or self._failure or more)
        return None if needs_more and not filled else filled

    def write(self, plaintext: bytes | bytearray | memoryview) -> None:
        """Encrypt all of `plaintext`. Time, and memory until `take_outgoing`, grow with its length."""
        if self._failure is not None:
            raise self._failure  # found after the last read; OpenSSL would only report the end
        rest = memoryview(plaintext)
        try:
            while rest:
                rest = rest[self._tls.write(rest) :]
        except ssl.SSLError as error:
            raise self._translated(error) from error

    def take_outgoing(self) -> bytes:
        """Return the ciphertext to send, which may be empty."""
        return self._outgoing.read()

    def close(self) -> None:
        """Create a close_notify for the peer, if the state of the connection allows it."""
        try:
            self._tls.unwrap()
        except (ssl.SSLError, ValueError):
            return  # it waits for the peer's close_notify, or the handshake was not done; ignore both

    def peer_name(self) -> str | None:
        """Return the common name of the verified certificate of the peer; None if there is none."""
        found: Any = self._tls.getpeercert() or {}
        names = [value for group in found.get("subject", ()) for key, value in group if key == "commonName"]
        return str(names[-1]) if names else None

    def _translated(self, error: ssl.SSLError) -> TlsFailed:
        if self._server_side:
            return server_tls_error(error, self._peer)
        phase = HandshakePhase(
            host=self._host,
            info=self._facts,
            chain=tuple(found for der in self._chain() if (found := read_certificate(der)) is not None),
            established=self._established,
            answered=self._answered,
            received=self._received,
        )
        return client_tls_error(error, self._peer, phase)

    def _chain(self) -> list[bytes]:
        """Return the certificate chain of the peer, by the only method that works after a failed handshake; public since 3.13."""
        if hasattr(self._tls, "get_unverified_chain"):
            return list(self._tls.get_unverified_chain() or ())
        return [found.public_bytes(_DER) for found in self._tls._sslobj.get_unverified_chain() or ()]  # type: ignore[attr-defined]
