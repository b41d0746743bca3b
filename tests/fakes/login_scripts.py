"""Scripts of brokers that take a login, and of brokers that refuse one or misunderstand it.

Owns: what each of them answers, and what a message must say of each refusal. Must not know: who connects.
"""

from __future__ import annotations

from typing import NamedTuple

from spark_producer.common.secret import Secret
from spark_producer.errors import AuthenticationFailed, PyProducerError, TlsFailed
from spark_producer.protocol import SASL_AUTHENTICATE, SASL_HANDSHAKE, messages
from spark_producer.security import SaslSettings, SecuritySettings
from tests.fakes.scripted_server import Peer, Script

PASSWORD = "app-pw-canary"
PLAIN_LOGIN = SecuritySettings(sasl=SaslSettings("PLAIN", "app", Secret(PASSWORD)))
PLAIN_OPTIONS = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "app",
    "sasl.password": PASSWORD,
}


def shake_hands(peer: Peer) -> None:
    request = peer.read()
    assert request.api is SASL_HANDSHAKE
    peer.answer(request, messages.SaslHandshakeResponse(0, ("PLAIN",)))


def take_login(peer: Peer, lifetime_ms: int = 0) -> None:
    """Take the login of a connection that has negotiated, or another login."""
    shake_hands(peer)
    request = peer.read()
    assert request.api is SASL_AUTHENTICATE
    assert request.body.auth_bytes == f"\0app\0{PASSWORD}".encode()
    peer.answer(request, messages.SaslAuthenticateResponse(0, "", b"", lifetime_ms))


def serve(lifetime_ms: int = 0) -> Script:
    """Take a login, then answer every request by an empty description of the cluster."""

    def script(peer: Peer) -> None:
        peer.negotiate()
        take_login(peer, lifetime_ms)
        while True:
            peer.answer(peer.read(), messages.MetadataResponse())

    return script


# Refusals


def refuse_login(peer: Peer, said: str = "Authentication failed: Invalid username or password") -> None:
    peer.negotiate()
    shake_hands(peer)
    peer.answer(peer.read(), messages.SaslAuthenticateResponse(58, said))


def offer_scram(peer: Peer) -> None:
    peer.negotiate()
    peer.answer(peer.read(), messages.SaslHandshakeResponse(33, ("SCRAM-SHA-512",)))
    assert peer.socket.recv(100) == b"", "the password must not be sent"


def offer_nothing(peer: Peer) -> None:
    peer.negotiate()
    peer.answer(peer.read(), messages.SaslHandshakeResponse(34, ()))


def want_login(peer: Peer) -> None:
    """Close at the first request, as a listener with SASL does to a client without."""
    peer.negotiate()
    peer.read()


def want_tls(peer: Peer) -> None:
    """Answer as a listener with TLS does: an alert, and the end."""
    peer.socket.recv(100)
    peer.socket.sendall(bytes.fromhex("15030300020250"))


class Refusal(NamedTuple):
    """A broker that refuses, the options of the client, and what it must say."""

    script: Script
    options: dict[str, str]
    error: type[PyProducerError]
    texts: tuple[str, ...]


REFUSALS = {
    "sec20 tls port": Refusal(want_tls, {}, TlsFailed, ("SSL or SASL_SSL",)),
    "sec22 login wanted": Refusal(want_login, {}, AuthenticationFailed, ("SASL_PLAINTEXT or SASL_SSL",)),
    "sec23 no sasl": Refusal(offer_nothing, PLAIN_OPTIONS, AuthenticationFailed, ("SSL or PLAINTEXT",)),
    "sec24 mechanism": Refusal(offer_scram, PLAIN_OPTIONS, AuthenticationFailed, ("PLAIN here, but SCRAM-SHA-512",)),
    "sec25 password": Refusal(
        refuse_login, PLAIN_OPTIONS, AuthenticationFailed, ("user 'app' with PLAIN", "Invalid username or password")
    ),
}
"""The rows of security errors, by their ids, that need no TLS on our side."""
