"""The Kerberos tickets of one identity in this process, and the logins that are begun with them.

Both may ask a KDC, which takes seconds if it hangs. So a thread of its own does it, and the I/O thread gets security contexts
with their first message.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple, Protocol, TypeVar

from spark_producer.common.backoff import exponential
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import AuthenticationFailed, PyProducerError
from spark_producer.security.gssapi import SecurityContext
from spark_producer.security.settings import SaslSettings
from spark_producer.security.token import ENDLESS, next_refresh

logger = escaping_logger("pyproducer")

_Result = TypeVar("_Result")

SLOW_S = 10.0
"""Seconds after which an unfinished request to a KDC is reported as the reason why no login can begin."""

MAX_WAIT_S = 3600.0
"""Maximum sleep in seconds, since a condition does not accept an infinite one."""

MAX_AGE_S = 60.0
"""Maximum age of a first message in seconds. It has a timestamp, which brokers accept for five minutes (RFC 4120)."""

BACKOFF_S = 0.5
MAX_BACKOFF_S = 10.0
"""Minimum and maximum pause in seconds before a KDC is asked again after a failure."""

Login = tuple[object, str, int]
"""A client, and the address of a broker to which it logs in."""


class Credentials(NamedTuple):
    """What a library has for an identity, and its end in seconds since 1970."""

    handle: Any
    expires_at: float


class Kerberos(Protocol):
    """A library of Kerberos for one identity. Its methods block, and raise ConfigError or AuthenticationFailed."""

    def acquire(self) -> Credentials:
        """Return new credentials: from a KDC by the keytab, or from the ticket cache."""

    def begin(self, credentials: Credentials, host: str) -> SecurityContext:
        """Return a security context with the broker on `host`, with its first message."""


@dataclass(slots=True)
class _Failure:
    """The error of an attempt, and when the next one may follow."""

    error: PyProducerError
    retry_at: float


@dataclass(frozen=True, slots=True)
class BegunLogin:
    """A login that has begun."""

    context: SecurityContext
    credentials: Credentials
    at: float


class Tickets:
    """Holds the credentials of one identity, replaces them before they expire, and begins logins with them.

    The methods are thread-safe and do not block. The library runs on the thread of this object alone.
    """

    def __init__(
        self,
        kerberos: Kerberos,
        settings: SaslSettings,
        *,
        clock: Callable[[], float] = time.time,
        random: Random | None = None,
    ) -> None:
        """The result of `clock` is in seconds since 1970."""
        self._kerberos = kerberos
        self._settings = settings
        self._clock = clock
        self._random = random or Random()
        self._changed = threading.Condition()
        self._listeners: list[Callable[[], None]] = []
        self._thread: threading.Thread | None = None
        self._credentials: Credentials | None = None
        self._due = ENDLESS
        """Time at which to replace the credentials."""
        self._wanted: dict[Login, None] = {}
        """The logins to begin, in the order in which they were asked for."""
        self._begun: dict[Login, BegunLogin] = {}
        self._failures: dict[Login, _Failure] = {}
        self._no_credentials: _Failure | None = None
        self._failed_attempts = 0
        self._busy_since: float | None = None
        self._unproven_replacement = False
        """Whether the credentials replace some that a broker rejected, and no broker has accepted them yet."""
        self._closed = False

    def ready(self, login: Login) -> bool:
        """Return whether `login` has begun. If not, it is begun in the background, after a failure only after a pause."""
        with self._changed:
            now = self._clock()
            begun = self._begun.get(login)
            if begun is not None and now - begun.at < MAX_AGE_S:
                return True
            failure = self._failures.get(login)
            if not self._closed and login not in self._wanted and (failure is None or now >= failure.retry_at):
                self._wanted[login] = None
                self._wake()
            return False

    def error(self, login: Login) -> PyProducerError | None:
        """Return the reason why `login` has not begun, if it is known."""
        with self._changed:
            failure = self._failures.get(login)
            if failure is not None:
                return failure.error
            waited = self._clock() - self._busy_since if self._busy_since is not None else 0.0
            if login in self._wanted and waited >= SLOW_S:
                error = AuthenticationFailed(
                    f"no Kerberos ticket yet: the KDC has not answered for more than {SLOW_S:.0f} s, and is still being asked. "
                    "Look whether the KDCs of krb5.conf run, and are reachable from this machine"
                )
                self._failures[login] = _Failure(error, ENDLESS)  # until the attempt ends
                return error
            return None

    def take(self, login: Login) -> BegunLogin | None:
        """Return a login that has begun, which is used once; None if it has not."""
        with self._changed:
            begun = self._begun.pop(login, None)
            return begun if begun is not None and self._clock() - begun.at < MAX_AGE_S else None

    def refused(self, begun: BegunLogin) -> bool:
        """Replace the credentials, because a broker rejected a login. Return whether one with new ones may succeed.

        The key of the broker may have changed since the ticket was issued. It is False after the second rejection in a row.
        """
        with self._changed:
            if begun.credentials is not self._credentials:
                return True  # another connection was rejected before, and the current ones are newer
            self._credentials = None
            self._begun.clear()
            again = not self._unproven_replacement
            self._unproven_replacement = True
            return again

    def accepted(self, begun: BegunLogin) -> None:
        """Record that a broker accepted a login."""
        with self._changed:
            if begun.credentials is self._credentials:
                self._unproven_replacement = False

    def listen(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` after each attempt, on the thread of this object."""
        with self._changed:
            self._listeners.append(on_change)

    def forget(self, client: object, on_change: Callable[[], None]) -> None:
        """Remove the logins and the listener of a client."""
        with self._changed:
            self._listeners = [listener for listener in self._listeners if listener != on_change]
            for logins in (self._wanted, self._begun, self._failures):
                for login in [login for login in logins if login[0] is client]:
                    del logins[login]

    def close(self) -> None:
        """End the thread, after the current request if there is one. A second call does nothing."""
        with self._changed:
            self._closed = True
            self._listeners = []
            self._wanted.clear()
            self._changed.notify_all()

    def join(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for the end of the thread after `close`. Return whether it has ended."""
        if self._thread is not None:
            self._thread.join(timeout)
        return self._thread is None or not self._thread.is_alive()

    # The rest runs under the lock, or on the thread of this object

    def _wake(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="pyproducer-kerberos", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _run(self) -> None:
        while self._wait_for_work():
            self._work()
            with self._changed:
                self._busy_since = None
                listeners = list(self._listeners)
            for listener in listeners:
                listener()

    def _wait_for_work(self) -> bool:
        """Wait until a login is wanted, or the credentials are to be replaced. Return False if this object is closed."""
        with self._changed:
            while not self._closed:
                now = self._clock()
                if self._wanted or now >= self._due:
                    self._busy_since = now
                    return True
                self._changed.wait(min(self._due - now, MAX_WAIT_S))
            return False

    def _work(self) -> None:
        """Replace the credentials if that is due, and begin the login that has been wanted for longest."""
        with self._changed:
            login = next(iter(self._wanted), None)
        credentials, error = self._current_credentials()
        if login is None:
            return
        context = None
        if credentials is not None:
            held = credentials
            context, error = _attempt(lambda: self._kerberos.begin(held, login[1]))
        with self._changed:
            if login not in self._wanted:
                return  # its client has closed
            del self._wanted[login]
            self._failures.pop(login, None)
            now = self._clock()
            if context is not None and credentials is not None:
                self._failed_attempts = 0
                self._begun[login] = BegunLogin(context, credentials, now)
            elif error is not None:
                self._failures[login] = _Failure(error, now + self._pause())

    def _current_credentials(self) -> tuple[Credentials | None, PyProducerError | None]:
        """Return valid credentials, new ones if that is due; or the error of the last attempt to get any."""
        with self._changed:
            now, held, failure = self._clock(), self._credentials, self._no_credentials
            if held is not None and now >= held.expires_at:
                held = self._credentials = None
            if held is not None and now < self._due:
                return held, None
            if held is None and failure is not None and now < failure.retry_at:
                return None, failure.error
        acquired, error = _attempt(self._kerberos.acquire)
        with self._changed:
            now = self._clock()
            if acquired is not None and acquired.expires_at <= now:
                error, acquired = _expired_error(acquired, now), None
            if acquired is not None:
                self._credentials, self._no_credentials = acquired, None
                self._due = next_refresh(self._settings, acquired.expires_at, now, self._random.random())
                self._due = max(self._due, now + BACKOFF_S)
                return acquired, None
            return self._without_new(held, error, now)

    def _without_new(
        self, held: Credentials | None, error: PyProducerError | None, now: float
    ) -> tuple[Credentials | None, PyProducerError | None]:
        """Record that there are no new credentials. The former ones are used until they expire."""
        pause = self._pause()
        if held is not None:
            self._due = now + pause
            logger.warning("cannot renew the Kerberos ticket, which is used until it expires: %s", error)
            return held, None
        self._due = ENDLESS
        if error is not None:
            self._no_credentials = _Failure(error, now + pause)
        return None, error

    def _pause(self) -> float:
        self._failed_attempts += 1
        return exponential(BACKOFF_S, MAX_BACKOFF_S, self._failed_attempts - 1, self._random)


def _attempt(act: Callable[[], _Result]) -> tuple[_Result | None, PyProducerError | None]:
    try:
        return act(), None
    except PyProducerError as error:
        return None, error
    except Exception as error:  # the thread must survive any error, and waiting logins get it
        return None, AuthenticationFailed(
            f"no Kerberos ticket: asking for it raised {type(error).__name__}; it is asked for again"
        )


def _expired_error(credentials: Credentials, now: float) -> AuthenticationFailed:
    return AuthenticationFailed(
        f"the new Kerberos ticket expired {now - credentials.expires_at:.0f} s ago by this machine's clock. Correct the clocks"
    )
