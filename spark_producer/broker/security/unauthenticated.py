"""The bounds of peers that have not logged in: how many, for how long, and how many lines of the log they may cause.

Such a peer may be anybody, and costs the broker memory and time (CVE-2022-34917 was memory before the login).
"""

from __future__ import annotations

from collections.abc import Hashable
from ipaddress import IPv6Address
from typing import Final, Generic, TypeVar

MAX_UNAUTHENTICATED: Final = 100
"""The maximum number of connections that have not logged in. A further one displaces another, or is closed at once."""

SAFE_SECONDS: Final = 1.0
"""Seconds for which no other connection of its host displaces one. A login takes some 0.1 s."""

LOGIN_SECONDS: Final = 10.0
"""Seconds from the first moment of a connection to the end of its login, TLS handshake included."""

REFUSAL_SECONDS: Final = 0.1
"""Seconds before a refusal, so that nobody guesses fast (Kafka's `connection.failed.authentication.delay.ms`)."""

MAX_FRAME_BYTES: Final = 512 * 1024
"""The largest frame before the login, in bytes (Kafka's `sasl.server.max.receive.size`)."""

QUIET_SECONDS: Final = 60.0
"""One host causes at most one line of the log in so many seconds."""

_MAX_HOSTS: Final = 1000
"""So many hosts are remembered; one that was forgotten may cause another line."""

Peer = TypeVar("Peer", bound=Hashable)


class UnauthenticatedConnections(Generic[Peer]):
    """The connections that have not logged in, each with the time at which it must have. The time is passed in, in seconds."""

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
        """Whether there may be no more of them now."""
        return len(self._deadlines) >= MAX_UNAUTHENTICATED

    def add(self, peer: Peer, now: float, address: str = "") -> None:
        """Note a new connection from `address` (host:port)."""
        self._deadlines[peer] = now + LOGIN_SECONDS
        host = self._hosts[peer] = host_of(address)
        self._of_host.setdefault(host, {})[peer] = None

    def remove(self, peer: Peer) -> None:
        """Forget one that has logged in or has gone, if it is among them."""
        if self._deadlines.pop(peer, None) is None:
            return
        host = self._hosts.pop(peer)
        del self._of_host[host][peer]
        if not self._of_host[host]:
            del self._of_host[host]

    def to_displace(self, address: str, now: float) -> Peer | None:
        """Return the connection to close in favour of one from `address`, while `full`; None if the new one is to be closed.

        It is the oldest one of the host with the most of them, so that no host can occupy all connections: their shares become
        equal. A host that already has the largest share displaces only a connection older than `SAFE_SECONDS`: so silent
        programs cannot lock out others of their machine, all of which have the loopback address.
        """
        of_largest = max(self._of_host.values(), key=len)
        oldest = next(iter(of_largest))
        if len(of_largest) > len(self._of_host.get(host_of(address), ())) + 1:
            return oldest
        return oldest if now - (self._deadlines[oldest] - LOGIN_SECONDS) >= SAFE_SECONDS else None

    def next_deadline(self) -> float:
        """Return when the first of them must have logged in; infinity if there is none."""
        return next(iter(self._deadlines.values()), float("inf"))

    def expired(self, now: float) -> list[Peer]:
        """Return those whose time is over."""
        return [peer for peer, deadline in self._deadlines.items() if deadline <= now]

    def may_log(self, address: str, level: int, now: float) -> bool:
        """Return whether a line of this level about `address` (host:port) may be written now; then none of its host may for a
        minute."""
        said = host_of(address), level
        if now - self._last_logged.get(said, float("-inf")) < QUIET_SECONDS:
            return False
        self._last_logged.pop(said, None)
        if len(self._last_logged) >= _MAX_HOSTS:
            del self._last_logged[next(iter(self._last_logged))]
        self._last_logged[said] = now
        return True


def host_of(address: str) -> str:
    """Return the host of an address (host:port); for IPv6 its network of 64 bits, since one host has all addresses of that."""
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
