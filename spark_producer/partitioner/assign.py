"""Applies the rules in their order: explicit partition, then a custom function or the key hash, then the rule for the rest.

(topic, partition) pairs are numbered as slots, so that one sort groups the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from spark_producer.kernel import SingleRecord
from spark_producer.kernel.arrays import Int32Array
from spark_producer.partitioner.key_hash import KeyRule
from spark_producer.partitioner.topic import FullBatch, RowRule, TopicPartitions
from spark_producer.record.columns import CheckedColumns
from spark_producer.record.rejected import NONE_REJECTED, RejectedRows, RowContext, RowErrorKind, errors_at
from spark_producer.record.send_arguments import NO_PARTITION, as_columns


class Assignment(NamedTuple):
    """The slot of each row: `slots[row]` is the number `bases[topic code] + partition` of its (topic, partition)."""

    slots: Int32Array
    bases: tuple[int, ...]
    slot_count: int

    def topic_partitions(self, slots: npt.NDArray[np.int64]) -> tuple[list[int], list[int]]:
        """Return the topic codes and the partitions of some slots."""
        if len(self.bases) == 1:
            return [0] * len(slots), slots.tolist()
        codes = np.searchsorted(self.bases, slots, side="right") - 1
        return codes.tolist(), (slots - np.array(self.bases)[codes]).tolist()


class Partitioner:
    """Assigns partitions to the rows of whole RecordBatches. Task threads share it without a lock.

    `keys` is the rule for rows with a key, or None if keys are ignored; `others` is the rule for all other rows.
    """

    def __init__(self, keys: KeyRule | None, others: RowRule) -> None:
        self._keys = keys
        self._others = others

    def assign(self, columns: CheckedColumns, topics: Sequence[TopicPartitions]) -> Assignment:
        """Choose the partition of every row; `topics` has one entry per `columns.topics`, in that order.

        Raises:
            RecordError: a row names a partition that its topic does not have. PartitionerError: a custom function failed.
        """
        counts, row_counts = _partition_counts(columns, topics)
        codes = columns.topic_codes
        partitions = self._choose(columns, topics, row_counts)
        if codes is None:
            return Assignment(partitions, (0,), int(counts[0]))
        bases = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        return Assignment(partitions + bases[codes], tuple(bases[:-1].tolist()), int(bases[-1]))

    def assign_one(self, topic: TopicPartitions, record: SingleRecord, explicit: int) -> int:
        """Return the partition of a single record by the same rules. `explicit` is the partition that it names, or
        `NO_PARTITION`.

        Raises: as `assign`.
        """
        if explicit != NO_PARTITION:
            if explicit >= topic.partition_count:
                columns = as_columns(topic.topic, record)._replace(partitions=np.array([explicit], dtype=np.int32))
                self.reject(columns, [topic]).raise_first()
            return explicit
        if self._keys is not None:
            chosen = self._keys.partition(record.key, topic.partition_count)
            if chosen is not None:
                return chosen
        return self._others.assign_one(topic, record)

    def reject(self, columns: CheckedColumns, topics: Sequence[TopicPartitions]) -> RejectedRows:
        """Return the rows with an explicit partition that the topic does not have; no partition is chosen."""
        return _nonexistent_partitions(columns, topics, _partition_counts(columns, topics)[1])

    def take_full(self) -> Sequence[FullBatch]:
        """Return the full batches whose partitions the rules have left; call it when the rows of `assign` are appended."""
        return self._others.take_full()

    def restart(self) -> None:
        """Notify the rules that a flush has closed all batches, so rows need not stay on the last partition."""
        self._others.restart()

    def _choose(
        self, columns: CheckedColumns, topics: Sequence[TopicPartitions], row_counts: Int32Array | np.int32
    ) -> Int32Array:
        keys = self._keys.column(columns.records) if self._keys is not None else None
        keyed = None if self._keys is None or keys is None else self._keys.keyed(keys)
        if self._keys is not None and keys is not None and columns.partitions is None and keyed is None:
            return self._keys.partitions(keys, row_counts)  # the common case: one rule decides for all rows
        if columns.partitions is None and keys is None and columns.topic_codes is None:
            return self._others.assign(topics[0], columns, np.arange(len(columns.records)))
        if columns.partitions is None:
            partitions = np.full(len(columns.records), -1, dtype=np.int32)
        else:
            _nonexistent_partitions(columns, topics, row_counts).raise_first()
            partitions = columns.partitions.copy()
        unassigned = partitions < 0
        if self._keys is not None and keys is not None and unassigned.any():
            by_key = unassigned if keyed is None else unassigned & keyed
            partitions = np.where(by_key, self._keys.partitions(keys, row_counts), partitions)
            unassigned = unassigned & ~by_key
            if not unassigned.any():
                return partitions
        for code, topic in enumerate(topics):
            of_topic = unassigned if columns.topic_codes is None else unassigned & (columns.topic_codes == code)
            rows = np.flatnonzero(of_topic)
            if len(rows):
                partitions[rows] = self._others.assign(topic, columns, rows)
        return partitions


def _partition_counts(
    columns: CheckedColumns, topics: Sequence[TopicPartitions]
) -> tuple[Int32Array, Int32Array | np.int32]:
    """Return the partition count of each topic, and that of each row's topic (one number if all rows have the same topic)."""
    counts = np.array([topic.partition_count for topic in topics], dtype=np.int32)
    return counts, counts[0] if columns.topic_codes is None else counts[columns.topic_codes]


def _nonexistent_partitions(
    columns: CheckedColumns, topics: Sequence[TopicPartitions], row_counts: Int32Array | np.int32
) -> RejectedRows:
    if columns.partitions is None or not (too_high := columns.partitions >= row_counts).any():
        return NONE_REJECTED
    existing = {topic.topic: _describe_partitions(topic.partition_count) for topic in topics}

    def message(at: RowContext) -> str:
        return f"partition {at.found} does not exist ({at.location}): the topic has {existing[at.topic or '']}"

    return RejectedRows.among(columns, [errors_at(too_high, RowErrorKind.PARTITION, message, columns.partitions)])


def _describe_partitions(count: int) -> str:
    return "only partition 0" if count == 1 else f"the {count} partitions 0 to {count - 1}"
