"""The messages of a login: SaslHandshake and SaslAuthenticate (KIP-43, KIP-152, KIP-368)."""

# Annotations are evaluated here on purpose (no `from __future__`): they are the schema.
from typing import Annotated, NamedTuple

from spark_producer.protocol.fields import Bytes, Int16, Int64, NullableString, Since, String

# SaslHandshake (17)


class SaslHandshakeRequest(NamedTuple):
    """Names the mechanism of the login that follows."""

    mechanism: String = ""


class SaslHandshakeResponse(NamedTuple):
    """The error code, which is 0 if the mechanism is enabled, and all enabled mechanisms."""

    error_code: Int16 = 0
    mechanisms: tuple[String, ...] = ()


# SaslAuthenticate (36)


class SaslAuthenticateRequest(NamedTuple):
    """Carries one message of the client's side of the mechanism."""

    auth_bytes: Bytes = b""


class SaslAuthenticateResponse(NamedTuple):
    """The server's response. With success `error_message` is an empty text, not null."""

    error_code: Int16 = 0
    error_message: NullableString = None
    auth_bytes: Bytes = b""
    session_lifetime_ms: Annotated[Int64, Since(1)] = 0
