"""Sizes Spark's Arrow batches for a producer: small ones are joined, and large ones are cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from spark_producer.kernel.column_views import PIECE_BYTES

GATHERED_PARTITION_BYTES = 128 << 10
"""Maximum bytes that are gathered for one partition. Above it the fixed cost of an append is negligible, and joining copies."""


def bytes_to_gather(partitions: int, batch_size: int) -> int:
    """Return the bytes of rows to gather so that each partition gets several rows per append."""
    return min(partitions * min(batch_size // 2, GATHERED_PARTITION_BYTES), PIECE_BYTES)


def gather(batches: Iterator[pa.RecordBatch], wanted: Callable[[], int]) -> Iterator[pa.RecordBatch]:
    """Yield Arrow batches joined until they have `wanted()` bytes, which may change from one batch to the next.

    With few partitions, or large rows, every Arrow batch is passed on as it is. While the next batch is read, only the
    batches that are being joined stay in memory.
    """
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in batches:
        if held and batch.nbytes >= PIECE_BYTES:  # a joined column might exceed 2 GiB, the maximum of 32-bit offsets
            held_bytes = 0
            yield _joined(held)
        held.append(batch)
        held_bytes += batch.nbytes
        del batch
        if held_bytes >= wanted():
            held_bytes = 0
            yield _joined(held)
    if held:
        yield _joined(held)


def pieces(batches: Iterator[pa.RecordBatch], size: int = PIECE_BYTES) -> Iterator[pa.RecordBatch]:
    """Yield the batches, those of much more than `size` bytes as even slices: the kernel's scratch memory grows with what it
    copies.
    """
    for batch in batches:
        # Headers are copied more often than keys and values.
        limit = size // 2 if "headers" in batch.schema.names else size
        count = -(-batch.nbytes // (limit + limit // 2))
        step = -(-batch.num_rows // max(1, count))
        yield from (batch.slice(first, step) for first in range(0, batch.num_rows, max(1, step)))
        del batch


def _joined(held: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Return all batches joined into one, and clear the list."""
    joined = held[0] if len(held) == 1 else pa.lib.concat_batches(held)  # the stubs lack pa.concat_batches
    held.clear()
    return joined
