"""The credentials with which a connection logs in."""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol

BARE = "the login (SaslHandshake v0)"
"""The name of the step that sends a bare token, which is not a request."""


class SaslCredentials(Protocol):
    """The credentials of a login, and the messages of its mechanism."""

    @property
    def mechanism(self) -> str:
        """The mechanism, as SaslHandshake names it."""

    @property
    def user(self) -> str:
        """The user, for messages; empty if only a token knows."""

    @property
    def given_by(self) -> str:
        """The options that hold name and password, for messages."""

    def start(self) -> Generator[bytes, bytes, None]:
        """Begin a login: yields each message, is sent each response, and returns once the broker is authenticated.

        It raises AuthenticationFailed if the broker does not authenticate itself.
        """
