"""GSSAPI (RFC 4752): the messages of a Kerberos login, after whose last one nothing more is protected.

The security context is that of a library, which has made the first message already: for that one alone it asks a KDC.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, Protocol

from spark_producer.errors import AuthenticationFailed

_OFFER_BYTES: Final = 4
"""A bit mask of security layers, and the maximum size of a message in three bytes (RFC 4752, 3.1)."""

_NO_LAYER: Final = 1
_CHOICE: Final = bytes((_NO_LAYER, 0, 0, 0))
"""No security layer, hence a size of 0. The authorization id stays empty: brokers take the principal of the ticket."""


class SecurityContext(Protocol):
    """A security context with a broker. No method blocks; each raises AuthenticationFailed about a message of another peer."""

    @property
    def first_message(self) -> bytes:
        """The first message, which has the ticket for the broker."""

    @property
    def complete(self) -> bool:
        """Whether both sides are authenticated."""

    def step(self, challenge: bytes) -> bytes:
        """Return the next message, which may be empty."""

    def unwrap(self, message: bytes) -> bytes:
        """Return the content of a protected message."""

    def wrap(self, content: bytes) -> bytes:
        """Return a protected message."""


def gssapi(context: SecurityContext) -> Generator[bytes, bytes, None]:
    """Log in with GSSAPI: both sides prove who they are, and choose no security layer, as Kafka does.

    Raises:
        AuthenticationFailed: the peer does not prove that it has the key of the broker, or offers only protected connections
            (fatal).
    """
    message = context.first_message
    while not context.complete:
        challenge = yield message
        message = context.step(challenge)
    wrapped = yield message
    offer = context.unwrap(wrapped)
    if len(offer) != _OFFER_BYTES or not offer[0] & _NO_LAYER:
        raise AuthenticationFailed(
            "the broker offers no connection without a security layer of SASL, which Kafka does not know. Connect to a Kafka "
            "broker, and use SASL_SSL to encrypt",
            fatal=True,
        )
    yield context.wrap(_CHOICE)
