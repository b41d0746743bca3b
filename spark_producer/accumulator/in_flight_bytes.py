"""Counts the pool's bytes in flight to each node, and estimates whether they come back soon.

Everything here belongs to the I/O thread.
"""

from __future__ import annotations

STALLED_AFTER = 0.25
"""Seconds without a response after which a node's bytes in flight are not expected back soon. A request of 4 MiB passes a line of
1 Gbit/s in 34 ms, and is written and replicated in less than another 100 ms; a thread waits for memory for `max.block.ms`, a
minute. A wrong guess costs little: an open batch is still closed only when its node takes it, but less full than otherwise."""


class _NodeBytes:
    __slots__ = ("responded", "since", "size")

    def __init__(self) -> None:
        self.size = 0
        self.since = 0.0
        """the time from which the node's silence is counted: its last response, or when its oldest batch was sent"""
        self.responded = False
        """whether it has responded since `since` was set"""


class InFlightBytes:
    """The bytes in flight by node.

    A batch costs two look-ups; the loop over all nodes runs only while a thread waits for memory.
    """

    def __init__(self) -> None:
        self._nodes: dict[int, _NodeBytes] = {}

    @property
    def size(self) -> int:
        """The bytes in flight to all nodes."""
        return sum(flights.size for flights in self._nodes.values())

    def add(self, node: int, size: int, now: float) -> None:
        """Count a buffer of `size` bytes that is sent to `node`."""
        flights = self._nodes.get(node)
        if flights is None:
            flights = self._nodes[node] = _NodeBytes()
        if flights.responded or not flights.size:
            flights.since, flights.responded = now, False
        flights.size += size

    def remove(self, node: int, size: int) -> None:
        """Subtract `size` bytes, for which the node has responded, or whose connection is closed."""
        flights = self._nodes[node]
        flights.size -= size
        flights.responded = True

    def expected(self, now: float) -> tuple[int, float | None]:
        """Return the bytes in flight to responsive nodes, and the time at which the first of these nodes counts as stalled."""
        size, until = 0, None
        for flights in self._nodes.values():
            if not flights.size:
                continue
            if flights.responded:
                flights.since, flights.responded = now, False
            end = flights.since + STALLED_AFTER
            if end > now:
                size += flights.size
                until = end if until is None or end < until else until
        return size, until
