"""Which failures of connections end every wait, since the same settings will fail again; the others are tried again for ever.

The rules are a table. Each failure counts for the backoff in any case, so that nobody's account is locked by our attempts.
"""

from __future__ import annotations

import enum
from collections.abc import Collection

from spark_producer.errors import AuthenticationFailed, ConfigError, PyProducerError, SecurityError

MIN_CLOSES = 3
"""The connections in a row that must be closed at their first request before that means something: a broker that stops, or a
proxy before one, does so too, but not for long."""


class GracePeriod(enum.Enum):
    """How long a fatal error is not believed, before anything has succeeded."""

    NONE = "it ends every wait at once"
    OTHERS = "the other bootstrap servers, and their other addresses, are tried first"


RULES: tuple[tuple[type[PyProducerError], GracePeriod], ...] = (
    (AuthenticationFailed, GracePeriod.NONE),  # all brokers know the same users
    (ConfigError, GracePeriod.NONE),  # a reference to a secret that cannot be resolved: it is ours alone
    (SecurityError, GracePeriod.OTHERS),  # TLS: each broker has a certificate of its own
)
"""The patience with each kind of fatal error before the first success. After it any node may fail so once: certificates,
passwords and brokers are exchanged one after the other. Only its next attempt, after `reconnect.backoff.max.ms`, decides; where
others may help, none decides while they do."""


class FatalErrors:
    """What a client's nodes refused. `fatal_error` is the error that ends every wait, once there is one."""

    def __init__(self, bootstrap: Collection[int]) -> None:
        self.fatal_error: PyProducerError | None = None
        self._bootstrap = frozenset(bootstrap)
        self._opened = False
        self._failed: set[int] = set()
        """The nodes that have failed before the first success."""
        self._fatal: dict[int, PyProducerError] = {}
        """The last fatal error of each node since it let us in."""
        self._closed: dict[int, int] = {}

    def opened(self, node: int) -> None:
        """A node let us in: TLS, versions and login are done."""
        if not self._opened:
            self._fatal.clear()  # what failed before the first success has had its chance, and gets the one of all others
        self._opened = True
        self._fatal.pop(node, None)
        self._failed.clear()

    def address_failed(self, node: int, error: PyProducerError) -> None:
        """One of a node's addresses has failed, and others are left to try."""
        if not self._opened and is_fatal(error):
            self._fatal.setdefault(node, error)
            self._judge(error)

    def failed(self, node: int, error: PyProducerError, *, others: bool = False) -> bool:
        """A connection, or the last address of an attempt, has failed. Return whether the next attempt must wait for long.

        With `others` another node lets us in at present. Then one broker's certificate ends nothing: its batches wait for it, up
        to `delivery.timeout.ms`, as for a broker that is down.
        """
        fatal = is_fatal(error)
        if self._opened:
            if fatal and node in self._fatal and not (others and _grace_period(error) is GracePeriod.OTHERS):
                self.fatal_error = self.fatal_error or error
        else:
            self._failed.add(node)
        if fatal:
            self._fatal[node] = error
        if not self._opened and self._fatal:
            self._judge(self._fatal.get(node) or next(iter(self._fatal.values())))
        return fatal

    def closed_again(self, node: int) -> bool:
        """A node closed a connection where one that refuses us would. Return whether it did so too often to be an accident."""
        self._closed[node] = self._closed.get(node, 0) + 1
        return self._closed[node] >= MIN_CLOSES

    def give_up(self, error: PyProducerError) -> None:
        """End every wait with `error`."""
        self.fatal_error = self.fatal_error or error

    def _judge(self, error: PyProducerError) -> None:
        """End the wait for the first success, if nothing is left that might bring it."""
        if _grace_period(error) is GracePeriod.NONE or self._failed >= self._bootstrap:
            self.fatal_error = self.fatal_error or error


def _grace_period(error: PyProducerError) -> GracePeriod:
    return next(grace_period for kind, grace_period in RULES if isinstance(error, kind))


def is_fatal(error: PyProducerError) -> bool:
    """Whether the same settings will meet this error again."""
    return isinstance(error, ConfigError) or (isinstance(error, SecurityError) and error.fatal)
