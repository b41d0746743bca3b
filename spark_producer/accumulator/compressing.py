"""The compression of batches, once, when a batch is closed (KIP-126, KIP-390).

It decides how large a batch may get before it is compressed, and which buffer holds the result. No thread waits for memory
here: a thread that compresses holds a buffer already, and two such threads could wait for each other for ever.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from spark_producer.accumulator.batch import ProducerBatch, RefCountedBuffer
from spark_producer.accumulator.pool import MIN_BUFFER_BYTES, BufferPool
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import ProducerClosed
from spark_producer.record.batch_v2 import HEADER_SIZE
from spark_producer.record.codecs import Codec, Compressor, decompress
from spark_producer.record.compression_ratio import SAFETY, CompressionRatios
from spark_producer.record.splitting import cut_in_half

_log = escaping_logger(__name__)

KEPT_BUFFER_SHARE = 0.75
"""The fraction of the pool's buffer size from which a buffer of that size is taken: the pool keeps those, so their pages are
warm."""

MAX_GATHERED_BYTES = 4 << 20
"""Maximum bytes of records that are gathered for a compressed batch, unless `batch.size` is larger. The I/O thread compresses
batches that have lingered, and a consumer decompresses a whole batch in memory."""

MIN_FILLED_FRACTION = 0.5
"""Minimum fraction of its limit that a batch must fill for its ratio to be used for estimates: one short row compresses to more
than its own length, and would count as much as all full batches together."""

_NO_LIMIT = (1 << 31) - 1
"""The limit of decompressed bytes; none is needed, since the bytes are our own."""


class Compression:
    """Compresses all batches of a producer with one codec. A thread may call it for a batch that no other thread writes to.

    `level` None is the codec's default level. `ratios` estimates how well topics compress, and is updated here (None: nothing
    is known). `new_compressor` is called once by each thread.
    """

    def __init__(
        self,
        codec: Codec,
        level: int | None,
        pool: BufferPool,
        ratios: CompressionRatios | None = None,
        new_compressor: Callable[[Codec, int | None], Compressor] = Compressor,
    ) -> None:
        self.codec = codec
        self._level = level
        self._pool = pool
        self._ratios = ratios or CompressionRatios()
        self._new_compressor = new_compressor
        self._own = threading.local()

    def target_size(self, topic: str, size: int) -> int:
        """Return the bytes of header and records that should compress to a batch of `size` bytes; at least `size`."""
        expected = self._ratios.estimate(topic, self.codec) * SAFETY
        return max(size, min(HEADER_SIZE + int((size - HEADER_SIZE) / expected), MAX_GATHERED_BYTES))

    def compress(self, batch: ProducerBatch) -> None:
        """Replace the batch's records by the compressed ones, in a smaller buffer if the pool has one free.

        Records that do not get smaller, or that the library fails to compress, stay uncompressed, as the header then says.
        """
        records = batch.buffer[HEADER_SIZE : batch.position]
        compressed = self._try_compress(records, batch.topic_partition.topic)
        if compressed is None:
            return
        batch.compression_ratio = ratio = len(compressed) / len(records)
        if batch.position >= MIN_FILLED_FRACTION * batch.limit:
            self._ratios.observe(batch.topic_partition.topic, self.codec, ratio)
        if ratio >= 1.0:
            return
        size = HEADER_SIZE + len(compressed)
        smaller = self._smaller(size, len(batch.buffer))
        if smaller is not None:
            self._pool.release(batch.buffer)
            batch.buffer = smaller
        batch.buffer[HEADER_SIZE:size] = compressed
        batch.position = size
        batch.codec = self.codec

    def split(self, batch: ProducerBatch) -> ProducerBatch:
        """Split a batch that may be compressed, as `ProducerBatch.split` does. Even a small one counts for its topic's ratio."""
        self._ratios.observe(batch.topic_partition.topic, self.codec, batch.compression_ratio)
        if batch.codec == Codec.NONE:
            return batch.split()
        records = memoryview(bytearray(decompress(batch.codec, batch.data[HEADER_SIZE:], _NO_LIMIT)))
        halves = cut_in_half(records, 0, len(records), batch.records_count)
        head_codec, head = self._compress_or_copy(records[: halves.cut], batch.topic_partition.topic)
        tail_codec, tail = self._compress_or_copy(records[halves.cut : halves.end], batch.topic_partition.topic)
        needed = HEADER_SIZE + len(head) + len(tail)
        if needed > batch.capacity:
            self._replace_buffer(batch, needed)
        cut = batch.begin + HEADER_SIZE + len(head)
        end = cut + len(tail)
        batch.buffer[batch.begin + HEADER_SIZE : cut] = head
        batch.buffer[cut:end] = tail
        second = batch.halve(halves._replace(cut=cut, end=end))
        batch.codec, second.codec = head_codec, tail_codec
        second.compression_ratio = batch.compression_ratio  # that of the whole batch is accurate enough for the metrics
        return second

    def replace(self, batch: ProducerBatch, records: memoryview) -> None:
        """Replace the records of a batch by other records, which are compressed here."""
        codec, compressed = self._compress_or_copy(records, batch.topic_partition.topic)
        needed = HEADER_SIZE + len(compressed)
        if needed > batch.capacity:
            self._replace_buffer(batch, needed)
        batch.position = batch.begin + needed
        batch.buffer[batch.begin + HEADER_SIZE : batch.position] = compressed
        batch.codec = codec

    def _compress_or_copy(self, records: memoryview, topic: str) -> tuple[Codec, memoryview]:
        compressed = self._try_compress(records, topic)
        return (
            (Codec.NONE, records) if compressed is None or len(compressed) >= len(records) else (self.codec, compressed)
        )

    def _try_compress(self, records: memoryview, topic: str) -> memoryview | None:
        """Return the compressed records; None if the library fails. Without memory each library raises its own error."""
        try:
            return self._compressor().compress(records)
        except Exception:
            _log.warning(
                "%s cannot compress %d bytes of records for topic %r: they are sent uncompressed",
                self.codec.name.lower(), len(records), topic, exc_info=True,
            )  # fmt: skip
            return None

    def _compressor(self) -> Compressor:
        """Return this thread's own compressor."""
        own = self._own
        try:
            found: Compressor = own.compressor
        except AttributeError:
            found = own.compressor = self._new_compressor(self.codec, self._level)
        return found

    def _smaller(self, size: int, present: int) -> memoryview | None:
        kept = self._pool.poolable
        if kept < MIN_BUFFER_BYTES:
            size = max(size, MIN_BUFFER_BYTES)
        if kept * KEPT_BUFFER_SHARE <= size <= kept:
            size = kept
        return self._try_allocate(size) if size < present else None

    def _replace_buffer(self, batch: ProducerBatch, size: int) -> None:
        """Take a new buffer for the two halves of a batch, which may compress less well than the whole did.

        If the pool has no free buffer, the new one is not counted by the pool, and the old one is released with the last half.
        So memory may exceed `buffer.memory` a little; Java's producer takes all the memory of halves outside of its pool.
        """
        larger = self._try_allocate(size)
        if larger is None:
            batch.shared_buffer = batch.shared_buffer or RefCountedBuffer(batch.buffer)
            larger = np.empty(size, dtype=np.uint8).data
        else:
            old = batch.take_buffer()
            if old is not None:
                self._pool.release(old)
        batch.buffer, batch.begin = larger, 0

    def _try_allocate(self, size: int) -> memoryview | None:
        try:
            return self._pool.try_allocate(size) if size <= self._pool.total else None
        except ProducerClosed:
            return None  # the batch will be aborted


def close_for_appends(batch: ProducerBatch, compression: Compression | None) -> None:
    """Close a batch: compress it, and allow it to be sent. The caller holds its queue's lock."""
    try:
        if compression is not None:
            compression.compress(batch)
    finally:
        batch.closed = True
