"""The entrance of a secure listener: it makes the TLS and the login of each connection, and watches the files of certificates."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from spark_producer.broker.security.login import Login, LoginRules
from spark_producer.broker.security.mechanisms import start
from spark_producer.broker.security.settings import TOKEN_MECHANISM, BrokerSecurity
from spark_producer.broker.wire import TlsWire
from spark_producer.errors import ConfigError, PyProducerError

if TYPE_CHECKING:
    from spark_producer.security.tls_stream import TlsStream

logger = logging.getLogger(__name__)

ANONYMOUS = "ANONYMOUS"
"""The user of a connection that has no login and no certificate, as Kafka names it."""

_State: TypeAlias = tuple[tuple[int, int, int] | None, ...]


class Entrance:
    """What makes connections secure, by the settings of the listener.

    Raises:
        ConfigError, TlsFailed: a file cannot be read or used; or unsigned tokens would be taken from other machines.
    """

    def __init__(self, settings: BrokerSecurity, host: str, wall_clock: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._rules = _rules(settings, lambda: wall_clock() * 1000)
        self._certificates = _Certificates(settings) if settings.tls else None
        _warn(settings, host)

    def wire(self, sock: socket.socket) -> TlsWire | None:
        """Return the TLS of a new connection on its non-blocking socket; None if the listener has none."""
        return None if self._certificates is None else TlsWire(sock, self._certificates.stream())

    def login(self) -> Login | None:
        """Return the login of a new connection; None if nobody logs in here."""
        return None if self._rules is None else Login(self._rules)


class _Certificates:
    """The context of TLS, made anew when one of its files has changed. One that cannot be used leaves the one before."""

    def __init__(self, settings: BrokerSecurity) -> None:
        named = (settings.certificate, settings.key or settings.certificate, settings.client_ca)
        self._files = [None if file is None else Path(file) for file in named]
        self._state = self._look()
        self._begin = self._made()

    def stream(self) -> TlsStream:
        """Return the TLS of a new connection."""
        state = self._look()
        if state != self._state:
            self._state = state  # if it is bad, it is tried again when it changes again
            try:
                self._begin = self._made()
                logger.info("the certificates have changed: new connections use the new ones")
            except (PyProducerError, OSError) as error:
                logger.warning("the certificates have changed and cannot be used; the old ones serve on: %s", error)
        return self._begin()

    def _made(self) -> Callable[[], TlsStream]:
        from spark_producer.security.contexts import server_context
        from spark_producer.security.tls_stream import TlsStream

        certificate, key, client_ca = self._files
        context = server_context(str(certificate), str(key), None if client_ca is None else str(client_ca))
        return partial(TlsStream, context, None, server_side=True)

    def _look(self) -> _State:
        return tuple(None if file is None else _look_at(file) for file in self._files)


def _look_at(file: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(file)  # noqa: PTH116  # a link may lead elsewhere now, as in mounted secrets of Kubernetes
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _rules(settings: BrokerSecurity, now_ms: Callable[[], float]) -> LoginRules | None:
    if not settings.sasl:
        return None
    return LoginRules(
        settings.mechanisms,
        lambda mechanism: start(mechanism, settings.users, now_ms),
        now_ms,
        settings.max_session_ms,
    )


def _warn(settings: BrokerSecurity, host: str) -> None:
    """Refuse or warn about what may be good for tests, and for nothing else."""
    near = host == "localhost" or host == "::1" or host.startswith("127.")
    if TOKEN_MECHANISM in settings.mechanisms:
        if not near:
            raise ConfigError(
                f"{TOKEN_MECHANISM} takes unsigned tokens here, so it only listens on a loopback address, and {host} is none"
            )
        logger.warning("%s takes unsigned tokens: everybody on this machine can log in as anybody", TOKEN_MECHANISM)
    if "PLAIN" in settings.mechanisms and not settings.tls and not near:
        logger.warning("PLAIN without TLS sends passwords in clear over the network: use SASL_SSL")
