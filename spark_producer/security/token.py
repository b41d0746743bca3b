"""Tokens of OAUTHBEARER as values: how long they live, and when to get the next one. Times are passed in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from spark_producer.secret import Secret

ENDLESS: Final = float("inf")


@dataclass(frozen=True, slots=True)
class Token:
    """A token and what is known of it. Times are in seconds since 1970."""

    text: Secret
    expires_at: float = ENDLESS
    extensions: tuple[tuple[str, str], ...] = ()
    """Extensions (KIP-342) that came with the token; those of the settings are sent too."""
