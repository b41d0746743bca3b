"""The logins of one client: whether it can log in now, and how to log in to a broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from spark_producer.errors import PyProducerError

if TYPE_CHECKING:  # PLAINTEXT users import nothing of this
    from spark_producer.security.login import Login
    from spark_producer.security.settings import SecuritySettings


class Logins(Protocol):
    """What a client asks. None of the methods ever blocks or raises; the I/O thread calls them."""

    def ready(self) -> bool:
        """Whether a connection may be begun now. If a token is missing, it is asked for in the background."""

    def error(self) -> PyProducerError | None:
        """Return why it is not ready, if an attempt to get a token has failed."""

    def for_host(self, host: str) -> Login:
        """Return how to log in to a broker, by its host as configured or advertised."""

    def close(self) -> None:
        """End what goes on in the background for this client."""


class _Passwords:
    """Logins by name and password: they are always ready."""

    def __init__(self, login: Login) -> None:
        self._login = login

    def ready(self) -> bool:
        """Whether a connection may be begun now: always."""
        return True

    def error(self) -> PyProducerError | None:
        """Return None, since nothing is to be had before a connection."""
        return None

    def for_host(self, host: str) -> Login:  # noqa: ARG002  # all brokers take the same
        """Return how to log in to any broker."""
        return self._login

    def close(self) -> None:
        """Do nothing, since nothing goes on in the background."""


def make_logins(security: SecuritySettings, wakeup: Callable[[], None], hosts: Sequence[str] = ()) -> Logins | None:  # noqa: ARG001
    """Return the logins of a client, or None if it does not log in.

    `wakeup` is called from another thread when `ready` or `error` has changed. `hosts` are the bootstrap servers' names.
    """
    if security.sasl is None:
        return None
    from spark_producer.security.login import login

    return _Passwords(login(security.sasl, security.allowed_secrets))
