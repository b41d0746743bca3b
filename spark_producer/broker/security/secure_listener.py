"""The entrance of a secure listener: it makes the TLS and the login of each connection, and watches the files of certificates."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from spark_producer.broker.security.login import LoginRules, SaslServerAuthenticator
from spark_producer.broker.security.mechanisms import start
from spark_producer.broker.security.settings import TOKEN_MECHANISM, BrokerSecurity
from spark_producer.broker.transport import TlsTransport
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import ConfigError

if TYPE_CHECKING:
    from spark_producer.security.rotation import ReloadingContext

logger = escaping_logger(__name__)

ANONYMOUS = "ANONYMOUS"
"""The user of a connection that has no login and no certificate, as Kafka names it."""


class SecureListener:
    """What makes connections secure, by the settings of the listener.

    Raises:
        ConfigError, TlsFailed: a file cannot be read or used; or unsigned tokens would be taken from other machines.
    """

    def __init__(self, settings: BrokerSecurity, host: str, wall_clock: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._rules = _rules(settings, lambda: wall_clock() * 1000)
        self._certificates = _certificates(settings) if settings.tls else None
        _warn(settings, host)

    def transport(self, sock: socket.socket) -> TlsTransport | None:
        """Return the TLS of a new connection on its non-blocking socket; None if the listener has none."""
        if self._certificates is None:
            return None
        from spark_producer.security.tls_stream import TlsStream

        return TlsTransport(sock, TlsStream(self._certificates.current(), None, server_side=True))

    def login(self) -> SaslServerAuthenticator | None:
        """Return the login of a new connection; None if nobody logs in here."""
        return None if self._rules is None else SaslServerAuthenticator(self._rules)


def _certificates(settings: BrokerSecurity) -> ReloadingContext:
    """Return the context of TLS, which follows its files; files that cannot be used are told before anybody connects."""
    from spark_producer.security.rotation import reloading_server_context

    certificate, client_ca = str(settings.certificate), settings.client_ca
    kept = reloading_server_context(
        certificate, str(settings.key or certificate), None if client_ca is None else str(client_ca)
    )
    kept.current()
    return kept


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
