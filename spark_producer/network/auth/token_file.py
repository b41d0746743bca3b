"""Tokens of a file that something else keeps up to date, as the kubelet does for service accounts (Kafka's FileJwtRetriever)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from spark_producer.common.redaction import remember
from spark_producer.common.secret import Secret
from spark_producer.config.token_rules import token_file
from spark_producer.errors import AuthenticationFailed
from spark_producer.security.references import resolve
from spark_producer.security.token import Token, jwt_expiry, token_problem

_ENDPOINT: Final = "kafka.sasl.oauthbearer.token.endpoint.url"


def read_token_file(url: str, allowed: Sequence[str], *, now: float) -> Token:
    """Return the token in the file of `url`, which is `file:///path`. White space around it is ignored.

    `now` is in seconds since 1970. The token expires at its claim `exp`, if it is a JWT.

    Raises:
        ConfigError: `allowed` does not allow the file, or it cannot be read, or is too large (fatal).
        AuthenticationFailed: it is empty or cannot be a token (fatal), or its token has expired.
    """
    path = token_file(url)
    text = Secret(resolve(Secret(f"${{file:{path}}}"), allowed, name=_ENDPOINT).strip())
    problem = token_problem(text)
    if problem:
        raise AuthenticationFailed(f"no token from the file of {_ENDPOINT}: {problem}. Check {path}", fatal=True)
    remember(text)
    token = Token(text, jwt_expiry(text))
    if token.expires_at <= now:
        raise AuthenticationFailed(
            f"no token from the file of {_ENDPOINT}: it expired {now - token.expires_at:.0f} s ago by this machine's clock. "
            f"Check what should replace the token in {path}"
        )
    return token
