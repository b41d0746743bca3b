"""The server's side of the SASL mechanisms, each a generator that is sent the client's messages.

A generator yields the response to each message but the last, for which it returns `Authenticated` or raises
`AuthenticationRefused`. It must be started with `next` before the first message.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Generator
from typing import Final, NamedTuple, TypeAlias

from spark_producer.broker.security.settings import TOKEN_MECHANISM
from spark_producer.broker.security.users import Users


class Authenticated(NamedTuple):
    """The result of a successful login.

    user: the name of the user.
    last: the server's last message.
    until_ms: the expiry of the client's token in milliseconds since 1970; None without a token.
    """

    user: str
    last: bytes = b""
    until_ms: float | None = None


class AuthenticationRefused(Exception):
    """The login failed. `client_message` is the error for the client; None for the text without a reason."""

    def __init__(self, client_message: str | None = None) -> None:
        super().__init__(client_message)
        self.client_message = client_message


SaslExchange: TypeAlias = Generator[bytes, bytes, Authenticated]

WRONG_PASSWORD: Final = "Authentication failed: Invalid username or password"
"""Kafka's error message (PlainSaslServer), for an unknown user too."""

INVALID_TOKEN: Final = b'{"status":"invalid_token"}'
"""Kafka's error for a refused token (RFC 7628, 3.2.2)."""

_LAST_SECOND: Final = 2**53
"""Maximum expiry of a token in seconds since 1970: Python takes numbers of thousands of digits."""

_BEARER: Final = re.compile(rb"n,(?:a=[^,]*)?,\x01(?:[A-Za-z]+=[\x21-\x7e \t\r\n]*\x01)*\x01")
_TOKEN: Final = re.compile(rb"\x01auth=[Bb]earer +([-_~+/.A-Za-z0-9]+=*)\x01")
_CLIENT_FIRST: Final = re.compile(
    rb"(?P<header>n,(?:a=(?P<other>[^,]+))?,)(?P<bare>n=(?P<name>[^,]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,.*)?)",
    re.DOTALL,
)
_CLIENT_FINAL: Final = re.compile(
    rb"(?P<unproved>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,.*)?),p=(?P<proof>[A-Za-z0-9+/=]+)",
    re.DOTALL,
)


def start(mechanism: str, users: Users | None, now_ms: Callable[[], float]) -> SaslExchange:
    """Return a started exchange of `mechanism`. `now_ms` returns the milliseconds since 1970."""
    if mechanism == TOKEN_MECHANISM:
        exchange = bearer(now_ms)
    else:
        known = users or Users({})
        exchange = plain(known) if mechanism == "PLAIN" else scram(mechanism, known)
    next(exchange)
    return exchange


def plain(users: Users) -> SaslExchange:
    """Run PLAIN: check a name and a password (RFC 4616). An authorization id must be the user's own name."""
    message = yield b""
    parts = message.split(b"\0")
    if len(parts) != 3 or not parts[1] or not parts[2]:
        raise AuthenticationRefused(WRONG_PASSWORD)
    other, name, password = parts
    try:
        user = name.decode()
    except UnicodeDecodeError:
        raise AuthenticationRefused(WRONG_PASSWORD) from None
    right = users.check(user, password)
    if not right or other not in (b"", name):
        raise AuthenticationRefused(WRONG_PASSWORD)
    return Authenticated(user)


def scram(mechanism: str, users: Users, nonce: Callable[[], str] | None = None) -> SaslExchange:
    """Run SCRAM: check that the client knows the password, and prove that the server knows its keys (RFC 5802).

    The nonce of the client's last message must be the whole one (CVE-2024-56128), and its channel binding the header that was
    sent.
    """
    from spark_producer.security import scram as derived

    hash_name = derived.HASHES[mechanism]
    first = _CLIENT_FIRST.fullmatch((yield b""))
    name = derived.unescaped_name(first["name"]) if first else None
    if first is None or name is None or first["other"] not in (None, first["name"]):
        raise AuthenticationRefused
    keys = users.keys(mechanism, name)
    whole_nonce = first["nonce"] + (nonce or derived.fresh_nonce)().encode()
    server_first = b"r=%s,s=%s,i=%d" % (whole_nonce, base64.b64encode(keys.salt), keys.iterations)
    final = _CLIENT_FINAL.fullmatch((yield server_first))
    proof = derived.strict_base64(final["proof"]) if final else None
    if final is None or proof is None:
        raise AuthenticationRefused
    bound = final["binding"] == base64.b64encode(first["header"])
    if not bound or final["nonce"] != whole_nonce:
        raise AuthenticationRefused
    auth_message = b",".join((first["bare"], server_first, final["unproved"]))
    proved = derived.proves(hash_name, derived.Keys(keys.stored_key, keys.server_key), proof, auth_message)
    if not proved or not keys.real:
        raise AuthenticationRefused
    signature = derived.signature(hash_name, keys.server_key, auth_message)
    return Authenticated(name, b"v=" + base64.b64encode(signature))


def bearer(now_ms: Callable[[], float]) -> SaslExchange:
    """Run OAUTHBEARER with an unsigned token (RFC 7628; RFC 7519, 6): anybody can write one, so this is for tests only.

    A refusal takes two steps: the error status, to which the client responds with one byte, then the end.
    """
    message = yield b""
    found = _TOKEN.search(message) if _BEARER.fullmatch(message) else None
    accepted = _unsigned(found[1], now_ms()) if found else None
    if accepted is None:
        yield INVALID_TOKEN
        raise AuthenticationRefused(INVALID_TOKEN.decode())
    return accepted


def _unsigned(token: bytes, now_ms: float) -> Authenticated | None:
    """Return the user of an unsigned JWT, or None if it is malformed or has expired."""
    parts = token.split(b".")
    if len(parts) != 3 or parts[2]:
        return None
    header, claims = _json(parts[0]), _json(parts[1])
    user, ends = claims.get("sub"), claims.get("exp")
    if header.get("alg") != "none" or not isinstance(user, str) or not user:
        return None
    if isinstance(ends, bool) or not isinstance(ends, int | float) or not now_ms / 1000 < ends < _LAST_SECOND:
        return None
    return Authenticated(user, until_ms=ends * 1000)


def _json(part: bytes) -> dict[str, object]:
    """Return the JSON object of a part of a token; an empty one if it has none."""
    try:
        value = json.loads(base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4)))
    except (ValueError, RecursionError):  # not base64, UTF-8 or JSON; or nested too deeply
        return {}
    return value if isinstance(value, dict) else {}
