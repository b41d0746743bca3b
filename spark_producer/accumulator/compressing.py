"""Batches are compressed once, when they take no more rows: how large they may get before, and where the result lies.

Owns: the codec objects of the threads, the estimates of how small records become, the buffers of what is compressed.
Must not know: queues, locks, or when a batch is closed. (KIP-126, KIP-390.)

Nobody waits for memory here: whoever compresses holds a buffer already, and two that hold one each could wait for ever.
"""

from __future__ import annotations

import logging
import threading

import numpy as np

from spark_producer.accumulator.batch import Lease, ProducerBatch
from spark_producer.accumulator.pool import LEAST_BUFFER, BufferPool
from spark_producer.accumulator.splitting import cut_in_half
from spark_producer.errors import ProducerClosed
from spark_producer.record.batch_v2 import HEADER_SIZE
from spark_producer.record.codecs import Codec, Compressor, decompress
from spark_producer.record.compression_ratio import SAFETY, CompressionRatios

_log = logging.getLogger(__name__)

KEPT_BUFFER_SHARE = 0.75
"""From this share of the pool's own size on, a buffer of that size is taken: the pool keeps those, so their pages are warm."""

LARGEST_ROOM = 4 << 20
"""Bytes of records that are gathered for a compressed batch, if `batch.size` is not larger: whoever compresses one that has
lingered is the I/O thread, and whoever reads one has it unpacked in memory."""

LEAST_FILLED = 0.5
"""Share of its buffer that a batch must fill to teach something: one short row packs to more than its own length, and would
count as much as all that full batches have taught."""

_NO_LIMIT = (1 << 31) - 1
"""of what unpacks: the bytes are our own"""


class Compression:
    """One codec for all batches of a producer. Every thread may call it, each for a batch that it alone writes to.

    `level` None is the default of the options.
    """

    def __init__(self, codec: Codec, level: int | None, pool: BufferPool) -> None:
        self.codec = codec
        self._level = level
        self._pool = pool
        self._ratios = CompressionRatios()
        self._own = threading.local()

    def room(self, topic: str, size: int) -> int:
        """Bytes of records and header that should become a batch of `size` when they are compressed; at least that many."""
        expected = self._ratios.estimate(topic, self.codec) * SAFETY
        return max(size, min(HEADER_SIZE + int((size - HEADER_SIZE) / expected), LARGEST_ROOM))

    def compress(self, batch: ProducerBatch) -> None:
        """Put the compressed records in the place of the batch's own, in a smaller buffer if the pool has one at once.

        What does not get smaller stays as it is, and says so in its header; so does what the library fails to pack.
        """
        records = batch.buffer[HEADER_SIZE : batch.position]
        packed = self._try_pack(records, batch.place.topic)
        if packed is None:
            return
        batch.compression_ratio = ratio = len(packed) / len(records)
        if batch.position >= LEAST_FILLED * batch.limit:
            self._ratios.observe(batch.place.topic, self.codec, ratio)
        if ratio >= 1.0:
            return
        size = HEADER_SIZE + len(packed)
        smaller = self._smaller(size, len(batch.buffer))
        if smaller is not None:
            self._pool.release(batch.buffer)
            batch.buffer = smaller
        batch.buffer[HEADER_SIZE:size] = packed
        batch.position = size
        batch.codec = self.codec

    def split(self, batch: ProducerBatch) -> ProducerBatch:
        """As `ProducerBatch.split`, for a batch that may be compressed; it counts for later ones, however little it held."""
        self._ratios.observe(batch.place.topic, self.codec, batch.compression_ratio)
        if batch.codec == Codec.NONE:
            return batch.split()
        records = memoryview(bytearray(decompress(batch.codec, batch.data[HEADER_SIZE:], _NO_LIMIT)))
        halves = cut_in_half(records, 0, len(records), batch.records_count)
        head_codec, head = self._pack(records[: halves.cut], batch.place.topic)
        tail_codec, tail = self._pack(records[halves.cut : halves.end], batch.place.topic)
        needed = HEADER_SIZE + len(head) + len(tail)
        if needed > batch.capacity:
            self._rehouse(batch, needed)
        cut = batch.begin + HEADER_SIZE + len(head)
        end = cut + len(tail)
        batch.buffer[batch.begin + HEADER_SIZE : cut] = head
        batch.buffer[cut:end] = tail
        second = batch.halve(halves._replace(cut=cut, end=end))
        batch.codec, second.codec = head_codec, tail_codec
        second.compression_ratio = batch.compression_ratio  # of the whole: near enough, and all that metrics ask for
        return second

    def _pack(self, records: memoryview, topic: str) -> tuple[Codec, memoryview]:
        packed = self._try_pack(records, topic)
        return (Codec.NONE, records) if packed is None or len(packed) >= len(records) else (self.codec, packed)

    def _try_pack(self, records: memoryview, topic: str) -> memoryview | None:
        """None if the library fails: for want of memory, for which each has an error of its own."""
        try:
            return self._compressor().compress(records)
        except Exception:
            _log.warning(
                "%s cannot pack %d bytes of records for topic %r: they are sent uncompressed",
                self.codec.name.lower(), len(records), topic, exc_info=True,
            )  # fmt: skip
            return None

    def _compressor(self) -> Compressor:
        """This thread's own."""
        own = self._own
        try:
            found: Compressor = own.compressor
        except AttributeError:
            found = own.compressor = Compressor(self.codec, self._level)
        return found

    def _smaller(self, size: int, present: int) -> memoryview | None:
        kept = self._pool.poolable
        if kept < LEAST_BUFFER:
            size = max(size, LEAST_BUFFER)
        if kept * KEPT_BUFFER_SHARE <= size <= kept:
            size = kept
        return self._try_allocate(size) if size < present else None

    def _rehouse(self, batch: ProducerBatch, size: int) -> None:
        """A new buffer for the two halves of a batch, which have less in common to compress than the whole had.

        If the pool has none, they lie outside its account, but for the buffer of the whole, which goes back with the
        second half: some bytes more than `buffer.memory`, where Java's producer takes all of them from elsewhere.
        """
        larger = self._try_allocate(size)
        if larger is None:
            batch.lease = batch.lease or Lease(batch.buffer)
            larger = np.empty(size, dtype=np.uint8).data
        else:
            before = batch.take_buffer()
            if before is not None:
                self._pool.release(before)
        batch.buffer, batch.begin = larger, 0

    def _try_allocate(self, size: int) -> memoryview | None:
        try:
            return self._pool.try_allocate(size) if size <= self._pool.total else None
        except ProducerClosed:
            return None  # the batch will be aborted


def end_appends(batch: ProducerBatch, compression: Compression | None) -> None:
    """The batch takes no more rows: compress it, and let it be sent. Its queue's lock is held."""
    try:
        if compression is not None:
            compression.compress(batch)
    finally:
        batch.closed = True
