"""An estimate of the memory of the broker's Python objects, which no budget limits: their number times the size of one.

Measured with tracemalloc on CPython 3.11. Pulsar's advice is about the JVM's heap; here objects are freed as soon as they are
unreferenced, and batches are in the caches and buffers that the plan limits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

BASE_BYTES: Final = 26 * 1024 * 1024
"""The private memory in bytes of a broker without topics: modules, and the buffers of the compression libraries."""

PARTITION_BYTES: Final = 3000
TOPIC_BYTES: Final = 700
PRODUCER_BYTES: Final = 1500
"""Bytes that a partition keeps of one producer with five batches."""
TRANSACTIONAL_ID_BYTES: Final = 750
COMMITTED_OFFSET_BYTES: Final = 270


class HeapCounts(NamedTuple):
    """The number of objects of each kind that the broker keeps.

    topics, partitions: of the broker (Pulsar: managed ledgers).
    producers: that the partitions know.
    transactional_ids: that the coordinator knows.
    committed_offsets: of consumer groups (Pulsar: cursors).
    """

    topics: int = 0
    partitions: int = 0
    producers: int = 0
    transactional_ids: int = 0
    committed_offsets: int = 0

    def parts(self) -> Iterator[tuple[str, int, int]]:
        """Yield the kind, the number and the bytes of the objects."""
        for (name, count), each in zip(
            self._asdict().items(),
            (TOPIC_BYTES, PARTITION_BYTES, PRODUCER_BYTES, TRANSACTIONAL_ID_BYTES, COMMITTED_OFFSET_BYTES),
            strict=True,
        ):
            yield name, count, count * each

    @property
    def bytes(self) -> int:
        """The bytes of all objects, and of the process before it has a topic."""
        return BASE_BYTES + sum(size for _, _, size in self.parts())
