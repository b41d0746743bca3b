"""Fakes of the accumulator, and columns for partitioners."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from spark_producer.partitioner import LoadStatistics, TopicPartitions, describe_topic
from spark_producer.partitioner.batch_size_estimate import RECORD_FRAME
from spark_producer.partitioner.topic import RowRule
from spark_producer.record.columns import CheckedColumns, read_columns

BODY = 5
"""bytes of a record's body beside a value below 64 bytes: attributes, key length, value length, header count, and one more
for values of 64 bytes and above"""


def columns_of(topic: str | None = "t", first_row: int = 0, **given: Any) -> CheckedColumns:
    return read_columns(pa.record_batch(given), topic=topic, now_ms=0, first_row=first_row).or_raise()


def rows_of(*sizes: int) -> CheckedColumns:
    """Rows without keys that take this number of bytes each in a batch (by the partitioner's forecast)."""
    values = []
    for size in sizes:
        width = size - RECORD_FRAME - BODY + 1
        if width >= 64:
            width -= 1
        assert width >= 0, "a record has at least 9 bytes"
        values.append(b"v" * width)
    return columns_of(value=pa.array(values, pa.binary()))


def assign(rule: RowRule, topic: TopicPartitions, columns: CheckedColumns) -> list[int]:
    found: list[int] = rule.assign(topic, columns, np.arange(len(columns.records))).tolist()
    return found


def topic_of(count: int, name: str = "t") -> TopicPartitions:
    return describe_topic(name, tuple(range(count)))


def runs(partitions: list[int]) -> list[tuple[int, int]]:
    """(partition, length) of each run."""
    found: list[tuple[int, int]] = []
    for partition in partitions:
        if found and found[-1][0] == partition:
            found[-1] = (partition, found[-1][1] + 1)
        else:
            found.append((partition, 1))
    return found


class FakeLoad:
    """Statistics and free bytes as a test sets them."""

    def __init__(self, queued: dict[int, int] | None = None, stalled: frozenset[int] = frozenset()) -> None:
        self.queued = queued or {}
        self.stalled = stalled
        self.free_by_partition: dict[int, int] = {}
        self.asked = 0

    def statistics(self, topic: str) -> LoadStatistics:
        self.asked += 1
        return LoadStatistics(self.queued if topic == "t" else {}, self.stalled)

    def free_bytes(self, topic: str, partition: int) -> int:
        return self.free_by_partition.get(partition, 0)

    def full_size(self, topic: str, batch_size: int) -> int:
        return batch_size


class FakeQueues(FakeLoad):
    """Queues of batches, filled row by row as the accumulator does it; `drain` takes them all."""

    def __init__(self, batch_size: int) -> None:
        super().__init__()
        self.batch_size = batch_size
        self.batches: list[tuple[int, int]] = []
        """(partition, bytes of records) of every batch that is closed or was drained"""
        self._open: dict[int, int] = {}

    def append(self, partitions: list[int], sizes: list[int]) -> None:
        for partition, size in zip(partitions, sizes, strict=True):
            if size > self.free_by_partition.get(partition, 0):
                self._close(partition)
                self.free_by_partition[partition] = max(self.batch_size - 61, size)
                self._open[partition] = 0
            self.free_by_partition[partition] -= size
            self._open[partition] += size

    def drain(self) -> list[tuple[int, int]]:
        for partition in list(self._open):
            self._close(partition)
        taken, self.batches = self.batches, []
        return taken

    def _close(self, partition: int) -> None:
        self.free_by_partition.pop(partition, None)
        if partition in self._open:
            self.batches.append((partition, self._open.pop(partition)))


class ScriptedRandom:
    """`getrandbits` and `choice` from a list of numbers, over and over."""

    def __init__(self, *numbers: int) -> None:
        self._numbers = numbers
        self.drawn = 0

    def getrandbits(self, bits: int) -> int:
        self.drawn += 1
        return self._numbers[(self.drawn - 1) % len(self._numbers)]

    def choice(self, items: Any) -> Any:
        return items[self.getrandbits(31) % len(items)]
