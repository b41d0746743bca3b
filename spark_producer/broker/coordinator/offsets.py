"""The offsets of groups: committed, or pending until the end of a transaction (KIP-447)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from spark_producer.common.cluster import TopicPartition


class CommittedOffset(NamedTuple):
    """The offset from which a group continues in a partition, as the client committed it."""

    offset: int
    leader_epoch: int
    metadata: str | None


CHARACTERS_PER_OFFSET: Final = 100
"""Number of characters of metadata and group id that count as one more offset."""


def weight(group: str, offsets: Iterable[CommittedOffset]) -> int:
    """Return the number of offsets that these count for: metadata may be a hundred times as large as the rest."""
    return sum(1 + (len(group) + len(each.metadata or "")) // CHARACTERS_PER_OFFSET for each in offsets)


class OffsetStore:
    """The offsets of all groups that have some."""

    def __init__(self) -> None:
        self.committed: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self._pending: dict[int, dict[str, dict[TopicPartition, CommittedOffset]]] = {}
        self._unstable: Counter[tuple[str, TopicPartition]] = Counter()
        self._pending_groups: Counter[str] = Counter()
        self.weight = 0
        """The weight of all offsets, pending and committed (`weight`)."""

    def groups(self) -> Iterable[str]:
        """Return the groups with offsets, committed or pending."""
        return dict.fromkeys([*self.committed, *self._pending_groups])

    def has_offsets(self, group: str) -> bool:
        """Return whether a group has offsets, committed or pending."""
        return group in self.committed or group in self._pending_groups

    def put(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit offsets."""
        self._merge(group, self.committed.setdefault(group, {}), offsets)

    def remove(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete offsets, committed and pending; missing ones are ignored."""
        known = self.committed.get(group, {})
        pending = self._pending_of(group)
        for partition in partitions:
            gone = [offsets.pop(partition) for offsets in (known, *pending) if partition in offsets]
            self.weight -= weight(group, gone)
            self._unstable.pop((group, partition), None)
        if not known:
            self.committed.pop(group, None)

    def added_weight(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> int:
        """Return how much these offsets would add to the weight once committed."""
        known = self.committed.get(group, {})
        return weight(group, offsets.values()) - weight(group, (known[each] for each in offsets.keys() & known.keys()))

    def put_pending(self, producer_id: int, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Add offsets that the open transaction of this producer will commit."""
        groups = self._pending.setdefault(producer_id, {})
        if group not in groups:
            self._pending_groups[group] += 1
        pending = groups.setdefault(group, {})
        self._unstable.update((group, partition) for partition in offsets.keys() - pending.keys())
        self._merge(group, pending, offsets)

    def _merge(
        self,
        group: str,
        known: dict[TopicPartition, CommittedOffset],
        offsets: Mapping[TopicPartition, CommittedOffset],
    ) -> None:
        replaced = (known[partition] for partition in offsets.keys() & known.keys())
        self.weight += weight(group, offsets.values()) - weight(group, replaced)
        known.update(offsets)

    def end(self, producer_id: int, groups: Iterable[str], *, commit: bool) -> None:
        """End the transaction of this producer: its pending offsets of these groups are committed or dropped."""
        pending = self._pending.get(producer_id, {})
        for group in groups:
            offsets = pending.pop(group, None)
            if offsets is None:
                continue
            self._pending_groups[group] -= 1
            if not self._pending_groups[group]:
                del self._pending_groups[group]
            self.weight -= weight(group, offsets.values())
            for partition in offsets:
                self._mark_stable((group, partition))
            if commit and offsets:
                self.put(group, offsets)
        if not pending:
            self._pending.pop(producer_id, None)

    def _mark_stable(self, key: tuple[str, TopicPartition]) -> None:
        self._unstable[key] -= 1
        if not self._unstable[key]:
            del self._unstable[key]

    def partitions_of(self, group: str) -> frozenset[TopicPartition]:
        """Return the partitions for which a group has offsets, committed or pending."""
        return frozenset(self.committed.get(group, ())).union(*self._pending_of(group))

    def _pending_of(self, group: str) -> list[dict[TopicPartition, CommittedOffset]]:
        if group not in self._pending_groups:
            return []
        return [groups[group] for groups in self._pending.values() if group in groups]

    def partitions(self) -> Iterator[tuple[str, TopicPartition]]:
        """Yield each group with each partition for which it has offsets, committed or pending; some come twice."""
        for group, offsets in self.committed.items():
            yield from ((group, partition) for partition in offsets)
        yield from self._unstable

    def is_unstable(self, group: str, partition: TopicPartition) -> bool:
        """Return whether an open transaction may change the offset."""
        return (group, partition) in self._unstable

    def pending(self) -> Iterator[tuple[int, str, Mapping[TopicPartition, CommittedOffset]]]:
        """Yield the producer id, group and offsets of all pending ones."""
        for producer_id, groups in self._pending.items():
            for group, offsets in groups.items():
                yield producer_id, group, offsets
