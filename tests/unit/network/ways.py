"""Both kinds of transport, each with a peer of its own kind: a socket of Python's, which owes nothing to the code under test."""

from __future__ import annotations

import selectors
import socket
import ssl
import threading
from collections.abc import Callable
from typing import NamedTuple

from spark_producer.network.settings import ConnectionSettings
from spark_producer.network.tls_transport import TlsConnector
from spark_producer.network.transport import ResolvedAddress, TcpTransport, Transport, resolve
from spark_producer.security import Store, TlsSettings
from tests.support.certificates import Certificates

DEADLINE = 20.0


class Way(NamedTuple):
    """A function that opens a transport, and the peer's side of the socket."""

    open: Callable[[ResolvedAddress, ConnectionSettings], Transport]
    serve: Callable[[socket.socket], socket.socket]


def plain_way() -> Way:
    return Way(TcpTransport, lambda accepted: accepted)


def tls_way(certificates: Certificates, version: str = "TLSv1.3") -> Way:
    """TLS of one version alone."""
    context = server_context(certificates)
    settings = TlsSettings(trust=Store(location=str(certificates.ca)), protocols=(version,))
    return Way(TlsConnector(settings), lambda accepted: context.wrap_socket(accepted, server_side=True))


def server_context(certificates: Certificates, name: str = "broker", ask: bool = False) -> ssl.SSLContext:
    """The context of a peer; with `ask` it wants the client's certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.file(f"{name}.pem"))
    if ask:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(certificates.ca)
    return context


def connect(way: Way, listener: socket.socket, settings: ConnectionSettings) -> tuple[Transport, socket.socket]:
    """An established transport and its peer, whose own half of a handshake runs in a thread."""
    found: list[socket.socket] = []

    def accept() -> None:
        accepted, _ = listener.accept()
        accepted.settimeout(DEADLINE)
        found.append(way.serve(accepted))

    server = threading.Thread(target=accept, daemon=True)
    server.start()
    transport = way.open(resolve(*listener.getsockname())[0], settings)
    establish(transport)
    server.join(DEADLINE)
    return transport, found[0]


def establish(transport: Transport) -> int:
    """Connect as the client's loop does, and return how often it was called for that."""
    calls = 0
    done = False
    while not done:
        assert wait_for(transport, transport.wants)
        done = transport.finish_connect()
        calls += 1
    return calls


def wait_for(transport: Transport, event: int) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(transport.fileno(), event)
        return bool(selector.select(DEADLINE))


def received(transport: Transport, space: memoryview) -> int:
    """Return the kind of the next bytes: those of TLS itself wake up a selector, too."""
    count = transport.receive_into(space)
    while count is None:
        assert wait_for(transport, selectors.EVENT_READ)
        count = transport.receive_into(space)
    return count
