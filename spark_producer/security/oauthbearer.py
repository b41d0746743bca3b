"""OAUTHBEARER (RFC 7628): a token and its extensions (KIP-342) in one message, and the broker's error response."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Final

from spark_producer.common.escape import for_log
from spark_producer.common.redaction import remember
from spark_producer.common.secret import Secret
from spark_producer.errors import AuthenticationFailed
from spark_producer.security.token import extension_problem, token_problem

_HEADER: Final = b"n,,"
_SEPARATOR: Final = b"\x01"
_MAX_REASON_LENGTH: Final = 64 * 1024


def oauthbearer(token: Secret, extensions: tuple[tuple[str, str], ...] = ()) -> Generator[bytes, bytes, None]:
    """Log in with a token. A rejection is answered with one byte, as the RFC requires, after which the broker ends the login.

    Raises:
        AuthenticationFailed: the token or an extension cannot be sent, or the broker rejects it (fatal).
    """
    problem = token_problem(token)
    if problem:
        raise AuthenticationFailed(f"cannot send the token for OAUTHBEARER: {problem}", fatal=True)
    problem = extension_problem(extensions)
    if problem:
        raise AuthenticationFailed(f"kafka.sasl.oauthbearer.extensions: {problem}", fatal=True)
    remember(token)
    response = yield _first_message(token, extensions)
    if not response:
        return
    yield _SEPARATOR
    raise AuthenticationFailed(f"the broker rejected the token: {failure_reason(response)}", fatal=True)


def _first_message(token: Secret, extensions: tuple[tuple[str, str], ...]) -> bytes:
    pairs = [f"auth=Bearer {token.reveal()}", *(f"{key}={value}" for key, value in extensions)]
    return _HEADER + _SEPARATOR + b"".join(pair.encode("ascii") + _SEPARATOR for pair in pairs) + _SEPARATOR


def failure_reason(response: bytes) -> str:
    """Return the status and scope of an error response (RFC 7628, 3.2.2), or its text, escaped."""
    try:
        parsed = json.loads(response[:_MAX_REASON_LENGTH])
    except (ValueError, RecursionError):
        parsed = None
    status = parsed.get("status") if isinstance(parsed, dict) else None
    if not isinstance(status, str):
        return for_log(response)
    scope = parsed.get("scope") if isinstance(parsed, dict) else None
    return for_log(status) + (
        f" (it requires the scope {for_log(scope)!r})" if isinstance(scope, str) and scope else ""
    )
