"""OAUTHBEARER tokens as values: validation, expiry, and the time of the next refresh. The time is an argument."""

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
"""Expiry of a token without a known one."""

MAX_FILE_AGE_S: Final = 300.0
"""Maximum seconds between two reads of a token file. Kubernetes advises to read a mounted token every five minutes, since the
kubelet replaces it after 80 % of its life (its page on service account token volume projection)."""

_TOKEN: Final = re.compile(r"[-_~+/.A-Za-z0-9]+=*")
_KEY: Final = re.compile(r"[A-Za-z]+")
_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
_RESERVED_KEY: Final = "auth"


@dataclass(frozen=True, slots=True)
class Token:
    """A token and its properties. Times are in seconds since 1970."""

    text: Secret
    expires_at: float = ENDLESS
    extensions: tuple[tuple[str, str], ...] = ()
    """Extensions (KIP-342) from the source of the token; those of the settings are sent too."""


class TokenSource(Protocol):
    """The source of a login's tokens. No method blocks."""

    def token(self) -> Token:
        """Return a valid token; raise AuthenticationFailed if there is none."""

    def refused(self, token: Token) -> bool:
        """Record that the broker rejected `token`. Return whether a login with a new one may succeed."""

    def accepted(self, token: Token) -> None:
        """Record that the broker accepted `token`."""


def token_problem(text: Secret) -> str:
    """Return the problem of a token's text, without the text; empty if it can be sent (RFC 6750, 2.1)."""
    if not text:
        return "it is empty"
    return "" if _TOKEN.fullmatch(text.reveal()) else "it contains characters that bearer tokens cannot have (RFC 6750)"


def extension_problem(extensions: tuple[tuple[str, str], ...]) -> str:
    """Return the problem of extensions, without their values; empty if they can be sent.

    The rules are those of Kafka's OAuthBearerClientInitialResponse.
    """
    seen: set[str] = set()
    for key, value in extensions:
        if not _KEY.fullmatch(key) or key == _RESERVED_KEY:
            return f"{key!a} is not a valid name of an extension: use letters only, and not 'auth'"
        if key in seen:
            return f"the extension {key} is set twice"
        if not _VALUE.fullmatch(value):
            return f"the value of the extension {key} is empty, or contains characters that are not printable ASCII"
        seen.add(key)
    return ""


def jwt_expiry(text: Secret) -> float:
    """Return the claim `exp` of a JWT in seconds since 1970, without verifying the token, which brokers do.

    It is `ENDLESS` without such a claim, or if the token is not a JWT.
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
    """Return a number of seconds in JSON, which is a number or a string of digits; None for other values.

    It may be negative, infinite or NaN, which Python's JSON parser accepts; the caller must check that.
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
    """Return the time of the next fetch, for a token that was received `now`. `chance` is from 0 to 1.

    As in Kafka's ExpiringCredentialRefreshingLogin: after 80 to 85 % of the lifetime, but not in its last five minutes and not in
    the first one. A lifetime that is too short for both has neither limit. A token file is read again after `MAX_FILE_AGE_S` at
    the latest, since another one may be there by then.
    """
    latest = now + MAX_FILE_AGE_S if settings.has_token_file else ENDLESS
    if expires_at == ENDLESS:
        return latest
    fraction = settings.refresh_window_factor + settings.refresh_window_jitter * chance
    proposed = now + (expires_at - now) * fraction
    if now + settings.refresh_min_period + settings.refresh_buffer > expires_at:
        return min(proposed, latest)
    return min(max(min(proposed, expires_at - settings.refresh_buffer), now + settings.refresh_min_period), latest)
