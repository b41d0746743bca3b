"""The order of the rules: explicit partition, then key hash, then sticky.

Owns: that order, and the numbering of (topic, partition) pairs as slots, so that rows can be grouped in one sort.
Must not know: how a rule decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from spark_producer.errors import RecordError
from spark_producer.kernel import record_sizes
from spark_producer.partitioner.key_hash import partition_by_key
from spark_producer.partitioner.sticky import StickyPartitioner
from spark_producer.record.columns import Columns

Int32Array = npt.NDArray[np.int32]


class TopicPartitions(NamedTuple):
    """What the rules need of a topic: its partition count, and the partitions that have a leader (all if none has)."""

    topic: str
    partition_count: int
    available: tuple[int, ...]


class Assignment(NamedTuple):
    """`slots[row]` numbers the row's (topic, partition): `bases[topic code] + partition`."""

    slots: Int32Array
    bases: tuple[int, ...]
    slot_count: int

    def partition_of(self, topic_code: int, slot: int) -> int:
        """The partition behind a slot of that topic."""
        return slot - self.bases[topic_code]


def assign_partitions(columns: Columns, topics: Sequence[TopicPartitions], sticky: StickyPartitioner) -> Assignment:
    """Choose the partition of every row; `topics` has one entry per `columns.topics`, in that order.

    Raises:
        RecordError: an explicit partition that the topic does not have.
    """
    counts = np.array([topic.partition_count for topic in topics], dtype=np.int32)
    codes = columns.topic_codes
    row_counts = counts[0] if codes is None else counts[codes]
    partitions = _choose(columns, topics, row_counts, sticky)
    bases = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    slots = partitions if codes is None else partitions + bases[codes]
    return Assignment(slots, tuple(bases[:-1].tolist()), int(bases[-1]))


def _choose(
    columns: Columns,
    topics: Sequence[TopicPartitions],
    row_counts: npt.NDArray[np.int32] | np.int32,
    sticky: StickyPartitioner,
) -> Int32Array:
    keys = columns.records.key
    if columns.partitions is None and keys is not None and keys.valid is None:
        return partition_by_key(keys, row_counts)  # the common case: one rule decides for all rows
    partitions = _explicit(columns, row_counts)
    open_rows = partitions < 0
    if keys is not None and open_rows.any():
        keyed = open_rows if keys.valid is None else open_rows & keys.valid
        partitions = np.where(keyed, partition_by_key(keys, row_counts), partitions)
        open_rows = open_rows & ~keyed
    if open_rows.any():
        _stick(columns, topics, sticky, partitions, open_rows)
    return partitions


def _explicit(columns: Columns, row_counts: npt.NDArray[np.int32] | np.int32) -> Int32Array:
    if columns.partitions is None:
        return np.full(len(columns.records), -1, dtype=np.int32)
    beyond = columns.partitions >= row_counts
    if beyond.any():
        row = int(beyond.argmax())
        count = int(np.broadcast_to(row_counts, beyond.shape)[row])
        raise RecordError(
            f"partition {columns.partitions[row]} does not exist ({columns.place(row)}): "
            f"the topic has the {count} partitions 0 to {count - 1}"
        )
    return columns.partitions.copy()


def _stick(
    columns: Columns,
    topics: Sequence[TopicPartitions],
    sticky: StickyPartitioner,
    partitions: Int32Array,
    open_rows: npt.NDArray[np.bool_],
) -> None:
    sizes = record_sizes(columns.records)
    for code, topic in enumerate(topics):
        chosen = np.flatnonzero(open_rows if columns.topic_codes is None else open_rows & (columns.topic_codes == code))
        if len(chosen):
            partitions[chosen] = sticky.assign(topic.topic, sizes[chosen], topic.available)
