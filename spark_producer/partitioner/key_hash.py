"""Partition by key: murmur2, made positive by a mask, modulo all partitions (spec: kafka_producer.md §2.9).

Owns: that formula, which every Kafka client must share, or one key ends up in two partitions.
Must not know: which rows it is asked for.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from spark_producer.kernel import BinaryColumn, murmur2


def partition_by_key(keys: BinaryColumn, partition_count: np.int32 | npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """One partition per row. `partition_count`: of the topic, or of each row's topic."""
    positive = (murmur2(keys) & np.uint32(0x7FFFFFFF)).astype(np.int32)
    partitions: npt.NDArray[np.int32] = positive % np.int32(partition_count)
    return partitions
