"""The data of a topic and of the load on its partitions, and the protocols of a load view and of a rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from spark_producer.common.cluster import NO_LEADER
from spark_producer.kernel import SingleRecord
from spark_producer.kernel.arrays import Int32Array, Int64Array
from spark_producer.record.columns import CheckedColumns


class TopicPartitions(NamedTuple):
    """A topic, with the data that the rules need.

    `available` has the partitions with a leader, ascending, or all partitions if none has one. `leaders` has the node of each
    partition (-1: none), and is empty if unknown. `same_rack` has those of `available` whose leader is in the producer's own
    rack, and is empty if racks are not used or no leader is there (KIP-1123).
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
        """Return whether rows may still go to a `partition` chosen earlier: it exists, and has a leader if any has one."""
        if not 0 <= partition < self.partition_count:
            return False
        if not self.leaders:
            return partition in self.available
        return self.leaders[partition] != NO_LEADER or len(self.available) == self.partition_count


def describe_topic(
    topic: str, leaders: tuple[int, ...], racks: Mapping[int, str | None] | None = None, rack: str = ""
) -> TopicPartitions:
    """Describe a topic by its partitions' leaders (-1: none) and the nodes' racks; keep the result until these change."""
    led = tuple(partition for partition, leader in enumerate(leaders) if leader != NO_LEADER)
    near = tuple(partition for partition in led if rack and racks and racks.get(leaders[partition]) == rack)
    return TopicPartitions(topic, len(leaders), led or tuple(range(len(leaders))), leaders, near)


class LoadStatistics(NamedTuple):
    """The load of a topic when a rule chooses.

    `queued` maps a partition of the topic to the number of batches that wait to be sent, without those in flight. A partition
    without any is left out, so idle partitions cost nothing. `stalled` has the nodes that could take nothing for longer than
    `partitioner.availability.timeout.ms`, as of the sender's last pass.
    """

    queued: Mapping[int, int]
    stalled: frozenset[int]


NO_LOAD = LoadStatistics({}, frozenset())


class LoadView(Protocol):
    """The load on the accumulator and the sender, for the rules. Task threads call it once per run, not per row."""

    def statistics(self, topic: str) -> LoadStatistics:
        """Return the present load of one topic."""

    def free_bytes(self, topic: str, partition: int) -> int:
        """Return the bytes that still fit into a partition's open batch; 0 if none is open (a batch edge)."""

    def full_size(self, topic: str, batch_size: int) -> int:
        """Return the bytes before compression that fill a new batch of a topic: `batch_size`, or more if they compress."""


class NoLoad:
    """The `LoadView` of a caller without queues: every partition is idle."""

    def statistics(self, topic: str) -> LoadStatistics:  # noqa: ARG002 - the protocol's signature
        """Return no queues and no stalled nodes."""
        return NO_LOAD

    def free_bytes(self, topic: str, partition: int) -> int:  # noqa: ARG002 - the protocol's signature
        """Return 0, since there is no open batch."""
        return 0

    def full_size(self, topic: str, batch_size: int) -> int:  # noqa: ARG002 - the protocol's signature
        """Return `batch_size`, as if nothing were compressed."""
        return batch_size


class FullBatch(NamedTuple):
    """A batch that a rule has left: the next row, of `size` bytes, does not fit into the open batch of `partition`."""

    topic: str
    partition: int
    size: int


class RowRule(Protocol):
    """A rule for the rows that have neither a partition nor a key that decides.

    A rule that ignores batches keeps the default `take_full` and `restart`.
    """

    def assign(self, topic: TopicPartitions, columns: CheckedColumns, rows: Int64Array) -> Int32Array:
        """Return one partition for each of `rows`. These are ascending positions in `columns`: all rows of `topic`."""

    def assign_one(self, topic: TopicPartitions, record: SingleRecord) -> int:
        """Return the partition that `assign` would choose for a row of the same bytes."""

    def take_full(self) -> Sequence[FullBatch]:
        """Return the full batches that the rule has left since the last call.

        Once their rows are appended they need not linger.
        """
        return ()

    def restart(self) -> None:
        """Notify the rule that a flush has closed all batches, so it may leave its current partition."""
        return  # no current partition by default
