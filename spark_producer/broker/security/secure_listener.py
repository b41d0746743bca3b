"""The secure listener: it creates the TLS transport and the login of each connection, and follows the certificate files."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from spark_producer.broker.security.mechanisms import start
from spark_producer.broker.security.sasl_authenticator import LoginRules, SaslServerAuthenticator
from spark_producer.broker.security.settings import TOKEN_MECHANISM, BrokerSecurity
from spark_producer.broker.transport import TlsServerTransport
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import ConfigError

if TYPE_CHECKING:
    from spark_producer.security.rotation import ReloadingContext

logger = escaping_logger(__name__)

ANONYMOUS = "ANONYMOUS"
"""The user of a connection without a login or a certificate, as in Kafka."""


class SecureListener:
    """Creates the TLS transport and the login of each connection, as the listener's settings say.

    Raises:
        ConfigError, TlsFailed: a file cannot be read or used; or unsigned tokens would be accepted from other machines.
    """

    def __init__(self, settings: BrokerSecurity, host: str, wall_clock: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._rules = _rules(settings, lambda: wall_clock() * 1000)
        self._certificates = _certificates(settings) if settings.tls else None
        _warn(settings, host)

    def transport(self, sock: socket.socket) -> TlsServerTransport | None:
        """Return the TLS transport of a new connection on its non-blocking socket; None without TLS."""
        if self._certificates is None:
            return None
        from spark_producer.security.tls_stream import TlsStream

        return TlsServerTransport(sock, TlsStream(self._certificates.current(), None, server_side=True))

    def login(self) -> SaslServerAuthenticator | None:
        """Return the login of a new connection; None without SASL."""
        return None if self._rules is None else SaslServerAuthenticator(self._rules)


def _certificates(settings: BrokerSecurity) -> ReloadingContext:
    """Return the TLS context, which follows its files; unusable files raise before a client connects."""
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
    """Refuse, or warn about, settings that are for tests only."""
    near = host == "localhost" or host == "::1" or host.startswith("127.")
    if TOKEN_MECHANISM in settings.mechanisms:
        if not near:
            raise ConfigError(
                f"{TOKEN_MECHANISM} takes unsigned tokens, so the broker must listen on a loopback address: {host} is not one"
            )
        logger.warning("%s takes unsigned tokens: everyone on this machine can log in as any user", TOKEN_MECHANISM)
    if "PLAIN" in settings.mechanisms and not settings.tls and not near:
        logger.warning("PLAIN without TLS sends passwords in clear text over the network: use SASL_SSL")
