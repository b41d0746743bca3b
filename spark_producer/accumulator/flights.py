"""How much of the pool flies to which node, and whether it can be expected back.

Owns: bytes in flight by node, and when each node last gave a sign. Must not know: batches, queues, who waits for memory.
Everything here belongs to the I/O thread.
"""

from __future__ import annotations

STALLED_AFTER = 0.25
"""Seconds without an answer after which a node's flights are not expected back soon. A request of 4 MiB is through a line of
1 Gbit/s in 34 ms, and written and replicated in less than another 100; who waits for memory does so for `max.block.ms`, a
minute. To be wrong costs little: an open batch is closed only when its node takes it, just not as full as it would have been."""


class _NodeFlights:
    __slots__ = ("answered", "since", "size")

    def __init__(self) -> None:
        self.size = 0
        self.since = 0.0
        """when the node answered last, or its oldest flight was sent"""
        self.answered = False
        """whether it has answered since `since` was set"""


class Flights:
    """The cost of a batch is one look-up when it leaves and one when it lands; nodes are gone over only when somebody waits."""

    def __init__(self) -> None:
        self._nodes: dict[int, _NodeFlights] = {}

    @property
    def size(self) -> int:
        """Bytes in flight to all nodes."""
        return sum(flights.size for flights in self._nodes.values())

    def took_off(self, node: int, size: int, now: float) -> None:
        """A buffer of `size` bytes is on its way to `node`."""
        flights = self._nodes.get(node)
        if flights is None:
            flights = self._nodes[node] = _NodeFlights()
        if flights.answered or not flights.size:
            flights.since, flights.answered = now, False
        flights.size += size

    def landed(self, node: int, size: int) -> None:
        """The node has answered for it, or its connection is gone."""
        flights = self._nodes[node]
        flights.size -= size
        flights.answered = True

    def expected(self, now: float) -> tuple[int, float | None]:
        """Bytes that fly to nodes which answer, and when the first of these will have been silent for too long."""
        size, until = 0, None
        for flights in self._nodes.values():
            if not flights.size:
                continue
            if flights.answered:
                flights.since, flights.answered = now, False
            end = flights.since + STALLED_AFTER
            if end > now:
                size += flights.size
                until = end if until is None or end < until else until
        return size, until
