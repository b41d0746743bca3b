"""Partition by key: a hash of the key, modulo the number of all partitions, with or without leader (Kafka's BuiltInPartitioner).

All clients of a topic must share the formula, or one key ends up in two partitions.
"""

from __future__ import annotations

import enum
import zlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_producer.kernel import BinaryColumn, RecordColumns, murmur2, murmur2_one
from spark_producer.kernel.arrays import BoolArray
from spark_producer.kernel.hashes import UInt32Array, crc32, fnv1a, fnv1a_one


class UnkeyedRows(enum.Enum):
    """The rows that a key rule leaves to the rule for rows without a key."""

    NULL = "null"
    NULL_OR_EMPTY = "null or empty"
    NEVER = "never"


class KeyRule(NamedTuple):
    """A hash for a column and for one key, not negative in any client's arithmetic, and the rows that count as keyless."""

    hash: Callable[[BinaryColumn], UInt32Array]
    hash_one: Callable[[bytes], int]
    keyless: UnkeyedRows

    def partitions(
        self, keys: BinaryColumn, partition_count: np.int32 | npt.NDArray[np.int32]
    ) -> npt.NDArray[np.int32]:
        """Return one partition per row. `partition_count` is that of the topic, or of each row's topic."""
        hashes, counts = self.hash(keys), partition_count.astype(np.uint32)
        # Not `%`: numpy divides by one number with multiplications, but takes remainders with divisions, 4 times as slow.
        chosen: npt.NDArray[np.int32] = (hashes - hashes // counts * counts).view(np.int32)
        return chosen

    def partition(self, key: bytes | None, partition_count: int) -> int | None:
        """Return the partition of one key; None if it is left to the rule for rows without a key."""
        if not key:
            if self.keyless is UnkeyedRows.NULL_OR_EMPTY or (key is None and self.keyless is UnkeyedRows.NULL):
                return None
            key = b""
        return self.hash_one(key) % partition_count

    def column(self, records: RecordColumns) -> BinaryColumn | None:
        """Return the keys that this rule hashes; None when no row has one."""
        if records.key is None and self.keyless is UnkeyedRows.NEVER:
            return BinaryColumn(pa.nulls(len(records), pa.binary()))
        return records.key

    def keyed(self, keys: BinaryColumn) -> BoolArray | None:
        """Return for each row whether this rule assigns it; None if it assigns all rows."""
        if self.keyless is UnkeyedRows.NEVER:
            return None
        if self.keyless is UnkeyedRows.NULL_OR_EMPTY:
            full: BoolArray = keys.lengths > 0
            return None if full.all() else full
        return keys.valid


def _positive_murmur2(keys: BinaryColumn) -> UInt32Array:
    """Return the hashes made positive by a mask, and not by the absolute value."""
    return murmur2(keys) & np.uint32(0x7FFFFFFF)


def _positive_murmur2_one(key: bytes) -> int:
    return murmur2_one(key) & 0x7FFFFFFF


def _absolute_fnv1a(keys: BinaryColumn) -> UInt32Array:
    """Return the absolute values of the signed hashes, as Sarama and librdkafka do."""
    return np.abs(fnv1a(keys).view(np.int32).astype(np.int64)).astype(np.uint32)


def _absolute_fnv1a_one(key: bytes) -> int:
    hashed = fnv1a_one(key)
    return min(hashed, (1 << 32) - hashed)


JAVA = KeyRule(_positive_murmur2, _positive_murmur2_one, UnkeyedRows.NULL)
"""The rule of Java's producer, and of librdkafka's `murmur2_random`: an empty key is a key."""

LIBRDKAFKA = {
    "consistent": KeyRule(crc32, zlib.crc32, UnkeyedRows.NEVER),
    "consistent_random": KeyRule(crc32, zlib.crc32, UnkeyedRows.NULL_OR_EMPTY),
    "murmur2": KeyRule(_positive_murmur2, _positive_murmur2_one, UnkeyedRows.NEVER),
    "murmur2_random": JAVA,
    "fnv1a": KeyRule(_absolute_fnv1a, _absolute_fnv1a_one, UnkeyedRows.NEVER),
    "fnv1a_random": KeyRule(_absolute_fnv1a, _absolute_fnv1a_one, UnkeyedRows.NULL),
}
"""librdkafka's names: those without `_random` send all rows without a key to one partition."""
