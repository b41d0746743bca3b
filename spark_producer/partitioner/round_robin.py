"""The rule that gives each row to the next partition, as Kafka's clients did up to 2.3, and as `RoundRobinPartitioner` does.

Each of n partitions gets every n-th row, so its batches fill n times slower: they are small, or linger long. The sticky rules
were made for that reason.
"""

from __future__ import annotations

import random

import numpy as np

from spark_producer.kernel import SingleRecord
from spark_producer.kernel.arrays import Int32Array, Int64Array
from spark_producer.partitioner.topic import RowRule, TopicPartitions
from spark_producer.record.columns import CheckedColumns

_POSITIVE = 0x7FFFFFFF


class RoundRobinPartitioner(RowRule):
    """Counts the rows of each topic, from 0 or from a random number (`random_start`, as the default did up to 2.3).

    Task threads share it without a lock: two that race may count the same rows.
    """

    def __init__(self, *, random_start: bool, choose: random.Random | None = None) -> None:
        self._random_start = random_start
        self._random = choose or random.Random()
        self._counters: dict[str, int] = {}

    def assign(self, topic: TopicPartitions, columns: CheckedColumns, rows: Int64Array) -> Int32Array:  # noqa: ARG002
        """Return one partition per row, in turn."""
        count = len(rows)
        counter = self._count(topic.topic, count)
        turns = (np.arange(counter, counter + count, dtype=np.int64) & _POSITIVE) % len(topic.available)
        partitions: Int32Array = np.array(topic.available, dtype=np.int32)[turns]
        return partitions

    def assign_one(self, topic: TopicPartitions, record: SingleRecord) -> int:  # noqa: ARG002
        """Return the partition whose turn it is."""
        return topic.available[self._count(topic.topic, 1) % len(topic.available)]

    def _count(self, topic: str, rows: int) -> int:
        """Count `rows` more rows, and return the number of the first of them."""
        counter = self._counters.get(topic)
        if counter is None:
            counter = self._random.getrandbits(31) if self._random_start else 0
        self._counters[topic] = (counter + rows) & _POSITIVE
        return counter
