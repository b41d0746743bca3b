"""PLAIN (RFC 4616): user name and password in one message."""

from __future__ import annotations

from collections.abc import Generator

from spark_producer.common.redaction import remember
from spark_producer.common.secret import Secret
from spark_producer.errors import AuthenticationFailed


def plain(username: str, password: Secret) -> Generator[bytes, bytes, None]:
    """Log in with PLAIN. The response of the server is ignored: the error code of SaslAuthenticate has the result.

    Raises:
        AuthenticationFailed: the name or password is empty, contains NUL, or is not Unicode text (fatal).
    """
    _check("user name", "kafka.sasl.username", Secret(username))
    _check("password", "kafka.sasl.password", password)
    remember(password)
    # The authorization id stays empty: brokers reject any but the user's own (PlainSaslServer).
    yield b"\0" + username.encode() + b"\0" + password.reveal().encode()


def _check(field: str, option: str, text: Secret) -> None:
    """Raise an error, without the text, if PLAIN cannot send `text`."""
    if not text:
        raise AuthenticationFailed(f"PLAIN needs a {field}, and it is empty. Set {option}", fatal=True)
    if "\0" in text.reveal():
        raise AuthenticationFailed(
            f"PLAIN cannot send the {field}: it contains the character NUL. Remove it", fatal=True
        )
    if not is_unicode(text):
        raise AuthenticationFailed(f"PLAIN cannot send the {field}: it is not Unicode text", fatal=True)


def is_unicode(text: Secret) -> bool:
    """Return whether `text` can be encoded as UTF-8, which lone surrogates cannot."""
    try:
        text.reveal().encode()
    except UnicodeEncodeError:  # it holds the text, so no error may be raised while it is handled
        return False
    return True
