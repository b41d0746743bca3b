"""Chooses the next partition by the lengths of the queues (KIP-794).

The longer a partition's queue is, the less often the partition is chosen.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence

from spark_producer.partitioner.topic import LoadStatistics, TopicPartitions


class QueueTable:
    """The cumulative weights of `count` candidates. A weight is longest queue + 1 - own queue; excluded ones have 0.

    Queues 0, 3, 1 become the weights 4, 1, 3 and the sums 4, 5, 8. For a random number below 8, 0 to 3 stand for the first
    candidate, 4 for the second, 5 to 7 for the third. Idle candidates all weigh the same, so only the others are stored: the
    cost of a table grows with the number of queues that are not empty, and the choice is a bisection among them.

    `queued` maps the positions of candidates with a queue to their batches; `excluded` has the positions that must not be
    chosen.
    """

    def __init__(self, count: int, queued: Mapping[int, int], excluded: Iterable[int] = ()) -> None:
        excluded_positions = frozenset(excluded)
        self._count = count
        counted = [size for position, size in queued.items() if position not in excluded_positions]
        idle = count - len(excluded_positions) - len(counted)
        self._idle_weight = max(counted, default=0) + 1
        alike = not excluded_positions and (not counted or (idle == 0 and min(counted) == max(counted)))
        self.usable = count > 1 and len(excluded_positions) < count and not alike
        self._positions: list[int] = []
        self._starts: list[int] = []
        self._ends: list[int] = []
        missing = 0
        for position in sorted({*queued, *excluded_positions}):
            missing_weight = self._idle_weight if position in excluded_positions else queued[position]
            start = position * self._idle_weight - missing
            missing += missing_weight
            self._positions.append(position)
            self._starts.append(start)
            self._ends.append(start + self._idle_weight - missing_weight)
        self.total = count * self._idle_weight - missing

    def at(self, number: int) -> int:
        """Return the position for 0 <= `number` < `total`: the first whose cumulative weight is above `number`."""
        index = bisect_right(self._starts, number) - 1
        if index < 0:
            return number // self._idle_weight
        if number < self._ends[index]:
            return self._positions[index]
        return self._positions[index] + 1 + (number - self._ends[index]) // self._idle_weight


class PartitionChooser:
    """Picks a partition of a topic, evenly or by load, and caches the excluded partitions, which are expensive to find."""

    def __init__(self) -> None:
        self._excluded: dict[str, tuple[TopicPartitions, frozenset[int], tuple[int, ...]]] = {}

    def choose(self, topic: TopicPartitions, statistics: LoadStatistics | None, number: int) -> int:
        """Return a partition for the random 31-bit `number`; without statistics all are equally likely.

        Partitions in the producer's rack are preferred, unless all of them are excluded (KIP-1123).
        """
        if statistics is not None:
            for candidates in (topic.same_rack, topic.available) if topic.same_rack else (topic.available,):
                excluded = self._stalled(topic, candidates, statistics.stalled)
                if len(excluded) < len(candidates):
                    return _weighted(candidates, statistics.queued, excluded, number)
        return topic.candidates[number % len(topic.candidates)]

    def _stalled(self, topic: TopicPartitions, candidates: Sequence[int], stalled: frozenset[int]) -> tuple[int, ...]:
        """Return the positions of candidates whose leader is stalled, idle ones too, since their rows would also wait."""
        if not stalled or not topic.leaders:
            return ()
        known = self._excluded.get(topic.topic)
        if known is None or known[0] is not topic or known[1] != stalled or candidates is not topic.candidates:
            found = tuple(at for at, partition in enumerate(candidates) if topic.leaders[partition] in stalled)
            if candidates is not topic.candidates:
                return found
            known = self._excluded[topic.topic] = (topic, stalled, found)
        return known[2]


def _weighted(candidates: Sequence[int], queued: Mapping[int, int], excluded: tuple[int, ...], number: int) -> int:
    if not queued and not excluded:
        return candidates[number % len(candidates)]
    table = QueueTable(len(candidates), _positions(candidates, queued), excluded)
    return candidates[table.at(number % table.total) if table.usable else number % len(candidates)]


def _positions(candidates: Sequence[int], queued: Mapping[int, int]) -> Mapping[int, int]:
    """Return `queued` by position among the candidates, without partitions that are not candidates."""
    if len(candidates) == candidates[-1] + 1:
        return {at: size for at, size in queued.items() if at < len(candidates)}
    found = {}
    for partition, size in queued.items():
        at = bisect_left(candidates, partition)
        if at < len(candidates) and candidates[at] == partition:
            found[at] = size
    return found
