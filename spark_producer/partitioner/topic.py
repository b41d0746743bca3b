"""What the rules may know of a topic, and of the load on its partitions.

Owns: the values and the protocol through which they come in. Must not know: who collects them, or what a rule does
with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from spark_producer.cluster import NO_LEADER
from spark_producer.kernel import SingleRecord
from spark_producer.kernel.arrays import Int64Array
from spark_producer.record.columns import Columns

Int32Array = npt.NDArray[np.int32]


class TopicPartitions(NamedTuple):
    """A topic as the rules see it.

    `available`: the partitions that have a leader, ascending; all of them if none has. `leaders`: the node of each
    partition (-1: none), empty if unknown. `same_rack`: those of `available` whose leader is in the producer's own rack,
    empty if racks play no part or none is there (KIP-1123).
    """

    topic: str
    partition_count: int
    available: tuple[int, ...]
    leaders: tuple[int, ...] = ()
    same_rack: tuple[int, ...] = ()

    @property
    def candidates(self) -> tuple[int, ...]:
        """The partitions among which rows without a key are spread."""
        return self.same_rack or self.available

    def may_keep(self, partition: int) -> bool:
        """Whether rows may still go to `partition`, chosen earlier: it is there and has a leader, if any has."""
        if not 0 <= partition < self.partition_count:
            return False
        if not self.leaders:
            return partition in self.available
        return self.leaders[partition] != NO_LEADER or len(self.available) == self.partition_count


def describe_topic(
    topic: str, leaders: tuple[int, ...], racks: Mapping[int, str | None] | None = None, rack: str = ""
) -> TopicPartitions:
    """A topic from the leader of each partition (-1: none) and the rack of each node; keep it while they stay the same."""
    led = tuple(partition for partition, leader in enumerate(leaders) if leader != NO_LEADER)
    near = tuple(partition for partition in led if rack and racks and racks.get(leaders[partition]) == rack)
    return TopicPartitions(topic, len(leaders), led or tuple(range(len(leaders))), leaders, near)


class LoadStatistics(NamedTuple):
    """What is known of the load when a rule asks.

    `queued`: partition of the topic → batches that wait to be sent, without those in flight; a partition without any is left
    out, so idle partitions cost nothing. `stalled`: the nodes that could take nothing for longer than
    `partitioner.availability.timeout.ms`, as of the sender's last pass.
    """

    queued: Mapping[int, int]
    stalled: frozenset[int]


NO_LOAD = LoadStatistics({}, frozenset())


class LoadView(Protocol):
    """What the rules ask of the accumulator and the sender. Called by task threads, once per run and not per row."""

    def statistics(self, topic: str) -> LoadStatistics:
        """Of one topic, now."""

    def tail_room(self, topic: str, partition: int) -> int:
        """Bytes of records that the open batch of a partition still takes; 0 if it has none (a batch edge)."""

    def full_size(self, topic: str, batch_size: int) -> int:
        """Bytes, before compression, with which a new batch of a topic is full: `batch_size`, or more if they shrink."""


class NoLoad:
    """The `LoadView` of somebody who knows nothing of queues: no partition has any."""

    def statistics(self, topic: str) -> LoadStatistics:  # noqa: ARG002 - the protocol's signature
        """No queues, no stalled nodes."""
        return NO_LOAD

    def tail_room(self, topic: str, partition: int) -> int:  # noqa: ARG002 - the protocol's signature
        """No open batch."""
        return 0

    def full_size(self, topic: str, batch_size: int) -> int:  # noqa: ARG002 - the protocol's signature
        """Nothing shrinks."""
        return batch_size


class FullBatch(NamedTuple):
    """A rule has moved on: the open batch of `partition` has no room for the next row, which takes `size` bytes."""

    topic: str
    partition: int
    size: int


class RowRule(Protocol):
    """A rule for the rows that neither their `partition` column nor their key has placed."""

    def assign(self, topic: TopicPartitions, columns: Columns, rows: Int64Array) -> Int32Array:
        """One partition for each of `rows` (ascending positions in `columns`), all of them rows of `topic`."""

    def assign_one(self, topic: TopicPartitions, record: SingleRecord) -> int:
        """The partition of a single record, as `assign` would choose it for a row of the same bytes."""

    def take_full(self) -> Sequence[FullBatch]:
        """The batches that were left since the last call. Once the rows are appended, they need not linger."""

    def restart(self) -> None:
        """All batches were cut (a flush): where rows stuck until now no longer matters."""
