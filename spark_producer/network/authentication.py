"""Logins on connections, and the meaning of rejections and of connections that brokers close without an error."""

from __future__ import annotations

from spark_producer.common.escape import escaping_logger
from spark_producer.errors import AuthenticationFailed, ConnectionFailed, PyProducerError, TlsFailed
from spark_producer.metrics import ProducerMetrics, unread_metrics
from spark_producer.network.auth import Logins
from spark_producer.network.fatal_errors import MIN_CLOSES, FatalErrors
from spark_producer.network.node import NodeConnection, NodeState, SentRequest
from spark_producer.network.nodes import Nodes
from spark_producer.network.settings import UNSECURED, ConnectionSettings, principal
from spark_producer.protocol import API_VERSIONS, Connection, SaslCredentials
from spark_producer.protocol.credentials import BARE

logger = escaping_logger("pyproducer")

LOGIN_RECHECK_S = 0.1
"""Seconds between two checks for a token or ticket, while a login has none."""


class Authenticator:
    """The logins of one client, and the failures of its nodes. Ready connections do not use it."""

    def __init__(
        self,
        settings: ConnectionSettings,
        logins: Logins | None,
        nodes: Nodes,
        metrics: ProducerMetrics | None = None,
    ) -> None:
        if settings.security != UNSECURED:
            from spark_producer.network.security_warnings import (
                warn_of_weaknesses,  # PLAINTEXT users import none of this
            )

            warn_of_weaknesses(settings)
        self._security = settings.security
        self._logins = logins
        self._acks_hint_logged = False
        self._nodes = nodes
        self._metrics = metrics or unread_metrics()
        self._fatal_errors = FatalErrors(nodes.bootstrap)

    @property
    def fatal_error(self) -> PyProducerError | None:
        """The error that ends the client, once there is one."""
        return self._fatal_errors.fatal_error

    # Logins

    def may_connect(self, node: NodeConnection) -> bool:
        """Return whether an attempt to connect makes sense now: there is no fatal error, and the login is ready."""
        return self._fatal_errors.fatal_error is None and self._login_ready(node)

    def pause(self, node: NodeConnection) -> float:
        """Return the seconds until `may_connect` is to be called again; 0 if it returns True now."""
        return 0.0 if self.may_connect(node) else LOGIN_RECHECK_S

    def store_login_error(self, node: NodeConnection) -> bool:
        """Store the reason why the login is not ready in `node.error`, and return whether it has changed."""
        error = self._logins.error(node.host, node.port) if self._logins is not None else None
        if error is None or error is node.error:
            return False
        if isinstance(error, AuthenticationFailed):
            error.connected = False
        node.error = error
        self._fatal_errors.failed(node.id, error)
        return True

    def login_for(self, node: NodeConnection) -> SaslCredentials | None:
        """Return the login for a node; None if the client does not log in."""
        if self._logins is None:
            return None
        login: SaslCredentials = self._logins.for_host(node.host, node.port)
        if self._security.sasl is not None and self._security.sasl.loopback_only:
            from spark_producer.network.auth.clear_text import require_loopback

            return require_loopback(login, node.host, node.port)
        return login

    def reauthenticate(self, node: NodeConnection, connection: Connection[SentRequest]) -> bool:
        """Begin the re-authentication of a connection (KIP-368) if the login is ready. Return whether it has begun."""
        if self._logins is None or not self._login_ready(node):
            return False
        connection.reauthenticate(self._logins.for_host(node.host, node.port))
        return True

    def _login_ready(self, node: NodeConnection) -> bool:
        return self._logins is None or self._logins.ready(node.host, node.port)

    def close(self) -> None:
        """End the background work for logins."""
        if self._logins is not None:
            self._logins.close()

    # Events

    def opened(self, node: NodeConnection, connection: Connection[SentRequest], now: float) -> None:
        """Record that a login, or a re-authentication, has succeeded. The node's state changes
        afterwards."""
        self._fatal_errors.opened(node.id)
        if self._logins is not None and node.state is NodeState.REAUTHENTICATING:
            self._metrics.reauthenticated(now - node.reauthentication_started_at, now)
        elif self._logins is not None:
            self._metrics.logged_in(now, repeatable=connection.reports_session_lifetime)

    def address_failed(self, node: NodeConnection) -> None:
        """Record that an address has failed with `node.error`, and that more addresses are left."""
        if node.error is not None:
            self._fatal_errors.address_failed(node.id, node.error)

    def failed(self, node: NodeConnection) -> bool:
        """Record that a node has failed with `node.error`. Return whether to use the maximum backoff."""
        others = any(other is not node and other.state is NodeState.READY for other in self._nodes)
        return node.error is not None and self._fatal_errors.failed(node.id, node.error, others_ready=others)

    def interpret(self, node: NodeConnection, error: PyProducerError, now: float) -> PyProducerError:
        """Return the error to raise for an error of a connection, with its probable cause. The connection is not closed yet."""
        if isinstance(error, AuthenticationFailed):
            self._metrics.login_failed(now, reauthentication=node.state is NodeState.REAUTHENTICATING)
        if isinstance(error, TlsFailed):
            return self._possibly_without_tls(node, error)
        return self._connection_error(node, error) if isinstance(error, ConnectionFailed) else error

    def _connection_error(self, node: NodeConnection, error: ConnectionFailed) -> PyProducerError:
        connection = node.connection
        if connection is not None and node.state is not NodeState.READY:
            hint = ": it may expect TLS (check kafka.security.protocol), or be a proxy whose broker is down"
            cause_hint = hint if connection.step == API_VERSIONS.name and self._security.tls is None else ""
            cause = error.__cause__
            error = ConnectionFailed(f"{error}, before it answered {connection.step}{cause_hint}", **error.__dict__)
            error.__cause__ = cause
        if node.unanswering and node.state is NodeState.READY:
            return self._possibly_unauthorized(error)
        rejection = self._rejection(node, error)
        if (
            rejection is None
            or any(other.proven for other in self._nodes)
            or not self._fatal_errors.closed_again(node.id)
        ):
            return error
        self._fatal_errors.end_with(rejection)
        return rejection

    def _possibly_without_tls(self, node: NodeConnection, error: TlsFailed) -> TlsFailed:
        """Return a fatal error if no node has answered yet and this one keeps closing connections at the ClientHello.

        A listener without TLS always does so: Kafka's SocketServer takes the ClientHello for a request that is too large.
        """
        if (
            not error.silent
            or any(other.proven for other in self._nodes)
            or not self._fatal_errors.closed_again(node.id)
        ):
            return error
        return TlsFailed(f"{error}. It did so {MIN_CLOSES} times in a row", fatal=True, silent=True)

    def _possibly_unauthorized(self, error: ConnectionFailed) -> ConnectionFailed:
        """Return the error with its probable cause for requests with acks=0, and log that once."""
        hint = (
            f"{error}. With acks=0 a broker closes the connection to reject records. Check that "
            f"{principal(self._security)} may write to the topics (ACLs)"
        )
        if not self._acks_hint_logged:
            self._acks_hint_logged = True
            logger.warning("%s", hint)
        return ConnectionFailed(hint, **error.__dict__)

    def _rejection(self, node: NodeConnection, error: ConnectionFailed) -> AuthenticationFailed | None:
        """Return the error for a node that keeps closing connections at this point; None if the point has no known cause."""
        security, connection = self._security, node.connection
        if connection is None:
            return None
        if node.state is NodeState.READY and security.sasl is None and connection.awaits_first_response:
            wanted = "SASL_SSL" if security.tls else "SASL_PLAINTEXT or SASL_SSL"
            return AuthenticationFailed(
                f"{node} answers ApiVersions, but closed {MIN_CLOSES} connections in a row at the first request after it: its "
                f"listener probably expects a login (SASL). What to do: set kafka.security.protocol to {wanted}, and "
                f"kafka.sasl.mechanism, or connect to the port of another listener. The last error: {error}",
                fatal=True,
            )
        if node.state is NodeState.NEGOTIATING and connection.step == BARE and security.sasl is not None:
            return AuthenticationFailed(
                f"{node} closed {MIN_CLOSES} connections in a row during the login of user {security.sasl.username!r} with "
                f"{security.sasl.mechanism}, as brokers before 1.0 do to reject credentials. What to do: check "
                f"{security.sasl.given_by}",
                fatal=True,
            )
        return None
