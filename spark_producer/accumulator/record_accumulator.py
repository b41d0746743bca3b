"""Queues of batches, one per partition: task threads append runs of rows at the tail, the I/O thread takes from the head.

Owns: the queues, which batches are in flight, the count of incomplete ones, and the first error.
Must not know: nodes, requests, or why a batch is taken.

Lock order, the only one in the package: `_append_lock` (task threads, one run at a time) → `_lock` (queues; held for
moments, never while encoding, allocating or waiting). The pool has its own lock and is never called under `_lock`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from spark_producer.accumulator.buffer_pool import BufferPool
from spark_producer.accumulator.future import PendingRecord
from spark_producer.accumulator.producer_batch import ProducerBatch, TopicPartition
from spark_producer.errors import DeliveryTimeout, ProducerClosed
from spark_producer.kernel import ArrangedRows
from spark_producer.record.batch_v2 import HEADER_SIZE

IO_THREAD_GRACE = 60.0
"""Seconds by which the I/O thread may be late, in a slow name look-up for example, before a flush stops to rely on it."""


class RecordAccumulator:
    """Batches from their creation to their acknowledgement. Times are seconds of the injected clock."""

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
    ) -> None:
        self.pool = pool
        self._batch_size = batch_size
        self._linger = linger
        self._delivery_timeout = delivery_timeout
        self._max_block = max_block
        self._keep_order = keep_order
        self._clock = clock
        self._wakeup = wakeup
        self._append_lock = threading.Lock()
        self._lock = threading.Lock()
        self._completed = threading.Condition(self._lock)
        self._queues: dict[TopicPartition, deque[ProducerBatch]] = {}
        self._in_flight: dict[TopicPartition, list[ProducerBatch]] = {}
        self._incomplete: dict[int, ProducerBatch] = {}
        """every batch that is neither acknowledged nor failed, by number, the oldest first"""
        self._next_number = 0
        self._flushing = 0
        self.error: Exception | None = None

    # --- task threads -----------------------------------------------------------------------------------------------

    def append(self, place: TopicPartition, rows: ArrangedRows, first: int, stop: int, among: int = 1) -> None:
        """Encode rows `first` … `stop` - 1 into batches of `place`; blocks while the pool is exhausted.

        `among`: how many partitions the caller is filling, which share the pool.

        Raises:
            BufferExhausted: no memory within `max.block.ms`. Whatever made the producer fail, once it has failed.
        """
        with self._append_lock:
            while first < stop:
                batch = self._open_tail(place) or self._open_new(place, rows, first, among)
                first = self._fill(batch, rows, first, stop)

    def append_one(self, place: TopicPartition, row: ArrangedRows, record: PendingRecord) -> None:
        """Append a single row; `record.future` is resolved when its batch is acknowledged."""
        with self._append_lock:
            while True:
                batch = self._open_tail(place) or self._open_new(place, row, 0)
                if self._fill(batch, row, 0, 1, record):
                    return

    def flush(self) -> None:
        """Send everything now and wait until all of it is acknowledged; `delivery.timeout.ms` bounds the wait.

        Batches that other threads open meanwhile are not waited for. Futures are done when this returns.

        Raises:
            Whatever made a batch fail.
        """
        with self._lock:
            self._flushing += 1
            after = self._next_number
        self._wakeup()
        try:
            with self._lock:
                while next(iter(self._incomplete), after) < after and self.error is None:
                    if not self._completed.wait(min(self._delivery_timeout + IO_THREAD_GRACE, threading.TIMEOUT_MAX)):
                        raise DeliveryTimeout(
                            "the I/O thread did not end the batches whose delivery.timeout.ms is over"
                        )
        finally:
            with self._lock:
                self._flushing -= 1
        self.check()

    def check(self) -> None:
        """Raise what made the producer fail, if it has."""
        if self.error is not None:
            raise self.error

    @property
    def idle(self) -> bool:
        """Whether every batch is acknowledged."""
        return not self._incomplete

    def drain(self) -> None:
        """From now on every batch is worth sending: the producer closes."""
        with self._lock:
            self._flushing += 1

    def _open_tail(self, place: TopicPartition) -> ProducerBatch | None:
        with self._lock:
            self.check()
            queue = self._queues.get(place)
            if not queue or queue[-1].closed:
                return None
            queue[-1].appending = True
            return queue[-1]

    def _open_new(self, place: TopicPartition, rows: ArrangedRows, first: int, among: int = 1) -> ProducerBatch:
        size = HEADER_SIZE + rows.size_at(first)
        # Where the pool has no room for full batches of all partitions, smaller ones for all beat full ones for a few: an
        # empty pool sends every batch with the handful of rows that it has. Half of the pool is for batches in flight.
        share = self.pool.total // (2 * max(among, len(self._queues), 1))
        buffer = self._allocate(max(min(self._batch_size, share), size))
        with self._lock:
            if self.error is None:
                batch = ProducerBatch(place, buffer, self._next_number, self._clock(), rows.timestamp_at(first))
                self._next_number += 1
                batch.appending = True
                self._queues.setdefault(place, deque()).append(batch)
                self._incomplete[batch.number] = batch
                return batch
        self.pool.release(buffer)
        raise self.error

    def _allocate(self, size: int) -> memoryview:
        buffer = self.pool.try_allocate(size)
        if buffer is not None:
            return buffer
        self._wakeup()  # every batch is worth sending as soon as somebody waits
        try:
            return self.pool.allocate(size, self._max_block)
        except ProducerClosed:
            self.check()  # the reason says more
            raise

    def _fill(
        self, batch: ProducerBatch, rows: ArrangedRows, first: int, stop: int, record: PendingRecord | None = None
    ) -> int:
        """Append what fits and close the batch if that is not all; the number of the next row."""
        before = batch.records_count
        try:
            following = batch.append(rows, first, stop)
        except BaseException:
            self._end_append(batch, closed=True)
            raise
        pending = record._replace(offset_delta=before) if record is not None and following > first else None
        if self._end_append(batch, closed=following < stop, pending=pending) or batch.closed or not before:
            self._wakeup()
        return following

    def _end_append(self, batch: ProducerBatch, *, closed: bool, pending: PendingRecord | None = None) -> bool:
        """Hand the batch to the I/O thread; whether that thread has looked for it meanwhile, and must be woken.

        A batch that got no record, because its first one could not be encoded, is dropped.
        """
        with self._lock:
            if pending is not None:
                self.check()  # the producer failed while the row was encoded: nobody would resolve its future
                batch.pending.append(pending)
            batch.appending = False
            batch.closed = closed
            awaited, batch.awaited = batch.awaited, False
            unused = not batch.records_count and self._incomplete.pop(batch.number, None) is not None
            if unused:
                self._queues[batch.place].remove(batch)
                self._completed.notify_all()
        if unused:
            self.pool.release(batch.buffer)
        return awaited

    # --- I/O thread -------------------------------------------------------------------------------------------------

    def ready(self, now: float) -> tuple[list[TopicPartition], float | None]:
        """The partitions with a batch worth sending, and the time at which the next one will be (None: unknown).

        A batch is worth sending when it is full, has lingered, somebody waits for memory, or a flush is under way.
        """
        places, next_time = [], None
        with self._lock:
            hurry = self.pool.has_waiters or self._flushing > 0
            for place, queue in self._queues.items():
                if not queue or self._must_wait(place, queue[0]):
                    continue
                head = queue[0]
                at = head.retry_at if head.attempts or hurry or head.closed else head.created + self._linger
                if at > now:
                    next_time = at if next_time is None else min(next_time, at)
                elif head.appending:
                    head.awaited = True
                else:
                    places.append(place)
        return places, next_time

    def _must_wait(self, place: TopicPartition, head: ProducerBatch) -> bool:
        """Whether the head must stay since an earlier batch of the partition is in flight.

        A batch that is sent again goes alone and in order: a failure of it would let later ones overtake it. New batches
        wait for it too: if it was written though its answer was lost, five that follow make the broker forget it, and
        then its next retry looks like a gap.
        """
        flying = self._in_flight.get(place)
        if not flying:
            return False
        return flying[0].number < head.number and (self._keep_order or head.attempts > 0 or flying[0].attempts > 0)

    def take(self, place: TopicPartition, room: int) -> ProducerBatch | None:
        """The head of a ready partition, now in flight; None if it exceeds `room` bytes, or rows come in again."""
        with self._lock:
            queue = self._queues[place]
            head = queue[0]
            if head.appending:
                head.awaited = True
                return None
            if head.position > room:
                return None
            queue.popleft()
            if not queue:
                del self._queues[place]  # so that their number is that of the partitions in use
            head.closed = True
            flying = self._in_flight.setdefault(place, [])
            flying.append(head)
            flying.sort(key=_number)  # one that is sent again is older than those that still fly
            return head

    def put_back(self, batch: ProducerBatch) -> None:
        """Queue a batch again that was in flight, at its place in the order of creation."""
        with self._lock:
            self._in_flight[batch.place].remove(batch)
            queue = self._queues.setdefault(batch.place, deque())
            index = 0
            while index < len(queue) and queue[index].number < batch.number:
                index += 1
            queue.insert(index, batch)

    def has_earlier(self, batch: ProducerBatch) -> bool:
        """Whether an earlier batch of the same partition is still incomplete."""
        with self._lock:
            queue = self._queues.get(batch.place, ())
            others = (*self._in_flight.get(batch.place, ()), *queue)
            return any(other.number < batch.number for other in others)

    def complete(self, batch: ProducerBatch, base_offset: int, log_append_time: int) -> None:
        """An acknowledged batch: its memory is free again and its futures are done, before a flush returns."""
        with self._lock:
            self._in_flight[batch.place].remove(batch)
        self.pool.release(batch.buffer)
        batch.complete(base_offset, log_append_time)
        with self._lock:
            self._incomplete.pop(batch.number, None)
            if self._flushing:
                self._completed.notify_all()

    def expired(self, now: float) -> DeliveryTimeout | None:
        """The error of the oldest batch, queued or in flight, if it is older than `delivery.timeout.ms`."""
        with self._lock:
            batch = next(iter(self._incomplete.values()), None)
        if batch is None or now - batch.created < self._delivery_timeout:
            return None
        place = batch.place
        last = f" The last answer: {batch.last_error}." if batch.last_error else ""
        return DeliveryTimeout(
            f"{batch.records_count} records for {place} were not acknowledged within {now - batch.created:.1f} s "
            f"(kafka.delivery.timeout.ms), after {batch.attempts} failed attempts.{last} Look whether the partition has a "
            "leader and enough replicas, or raise the timeout",
            topic=place.topic,
            partition=place.partition,
        )

    def next_expiry(self) -> float | None:
        """When the oldest incomplete batch expires."""
        with self._lock:
            batch = next(iter(self._incomplete.values()), None)
        return None if batch is None else batch.created + self._delivery_timeout

    def fail(self, error: Exception) -> None:
        """End everything with `error`: waits wake up, queued and in-flight batches fail, nothing more is taken.

        The buffers are not given back: the network may still read them, and a failed producer is thrown away whole.
        """
        with self._lock:
            if self.error is not None:
                return
            self.error = error
            left = [batch for queue in self._queues.values() for batch in queue]
            left += [batch for flying in self._in_flight.values() for batch in flying]
            self._queues.clear()
            self._in_flight.clear()
            self._incomplete.clear()
        self.pool.close()
        for batch in left:
            batch.fail(error)
        with self._lock:
            self._completed.notify_all()


def _number(batch: ProducerBatch) -> int:
    return batch.number
