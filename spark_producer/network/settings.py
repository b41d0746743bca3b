"""The settings of a connection to a cluster: one frozen value for producers, the driver's checks, jobs and commands."""

from __future__ import annotations

from dataclasses import dataclass

from spark_producer.common.escape import for_log
from spark_producer.config import ConnectionOptions
from spark_producer.network.addresses import parse_bootstrap_servers
from spark_producer.security import SecuritySettings

KERNEL_DEFAULT = -1
"""Buffer size that leaves the choice to the system, as in Kafka's `send.buffer.bytes`."""

PLAIN = (
    "bootstrap",
    "client_id",
    "max_in_flight",
    "request_timeout",
    "reconnect_backoff",
    "reconnect_backoff_max",
    "retry_backoff",
    "retry_backoff_max",
    "connection_setup_timeout",
    "connection_setup_timeout_max",
    "connections_max_idle",
    "send_buffer_bytes",
    "receive_buffer_bytes",
    "check_cluster",
)
"""The fields that `repr` shows. Others never reach a log or a traceback; of `security` only the name of the protocol does."""

UNSECURED = SecuritySettings()
"""PLAINTEXT: no encryption and no login."""


@dataclass(frozen=True, slots=True, repr=False)
class ConnectionSettings:
    """The bootstrap servers of a cluster, and the settings of connections to it.

    Times are in seconds, sizes in bytes. Names and defaults are those of Kafka's producer, except that the system chooses buffer
    sizes. It compares by value, and has no hash, since secrets have none.
    """

    __hash__ = None  # type: ignore[assignment]  # else it could be a key until the first secret is in it

    bootstrap: tuple[tuple[str, int], ...]
    """Host and port of each bootstrap server, in order."""
    client_id: str | None = None
    max_in_flight: int = 5
    """Maximum number of in-flight requests per connection."""
    request_timeout: float = 30.0
    reconnect_backoff: float = 0.05
    reconnect_backoff_max: float = 1.0
    retry_backoff: float = 0.1
    retry_backoff_max: float = 1.0
    """Minimum and maximum backoff before a request is retried; `reconnect_backoff` is that of connections."""
    connection_setup_timeout: float = 10.0
    connection_setup_timeout_max: float = 30.0
    connections_max_idle: float = 540.0
    send_buffer_bytes: int = KERNEL_DEFAULT
    receive_buffer_bytes: int = KERNEL_DEFAULT
    check_cluster: bool = True
    """Whether the cluster id of the first response is compared with those of brokers (`metadata.cluster.check.enable`)."""
    security: SecuritySettings = UNSECURED

    @classmethod
    def from_config(cls, config: ConnectionOptions) -> ConnectionSettings:
        """Return the settings for the options.

        Raises:
            ConfigError: `bootstrap.servers` names no server, or one that is not host:port; or as `security_settings`.
        """
        bootstrap = tuple(parse_bootstrap_servers(config.bootstrap_servers))
        security = UNSECURED
        if config.security_protocol != "PLAINTEXT":
            from spark_producer.network.security_options import (
                security_settings,  # imported only if it is needed
            )

            security = security_settings(config)
        return cls(
            bootstrap=bootstrap,
            client_id=config.client_id,
            max_in_flight=config.max_in_flight,
            request_timeout=config.request_timeout_ms / 1000,
            reconnect_backoff=config.reconnect_backoff_ms / 1000,
            reconnect_backoff_max=config.reconnect_backoff_max_ms / 1000,
            retry_backoff=config.retry_backoff_ms / 1000,
            retry_backoff_max=config.retry_backoff_max_ms / 1000,
            connection_setup_timeout=config.socket_connection_setup_timeout_ms / 1000,
            connection_setup_timeout_max=config.socket_connection_setup_timeout_max_ms / 1000,
            connections_max_idle=config.connections_max_idle_ms / 1000,
            send_buffer_bytes=config.send_buffer_bytes,
            receive_buffer_bytes=config.receive_buffer_bytes,
            check_cluster=config.checks_cluster,
            security=security,
        )

    def __repr__(self) -> str:
        """Show the plain fields, and the name of the security protocol."""
        shown = [f"{name}={getattr(self, name)!r}" for name in PLAIN]
        return f"{type(self).__name__}({', '.join(shown)}, security={self.security.protocol})"


def principal(security: SecuritySettings) -> str:
    """Return the client's principal for messages, such as "user 'app'"; or name the certificate or token, which brokers map."""
    if security.sasl is not None:
        if security.sasl.token_auth:
            return f"the owner of the delegation token {for_log(security.sasl.username, limit=None)!r}"
        if security.sasl.username:
            return f"user {for_log(security.sasl.username, limit=None)!r}"
        return "the owner of the ticket cache" if security.sasl.kerberos is not None else "the user of the token"
    if security.tls is not None and security.tls.identity is not None:
        location = security.tls.identity.location
        return f"the subject of the certificate in {location}" if location else "the subject of the client certificate"
    return "user 'ANONYMOUS' (no login)"
