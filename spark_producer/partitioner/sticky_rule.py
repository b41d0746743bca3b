"""The base of the two sticky rules, which assign runs of rows; rows come as columns or one by one."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence

from spark_producer.errors import ConfigError
from spark_producer.kernel import SingleRecord
from spark_producer.kernel.arrays import Int32Array, Int64Array
from spark_producer.partitioner.batch_size_estimate import SizedRow, SizedRows
from spark_producer.partitioner.topic import FullBatch, LoadView, NoLoad, RowRule, TopicPartitions
from spark_producer.record.columns import CheckedColumns

NOWHERE = -1


class StickyRule(RowRule, ABC):
    """A rule that stays on a partition for a run of rows. Task threads share it without a lock.

    Raises (constructor):
        ConfigError: `batch_size` is below 1, so no run would ever end.
    """

    def __init__(self, batch_size: int, load: LoadView | None, choose: random.Random | None) -> None:
        if batch_size < 1:
            raise ConfigError(f"the sticky partitioner needs a batch size of at least 1, not {batch_size}")
        self._batch_size = batch_size
        self._load = load or NoLoad()
        self._random = choose or random.Random()
        self._full: list[FullBatch] = []

    def assign(self, topic: TopicPartitions, columns: CheckedColumns, rows: Int64Array) -> Int32Array:
        """Return one partition per row; the cost is per run, not per row."""
        sized = SizedRows(columns, rows)
        self._assign_rows(topic, sized)
        return sized.partitions

    def assign_one(self, topic: TopicPartitions, record: SingleRecord) -> int:
        """Return the partition of a single record, as `assign` does."""
        sized = SizedRow(record)
        self._assign_rows(topic, sized)
        return sized.partition

    def take_full(self) -> Sequence[FullBatch]:
        """Return the full batches whose partitions the rule has left since the last call."""
        full: Sequence[FullBatch] = ()
        if self._full:
            full, self._full = self._full, []
        return full

    @abstractmethod
    def _assign_rows(self, topic: TopicPartitions, sized: SizedRows | SizedRow) -> None:
        """Assign a partition to every row, and add to `_full` the full batches whose partitions the rule leaves."""
