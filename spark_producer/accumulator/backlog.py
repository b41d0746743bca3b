"""Every batch that has not ended, and the queues: what task threads and the I/O thread share.

Lock order, the only one in the package: `PartitionQueue.lock` (one appender per partition, held while it encodes, never
while it waits for memory) → the lock of this module (numbers, ages, flushes; held for moments) or the pool's own lock. The
I/O thread owns everything else, and learns through `Backlog.news`, a deque, which partitions to look at.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from spark_producer.accumulator.accounts import Accounts
from spark_producer.accumulator.batch import PartitionQueue, ProducerBatch
from spark_producer.accumulator.busy_queues import BusyQueues
from spark_producer.accumulator.sequence_state import NO_IDENTITY, Identity, Sequences
from spark_producer.cluster import TopicPartition
from spark_producer.errors import DeliveryTimeout, ProducerClosed

IO_THREAD_GRACE = 60.0
"""Seconds by which the I/O thread may be late, in a slow name look-up for example, before a flush stops to rely on it."""


class Backlog:
    """Task threads open batches and wait for their end, the I/O thread sees to it. Any thread may read what is public.

    Times are seconds of the injected clock. `wakeup` wakes the I/O thread.
    """

    def __init__(self, *, delivery_timeout: float, clock: Callable[[], float], wakeup: Callable[[], None]) -> None:
        self.delivery_timeout = delivery_timeout
        """seconds from the creation of a batch to its end at the latest"""
        self._clock = clock
        self._wakeup = wakeup
        self._lock = threading.Lock()
        self._completed = threading.Condition(self._lock)
        self._ages: deque[ProducerBatch] = deque()
        """every batch that has not ended, the oldest first, and some behind it that have"""
        self._next_number = 0
        self._sequences: dict[tuple[str, int], Sequences] = {}
        """of partitions whose queue was given up, under the current identity: a broker remembers them too"""
        self._sleeps_until = float("inf")
        """until when the I/O thread sleeps if nobody wakes it; 0 if it is awake"""
        self.queues: dict[tuple[str, int], PartitionQueue] = {}
        """by partition; written by `queue_of` and `give_up`"""
        self.busy = BusyQueues()
        self.news: deque[PartitionQueue] = deque()
        """partitions that something happened to, for the I/O thread to look at"""
        self.flushing = 0
        """threads that flush; one more from the moment on when the producer closes"""
        self.closing = False
        self.starving = 0
        """threads that wait for memory, or are about to"""
        self.error: Exception | None = None
        """what ended the producer"""
        self.accounts = Accounts(self._lock)
        """who is to be told of the batches that failed"""

    @property
    def idle(self) -> bool:
        """Whether every batch has ended."""
        return not self._ages

    @property
    def failure(self) -> Exception | None:
        """The first error of a batch that no flush has told of."""
        return self.accounts.untold()

    def check(self) -> None:
        """Raise what ended the producer, if it has ended."""
        if self.error is not None:
            raise self.error

    def check_open(self) -> None:
        """Whether rows are taken in.

        Raises:
            ProducerClosed: it is closing. What ended the producer, if it has ended.
        """
        if self.closing:
            raise ProducerClosed("this producer is closed")
        self.check()

    # --- queues -----------------------------------------------------------------------------------------------------

    def queue_of(self, place: tuple[str, int]) -> PartitionQueue:
        """The queue of a partition, made if there is none."""
        found = self.queues.get(place)
        if found is not None:
            return found
        with self._lock:
            queue = self.queues.setdefault(place, PartitionQueue(TopicPartition(*place)))
            sequences = self._sequences.pop(place, None)
            if sequences is not None:
                queue.resume(sequences)
            return queue

    def give_up(self, topics: Collection[str], identity: Identity) -> None:
        """Give up the queues of these topics, as far as nothing waits or flies there, and keep what counts under `identity`."""
        for queue in list(self.queues.values()):
            if queue.place.topic in topics and not queue.in_flight and not queue.gate:
                with queue.lock:  # a thread that is about to open a batch here looks whether it may
                    queue.retired = not queue.batches
                if queue.retired:
                    with self._lock:
                        del self.queues[queue.place]
                        if queue.identity is identity and queue.identity is not NO_IDENTITY:
                            self._sequences[queue.place] = queue.sequences
        for topic in topics:
            self.busy.forget(topic)

    def forget_sequences(self) -> None:
        """Another identity is in use: those of queues that were given up count no more."""
        with self._lock:
            self._sequences.clear()

    # --- batches from their creation to their end -------------------------------------------------------------------

    def open(self, queue: PartitionQueue, buffer: memoryview, base_timestamp: int) -> ProducerBatch:
        """A new batch at the tail of a queue, whose lock is held.

        Raises:
            Whatever ended the producer.
        """
        with self._lock:
            if self.error is not None:
                raise self.error
            batch = ProducerBatch(queue, buffer, self._next_number, self._clock(), base_timestamp)
            self._next_number += 1
            self._ages.append(batch)
        queue.open = batch
        queue.batches.append(batch)
        self.busy.enter(queue)  # after the batch: the I/O thread takes out a queue that it finds empty
        return batch

    def drop(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Take out a batch that has no rows: nobody waits for it, and it would hold up every flush. The queue's lock is held."""
        queue.batches.pop()
        self.busy.leave_if_empty(queue)
        with self._lock:
            self._ages.remove(batch)
            self._completed.notify_all()

    def insert_half(self, batch: ProducerBatch, half: ProducerBatch) -> None:
        """`half` was split off `batch`, and is as old."""
        with self._lock:
            self._ages.insert(self._ages.index(batch) + 1, half)

    def leave_ended(self) -> None:
        """Batches have ended: those who flush may go on."""
        ages = self._ages
        with self._lock:
            while ages and ages[0].state is not None:
                ages.popleft()
            if self.flushing:
                self._completed.notify_all()

    def next_expiry(self) -> float | None:
        """When the oldest batch expires."""
        ages = self._ages
        return ages[0].created + self.delivery_timeout if ages else None

    def is_expired(self, batch: ProducerBatch, now: float) -> bool:
        """Whether the batch's `delivery.timeout.ms` is over."""
        return now - batch.created >= self.delivery_timeout

    def expired(self, now: float) -> list[ProducerBatch]:
        """The batches whose `delivery.timeout.ms` is over, in the order of their age."""
        ages = self._ages
        if not ages or now - ages[0].created < self.delivery_timeout:
            return []
        with self._lock:
            return [batch for batch in ages if batch.state is None and self.is_expired(batch, now)]

    def end(self, error: Exception) -> Exception:
        """No batch is opened any more; the error that says why, which is the first one given."""
        with self._lock:
            self.error = self.error or error
            return self.error

    def left(self) -> list[ProducerBatch]:
        """The batches that have not ended."""
        with self._lock:
            return [batch for batch in self._ages if batch.state is None]

    def clear(self) -> None:
        """All batches have ended: those who flush may go on."""
        with self._lock:
            self._ages.clear()
            self._completed.notify_all()

    # --- waits of the task threads ----------------------------------------------------------------------------------

    def flush(self) -> None:
        """Have everything sent now, and wait until all that was open at this moment has ended.

        Raises:
            DeliveryTimeout: the I/O thread did not end the batches in time.
        """
        with self._lock:
            self.flushing += 1
            before = self._next_number
        try:
            self._wakeup()
            with self._lock:
                while self._ages and self._ages[0].number < before:
                    if not self._completed.wait(min(self.delivery_timeout + IO_THREAD_GRACE, threading.TIMEOUT_MAX)):
                        raise DeliveryTimeout(
                            "the I/O thread did not end the batches whose delivery.timeout.ms is over"
                        )
        finally:
            with self._lock:
                self.flushing -= 1

    def begin_close(self) -> None:
        """The producer closes: from now on every batch is worth sending, and `check_open` refuses more."""
        self.closing = True
        with self._lock:
            self.flushing += 1

    @contextmanager
    def starve(self) -> Iterator[None]:
        """While the calling thread waits for memory every batch may be worth sending."""
        with self._lock:
            self.starving += 1
        self._wakeup()
        try:
            yield
        finally:
            with self._lock:
                self.starving -= 1

    # --- news for the I/O thread ------------------------------------------------------------------------------------

    def notify(self, queue: PartitionQueue, at: float) -> None:
        """Let the I/O thread look at a partition, by `at` at the latest."""
        self.news.append(queue)
        if at < self._sleeps_until:
            self._sleeps_until = 0.0
            self._wakeup()

    def answer(self, queue: PartitionQueue) -> None:
        """The rows are in for which the I/O thread has waited (`PartitionQueue.awaited`)."""
        queue.awaited = False
        self.notify(queue, 0.0)

    def sleeps(self, until: float | None) -> bool:
        """The I/O thread is about to wait until then (None: for ever); False if there is news, so that it must not."""
        self._sleeps_until = float("inf") if until is None else until
        return not self.news

    def wakes(self) -> None:
        """The I/O thread has woken: news need not wake it."""
        self._sleeps_until = 0.0
