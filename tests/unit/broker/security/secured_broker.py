"""Helpers for the secure listener: a step-by-step login, TLS over a raw client, a broker whose clock the test sets."""

from __future__ import annotations

import base64
import json
import selectors
import socket
import ssl
from collections.abc import Generator
from pathlib import Path

from spark_producer.broker.connections.lifecycle import Clients
from spark_producer.broker.context import Endpoint
from spark_producer.broker.security.secure_listener import SecureListener
from spark_producer.broker.security.settings import BrokerSecurity
from spark_producer.broker.settings import BrokerSettings
from spark_producer.broker.topic_store import TopicStore
from spark_producer.common.error_codes import Code
from spark_producer.common.secret import Secret
from spark_producer.protocol import SASL_AUTHENTICATE, SASL_HANDSHAKE, messages
from spark_producer.security.plain import plain
from spark_producer.security.scram import scram
from tests.fakes.raw_client import RawClient
from tests.unit.broker.handler_calls import context_of

PASSWORD = "pw, with = and Ⅷ"
HOST = "127.0.0.1"


def messages_of(mechanism: str, user: str = "ada", password: str = PASSWORD) -> Generator[bytes, bytes, None]:
    """The client's side of a mechanism."""
    if mechanism == "PLAIN":
        return plain(user, Secret(password))
    if mechanism == "OAUTHBEARER":
        return iter_token(token(user))
    return scram(mechanism, user, Secret(password))


def iter_token(written: str) -> Generator[bytes, bytes, None]:
    response = yield f"n,,\x01auth=Bearer {written}\x01\x01".encode()
    if response:
        yield b"\x01"


def token(user: object, ends: object = 4_000_000_000, header: object = None) -> str:
    """An unsigned token."""
    parts = (header or {"alg": "none"}, {"sub": user, "exp": ends})
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."


def log_in(client: RawClient, mechanism: str, user: str = "ada", password: str = PASSWORD) -> int:
    """Log in and return the lifetime of the session; the broker must take each step."""
    assert client.ask(SASL_HANDSHAKE, messages.SaslHandshakeRequest(mechanism)).error_code == Code.NONE
    dialog = messages_of(mechanism, user, password)
    message: bytes | None = next(dialog)
    while True:
        assert message is not None
        response = client.ask(SASL_AUTHENTICATE, messages.SaslAuthenticateRequest(message))
        assert (response.error_code, response.error_message) == (Code.NONE, "")
        try:
            message = dialog.send(bytes(response.auth_bytes))
        except StopIteration:
            return response.session_lifetime_ms


def over_tls(client: RawClient, ca: Path, certificate: Path | None = None) -> RawClient:
    """The same client, whose bytes pass through TLS from now on."""
    context = ssl.create_default_context(cafile=str(ca))
    if certificate is not None:
        context.load_cert_chain(certificate)
    client.socket = context.wrap_socket(client.socket, server_hostname=HOST)
    return client


class PairedClient(RawClient):
    """A raw client over a pair of sockets. It never blocks: the broker's turns come first."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._correlation = 0


class PairedBroker:
    """The clients of a secured broker, whose clock and turns the test controls."""

    def __init__(self, directory: Path, security: BrokerSecurity) -> None:
        self.now = 1000.0
        settings = BrokerSettings()
        self.store = TopicStore(directory, settings)
        self._selector = selectors.DefaultSelector()
        self.clients = Clients(
            context_of(self.store, settings, Endpoint("b", 1)),
            self._selector,
            lambda: self.now,
            SecureListener(security, HOST, lambda: self.now),
        )
        self._ends: list[socket.socket] = []

    def connect(self, peer: str = "10.0.0.1:5000") -> PairedClient:
        ours, theirs = socket.socketpair()
        self._ends += [ours, theirs]
        ours.setblocking(False)
        theirs.setblocking(False)
        self.clients.add(ours, peer)
        return PairedClient(theirs)

    def turns(self, count: int = 20) -> None:
        for _ in range(count):
            for key, events in self._selector.select(0):
                self.clients.serve(key.data, events)
            self.clients.work()

    def close(self) -> None:
        self.clients.close()
        self._selector.close()
        self.store.close()
        for end in self._ends:
            end.close()
