"""PLAIN (RFC 4616): name and password in one message."""

from __future__ import annotations

from collections.abc import Generator

from spark_producer.common.redaction import remember
from spark_producer.common.secret import Secret
from spark_producer.errors import AuthenticationFailed


def plain(username: str, password: Secret) -> Generator[bytes, bytes, None]:
    """Log in by PLAIN. What the server answers means nothing: whether the login succeeded is told by the error code around it.

    Raises:
        AuthenticationFailed: Name or password is empty, holds NUL, or is no Unicode text. It is fatal.
    """
    _check("user name", "kafka.sasl.username", Secret(username))
    _check("password", "kafka.sasl.password", password)
    remember(password)
    # The name to act for stays empty: brokers refuse any but the user's own (PlainSaslServer).
    yield b"\0" + username.encode() + b"\0" + password.reveal().encode()


def _check(what: str, option: str, text: Secret) -> None:
    """Raise an error if PLAIN cannot carry `text`, without showing it."""
    if not text:
        raise AuthenticationFailed(f"PLAIN needs a {what}, and it is empty: set {option}", fatal=True)
    if "\0" in text.reveal():
        raise AuthenticationFailed(f"PLAIN cannot carry the {what}: it holds the character NUL", fatal=True)
    if not is_unicode(text):
        raise AuthenticationFailed(f"PLAIN cannot carry the {what}: it is no Unicode text", fatal=True)


def is_unicode(text: Secret) -> bool:
    """Whether UTF-8 can write `text`: lone surrogates it cannot."""
    try:
        text.reveal().encode()
    except UnicodeEncodeError:  # it holds the text, so nothing is raised while it is handled
        return False
    return True
