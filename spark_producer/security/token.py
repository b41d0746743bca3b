"""Tokens of OAUTHBEARER as values: how long they live, and when to get the next one. Times are passed in."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from spark_producer.common.secret import Secret
from spark_producer.security.settings import SaslSettings

ENDLESS: Final = math.inf
"""The end of a token of which nobody says when it ends."""

_TOKEN: Final = re.compile(r"[-_~+/.A-Za-z0-9]+=*")
_KEY: Final = re.compile(r"[A-Za-z]+")
_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
_RESERVED_KEY: Final = "auth"


@dataclass(frozen=True, slots=True)
class Token:
    """A token and what is known of it. Times are in seconds since 1970."""

    text: Secret
    expires_at: float = ENDLESS
    extensions: tuple[tuple[str, str], ...] = ()
    """Extensions (KIP-342) that came with the token; those of the settings are sent too."""


class TokenSource(Protocol):
    """Who gives tokens to a login. None of the methods blocks."""

    def token(self) -> Token:
        """Return a token that is alive, or raise AuthenticationFailed if there is none."""

    def refused(self, token: Token) -> bool:
        """The broker refused `token`. Return whether another login with a fresh one may succeed."""

    def accepted(self, token: Token) -> None:
        """The broker took `token`."""


def token_problem(text: Secret) -> str:
    """Return what is wrong with the text of a token, without showing it; empty if it can be sent (RFC 6750, 2.1)."""
    if not text:
        return "it is empty"
    return "" if _TOKEN.fullmatch(text.reveal()) else "it holds characters that no bearer token has (RFC 6750)"


def extension_problem(extensions: tuple[tuple[str, str], ...]) -> str:
    """Return what is wrong with extensions, without their values; empty if they can be sent.

    The rules are those of Kafka's OAuthBearerClientInitialResponse.
    """
    seen: set[str] = set()
    for key, value in extensions:
        if not _KEY.fullmatch(key) or key == _RESERVED_KEY:
            return f"{key!a} cannot be the name of an extension: it takes letters, and not the word auth"
        if key in seen:
            return f"the extension {key} is there twice"
        if not _VALUE.fullmatch(value):
            return f"the value of the extension {key} is empty, or holds characters that are no printable ASCII"
        seen.add(key)
    return ""


def jwt_expiry(text: Secret) -> float:
    """Return the claim `exp` of a JWT in seconds since 1970. Nothing is verified: brokers do that.

    It is `ENDLESS` where there is no such claim, or no JWT. A time that no clock has any more is one that is over.
    """
    parts = text.reveal().split(".")
    if len(parts) != 3:
        return ENDLESS
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return ENDLESS
    end = parse_seconds(claims.get("exp")) if isinstance(claims, Mapping) else None
    return end if end is not None and math.isfinite(end) else ENDLESS


def parse_seconds(value: object) -> float | None:
    """Return a number of seconds that JSON holds, as a number or in digits; None if it is none.

    It may be negative, infinite or not a number (NaN), which Python's JSON reads: whoever asks decides what that means.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None
    except OverflowError:
        return -math.inf if isinstance(value, int) and value < 0 else math.inf


def next_refresh(settings: SaslSettings, expires_at: float, now: float, chance: float) -> float:
    """Return when to get the next token, for one that came `now`. `chance` is from 0 to 1.

    As in Kafka's ExpiringCredentialRefreshingLogin: after 80 to 85 % of its life, but not in its last five minutes and not in the
    first one. A life that is too short for both has neither limit.
    """
    if expires_at == ENDLESS:
        return ENDLESS
    part = settings.refresh_window_factor + settings.refresh_window_jitter * chance
    proposed = now + (expires_at - now) * part
    if now + settings.refresh_min_period + settings.refresh_buffer > expires_at:
        return proposed
    return max(min(proposed, expires_at - settings.refresh_buffer), now + settings.refresh_min_period)
