"""What a connection asks of whoever gives it credentials."""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol

BARE = "the login (SaslHandshake v0)"
"""What the answer to a bare token is called, which belongs to no request."""


class SaslCredentials(Protocol):
    """The credentials of a login, and how they are told."""

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
        """Begin a login: yields each message for the broker, is sent each answer, and returns once the broker has proved itself.

        It raises AuthenticationFailed if the broker does not.
        """
