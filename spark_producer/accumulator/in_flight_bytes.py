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
        return sum(node_bytes.size for node_bytes in self._nodes.values())

    def add(self, node: int, size: int, now: float) -> None:
        """Count a buffer of `size` bytes that is sent to `node`."""
        node_bytes = self._nodes.get(node)
        if node_bytes is None:
            node_bytes = self._nodes[node] = _NodeBytes()
        if node_bytes.responded or not node_bytes.size:
            node_bytes.since, node_bytes.responded = now, False
        node_bytes.size += size

    def remove(self, node: int, size: int) -> None:
        """Subtract `size` bytes, for which the node has responded, or whose connection is closed."""
        node_bytes = self._nodes[node]
        node_bytes.size -= size
        node_bytes.responded = True

    def expected(self, now: float) -> tuple[int, float | None]:
        """Return the bytes in flight to responsive nodes, and the time at which the first of these nodes counts as stalled."""
        size, until = 0, None
        for node_bytes in self._nodes.values():
            if not node_bytes.size:
                continue
            if node_bytes.responded:
                node_bytes.since, node_bytes.responded = now, False
            end = node_bytes.since + STALLED_AFTER
            if end > now:
                size += node_bytes.size
                until = end if until is None or end < until else until
        return size, until
