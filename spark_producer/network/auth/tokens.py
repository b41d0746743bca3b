"""Tokens of one process: who needs one gets the newest, and a thread of their own fetches the next before it ends.

It is the one module of this room with threads: to get a token takes seconds if its endpoint is slow, and connections of the I/O
thread that have theirs must not wait for it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from random import Random

from spark_producer.common.backoff import exponential
from spark_producer.common.escape import escaping_logger
from spark_producer.common.secret import Secret
from spark_producer.errors import AuthenticationFailed, PyProducerError
from spark_producer.security.settings import OidcSettings, SaslSettings
from spark_producer.security.token import ENDLESS, Token, next_refresh

logger = escaping_logger("pyproducer")

SLOW_FETCH_S = 10.0
"""The seconds after which a fetch that has not ended is told as the reason why there is no token."""

MAX_WAIT_S = 3600.0
"""The longest sleep in seconds, since a condition does not take an infinite one."""


class TokenRefresher:
    """Holds the token of one identity, fetches the first one when it is asked for, and the next ones in time.

    Any thread may call any method; none blocks. Only `fetch` may, which runs on the keeper's own thread.
    """

    def __init__(
        self,
        fetch: Callable[[float], Token],
        settings: SaslSettings,
        *,
        clock: Callable[[], float] = time.time,
        random: Random | None = None,
    ) -> None:
        """`fetch` gets the seconds since 1970, and returns a token or raises an error. `clock` gives these seconds."""
        self._fetch = fetch
        self._settings = settings
        oidc = settings.oidc or OidcSettings("", "", Secret(""))
        self._pause = oidc.retry_backoff
        self._longest_pause = oidc.retry_backoff_max
        self._clock = clock
        self._random = random or Random()
        self._changed = threading.Condition()
        self._listeners: list[Callable[[], None]] = []
        self._thread: threading.Thread | None = None
        self._token: Token | None = None
        self._error: PyProducerError | None = None
        self._due = ENDLESS
        """When to fetch the next time."""
        self._not_before = -ENDLESS
        """When a token that has ended may be replaced: its source may give nothing but tokens that end at once."""
        self._fetching_since: float | None = None
        self._failures = 0
        self._second_chance = False
        """Whether the token takes the place of one that a broker refused, and was not accepted yet."""
        self._closed = False

    def token(self, now: float) -> Token | None:
        """Return a token that is alive, or None. Then one is being fetched, or `error` says why there is none."""
        with self._changed:
            if self._token is not None and now >= self._token.expires_at:
                self._token = None
                self._want(max(now, self._not_before))
            elif self._thread is None or now >= self._due:  # the thread may have slept while the clock was set
                self._want(now)
            return self._token

    def error(self, now: float) -> PyProducerError | None:
        """Return why there is no token, if that is known; None while there is one."""
        with self._changed:
            if self._token is not None and now < self._token.expires_at:
                return None
            since = self._fetching_since
            if self._error is None and since is not None and now - since >= SLOW_FETCH_S:
                self._error = AuthenticationFailed(
                    f"there is no token yet: it was asked for more than {SLOW_FETCH_S:.0f} s ago"
                )
            return self._error

    def refused(self, token: Token) -> bool:
        """A broker refused `token`: fetch another. Return whether a login with that may succeed.

        After two in a row that brokers refused, a third is not likely to do better.
        """
        with self._changed:
            if token is not self._token:
                return True  # another connection was refused before, and the next token is newer
            self._token = None
            again = not self._second_chance
            self._second_chance = True
            self._want(self._clock() + (0.0 if again else self._longest_pause))
            return again

    def accepted(self, token: Token) -> None:
        """A broker took `token`."""
        with self._changed:
            if token is self._token:
                self._second_chance = False

    def listen(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` whenever there is a token or an error, on the keeper's thread."""
        with self._changed:
            self._listeners.append(on_change)

    def forget(self, on_change: Callable[[], None]) -> None:
        """Undo `listen`."""
        with self._changed:
            self._listeners = [listener for listener in self._listeners if listener != on_change]

    def close(self) -> None:
        """End the thread: at once, or if it is fetching, after that. A second call does nothing."""
        with self._changed:
            self._closed = True
            self._listeners = []
            self._changed.notify_all()

    def join(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for the end of the thread after `close`. Return whether it has ended."""
        if self._thread is not None:
            self._thread.join(timeout)
        return self._thread is None or not self._thread.is_alive()

    # The rest is under the lock, or on the keeper's thread

    def _want(self, at: float) -> None:
        """Fetch a token `at` a time, or before."""
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
            for listener in self._ended(token, error):
                listener()

    def _wait_until_due(self) -> bool:
        """Wait until a token is to be fetched. Return False once the keeper is closed."""
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
        except Exception as error:  # whatever it is, the thread goes on, and who waits is told
            return None, AuthenticationFailed(f"no token: {type(error).__name__} while it was fetched")

    def _ended(self, token: Token | None, error: PyProducerError | None) -> list[Callable[[], None]]:
        """Note the end of an attempt, and return whom to tell."""
        with self._changed:
            now = self._clock()
            self._fetching_since = None
            self._not_before = now + self._pause
            if token is None:
                self._failed(error, now)
            elif token.expires_at <= now:
                self._failed(_over(token, now), now)
            else:
                self._token, self._error, self._failures = token, None, 0
                due = next_refresh(self._settings, token.expires_at, now, self._random.random())
                self._due = max(due, self._not_before)
            return list(self._listeners)

    def _failed(self, error: PyProducerError | None, now: float) -> None:
        """An attempt failed. The old token stays while it lives, and attempts go on: secrets are rotated, endpoints come back."""
        self._error = error
        final = bool(getattr(error, "fatal", False))
        pause = exponential(self._pause, self._longest_pause, self._failures, self._random)
        self._failures += 1
        self._due = now + (self._longest_pause if final else pause)
        if self._token is not None:
            logger.warning("The token of the login could not be renewed, and is used until it ends: %s", error)


def _over(token: Token, now: float) -> AuthenticationFailed:
    return AuthenticationFailed(
        f"a token was given that ended {now - token.expires_at:.0f} s ago by this machine's clock: one of the clocks is wrong"
    )


class TokenCache:
    """The keepers of a process by identity, and who uses each: one token serves all clients with the same settings."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._current_refresher: list[tuple[object, TokenRefresher, list[object]]] = []

    def take(self, identity: object, user: object, make: Callable[[], TokenRefresher]) -> TokenRefresher:
        """Return the keeper of `identity` for `user`, which is made if there is none. Identities are compared by `==`."""
        with self._lock:
            for known, refresher, users in self._current_refresher:
                if known == identity:
                    users.append(user)
                    return refresher
            made = make()
            self._current_refresher.append((identity, made, [user]))
            return made

    def release(self, refresher: TokenRefresher, user: object) -> None:
        """Note that `user` needs `refresher` no more. The last one closes it."""
        with self._lock:
            for index, (_, kept, users) in enumerate(self._current_refresher):
                if kept is refresher:
                    users[:] = [other for other in users if other is not user]
                    if not users:
                        del self._current_refresher[index]
                        kept.close()
                    return


_of_this_process = TokenCache()


def token_cache() -> TokenCache:
    """Return the keepers of this process."""
    return _of_this_process


def _forked() -> None:
    """Begin anew in a forked process: threads did not come along, and locks may be held by those that stayed behind."""
    global _of_this_process
    _of_this_process = TokenCache()


os.register_at_fork(after_in_child=_forked)
