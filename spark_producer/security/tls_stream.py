"""TLS without sockets: ciphertext goes in and comes out, for clients and servers alike."""

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
"""What Kafka's brokers answer to a client without TLS: a fatal alert, internal_error. OpenSSL closes without a word."""


class TlsStream:
    """One connection's TLS. The thread that owns the connection uses it.

    What arrives goes to `feed`, and after every other call `take_outgoing` has what is to be sent: answers of the handshake,
    alerts and updates of keys come from reading, too. Every method but `take_outgoing` may raise `TlsFailed`.
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
        self._heard = self._established = self._answered = False
        self._readable = False
        try:
            self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side, server_hostname)
        except ValueError as error:
            raise TlsFailed(f"{server_hostname!r} cannot be the name of a TLS server: {error}", fatal=True) from error

    @property
    def buffered(self) -> bool:
        """Whether `read_into` may give something without more ciphertext."""
        return self._readable

    @property
    def established(self) -> bool:
        """Whether the handshake is done."""
        return self._established

    @property
    def answered(self) -> bool:
        """Whether anything of the peer was decrypted after the handshake; until then it may refuse our certificate."""
        return self._answered

    def handshake(self) -> bool:
        """Go on with the handshake as far as the ciphertext goes. Return True once it is done."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            if self._server_side and error.reason in NOT_TLS:
                self._outgoing.write(_ALERT_OF_KAFKA)
            raise self._explained(error) from error
        self._established = True
        self._readable = self._incoming.pending > 0
        return True

    def feed(self, ciphertext: bytes | memoryview) -> None:
        """Take what arrived; nothing is decrypted yet."""
        self._heard = self._heard or len(ciphertext) > 0
        self._incoming.write(ciphertext)
        self._readable = self._established

    def feed_eof(self) -> None:
        """Note that nothing more will arrive."""
        self._incoming.write_eof()
        self._readable = self._established

    def read_into(self, space: memoryview) -> int | None:
        """Fill `space` with plaintext from all that was fed, record after record.

        Returns:
            The number of bytes. None: more ciphertext is needed; 0: the peer closed, with or without saying so, as Kafka's
            brokers do it. Messages say how long they are, so that nothing is cut off without being noticed.
        """
        if self._failure is not None:
            raise self._failure
        filled = 0
        wanting = ended = False
        while filled < len(space) and not (wanting or ended or self._failure):
            try:
                count: int = self._tls.read(len(space) - filled, space[filled:])  # type: ignore[assignment]
            except ssl.SSLWantReadError:
                wanting = True
            except ssl.SSLEOFError:
                ended = True
            except ssl.SSLError as error:
                self._failure = self._explained(error)
            else:
                filled += count
                ended = count == 0
                self._answered = self._answered or count > 0
        if self._failure is not None and not filled:
            raise self._failure
        more = self._tls.pending() or self._incoming.pending or self._incoming.eof
        self._readable = not wanting and bool(ended or self._failure or more)
        return None if wanting and not filled else filled

    def write(self, plaintext: bytes | bytearray | memoryview) -> None:
        """Encrypt all of it. The time, and the memory until `take_outgoing`, grow with its length."""
        if self._failure is not None:
            raise self._failure  # it came behind what was read last, and OpenSSL would say no more than that all is over
        rest = memoryview(plaintext)
        try:
            while rest:
                rest = rest[self._tls.write(rest) :]
        except ssl.SSLError as error:
            raise self._explained(error) from error

    def take_outgoing(self) -> bytes:
        """Return the ciphertext to send, which is empty if there is none."""
        return self._outgoing.read()

    def close(self) -> None:
        """Tell the peer that nothing follows (close_notify), if the connection is in a state to do so."""
        try:
            self._tls.unwrap()
        except (ssl.SSLError, ValueError):
            return  # it waits for the peer's own, or the handshake was not done; nobody waits here

    def peer_name(self) -> str | None:
        """Return the common name of the certificate that the peer showed and that was verified, or None."""
        found: Any = self._tls.getpeercert() or {}
        names = [value for group in found.get("subject", ()) for key, value in group if key == "commonName"]
        return str(names[-1]) if names else None

    def _explained(self, error: ssl.SSLError) -> TlsFailed:
        if self._server_side:
            return server_tls_error(error, self._peer)
        phase = HandshakePhase(
            host=self._host,
            info=self._facts,
            chain=tuple(found for der in self._chain() if (found := read_certificate(der)) is not None),
            established=self._established,
            answered=self._answered,
            heard=self._heard,
        )
        return client_tls_error(error, self._peer, phase)

    def _chain(self) -> list[bytes]:
        """Return what the peer showed. `ssl` gives it out of a failed handshake in one way only, which is public since 3.13."""
        if hasattr(self._tls, "get_unverified_chain"):
            return list(self._tls.get_unverified_chain() or ())
        return [found.public_bytes(_DER) for found in self._tls._sslobj.get_unverified_chain() or ()]  # type: ignore[attr-defined]
