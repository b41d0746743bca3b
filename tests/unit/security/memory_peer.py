"""The other side of a `TlsStream` in memory: Python's own `ssl`, which owes nothing to the code under test."""

from __future__ import annotations

import ssl

from spark_producer.security.tls_stream import TlsStream
from tests.support.certificates import Certificates

MAX_TURNS = 10
"""A handshake takes three."""


class MemoryPeer:
    """A server, or with `client_of` the client of a server of that name."""

    def __init__(self, context: ssl.SSLContext, client_of: str | None = None) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, client_of is None, client_of)
        self.established = False
        self.error: ssl.SSLError | None = None
        """Why its handshake failed."""

    def turn(self, stream: TlsStream) -> None:
        """Take what the stream has to say, go on with the handshake, and answer."""
        self.incoming.write(stream.take_outgoing())
        try:
            if not self.established and self.error is None:
                self.tls.do_handshake()
                self.established = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self.error = error
        stream.feed(self.outgoing.read())

    def read(self) -> bytes:
        """Return all plaintext that has come."""
        found = b""
        try:
            while True:
                found += self.tls.read(1 << 20)
        except ssl.SSLWantReadError:
            return found

    def send(self, plaintext: bytes, stream: TlsStream) -> None:
        """Send one record, or more if it is long."""
        self.tls.write(plaintext)
        stream.feed(self.outgoing.read())


def shake(stream: TlsStream, peer: MemoryPeer) -> None:
    """Complete the handshake of both sides."""
    done = False
    for _ in range(MAX_TURNS):
        done = done or stream.handshake()
        peer.turn(stream)
        if done and (peer.established or peer.error):
            return
    raise AssertionError("the handshake did not end")


def read_some(stream: TlsStream, size: int = 1 << 16) -> bytes | None:
    """Return the stream's next bytes; None if it needs more."""
    space = memoryview(bytearray(size))
    count = stream.read_into(space)
    return None if count is None else bytes(space[:count])


def server(
    certificates: Certificates,
    name: str = "broker",
    *,
    ask: bool = False,
    version: ssl.TLSVersion | None = None,
    suites: str = "",
) -> MemoryPeer:
    """A server with a certificate; with `ask` it wants the client's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.file(f"{name}.pem"))
    if ask:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(certificates.ca)
    if version is not None:
        context.minimum_version = context.maximum_version = version
    if suites:
        context.set_ciphers(suites)
    return MemoryPeer(context)
