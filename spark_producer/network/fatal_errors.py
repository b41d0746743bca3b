"""Decides which failures of connections end the client, because the same settings would fail again; others are retried for ever.

The rules are a table. Every failure counts for the backoff, so that repeated attempts do not lock a user's account.
"""

from __future__ import annotations

import enum
from collections.abc import Collection

from spark_producer.errors import AuthenticationFailed, ConfigError, PyProducerError, SecurityError

MIN_CLOSES = 5
"""Minimum number of connections in a row that a node closes at their first request before that counts as a rejection:
a broker that stops, or a proxy, also closes connections, but not for long."""


class GracePeriod(enum.Enum):
    """The time before a fatal error ends the client, while no connection has succeeded yet."""

    NONE = "it ends the client at once"
    OTHERS = "the other bootstrap servers, and their other addresses, are tried first"


RULES: tuple[tuple[type[PyProducerError], GracePeriod], ...] = (
    (AuthenticationFailed, GracePeriod.NONE),  # all brokers have the same users
    (ConfigError, GracePeriod.NONE),  # a reference to a secret that cannot be resolved, which is local
    (SecurityError, GracePeriod.OTHERS),  # TLS: each broker has its own certificate
)
"""The grace period of each type of fatal error before the first success. After the first success any node may fail once,
since certificates, passwords and brokers are replaced one by one: only its second failure, after `reconnect.backoff.max.ms`,
ends the client. With `OTHERS` the second failure does not end it either while another node is connected."""


class FatalErrors:
    """The fatal failures of a client's nodes. `fatal_error` is the one that ends the client, once there is one."""

    def __init__(self, bootstrap: Collection[int]) -> None:
        self.fatal_error: PyProducerError | None = None
        self._bootstrap = frozenset(bootstrap)
        self._opened = False
        self._failed: set[int] = set()
        """The nodes that failed before the first success."""
        self._fatal: dict[int, PyProducerError] = {}
        """The last fatal error of each node since its last success."""
        self._closed: dict[int, int] = {}

    def opened(self, node: int) -> None:
        """Record a success of a node: TLS, version negotiation and login are done."""
        if not self._opened:
            self._fatal.clear()  # a node that failed before the first success may fail once more, as any other
        self._opened = True
        self._fatal.pop(node, None)
        self._failed.clear()

    def address_failed(self, node: int, error: PyProducerError) -> None:
        """Record that an address of a node has failed, and that more addresses are left."""
        if not self._opened and is_fatal(error):
            self._fatal.setdefault(node, error)
            self._judge(error)

    def failed(self, node: int, error: PyProducerError, *, others_ready: bool = False) -> bool:
        """Record that a connection, or the last address of an attempt, has failed. Return whether to use the maximum backoff.

        With `others_ready` another node is connected now. Then the certificate of one broker does not end the client: batches
        for that broker wait up to `delivery.timeout.ms`, as for one that is down.
        """
        fatal = is_fatal(error)
        if self._opened:
            if fatal and node in self._fatal and not (others_ready and _grace_period(error) is GracePeriod.OTHERS):
                self.fatal_error = self.fatal_error or error
        else:
            self._failed.add(node)
        if fatal:
            self._fatal[node] = error
        if not self._opened and self._fatal:
            self._judge(self._fatal.get(node) or next(iter(self._fatal.values())))
        return fatal

    def closed_again(self, node: int) -> bool:
        """Record that a node closed a connection as a rejection would. Return whether it has done so `MIN_CLOSES` times."""
        self._closed[node] = self._closed.get(node, 0) + 1
        return self._closed[node] >= MIN_CLOSES

    def end_with(self, error: PyProducerError) -> None:
        """End the client with `error`, unless it has ended already."""
        self.fatal_error = self.fatal_error or error

    def _judge(self, error: PyProducerError) -> None:
        """End the client before its first success, if no untried node could bring one."""
        if _grace_period(error) is GracePeriod.NONE or self._failed >= self._bootstrap:
            self.fatal_error = self.fatal_error or error


def _grace_period(error: PyProducerError) -> GracePeriod:
    return next(grace_period for kind, grace_period in RULES if isinstance(error, kind))


def is_fatal(error: PyProducerError) -> bool:
    """Return whether the same settings would fail with this error again."""
    return isinstance(error, ConfigError) or (isinstance(error, SecurityError) and error.fatal)
