"""Whether brokers let a client in: what a login needs, and what it means if they refuse or close connections without a word."""

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
"""Seconds between two looks for what a login needs (a token), while there is none."""


class Authenticator:
    """The logins of one client and the refusals that its nodes met. Nothing here costs anything while connections are ready."""

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
        """The error that ends every wait, once there is one."""
        return self._fatal_errors.fatal_error

    # What a login needs

    def may_connect(self) -> bool:
        """Whether an attempt makes sense now: not all is lost, and there is what a login needs, such as a token."""
        return self._fatal_errors.fatal_error is None and (self._logins is None or self._logins.ready())

    def pause(self) -> float:
        """Return the seconds until `may_connect` may say yes; 0 if it does."""
        return 0.0 if self.may_connect() else LOGIN_RECHECK_S

    def lacking(self, node: NodeConnection) -> bool:
        """Note why there is not what a login needs. Return whether that is news, and the node's error."""
        error = self._logins.error() if self._logins is not None else None
        if error is None or error is node.error:
            return False
        node.error = error
        self._fatal_errors.failed(node.id, error)
        return True

    def login_for(self, node: NodeConnection) -> SaslCredentials | None:
        """Return how to log in to a node; None if the listener takes no logins."""
        if self._logins is None:
            return None
        login: SaslCredentials = self._logins.for_host(node.host)
        if self._security.sasl is not None and self._security.sasl.loopback_only:
            from spark_producer.network.auth.clear_text import require_loopback

            return require_loopback(login, node.host, node.port)
        return login

    def reauthenticate(self, node: NodeConnection, connection: Connection[SentRequest]) -> bool:
        """Begin to log in again on a connection, if there is what that needs. Return whether it was begun."""
        if self._logins is None or not self._logins.ready():
            return False
        connection.reauthenticate(self._logins.for_host(node.host))
        return True

    def close(self) -> None:
        """End what goes on in the background for logins."""
        if self._logins is not None:
            self._logins.close()

    # What happened

    def opened(self, node: NodeConnection, connection: Connection[SentRequest], now: float) -> None:
        """A node let us in, or let us stay, which its state does not say yet."""
        self._fatal_errors.opened(node.id)
        if self._logins is not None and node.state is NodeState.REAUTHENTICATING:
            self._metrics.reauthenticated(now - node.reauthentication_started_at, now)
        elif self._logins is not None:
            self._metrics.logged_in(now, repeatable=connection.reports_session_lifetime)

    def address_failed(self, node: NodeConnection) -> None:
        """An address has failed for the reason in `node.error`, and others are left to try."""
        if node.error is not None:
            self._fatal_errors.address_failed(node.id, node.error)

    def failed(self, node: NodeConnection) -> bool:
        """A connection, or the last address, has failed for the reason in `node.error`. Return whether to pause for long."""
        others = any(other is not node and other.state is NodeState.READY for other in self._nodes)
        return node.error is not None and self._fatal_errors.failed(node.id, node.error, others=others)

    def judged(self, node: NodeConnection, error: PyProducerError, now: float) -> PyProducerError:
        """Return what an error of a connection means, if it is more than it says. The connection is not closed yet."""
        if isinstance(error, AuthenticationFailed):
            self._metrics.login_failed(now, reauthentication=node.state is NodeState.REAUTHENTICATING)
        if isinstance(error, TlsFailed):
            return self._perhaps_without_tls(node, error)
        return self._broken(node, error) if isinstance(error, ConnectionFailed) else error

    def _broken(self, node: NodeConnection, error: ConnectionFailed) -> PyProducerError:
        connection = node.connection
        if connection is not None and node.state is not NodeState.READY:
            hint = ": it may expect TLS (see kafka.security.protocol), or be a proxy without its broker"
            said = hint if connection.step == API_VERSIONS.name and self._security.tls is None else ""
            cause = error.__cause__
            error = ConnectionFailed(f"{error}, before it answered {connection.step}{said}", **error.__dict__)
            error.__cause__ = cause
        if node.unanswering and node.state is NodeState.READY:
            return self._perhaps_no_right(error)
        refusal = self._refusal(node, error)
        if (
            refusal is None
            or any(other.proven for other in self._nodes)
            or not self._fatal_errors.closed_again(node.id)
        ):
            return error
        self._fatal_errors.give_up(refusal)
        return refusal

    def _perhaps_without_tls(self, node: NodeConnection, error: TlsFailed) -> TlsFailed:
        """Return the error as a fatal one if nobody has answered yet, and a node keeps closing connections at our ClientHello.

        So does a broker's listener without TLS (Kafka's SocketServer, which takes it for a request that is too long), each time.
        """
        if (
            not error.silent
            or any(other.proven for other in self._nodes)
            or not self._fatal_errors.closed_again(node.id)
        ):
            return error
        return TlsFailed(f"{error}. It did so {MIN_CLOSES} times in a row", fatal=True, silent=True)

    def _perhaps_no_right(self, error: ConnectionFailed) -> ConnectionFailed:
        """Return the error with what it may tell of requests with acks=0. The first time the log says it, too."""
        hint = (
            f"{error}. With acks=0 that may be all that it says of records which it refuses: see whether "
            f"{principal(self._security)} may write to the topics (ACLs)"
        )
        if not self._acks_hint_logged:
            self._acks_hint_logged = True
            logger.warning("%s", hint)
        return ConnectionFailed(hint, **error.__dict__)

    def _refusal(self, node: NodeConnection, error: ConnectionFailed) -> AuthenticationFailed | None:
        """Return what it means if a node keeps closing connections where it has closed this one; None if it means nothing."""
        security, connection = self._security, node.connection
        if connection is None:
            return None
        if node.state is NodeState.READY and security.sasl is None and connection.awaits_first_response:
            wanted = "SASL_SSL" if security.tls else "SASL_PLAINTEXT or SASL_SSL"
            return AuthenticationFailed(
                f"{node} answers ApiVersions, but closed {MIN_CLOSES} connections in a row at the first request after it: its "
                f"listener probably wants a login (SASL). What to do: set kafka.security.protocol to {wanted}, and "
                f"kafka.sasl.mechanism, or connect to the port of another listener. The last error: {error}",
                fatal=True,
            )
        if node.state is NodeState.NEGOTIATING and connection.step == BARE and security.sasl is not None:
            return AuthenticationFailed(
                f"{node} closed {MIN_CLOSES} connections in a row during the login of user {security.sasl.username!r} with "
                f"{security.sasl.mechanism}, as brokers before 1.0 do that refuse the credentials. What to do: check "
                f"{security.sasl.given_by}",
                fatal=True,
            )
        return None
