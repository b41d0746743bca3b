"""OAUTHBEARER (RFC 7628): a token and its extensions (KIP-342) in one message, and the broker's reason if it refuses."""

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
    """Log in by a token. If the broker refuses it, the answer is one byte, as the RFC demands, after which it ends the login.

    Raises:
        AuthenticationFailed: The token or an extension cannot be sent, or the broker refuses. It is fatal.
    """
    problem = token_problem(token)
    if problem:
        raise AuthenticationFailed(f"the token for OAUTHBEARER cannot be sent: {problem}", fatal=True)
    problem = extension_problem(extensions)
    if problem:
        raise AuthenticationFailed(f"kafka.sasl.oauthbearer.extensions: {problem}", fatal=True)
    remember(token)
    answer = yield _first_message(token, extensions)
    if not answer:
        return
    yield _SEPARATOR
    raise AuthenticationFailed(f"the broker refuses the token: {failure_reason(answer)}", fatal=True)


def _first_message(token: Secret, extensions: tuple[tuple[str, str], ...]) -> bytes:
    pairs = [f"auth=Bearer {token.reveal()}", *(f"{key}={value}" for key, value in extensions)]
    return _HEADER + _SEPARATOR + b"".join(pair.encode("ascii") + _SEPARATOR for pair in pairs) + _SEPARATOR


def failure_reason(answer: bytes) -> str:
    """Return the status and scope of a refusal (RFC 7628, 3.2.2), or what else the broker says, escaped."""
    try:
        said = json.loads(answer[:_MAX_REASON_LENGTH])
    except (ValueError, RecursionError):
        said = None
    status = said.get("status") if isinstance(said, dict) else None
    if not isinstance(status, str):
        return for_log(answer)
    scope = said.get("scope") if isinstance(said, dict) else None
    return for_log(status) + (f" (it wants the scope {for_log(scope)!r})" if isinstance(scope, str) and scope else "")
