"""The logins of one client: whether it can log in now, and how to log in to a broker."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Protocol

from spark_producer.errors import AuthenticationFailed, ConfigError, PyProducerError

if TYPE_CHECKING:  # who logs in by a password needs nothing of tokens, and who does not log in nothing at all
    from spark_producer.network.auth.tokens import TokenRefresher
    from spark_producer.security.sasl_login import SaslLogin
    from spark_producer.security.settings import SaslSettings, SecuritySettings
    from spark_producer.security.token import Token


class Logins(Protocol):
    """What a client asks. None of the methods ever blocks or raises; the I/O thread calls them."""

    def ready(self) -> bool:
        """Whether a connection may be begun now. If a token is missing, it is asked for in the background."""

    def error(self) -> PyProducerError | None:
        """Return why it is not ready, if an attempt to get a token has failed."""

    def for_host(self, host: str) -> SaslLogin:
        """Return how to log in to a broker, by its host as configured or advertised."""

    def close(self) -> None:
        """End what goes on in the background for this client."""


class _PasswordLogins:
    """Logins by name and password: they are always ready."""

    def __init__(self, sasl_login: SaslLogin) -> None:
        self._login = sasl_login

    def ready(self) -> bool:
        """Whether a connection may be begun now: always."""
        return True

    def error(self) -> PyProducerError | None:
        """Return None, since nothing is to be had before a connection."""
        return None

    def for_host(self, host: str) -> SaslLogin:  # noqa: ARG002  # all brokers take the same
        """Return how to log in to any broker."""
        return self._login

    def close(self) -> None:
        """Do nothing, since nothing goes on in the background."""


class _TokenLogins:
    """Logins by tokens, which are ready while there is one. All clients of a process with the same settings share it."""

    def __init__(
        self, sasl: SaslSettings, allowed: tuple[str, ...], wakeup: Callable[[], None], hosts: Sequence[str]
    ) -> None:
        from spark_producer.network.auth.token_providers import AWS, aws_region
        from spark_producer.security.sasl_login import sasl_login

        self._sasl = sasl
        self._allowed = allowed
        self._wakeup = wakeup
        self._region = aws_region(hosts) if sasl.provider == AWS else ""
        self._login = sasl_login(sasl, allowed, tokens=self, clock=time.time)
        self._refresher: TokenRefresher | None = None
        self._process = 0
        self._closed = False

    def ready(self) -> bool:
        """Whether there is a token. If not, it is being fetched."""
        refresher = self._current_refresher()
        return refresher is not None and refresher.token(time.time()) is not None

    def error(self) -> PyProducerError | None:
        """Return why there is no token, if that is known."""
        refresher = self._current_refresher()
        return refresher.error(time.time()) if refresher is not None else None

    def for_host(self, host: str) -> SaslLogin:  # noqa: ARG002  # all brokers of a cluster take the same token
        """Return how to log in to any broker."""
        return self._login

    def close(self) -> None:
        """Need no token any more."""
        from spark_producer.network.auth.tokens import token_cache

        refresher, self._refresher, self._closed = self._refresher, None, True
        if refresher is not None and self._process == os.getpid():
            refresher.forget(self._wakeup)
            token_cache().release(refresher, self)

    # As the source of the login's tokens

    def token(self) -> Token:
        """Return a token that is alive.

        Raises:
            AuthenticationFailed: There is none (any more).
        """
        refresher = self._current_refresher()
        found = refresher.token(time.time()) if refresher is not None else None
        if found is None:
            error = self.error()
            if error is not None:
                raise copy(error)  # its traceback is of this login alone
            raise AuthenticationFailed("there is no token for the login now: the next one is being fetched")
        return found

    def refused(self, token: Token) -> bool:
        """The broker refused `token`. Return whether another login with a fresh one may succeed."""
        refresher = self._current_refresher()
        return refresher is not None and refresher.refused(token)

    def accepted(self, token: Token) -> None:
        """The broker took `token`."""
        refresher = self._current_refresher()
        if refresher is not None:
            refresher.accepted(token)

    def _current_refresher(self) -> TokenRefresher | None:
        """Return the keeper of this process, or None after `close`. A forked one gets its own: threads do not come along."""
        from spark_producer.network.auth.tokens import TokenRefresher, token_cache

        if self._closed:
            return None
        if self._refresher is None or self._process != os.getpid():
            identity = (self._sasl, self._allowed, self._region)
            fetch = partial(_fetch, *identity)
            self._process = os.getpid()
            self._refresher = token_cache().take(identity, self, lambda: TokenRefresher(fetch, self._sasl))
            self._refresher.listen(self._wakeup)
        return self._refresher


def _fetch(sasl: SaslSettings, allowed: tuple[str, ...], region: str, now: float) -> Token:
    """Get a token, on the keeper's thread. `now` is in seconds since 1970."""
    from spark_producer.network.auth.token_providers import AWS, from_aws, from_function

    if sasl.provider == AWS:
        return from_aws(sasl.provider_options, region)
    if sasl.provider:
        return from_function(sasl.provider)
    if sasl.oidc is None:
        raise ConfigError("nothing gives tokens for OAUTHBEARER: no token endpoint and no provider is set", fatal=True)
    from spark_producer.network.auth.token_endpoint import fetch_token

    return fetch_token(sasl.oidc, allowed, now=now)


def make_logins(security: SecuritySettings, wakeup: Callable[[], None], hosts: Sequence[str] = ()) -> Logins | None:
    """Return the logins of a client, or None if it does not log in.

    `wakeup` is called from another thread when `ready` or `error` may have changed. `hosts` are the names of the bootstrap
    servers, which tell the region of a cluster of Amazon's.
    """
    if security.sasl is None:
        return None
    if security.sasl.mechanism == "OAUTHBEARER":
        return _TokenLogins(security.sasl, security.allowed_secrets, wakeup, hosts)
    from spark_producer.security.sasl_login import sasl_login

    return _PasswordLogins(sasl_login(security.sasl, security.allowed_secrets))
