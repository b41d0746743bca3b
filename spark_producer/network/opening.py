"""Which transport carries the connections of a client."""

from __future__ import annotations

from collections.abc import Callable

from spark_producer.network.settings import ConnectionSettings
from spark_producer.network.transport import ResolvedAddress, TcpTransport, Transport
from spark_producer.security import SecuritySettings


def opener(security: SecuritySettings) -> Callable[[ResolvedAddress, ConnectionSettings], Transport]:
    """Return what opens the connections of one client. TLS is imported only where it is on."""
    if security.tls is None:
        return TcpTransport
    from spark_producer.network.tls_transport import TlsConnector

    return TlsConnector(security.tls, security.allowed_secrets)
