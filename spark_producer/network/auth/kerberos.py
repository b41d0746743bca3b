"""The logins of a client by Kerberos: each is begun in the background before the connection to its broker."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from copy import copy

from spark_producer.errors import AuthenticationFailed, PyProducerError
from spark_producer.network.auth.kerberos_library import MitKerberos
from spark_producer.network.auth.tickets import BegunLogin, Tickets
from spark_producer.network.auth.tokens import token_cache
from spark_producer.security.gssapi import SecurityContext
from spark_producer.security.sasl_login import SaslLogin, sasl_login
from spark_producer.security.settings import KerberosSettings, SaslSettings


class KerberosLogins:
    """Logins by ticket, each of which is ready once it has begun. Clients of a process with equal settings share the tickets."""

    def __init__(self, sasl: SaslSettings, kerberos: KerberosSettings, wakeup: Callable[[], None]) -> None:
        self._sasl = sasl
        self._kerberos = kerberos
        self._wakeup = wakeup
        self._tickets: Tickets | None = None
        self._process = 0
        self._closed = False

    def ready(self, host: str = "", port: int = 0) -> bool:
        """Return whether the login to a broker has begun. If not, it is begun in the background."""
        tickets = self._current_tickets()
        return tickets is not None and tickets.ready((self, host, port))

    def error(self, host: str = "", port: int = 0) -> PyProducerError | None:
        """Return the reason why the login to a broker has not begun, if it is known."""
        tickets = self._current_tickets()
        return tickets.error((self, host, port)) if tickets is not None else None

    def for_host(self, host: str, port: int = 0) -> SaslLogin:
        """Return the login to a broker. It can be started once, because the security context of each is its own."""
        tickets = self._current_tickets()
        begun = tickets.take((self, host, port)) if tickets is not None else None
        return sasl_login(self._sasl, (), kerberos=_Login(tickets, begun, self.error(host, port)), clock=time.time)

    def close(self) -> None:
        """Release the tickets, which ends their thread if no other client uses them."""
        tickets, self._tickets, self._closed = self._tickets, None, True
        if tickets is not None and self._process == os.getpid():
            tickets.forget(self, self._wakeup)
            token_cache().release(tickets, self)

    def _current_tickets(self) -> Tickets | None:
        """Return the tickets of this process; None after `close`. A forked process gets its own, since it has no threads."""
        if self._closed:
            return None
        if self._tickets is None or self._process != os.getpid():
            self._process = os.getpid()
            self._tickets = token_cache().acquire(
                self._sasl, self, lambda: Tickets(MitKerberos(self._kerberos), self._sasl)
            )
            self._tickets.listen(self._wakeup)
        return self._tickets


class _Login:
    """The login to one broker."""

    def __init__(self, tickets: Tickets | None, begun: BegunLogin | None, error: PyProducerError | None) -> None:
        self._tickets = tickets
        self._begun = begun
        self._error = error

    def context(self) -> SecurityContext:
        """Return the context of the login, once.

        Raises:
            AuthenticationFailed: the login has not begun, or another connection to the broker has taken it.
        """
        if self._begun is not None:
            return self._begun.context
        if self._error is not None:
            raise copy(self._error)  # a copy, whose traceback is that of this login only
        raise AuthenticationFailed("no ticket for the login yet: it is being asked for; the login is tried again")

    def refused(self) -> bool:
        """Record that the broker rejected the login. Return whether one with new tickets may succeed."""
        return self._tickets is not None and self._begun is not None and self._tickets.refused(self._begun)

    def accepted(self) -> None:
        """Record that the broker accepted the login."""
        if self._tickets is not None and self._begun is not None:
            self._tickets.accepted(self._begun)
