"""The rule that keeps rows without a key on one partition for a batch's worth of bytes, however fast the brokers are (KIP-794).

The sticky rule before this one (`sticky`, KIP-480) moves when a batch is begun. A slow broker's batches are begun less often,
so they are larger: the slower it is, the more bytes it gets. Here a partition gets between S and 2 S bytes, where S is
`batch.size`. The rule leaves it at the first batch edge after S, so that no part of a batch is left open, and at 2 S in any case.
"""

from __future__ import annotations

import random

from spark_producer.partitioner.adaptive import PartitionChooser
from spark_producer.partitioner.batch_size_estimate import SizedRow, SizedRows, new_batch_bytes
from spark_producer.partitioner.sticky_rule import NOWHERE, StickyRule
from spark_producer.partitioner.topic import FullBatch, LoadView, TopicPartitions
from spark_producer.record.batch_v2 import HEADER_SIZE


class UniformStickyPartitioner(StickyRule):
    """Makes runs of one to two times `batch_size` bytes; the next partition is random, weighted by the load if `adaptive`.

    The first partition is random too, so the many producers of a Spark job cover all partitions. Task threads share it
    without a lock: a race only makes a run shorter or longer.
    """

    def __init__(
        self,
        batch_size: int,
        *,
        adaptive: bool = True,
        load: LoadView | None = None,
        choose: random.Random | None = None,
    ) -> None:
        super().__init__(batch_size, load, choose)
        self._adaptive = adaptive
        self._chooser = PartitionChooser()
        self._current: dict[str, tuple[int, int]] = {}

    def _assign_rows(self, topic: TopicPartitions, sized: SizedRows | SizedRow) -> None:
        full_size = self._load.full_size(topic.topic, self._batch_size)
        partition, produced = self._current.get(topic.topic, (NOWHERE, 0))
        if not topic.may_keep(partition):
            partition = NOWHERE
        free_by_partition: dict[int, int] = {}
        while sized.has_next:
            if partition == NOWHERE:
                partition, produced = self._next(topic), 0
            free_bytes = (
                free_by_partition[partition]
                if partition in free_by_partition
                else self._load.free_bytes(topic.topic, partition)
            )
            produced, free_by_partition[partition], over = self._visit(
                sized, partition, produced, free_bytes, full_size
            )
            if over:
                if (
                    sized.has_next and free_by_partition[partition] < sized.next_size()
                ):  # as in Java it goes on lingering if it is left at 2 S
                    self._full.append(FullBatch(topic.topic, partition, sized.next_size()))
                partition = NOWHERE
        self._current[topic.topic] = (partition, produced)

    def restart(self) -> None:
        """Choose a new partition after a flush, which closes every batch. So the rows of small tasks go to more partitions."""
        self._current.clear()

    def _next(self, topic: TopicPartitions) -> int:
        statistics = self._load.statistics(topic.topic) if self._adaptive else None
        return self._chooser.choose(topic, statistics, self._random.getrandbits(31))

    def _visit(
        self, sized: SizedRows | SizedRow, partition: int, produced: int, free_bytes: int, full_size: int
    ) -> tuple[int, int, bool]:
        """Assign rows until the visit is over or no row remains; return (bytes produced, free bytes of the open batch, over)."""
        limit = 2 * full_size
        while sized.has_next:
            size = sized.next_size()
            if size > free_bytes:  # a batch edge
                if produced >= full_size:
                    return produced, free_bytes, True
                free_bytes = new_batch_bytes(full_size, size)
                produced += HEADER_SIZE
            taken = sized.assign(partition, free_bytes, limit - produced)
            produced, free_bytes = produced + taken, free_bytes - taken
            if produced >= limit:
                return produced, free_bytes, True
        return produced, free_bytes, False
