"""What tests of logins over sockets share: scripts of a broker that takes a login, and settings that ask for one."""

from __future__ import annotations

from spark_producer.protocol import SASL_AUTHENTICATE, SASL_HANDSHAKE, messages
from spark_producer.secret import Secret
from spark_producer.security import SaslSettings, SecuritySettings
from tests.stages.scripted_server import Peer, Script

PASSWORD = "app-pw-canary"
PLAIN_LOGIN = SecuritySettings(sasl=SaslSettings("PLAIN", "app", Secret(PASSWORD)))


def shake_hands(peer: Peer) -> None:
    request = peer.read()
    assert request.api is SASL_HANDSHAKE
    peer.answer(request, messages.SaslHandshakeResponse(0, ("PLAIN",)))


def take_login(peer: Peer, lifetime_ms: int = 0) -> None:
    """Take the login of a connection that has negotiated, or a login anew."""
    shake_hands(peer)
    request = peer.read()
    assert request.api is SASL_AUTHENTICATE
    assert request.body.auth_bytes == f"\0app\0{PASSWORD}".encode()
    peer.answer(request, messages.SaslAuthenticateResponse(0, "", b"", lifetime_ms))


def refuse_login(peer: Peer, said: str = "Authentication failed: Invalid username or password") -> None:
    peer.negotiate()
    shake_hands(peer)
    peer.answer(peer.read(), messages.SaslAuthenticateResponse(58, said))


def serve(lifetime_ms: int = 0) -> Script:
    """Take a login, then answer every request by an empty description of the cluster."""

    def script(peer: Peer) -> None:
        peer.negotiate()
        take_login(peer, lifetime_ms)
        while True:
            peer.answer(peer.read(), messages.MetadataResponse())

    return script
