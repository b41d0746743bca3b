"""Finds the stalled nodes, whose partitions get no rows: `partitioner.availability.timeout.ms` (KIP-794)."""

from __future__ import annotations

from collections.abc import Mapping


class NodeLatencies:
    """The time at which each node last took a batch that was ready for it. The I/O thread owns it.

    As in Kafka, the timeout counts from that time, and not from when the next batch is ready: a node that takes a batch every
    20 ms is excluded for most of that time. Only a node that has a batch ready now counts as stalled. All its partitions are
    then excluded, even without a queue, and it must get rows again to show that it is back.
    """

    def __init__(self, timeout: float) -> None:
        """`timeout` is `partitioner.availability.timeout.ms` in seconds; 0 switches the exclusion off."""
        self._timeout = timeout
        self._drained: dict[int, float] = {}

    def observe(self, now: float, can_send: Mapping[int, bool]) -> frozenset[int]:
        """Record one pass, in which each node with a ready batch could take it or not, and return the stalled nodes."""
        if self._timeout <= 0:
            return frozenset()
        drained = self._drained
        drained.update((node, now) for node, taken in can_send.items() if taken or node not in drained)
        return frozenset(node for node in can_send if now - drained[node] > self._timeout)
