"""The state that task threads and the I/O thread share: the queues, and all incomplete batches (Kafka's IncompleteBatches).

The package has one lock order: first `PartitionQueue.lock` (one appender per partition holds it while it encodes, but never
while it waits for memory), then the lock of this module (for numbers, ages and flushes; it is never held for long) or the
pool's own lock. The I/O thread owns everything else. The deque `IncompleteBatches.changed` has the queues that it must
examine.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from spark_producer.accumulator.batch import PartitionQueue, ProducerBatch
from spark_producer.accumulator.failure_tracking import FailureTracker
from spark_producer.accumulator.nonempty_queues import NonemptyQueues
from spark_producer.accumulator.sequence_state import NO_IDENTITY, Sequences
from spark_producer.common.cluster import ProducerIdAndEpoch, TopicPartition
from spark_producer.errors import DeliveryTimeout, ProducerClosed

IO_THREAD_GRACE = 60.0
"""The seconds that a flush waits for the I/O thread beyond `delivery.timeout.ms`; a slow name look-up may delay it, for
example."""


class IncompleteBatches:
    """The incomplete batches. Task threads open them and wait for their completion, and the I/O thread completes them.

    Any thread may read the public fields. Times are seconds of the injected clock. `wakeup` wakes the I/O thread.
    """

    def __init__(self, *, delivery_timeout: float, clock: Callable[[], float], wakeup: Callable[[], None]) -> None:
        self.delivery_timeout = delivery_timeout
        """maximum seconds from the creation of a batch to its completion"""
        self._clock = clock
        self._wakeup = wakeup
        self._lock = threading.Lock()
        self._completed = threading.Condition(self._lock)
        self._ages: deque[ProducerBatch] = deque()
        """every incomplete batch, the oldest first; complete batches stay until all older ones are complete too"""
        self._next_number = 0
        self._sequences: dict[tuple[str, int], Sequences] = {}
        """the sequences, under the current producer id, of partitions whose queue was retired: a broker remembers them too"""
        self._sleeps_until = float("inf")
        """the time until which the I/O thread sleeps if it is not woken; 0 if it is awake"""
        self._defers_linger = False
        self.queues: dict[tuple[str, int], PartitionQueue] = {}
        """the queues by partition; `queue_of` and `retire_queues` write them"""
        self.nonempty = NonemptyQueues()
        self.changed: deque[PartitionQueue] = deque()
        """partitions that have changed, which the I/O thread must examine"""
        self.flushing = 0
        """the number of threads in a flush, plus one once the producer closes"""
        self.closing = False
        self.starving = 0
        """the number of threads that wait for memory, or are about to wait"""
        self.error: Exception | None = None
        """the error that ended the producer"""
        self.failures = FailureTracker(self._lock)
        """the failed batches, and the threads to which they are to be reported"""

    @property
    def idle(self) -> bool:
        """Whether every batch is complete."""
        return not self._ages

    @property
    def failure(self) -> Exception | None:
        """The error of the first failed batch that no flush has reported."""
        return self.failures.first_unreported()

    def check(self) -> None:
        """Raise the error that ended the producer, if it has ended."""
        if self.error is not None:
            raise self.error

    def check_open(self) -> None:
        """Raise an error unless the producer accepts rows.

        Raises:
            ProducerClosed: the producer is closing.
            The error that ended the producer, if it has ended.
        """
        if self.closing:
            raise ProducerClosed("this producer is closed")
        self.check()

    # --- queues -----------------------------------------------------------------------------------------------------

    def queue_of(self, tp: tuple[str, int]) -> PartitionQueue:
        """Return the queue of a partition; create it if there is none."""
        found = self.queues.get(tp)
        if found is not None:
            return found
        with self._lock:
            queue = self.queues.setdefault(tp, PartitionQueue(TopicPartition(*tp)))
            sequences = self._sequences.pop(tp, None)
            if sequences is not None:
                queue.resume(sequences)
            return queue

    def retire_queues(self, topics: Collection[str], identity: ProducerIdAndEpoch) -> None:
        """Retire the queues of these topics that have no batch waiting or in flight; keep their sequences under `identity`."""
        for queue in list(self.queues.values()):
            if queue.topic_partition.topic in topics and not queue.in_flight and not queue.gate:
                with queue.lock:  # a thread that is about to open a batch here checks `retired` under the lock
                    queue.retired = not queue.batches
                if queue.retired:
                    with self._lock:
                        del self.queues[queue.topic_partition]
                        if queue.identity is identity and queue.identity is not NO_IDENTITY:
                            self._sequences[queue.topic_partition] = queue.sequences
        for topic in topics:
            self.nonempty.forget(topic)

    def forget_sequences(self) -> None:
        """Drop the sequences of retired queues, because another producer id is in use."""
        with self._lock:
            self._sequences.clear()

    # --- batches from their creation to their completion -------------------------------------------------------------

    def open(self, queue: PartitionQueue, buffer: memoryview, base_timestamp: int) -> ProducerBatch:
        """Open a new batch at the tail of a queue. The caller holds the queue's lock.

        Raises:
            The error that ended the producer, if it has ended.
        """
        with self._lock:
            if self.error is not None:
                raise self.error
            batch = ProducerBatch(queue, buffer, self._next_number, self._clock(), base_timestamp)
            self._next_number += 1
            self._ages.append(batch)
        queue.open = batch
        queue.batches.append(batch)
        self.nonempty.add(queue)  # after the append, because the I/O thread takes out a queue that it finds empty
        return batch

    def drop(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Remove a batch without rows, which would block every flush. The caller holds the queue's lock."""
        queue.batches.pop()
        self.nonempty.remove_if_empty(queue)
        with self._lock:
            self._ages.remove(batch)
            self._completed.notify_all()

    def insert_half(self, batch: ProducerBatch, half: ProducerBatch) -> None:
        """Add `half`, which was split off `batch` and has the same age."""
        with self._lock:
            self._ages.insert(self._ages.index(batch) + 1, half)

    def remove_completed(self) -> None:
        """Remove the complete batches at the head, and wake the threads in a flush."""
        ages = self._ages
        with self._lock:
            while ages and ages[0].state is not None:
                ages.popleft()
            if self.flushing:
                self._completed.notify_all()

    def next_expiry(self) -> float | None:
        """Return the time at which the oldest batch expires; None if there is no batch."""
        ages = self._ages
        return ages[0].created + self.delivery_timeout if ages else None

    def is_expired(self, batch: ProducerBatch, now: float) -> bool:
        """Return whether the batch's `delivery.timeout.ms` is over."""
        return now - batch.created >= self.delivery_timeout

    def expired(self, now: float) -> list[ProducerBatch]:
        """Return the batches whose `delivery.timeout.ms` is over, the oldest first."""
        ages = self._ages
        if not ages or now - ages[0].created < self.delivery_timeout:
            return []
        with self._lock:
            return [batch for batch in ages if batch.state is None and self.is_expired(batch, now)]

    def end(self, error: Exception) -> Exception:
        """Forbid new batches, and return the reason, which is the error of the first call."""
        with self._lock:
            self.error = self.error or error
            return self.error

    def remaining(self) -> list[ProducerBatch]:
        """Return the incomplete batches."""
        with self._lock:
            return [batch for batch in self._ages if batch.state is None]

    def clear(self) -> None:
        """Remove all batches, which the caller has completed, and wake the threads that wait in `flush`."""
        with self._lock:
            self._ages.clear()
            self._completed.notify_all()

    def skip_linger(self, on: bool) -> None:
        """Make every batch ready without lingering, as during a flush, from a call with `on` until one without it.

        The end of a transaction needs that.
        """
        with self._lock:
            self.flushing += 1 if on else -1

    def restart_delivery_timeouts(self, now: float) -> None:
        """Restart the `delivery.timeout.ms` of every batch, because the batches were delayed on purpose."""
        with self._lock:
            for batch in self._ages:
                batch.created = now

    # --- waits of the task threads ----------------------------------------------------------------------------------

    def flush(self) -> None:
        """Make all batches ready, and wait until all batches that exist at this moment are complete.

        Raises:
            DeliveryTimeout: the I/O thread did not complete the batches in time.
        """
        with self._lock:
            self.flushing += 1
            first_new = self._next_number
        try:
            self._wakeup()
            with self._lock:
                while self._ages and self._ages[0].number < first_new:
                    if not self._completed.wait(min(self.delivery_timeout + IO_THREAD_GRACE, threading.TIMEOUT_MAX)):
                        raise DeliveryTimeout(
                            "the flush did not end: the I/O thread has not completed batches whose delivery.timeout.ms is over"
                        )
        finally:
            with self._lock:
                self.flushing -= 1

    def begin_close(self) -> None:
        """Begin to close: from now on every batch is ready, and `check_open` raises."""
        self.closing = True
        with self._lock:
            self.flushing += 1

    @contextmanager
    def starve(self) -> Iterator[None]:
        """Record that the calling thread waits for memory; meanwhile every batch may be ready."""
        with self._lock:
            self.starving += 1
        try:
            self._wakeup()  # a system call, after which Python raises KeyboardInterrupt
            yield
        finally:
            with self._lock:
                self.starving -= 1

    # --- changes for the I/O thread ---------------------------------------------------------------------------------

    def notify(self, queue: PartitionQueue, at: float) -> None:
        """Have the I/O thread examine a partition at the time `at` or earlier."""
        self.changed.append(queue)
        if at < self._sleeps_until and not (self._defers_linger and at):
            self._sleeps_until = 0.0
            self._wakeup()

    def defer_linger(self, on: bool) -> None:
        """Let batches that linger wake the I/O thread only with the next flush, or after a call without `on`.

        A caller that is about to flush saves a wake-up between its appends, in which the I/O thread could send nothing. A full
        batch still wakes it at once.
        """
        self._defers_linger = on
        if not on and self.changed and self._sleeps_until:
            self._sleeps_until = 0.0
            self._wakeup()

    def notify_appended(self, queue: PartitionQueue) -> None:
        """Notify the I/O thread that the rows it has waited for are appended (`PartitionQueue.awaited`)."""
        queue.awaited = False
        self.notify(queue, 0.0)

    def sleeps(self, until: float | None) -> bool:
        """Record that the I/O thread is about to sleep until `until` (None: for ever).

        Return False if a queue has changed: do not sleep.
        """
        self._sleeps_until = float("inf") if until is None else until
        return not self.changed

    def wakes(self) -> None:
        """Record that the I/O thread is awake, so that a changed queue need not wake it."""
        self._sleeps_until = 0.0
