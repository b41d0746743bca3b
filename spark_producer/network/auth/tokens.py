"""The tokens of one process: each is fetched by a background thread, before the previous one expires.

It has threads, as `tickets` has: a slow token endpoint takes seconds to answer, and connections that have a
token must not wait for it on the I/O thread.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from random import Random
from typing import Any, Protocol, TypeVar

from spark_producer.common.backoff import exponential
from spark_producer.common.escape import escaping_logger
from spark_producer.common.secret import Secret
from spark_producer.errors import AuthenticationFailed, PyProducerError
from spark_producer.security.settings import OidcSettings, SaslSettings
from spark_producer.security.token import ENDLESS, Token, next_refresh

logger = escaping_logger("pyproducer")

SLOW_FETCH_S = 10.0
"""Seconds after which an unfinished fetch is reported as the reason why there is no token."""

MAX_WAIT_S = 3600.0
"""Maximum sleep in seconds, since a condition does not accept an infinite one."""


class TokenRefresher:
    """Holds the token of one identity. Fetches the first one on demand, and each next one before the expiry.

    The methods are thread-safe and do not block. Only `fetch` may block, which runs on the refresher's own thread.
    """

    def __init__(
        self,
        fetch: Callable[[float], Token],
        settings: SaslSettings,
        *,
        clock: Callable[[], float] = time.time,
        random: Random | None = None,
    ) -> None:
        """`fetch(now)` returns a token or raises an error. `now`, and the result of `clock`, are seconds since 1970."""
        self._fetch = fetch
        self._settings = settings
        oidc = settings.oidc or OidcSettings("", "", Secret(""))
        self._pause = oidc.retry_backoff
        self._max_pause = oidc.retry_backoff_max
        self._clock = clock
        self._random = random or Random()
        self._changed = threading.Condition()
        self._listeners: list[Callable[[], None]] = []
        self._thread: threading.Thread | None = None
        self._token: Token | None = None
        self._error: PyProducerError | None = None
        self._due = ENDLESS
        """Time of the next fetch."""
        self._not_before = -ENDLESS
        """Earliest time to replace an expired token: its source may only give tokens that expire at once."""
        self._fetching_since: float | None = None
        self._failures = 0
        self._unproven_replacement = False
        """Whether the token replaces one that a broker rejected, and no broker has accepted it yet."""
        self._closed = False

    def token(self, now: float) -> Token | None:
        """Return a valid token; or None while one is being fetched, or if `error` has the reason."""
        with self._changed:
            if self._token is not None and now >= self._token.expires_at:
                self._token = None
                self._schedule(max(now, self._not_before))
            elif self._thread is None or now >= self._due:  # the clock may have been set while the thread slept
                self._schedule(now)
            return self._token

    def error(self, now: float) -> PyProducerError | None:
        """Return the reason why there is no token, if it is known; None while there is one."""
        with self._changed:
            if self._token is not None and now < self._token.expires_at:
                return None
            since = self._fetching_since
            if self._error is None and since is not None and now - since >= SLOW_FETCH_S:
                self._error = AuthenticationFailed(
                    f"no token yet: its source has not answered for more than {SLOW_FETCH_S:.0f} s; the fetch goes on"
                )
            return self._error

    def refused(self, token: Token) -> bool:
        """Fetch another token, because a broker rejected `token`. Return whether a login with a new one may succeed.

        It is False after the second rejection in a row.
        """
        with self._changed:
            if token is not self._token:
                return True  # another connection was rejected before, and the current token is newer
            self._token = None
            again = not self._unproven_replacement
            self._unproven_replacement = True
            self._schedule(self._clock() + (0.0 if again else self._max_pause))
            return again

    def accepted(self, token: Token) -> None:
        """Record that a broker accepted `token`."""
        with self._changed:
            if token is self._token:
                self._unproven_replacement = False

    def listen(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` after each token and each error, on the refresher's thread."""
        with self._changed:
            self._listeners.append(on_change)

    def forget(self, on_change: Callable[[], None]) -> None:
        """Remove a listener."""
        with self._changed:
            self._listeners = [listener for listener in self._listeners if listener != on_change]

    def close(self) -> None:
        """End the thread, after the current fetch if there is one. A second call does nothing."""
        with self._changed:
            self._closed = True
            self._listeners = []
            self._changed.notify_all()

    def join(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for the end of the thread after `close`. Return whether it has ended."""
        if self._thread is not None:
            self._thread.join(timeout)
        return self._thread is None or not self._thread.is_alive()

    # The rest runs under the lock, or on the refresher's thread

    def _schedule(self, at: float) -> None:
        """Schedule a fetch at time `at`, unless an earlier one is scheduled."""
        if self._closed:
            return
        self._due = min(self._due, at)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="pyproducer-tokens", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _run(self) -> None:
        while self._wait_until_due():
            token, error = self._attempt()
            for listener in self._attempt_done(token, error):
                listener()

    def _wait_until_due(self) -> bool:
        """Wait until a fetch is due. Return False if the refresher is closed."""
        with self._changed:
            while not self._closed:
                now = self._clock()
                if now >= self._due:
                    self._due = ENDLESS
                    self._fetching_since = now
                    return True
                self._changed.wait(min(self._due - now, MAX_WAIT_S))
            return False

    def _attempt(self) -> tuple[Token | None, PyProducerError | None]:
        try:
            return self._fetch(self._clock()), None
        except PyProducerError as error:
            return None, error
        except Exception as error:  # the thread must survive any error, and waiting logins get it
            return None, AuthenticationFailed(
                f"no token: fetching it raised {type(error).__name__}; it is fetched again"
            )

    def _attempt_done(self, token: Token | None, error: PyProducerError | None) -> list[Callable[[], None]]:
        """Record the result of an attempt, and return the listeners to call."""
        with self._changed:
            now = self._clock()
            self._fetching_since = None
            self._not_before = now + self._pause
            if token is None:
                self._failed(error, now)
            elif token.expires_at <= now:
                self._failed(_expired_error(token, now), now)
            else:
                self._token, self._error, self._failures = token, None, 0
                due = next_refresh(self._settings, token.expires_at, now, self._random.random())
                self._due = max(due, self._not_before)
            return list(self._listeners)

    def _failed(self, error: PyProducerError | None, now: float) -> None:
        """Record a failure. A valid token is kept, and attempts go on: secrets are rotated, endpoints come back."""
        self._error = error
        final = bool(getattr(error, "fatal", False))
        pause = exponential(self._pause, self._max_pause, self._failures, self._random)
        self._failures += 1
        self._due = now + (self._max_pause if final else pause)
        if self._token is not None:
            logger.warning("cannot renew the token of the login, which is used until it expires: %s", error)


def _expired_error(token: Token, now: float) -> AuthenticationFailed:
    return AuthenticationFailed(
        f"the new token expired {now - token.expires_at:.0f} s ago by this machine's clock. Correct the clocks"
    )


class Shared(Protocol):
    """What clients of a process share: the token or the tickets of one identity, with their thread."""

    def close(self) -> None:
        """End the thread."""


_S = TypeVar("_S", bound=Shared)


class TokenCache:
    """The tokens and tickets of a process by identity, and their users: clients with equal settings share them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shared: list[tuple[object, Any, list[object]]] = []

    def acquire(self, identity: object, user: object, make: Callable[[], _S]) -> _S:
        """Return what `identity` has, for `user`; create it if there is none. Identities are compared by `==`."""
        with self._lock:
            for known, shared, users in self._shared:
                if known == identity:
                    users.append(user)
                    found: _S = shared  # one identity has one kind
                    return found
            created = make()
            self._shared.append((identity, created, [user]))
            return created

    def release(self, shared: Shared, user: object) -> None:
        """Remove `user` from the users of `shared`, and close it after the last one."""
        with self._lock:
            for index, (_, kept, users) in enumerate(self._shared):
                if kept is shared:
                    users[:] = [other for other in users if other is not user]
                    if not users:
                        del self._shared[index]
                        kept.close()
                    return


_process_cache = TokenCache()


def token_cache() -> TokenCache:
    """Return the token cache of this process."""
    return _process_cache


def _forked() -> None:
    """Create a new cache in a forked process: it has no threads, and a thread of the parent may hold the lock."""
    global _process_cache
    _process_cache = TokenCache()


os.register_at_fork(after_in_child=_forked)
