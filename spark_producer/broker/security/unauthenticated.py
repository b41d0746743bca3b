"""The limits of connections before their login: their number, their time, and the log lines that they may cause.

Such a client may be anybody, and costs the broker memory and time (CVE-2022-34917 was memory before the login).
"""

from __future__ import annotations

from collections.abc import Hashable
from ipaddress import IPv6Address
from typing import Final, Generic, TypeVar

MAX_UNAUTHENTICATED: Final = 100
"""Maximum number of unauthenticated connections. A further one displaces another, or is closed at once."""

MIN_DISPLACED_AGE_S: Final = 1.0
"""Minimum age in seconds at which a connection can be displaced by one of a host with as many. A login takes some 0.1 s."""

LOGIN_TIMEOUT_S: Final = 10.0
"""Maximum time from the accept of a connection to the end of its login, in seconds, including the TLS handshake."""

REFUSAL_DELAY_S: Final = 0.1
"""Pause before a refusal in seconds, so that passwords cannot be guessed fast (Kafka's
`connection.failed.authentication.delay.ms`)."""

MAX_FRAME_BYTES: Final = 512 * 1024
"""Maximum size of a frame before the login, in bytes (Kafka's `sasl.server.max.receive.size`)."""

LOG_INTERVAL_S: Final = 60.0
"""Minimum time in seconds between two log lines about one host."""

_MAX_HOSTS: Final = 1000
"""Maximum number of hosts that are remembered; a forgotten one may cause another line."""

Peer = TypeVar("Peer", bound=Hashable)


class UnauthenticatedConnections(Generic[Peer]):
    """The unauthenticated connections, each with its deadline. The time is passed in, in seconds."""

    def __init__(self) -> None:
        self._deadlines: dict[Peer, float] = {}  # in order of their deadlines, since all have the same time
        self._hosts: dict[Peer, str] = {}
        self._of_host: dict[str, dict[Peer, None]] = {}  # in order too
        self._last_logged: dict[tuple[str, int], float] = {}

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, peer: object) -> bool:
        return peer in self._deadlines

    @property
    def is_full(self) -> bool:
        """Whether no further connection is allowed now."""
        return len(self._deadlines) >= MAX_UNAUTHENTICATED

    def add(self, peer: Peer, now: float, address: str = "") -> None:
        """Add a new connection from `address` (host:port)."""
        self._deadlines[peer] = now + LOGIN_TIMEOUT_S
        host = self._hosts[peer] = host_of(address)
        self._of_host.setdefault(host, {})[peer] = None

    def remove(self, peer: Peer) -> None:
        """Remove a connection that has logged in or closed. Others than these connections are ignored."""
        if self._deadlines.pop(peer, None) is None:
            return
        host = self._hosts.pop(peer)
        del self._of_host[host][peer]
        if not self._of_host[host]:
            del self._of_host[host]

    def connection_to_displace(self, address: str, now: float) -> Peer | None:
        """Return the connection to close in favour of one from `address`, while `is_full`; None if the new one must be closed.

        It is the oldest connection of the host that has the most, so that no host can occupy all of them: the hosts' shares
        become equal. A host that already has the largest share displaces only a connection older than `MIN_DISPLACED_AGE_S`:
        silent programs cannot lock out others of their machine, all of which have the loopback address.
        """
        of_largest = max(self._of_host.values(), key=len)
        oldest = next(iter(of_largest))
        if len(of_largest) > len(self._of_host.get(host_of(address), ())) + 1:
            return oldest
        return oldest if now - (self._deadlines[oldest] - LOGIN_TIMEOUT_S) >= MIN_DISPLACED_AGE_S else None

    def next_deadline(self) -> float:
        """Return the earliest deadline; infinity without connections."""
        return next(iter(self._deadlines.values()), float("inf"))

    def expired(self, now: float) -> list[Peer]:
        """Return the connections whose deadline has passed."""
        return [peer for peer, deadline in self._deadlines.items() if deadline <= now]

    def may_log(self, address: str, level: int, now: float) -> bool:
        """Return whether a line of this level about `address` (host:port) can be logged now, and count it: the next one of its
        host cannot within `LOG_INTERVAL_S`."""
        key = host_of(address), level
        if now - self._last_logged.get(key, float("-inf")) < LOG_INTERVAL_S:
            return False
        self._last_logged.pop(key, None)
        if len(self._last_logged) >= _MAX_HOSTS:
            del self._last_logged[next(iter(self._last_logged))]
        self._last_logged[key] = now
        return True


def host_of(address: str) -> str:
    """Return the host of an address (host:port); for IPv6 its /64 network, since one host has all of its addresses."""
    host = address.rpartition(":")[0]
    if ":" not in host:
        return host
    try:
        known = IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    if known.ipv4_mapped is not None:
        return str(known.ipv4_mapped)
    return host if known.is_loopback or known.is_link_local else str(IPv6Address(int(known) >> 64 << 64))
