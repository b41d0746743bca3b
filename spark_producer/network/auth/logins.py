"""The logins of one client: whether it can log in now, and the login for each broker."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Protocol

from spark_producer.errors import AuthenticationFailed, PyProducerError

if TYPE_CHECKING:  # password logins import nothing for tokens, and PLAINTEXT users nothing at all
    from spark_producer.network.auth.tokens import TokenRefresher
    from spark_producer.security.sasl_login import SaslLogin
    from spark_producer.security.settings import SaslSettings, SecuritySettings
    from spark_producer.security.token import Token


class Logins(Protocol):
    """The logins of a client. No method blocks or raises; the I/O thread calls them. An address is that of a broker."""

    def ready(self, host: str = "", port: int = 0) -> bool:
        """Return whether a connection to a broker may begin now. A missing token or ticket is requested in the background."""

    def error(self, host: str = "", port: int = 0) -> PyProducerError | None:
        """Return the error of the last attempt to get a token or ticket, if it is the reason why `ready` is false."""

    def for_host(self, host: str, port: int = 0) -> SaslLogin:
        """Return the login for a broker, given its host as configured or advertised."""

    def close(self) -> None:
        """End the background work for this client."""


class _PasswordLogins:
    """Logins by name and password, which are always ready."""

    def __init__(self, sasl_login: SaslLogin) -> None:
        self._login = sasl_login

    def ready(self, host: str = "", port: int = 0) -> bool:  # noqa: ARG002  # the same for all brokers
        """Return True."""
        return True

    def error(self, host: str = "", port: int = 0) -> PyProducerError | None:  # noqa: ARG002  # the same for all brokers
        """Return None: a password login needs nothing in advance."""
        return None

    def for_host(self, host: str, port: int = 0) -> SaslLogin:  # noqa: ARG002  # the same for all brokers
        """Return the login, which is the same for all brokers."""
        return self._login

    def close(self) -> None:
        """Do nothing: there is no background work."""


class _TokenLogins:
    """Logins by token, which are ready while there is a token. Clients of a process with equal settings share the token."""

    def __init__(
        self, sasl: SaslSettings, allowed: tuple[str, ...], wakeup: Callable[[], None], hosts: Sequence[str]
    ) -> None:
        from spark_producer.network.auth.token_sources import target_of_hosts
        from spark_producer.security.sasl_login import sasl_login

        self._sasl = sasl
        self._allowed = allowed
        self._wakeup = wakeup
        self._target = target_of_hosts(sasl, hosts)
        self._login = sasl_login(sasl, allowed, tokens=self, clock=time.time)
        self._refresher: TokenRefresher | None = None
        self._process = 0
        self._closed = False

    def ready(self, host: str = "", port: int = 0) -> bool:  # noqa: ARG002  # the same for all brokers
        """Return whether there is a token. If not, one is being fetched."""
        refresher = self._current_refresher()
        return refresher is not None and refresher.token(time.time()) is not None

    def error(self, host: str = "", port: int = 0) -> PyProducerError | None:  # noqa: ARG002  # the same for all brokers
        """Return the reason why there is no token, if it is known."""
        refresher = self._current_refresher()
        return refresher.error(time.time()) if refresher is not None else None

    def for_host(self, host: str, port: int = 0) -> SaslLogin:  # noqa: ARG002  # the same for all brokers of a cluster
        """Return the login, which is the same for all brokers."""
        return self._login

    def close(self) -> None:
        """Release the token, which ends its thread if no other client uses it."""
        from spark_producer.network.auth.tokens import token_cache

        refresher, self._refresher, self._closed = self._refresher, None, True
        if refresher is not None and self._process == os.getpid():
            refresher.forget(self._wakeup)
            token_cache().release(refresher, self)

    # The `TokenSource` of the login

    def token(self) -> Token:
        """Return a valid token.

        Raises:
            AuthenticationFailed: there is none, or it has expired.
        """
        refresher = self._current_refresher()
        found = refresher.token(time.time()) if refresher is not None else None
        if found is None:
            error = self.error()
            if error is not None:
                raise copy(error)  # a copy, whose traceback is that of this login only
            raise AuthenticationFailed(
                "no token for the login: the next one is being fetched; the login is tried again"
            )
        return found

    def refused(self, token: Token) -> bool:
        """Record that the broker rejected `token`. Return whether a login with a new one may succeed."""
        refresher = self._current_refresher()
        return refresher is not None and refresher.refused(token)

    def accepted(self, token: Token) -> None:
        """Record that the broker accepted `token`."""
        refresher = self._current_refresher()
        if refresher is not None:
            refresher.accepted(token)

    def _current_refresher(self) -> TokenRefresher | None:
        """Return the refresher of this process; None after `close`. A forked process gets its own, since it has no threads."""
        from spark_producer.network.auth.tokens import TokenRefresher, token_cache

        if self._closed:
            return None
        if self._refresher is None or self._process != os.getpid():
            from spark_producer.network.auth.token_sources import fetch_from_source

            identity = (self._sasl, self._allowed, self._target)
            fetch = partial(fetch_from_source, *identity)
            self._process = os.getpid()
            self._refresher = token_cache().acquire(identity, self, lambda: TokenRefresher(fetch, self._sasl))
            self._refresher.listen(self._wakeup)
        return self._refresher


def make_logins(security: SecuritySettings, wakeup: Callable[[], None], hosts: Sequence[str] = ()) -> Logins | None:
    """Return the logins of a client; None if it does not log in.

    `wakeup` is called from another thread when `ready` or `error` may have changed. `hosts` are the names of the bootstrap
    servers, which name the region of an MSK cluster or the namespace of Event Hubs.
    """
    if security.sasl is None:
        return None
    if security.sasl.mechanism == "OAUTHBEARER":
        return _TokenLogins(security.sasl, security.allowed_secrets, wakeup, hosts)
    if security.sasl.kerberos is not None:
        from spark_producer.network.auth.kerberos import KerberosLogins

        return KerberosLogins(security.sasl, security.sasl.kerberos, wakeup)
    from spark_producer.security.sasl_login import sasl_login

    return _PasswordLogins(sasl_login(security.sasl, security.allowed_secrets))
