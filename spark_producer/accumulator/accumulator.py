"""The accumulator as task threads use it: they append rows, close full batches, and wait for memory or for a flush.

The docstring of `accumulator.incomplete_batches` gives the lock order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from spark_producer.accumulator.batch import PartitionQueue, ProducerBatch
from spark_producer.accumulator.completion import BatchCompletion
from spark_producer.accumulator.compressing import Compression, close_for_appends
from spark_producer.accumulator.drainer import Drainer
from spark_producer.accumulator.future import Callback, RecordFuture
from spark_producer.accumulator.in_flight_bytes import InFlightBytes
from spark_producer.accumulator.incomplete_batches import IncompleteBatches
from spark_producer.accumulator.pool import MIN_BUFFER_BYTES, BufferPool
from spark_producer.accumulator.readiness import Readiness
from spark_producer.accumulator.row_origins import DeliveryListener, RowNumbers, RowRange, add_run
from spark_producer.accumulator.single_row_run import SingleRowRun
from spark_producer.accumulator.state import AccumulatorState
from spark_producer.accumulator.topic_limits import TopicLimits
from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import BufferExhausted, ProducerClosed
from spark_producer.kernel import ArrangedRows, SingleRecord
from spark_producer.record.batch_v2 import HEADER_SIZE

NEARLY_FULL_DIVISOR = 16
"""A batch that the partitioner reports as full is closed if less than one in this many of its bytes is free. The partitioner
works with predicted sizes, which may be 3 bytes off for a record of 50."""


class RecordAccumulator:
    """The accumulator as task threads use it. It also creates and connects the other parts.

    All threads share `incomplete`. The I/O thread takes batches out through `drainer` and completes them through `completion`.
    Times are seconds of the injected clock.
    """

    def __init__(
        self,
        pool: BufferPool,
        *,
        batch_size: int,
        linger: float,
        delivery_timeout: float,
        max_block: float,
        keep_order: bool,
        clock: Callable[[], float],
        wakeup: Callable[[], None],
        compression: Compression | None = None,
    ) -> None:
        self.pool = pool
        self.incomplete = IncompleteBatches(delivery_timeout=delivery_timeout, clock=clock, wakeup=wakeup)
        self._queues, self._failures = self.incomplete.queues, self.incomplete.failures
        self._limits = TopicLimits(batch_size)
        self._readiness = readiness = Readiness(linger=linger, keep_order=keep_order)
        state = AccumulatorState(pool, self.incomplete, readiness, InFlightBytes(), self._limits, compression)
        self.drainer = Drainer(state)
        self.completion = BatchCompletion(state)
        self._compression = compression
        self._batch_size = batch_size
        self._min_buffer_size = MIN_BUFFER_BYTES if batch_size < MIN_BUFFER_BYTES else 1
        self._max_block = max_block
        self._clock = clock
        self.io_thread = 0
        """the identity of the I/O thread. It frees memory and runs callbacks, which may append, so it must not wait for
        memory."""

    def append(
        self,
        tp: tuple[str, int],
        rows: ArrangedRows,
        first: int,
        stop: int,
        among: int = 1,
        listener: DeliveryListener | None = None,
    ) -> None:
        """Encode rows `first` … `stop` - 1 into batches of `tp`; blocks while the pool is exhausted.

        `among` is the number of partitions that the caller is filling, which share the pool. `listener` gets the outcome of
        the rows.

        Raises:
            BufferExhausted: no memory became free within `max.block.ms`.
            The error that ended the producer, if it has ended.
        """
        queue = self._queues.get(tp) or self.incomplete.queue_of(tp)
        if queue.open is not None and first < stop:
            with queue.lock:
                if queue.open is not None:
                    first = self._fill(queue, queue.open, rows, first, stop, listener)
            if queue.awaited:
                self.incomplete.notify_appended(queue)
        while first < stop:
            if queue.retired:
                queue = self.incomplete.queue_of(tp)
            first = self._fill_new(queue, rows, first, stop, among, self._max_block, listener)

    def append_one(
        self,
        tp: TopicPartition,
        record: SingleRecord,
        callback: Callback | None = None,
        deadline: float | None = None,
    ) -> RecordFuture:
        """Append a single record; its future is done when its batch is. A wait for memory ends at `deadline`.

        Raises: as `append`.
        """
        queue = self._queues.get(tp) or self.incomplete.queue_of(tp)
        future = None
        with queue.lock:
            if queue.open is not None:
                future = self._fill_one(queue, queue.open, record, callback)
        if queue.awaited:
            self.incomplete.notify_appended(queue)
        if future is None:
            row = SingleRowRun(record, callback)
            while row.future is None:
                timeout = self._max_block if deadline is None else max(0.0, deadline - self._clock())
                if queue.retired:
                    queue = self.incomplete.queue_of(tp)
                self._fill_new(queue, row, 0, 1, 1, timeout, None)
            return row.future
        return future

    def close_full(self, tp: TopicPartition, size: int) -> None:
        """Close the open batch of a partition if a row of `size` bytes does not fit or only just fits.

        There may be no next row that would close it. A nearly full batch is closed too, because the partitioner predicts sizes
        and is a few bytes off for each record (`partitioner.batch_size_estimate`).
        """
        queue = self._queues.get(tp)
        if queue is None:
            return
        with queue.lock:
            batch = queue.open
            if batch is not None and batch.limit - batch.position < max(size, batch.limit // NEARLY_FULL_DIVISOR):
                self._close_open(queue, batch)
        if queue.awaited:
            self.incomplete.notify_appended(queue)

    def flush(self) -> None:
        """Send all batches now and wait until they are complete; `delivery.timeout.ms` bounds the wait.

        Batches that other threads open meanwhile are not waited for. Futures are done when this returns.

        Raises:
            The first failure that is reported to this thread (`failure_tracking`), or the error that ended the producer.
        """
        if self._compression is not None:
            self.close_open()  # a batch that is compressed here does not hold up the I/O thread
        self.incomplete.flush()
        self.incomplete.check()
        self._failures.raise_unreported()

    def close_open(self) -> None:
        """Close, and compress, the open batches on this thread. The I/O thread closes batches that are opened meanwhile."""
        for queue in self.incomplete.nonempty:
            if queue.open is not None:
                with queue.lock:
                    if queue.open is not None:
                        self._close_open(queue, queue.open)
                if queue.awaited:
                    self.incomplete.notify_appended(queue)

    def adopt_io_thread(self) -> None:
        """Record that the calling thread is the I/O thread, which frees memory and runs callbacks."""
        self.io_thread = threading.get_ident()
        self._failures.disown()

    def queue_lengths(self, topic: str) -> dict[int, int]:
        """Map each partition to its number of batches that wait to be sent, without those in flight.

        Partitions without waiting batches are left out. This takes no lock; its cost grows with the number of waiting batches.
        """
        return self.incomplete.nonempty.lengths(topic)

    def waiting_bytes(self) -> int:
        """Return the bytes of all batches that wait to be sent, without those in flight. This takes no lock."""
        return sum(batch.size for queue in self.incomplete.nonempty for batch in tuple(queue.batches))

    def free_bytes(self, topic: str, partition: int) -> int:
        """Return the bytes that still fit into a partition's open batch; 0 if none is open.

        This takes no lock, so the batch may be closed meanwhile.
        """
        queue = self._queues.get((topic, partition))
        batch = None if queue is None else queue.open
        return 0 if batch is None else max(0, batch.limit - batch.position)

    def full_size(self, topic: str, among: int = 1) -> int:
        """Return the bytes of a topic's new batch before compression. At least `among` partitions share the pool.

        If the pool is too small for full batches of all partitions, smaller batches for all are better than full ones for a
        few: once the pool is empty, every batch is sent with the few rows that it has. Half of the pool is for batches in
        flight.
        """
        return self._share(topic, self._limits.size(topic), among)

    def _share(self, topic: str, size: int, among: int) -> int:
        """Return the bytes that a batch needs to have `size` bytes after compression, within its share of the pool."""
        wanted = size if self._compression is None else self._compression.target_size(topic, size)
        return min(wanted, self.pool.total // (2 * max(among, len(self.incomplete.nonempty), 1)))

    def close(self, error: Exception) -> None:
        """Refuse new rows and end all waits for memory. The I/O thread aborts the other batches (`BatchCompletion.abort`)."""
        self.incomplete.end(error)
        self.pool.close()

    # --- one run into one batch -------------------------------------------------------------------------------------

    def _fill_new(
        self,
        queue: PartitionQueue,
        rows: ArrangedRows | SingleRowRun,
        first: int,
        stop: int,
        among: int,
        max_block: float,
        listener: DeliveryListener | None,
    ) -> int:
        """Fill a new batch, unless another thread has opened one meanwhile or the queue is retired.

        Return the number of the next row. A row that is larger than a full batch gets a batch of its own, which is closed at
        once; with `batch.size` 0 every row does.
        """
        size, large = HEADER_SIZE + rows.size_at(first), first
        topic = queue.topic_partition.topic
        full = self._share(topic, self._limits.new_size(topic), among)
        buffer: memoryview | None
        buffer = self._allocate(max(full, size, self._min_buffer_size), max_block)
        try:
            with queue.lock:
                if queue.open is not None:
                    first = self._fill(queue, queue.open, rows, first, stop, listener)
                if first < stop and queue.open is None and not queue.retired:
                    batch = self.incomplete.open(queue, buffer, rows.timestamp_at(first))
                    buffer = None
                    batch.limit = max(full, size)
                    alone = size > full and first == large
                    if alone and size > self._batch_size:
                        batch.row = (
                            0 if isinstance(rows, SingleRowRun) else rows.columns.number_of(int(rows.rows[first]))
                        )
                    first = self._fill(queue, batch, rows, first, first + 1 if alone else stop, listener)
                    if alone and queue.open is batch:
                        self._close_open(queue, batch)
        finally:
            if buffer is not None:
                self.pool.release(buffer)
        if queue.awaited:
            self.incomplete.notify_appended(queue)
        return first

    def _fill(
        self,
        queue: PartitionQueue,
        batch: ProducerBatch,
        rows: ArrangedRows | SingleRowRun,
        first: int,
        stop: int,
        listener: DeliveryListener | None,
    ) -> int:
        """Append the rows that fit, close the batch if rows remain, and return the number of the next row."""
        if isinstance(rows, SingleRowRun):
            rows.future = self._fill_one(queue, batch, rows.record, rows.callback)
            return first if rows.future is None else stop
        count_before = batch.records_count
        try:
            following = batch.append(rows, first, stop)
        except BaseException:
            self._close_open(queue, batch)
            raise
        owner = self._failures.mine()
        batch.add_owner(owner)
        if following > first:
            numbers = RowNumbers.of(rows.columns.numbers, rows.rows[first:following])
            add_run(batch.runs, RowRange(listener, count_before, numbers, owner))
        if following < stop:
            self._close_open(queue, batch)
        elif not count_before and len(queue.batches) == 1:
            self.incomplete.notify(queue, self._readiness.linger_end(batch))
        return following

    def _fill_one(
        self, queue: PartitionQueue, batch: ProducerBatch, record: SingleRecord, callback: Callback | None
    ) -> RecordFuture | None:
        """Do the same as `_fill` for a single record; return its future if it fits, otherwise None."""
        try:
            future = batch.append_one(record, callback, self._failures.mine())
        except BaseException:
            self._close_open(queue, batch)
            raise
        if future is None:
            self._close_open(queue, batch)
        elif batch.records_count == 1 and len(queue.batches) == 1:
            self.incomplete.notify(queue, self._readiness.linger_end(batch))
        return future

    def _close_open(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Close a batch, which the I/O thread may then drain."""
        queue.open = None
        if not batch.records_count:
            return self._drop(queue, batch)
        try:
            close_for_appends(batch, self._compression)
        finally:
            if len(queue.batches) <= 1:
                self.incomplete.notify(queue, 0.0)
        return None

    def _drop(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Remove a batch whose first row could not be encoded."""
        self.incomplete.drop(queue, batch)
        buffer = batch.take_buffer()
        if buffer is not None:
            self.pool.release(buffer)

    def _allocate(self, size: int, max_block: float) -> memoryview:
        try:
            buffer = self.pool.try_allocate(size)
            return self._await_memory(size, max_block) if buffer is None else buffer
        except ProducerClosed:
            self.incomplete.check()  # the error that ended the producer says more
            raise

    def _await_memory(self, size: int, max_block: float) -> memoryview:
        """Wait for a buffer; while a thread waits, every batch may be worth sending."""
        if threading.get_ident() == self.io_thread:
            raise BufferExhausted(
                f"a record of {size} bytes from a callback was not sent: kafka.buffer.memory has no free memory, and a callback "
                "cannot wait, because it runs on the thread that frees memory. Send from another thread, or raise the option"
            )
        with self.incomplete.starve():
            return self.pool.allocate(size, max_block)
