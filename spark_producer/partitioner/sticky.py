"""The rule that keeps rows without a key on one partition until it needs a new batch (KIP-480; Kafka 2.4 to 3.2).

It exists for comparison, and for users of `partitioner.class`. It has a flaw (KAFKA-10888): a slow broker's batch stays open
longer and takes more rows, so the slowest broker gets the most; see `uniform_sticky`.
"""

from __future__ import annotations

import random

from spark_producer.partitioner.batch_size_estimate import SizedRow, SizedRows, new_batch_bytes
from spark_producer.partitioner.sticky_rule import NOWHERE, StickyRule
from spark_producer.partitioner.topic import FullBatch, LoadView, TopicPartitions


class StickyPartitioner(StickyRule):
    """Moves to another partition whenever the next row would begin a new batch.

    Task threads share it without a lock: a race only causes one more move. After a flush no batch is open, so the next row moves
    anyway.
    """

    def __init__(self, batch_size: int, *, load: LoadView | None = None, choose: random.Random | None = None) -> None:
        super().__init__(batch_size, load, choose)
        self._current: dict[str, int] = {}

    def _assign_rows(self, topic: TopicPartitions, sized: SizedRows | SizedRow) -> None:
        full_size = self._load.full_size(topic.topic, self._batch_size)
        partition = self._current.get(topic.topic, NOWHERE)
        free_by_partition: dict[int, int] = {}

        def free_bytes_of(partition: int) -> int:
            known = free_by_partition.get(partition)
            return self._load.free_bytes(topic.topic, partition) if known is None else known

        free_bytes = free_bytes_of(partition) if topic.may_keep(partition) else 0
        while sized.has_next:
            size = sized.next_size()
            if size > free_bytes:
                if partition != NOWHERE:
                    self._full.append(FullBatch(topic.topic, partition, size))
                partition = self._other(topic, partition)
                free_bytes = free_bytes_of(partition)
                if size > free_bytes:  # the row still goes there: there is one move per new batch (KIP-480)
                    free_bytes = new_batch_bytes(full_size, size)
            free_bytes -= sized.assign(partition, free_bytes, free_bytes)
            free_by_partition[partition] = free_bytes
        self._current[topic.topic] = partition

    def _other(self, topic: TopicPartitions, current: int) -> int:
        candidates = topic.candidates
        chosen = self._random.choice(candidates)
        while chosen == current and len(candidates) > 1:
            chosen = self._random.choice(candidates)
        return chosen
