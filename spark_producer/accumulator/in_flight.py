"""The I/O thread's side of the accumulator: what is ready, what is taken, how it ends.

Owns: batches from the moment they may be sent until their buffers are back in the pool.
Must not know: requests, sequences, or why a batch failed. Apart from `_lock` and what it guards, and `PartitionQueue.lock`,
everything here belongs to the I/O thread. (Spec: kafka_producer.md §2.6 to §2.8.)
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection

from spark_producer.accumulator.accounts import Accounts
from spark_producer.accumulator.batch import PartitionQueue, ProducerBatch
from spark_producer.accumulator.busy_queues import BusyQueues
from spark_producer.accumulator.compressing import Compression
from spark_producer.accumulator.flights import Flights
from spark_producer.accumulator.pool import BufferPool
from spark_producer.accumulator.readiness import Leaders, Readiness, ReadyCheck
from spark_producer.accumulator.sequence_state import NO_IDENTITY, Identity, Sequences
from spark_producer.accumulator.topic_limits import TopicLimits
from spark_producer.errors import DeliveryTimeout
from spark_producer.record.batch_v2 import NO_SEQUENCE

MOST_SKIPPED_BATCHES = 8
"""After so many batches that do not fit into what is left of a request, a drain stops looking for a smaller one."""

IN_FLIGHT_DIVISOR = 4
"""If batches in flight to nodes that answer hold this part of the pool, a thread that waits for memory gets it from them, and
open batches need not leave half full."""

UNKNOWN_PRODUCER_AFTER = 10.0
"""Seconds without a batch after which a partition's brokers may know the producer no more: its id has expired there, or the
topic was made anew. To ask costs a round trip, a hundredth of that time even if it takes 100 ms."""


class InFlight:
    """Takes batches out of their queues, and brings them to their end or back."""

    def __init__(
        self,
        pool: BufferPool,
        *,
        batch_size: int,
        linger: float,
        delivery_timeout: float,
        keep_order: bool,
        compression: Compression | None = None,
    ) -> None:
        self.pool = pool
        self._compression = compression
        self._linger = linger
        self._delivery_timeout = delivery_timeout
        self._readiness = Readiness(linger=linger, keep_order=keep_order)
        self._queues: dict[tuple[str, int], PartitionQueue] = {}
        self._busy = BusyQueues()
        self._news: deque[PartitionQueue] = deque()
        self._sleeps_until = float("inf")
        """until when the I/O thread sleeps if nobody wakes it; 0 if it is awake"""
        self._lock = threading.Lock()
        self._completed = threading.Condition(self._lock)
        self._ages: deque[ProducerBatch] = deque()
        """every batch that has not ended, the oldest first, and some behind it that have"""
        self._flushing = 0
        self._starving = 0
        """threads that wait for memory, or are about to"""
        self._flights = Flights()
        """of the buffers that the network may read"""
        self._sequences: dict[tuple[str, int], Sequences] = {}
        """of partitions whose queue was given up, under the current identity: a broker remembers them too"""
        self._limits = TopicLimits(batch_size)
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

    @property
    def current_identity(self) -> Identity:
        """Producer id and epoch under which new batches are sent."""
        return self._readiness.current_identity

    @current_identity.setter
    def current_identity(self, identity: Identity) -> None:
        self._readiness.current_identity = identity
        with self._lock:
            self._sequences.clear()

    def ready(self, now: float, leaders: Leaders) -> ReadyCheck:
        """Where there is something to send: batches that are full, have lingered or backed off, or whatever there is
        while a flush is under way, the producer closes, or somebody waits for memory and hardly any is on its way back."""
        hurry, until = self._flushing > 0, None
        if self._starving and not hurry:
            coming, until = self._flights.expected(now)
            hurry = coming < self.pool.total // IN_FLIGHT_DIVISOR
        found = self._readiness.check(now, leaders, hurry, self._news)
        if hurry or until is None or (found.next_time is not None and found.next_time <= until):
            return found
        return found._replace(next_time=until)  # a node may have stalled then

    def drain(self, node: int, room: int, now: float) -> list[ProducerBatch]:
        """Batches for one request to `node`, now in flight: one per partition, the partition that waits longest first.

        They take at most `room` bytes together; but the first may be as large as it is.
        """
        taken: list[ProducerBatch] = []
        queues = self._readiness.listed(node)
        if not queues:
            return taken
        skipped: list[PartitionQueue] = []
        for _ in range(len(queues)):
            queue = queues.popleft()
            if not queue.batches:
                queue.listed = False
                continue
            head = queue.batches[0]
            if taken and head.position - head.begin > room:
                skipped.append(queue)
                if len(skipped) >= MOST_SKIPPED_BATCHES:
                    break
                continue
            queue.listed = False
            if self._readiness.must_wait(queue, head) or self._readiness.backs_off(queue, head, now):
                self._readiness.consider(queue, now)
            elif self._take(queue, head, node, now):
                room -= head.position - head.begin
                taken.append(head)
        queues.extendleft(reversed(skipped))
        return taken

    def _take(self, queue: PartitionQueue, head: ProducerBatch, node: int, now: float) -> bool:
        """Out of the queue and into flight; False if rows are coming in."""
        if not head.closed and not self._close(queue, head):
            return False
        queue.batches.popleft()
        if not queue.batches:
            self._busy.leave_if_empty(queue)
        head.flying = True
        self._flights.took_off(node, head.capacity, now)
        head.drained = now
        head.leader_epoch = queue.leader_epoch
        queue.node = node
        flying = queue.in_flight
        if queue.identity is not self._readiness.current_identity and head.base_sequence == NO_SEQUENCE:
            queue.begin(self._readiness.current_identity)
        elif not flying and now - queue.taken_at >= UNKNOWN_PRODUCER_AFTER:
            queue.acquainted = False
        queue.taken_at = now
        flying.append(head)
        if len(flying) > 1 and flying[-2].number > head.number:
            flying.sort(key=_number)  # one that is sent again is older than those that still fly
        self._readiness.consider(queue, now)
        return True

    def _close(self, queue: PartitionQueue, head: ProducerBatch) -> bool:
        """Close the open batch, unless somebody writes to it: who does so then tells when it is done."""
        queue.awaited = True  # before the attempt: else the end of the append between the two would not see it
        if not queue.lock.acquire(blocking=False):
            return False
        try:
            queue.awaited = False
            mine = queue.open is head  # else it was closed or dropped meanwhile, which is news
            if mine:
                queue.open = None
                self._end_appends(head)
        finally:
            queue.lock.release()
        return mine

    def _end_appends(self, batch: ProducerBatch) -> None:
        """The batch takes no more rows: compress it, and let it be sent. Its queue's lock is held."""
        try:
            if self._compression is not None:
                self._compression.compress(batch)
        finally:
            batch.closed = True

    # --- ends -------------------------------------------------------------------------------------------------------

    def landed(self, batch: ProducerBatch) -> None:
        """The network has answered, or lost, the batch: nobody reads its buffer any more."""
        batch.flying = False
        self._flights.landed(batch.queue.node, batch.capacity)
        batch.queue.in_flight.remove(batch)
        if batch.state is not None:  # it was given up in flight, and its buffer kept until now (KAFKA-19012)
            self._release(batch)

    def put_back(self, batch: ProducerBatch) -> None:
        """Queue a batch again, at its place in the order of creation."""
        batch.attempts += 1
        batch.resent = True
        batch.queue.put_back(batch)
        self._busy.enter(batch.queue)

    def split(self, batch: ProducerBatch) -> None:
        """Queue the two halves of a batch that was refused as too large; they are not its own retries (KIP-126)."""
        self._limits.refused(batch.place.topic, batch.size)
        tail = batch.split() if self._compression is None else self._compression.split(batch)
        batch.queue.put_back(tail)
        batch.queue.put_back(batch)
        self._busy.enter(batch.queue)
        with self._lock:
            index = self._ages.index(batch)
            self._ages.insert(index + 1, tail)

    def complete(self, batch: ProducerBatch, base_offset: int, log_append_time: int) -> None:
        """An acknowledged batch: its memory is free again, its callbacks run, its futures are done."""
        if batch.state is None:
            if self._limits:
                self._limits.taken(batch.place.topic, batch.size)
            self._release(batch)
            batch.complete(base_offset, log_append_time)

    def fail(self, batch: ProducerBatch, error: Exception) -> None:
        """A batch that is given up. If the network may still read its buffer, that stays until `landed`."""
        if batch.state is None:
            self.accounts.record(error, batch.accounts, heard=batch.has_futures)
            if not batch.flying:
                self._release(batch)
            batch.fail(error)

    def settle(self, queues: set[PartitionQueue] | list[PartitionQueue], now: float) -> None:
        """After batches have ended or were put back: look at their partitions again, tell those who flush."""
        for queue in queues:
            self._readiness.consider(queue, now)
        ages = self._ages
        with self._lock:
            while ages and ages[0].state is not None:
                ages.popleft()
            if self._flushing:
                self._completed.notify_all()

    def take_expired(self, now: float) -> list[ProducerBatch]:
        """The batches whose `delivery.timeout.ms` is over, in the order of their age; those that waited are out of their
        queues, those in flight stay there. The caller fails them, and settles."""
        ages = self._ages
        if not ages or now - ages[0].created < self._delivery_timeout:
            return []
        with self._lock:
            expired = [batch for batch in ages if batch.state is None and self.is_expired(batch, now)]
        for batch in expired:
            if not batch.flying:
                self._withdraw(batch)
        return expired

    def is_expired(self, batch: ProducerBatch, now: float) -> bool:
        """Whether the batch's `delivery.timeout.ms` is over."""
        return now - batch.created >= self._delivery_timeout

    def _withdraw(self, batch: ProducerBatch) -> None:
        queue = batch.queue
        if not batch.closed:
            with queue.lock:  # whoever writes to it now is done in a moment
                batch.closed = True
                if queue.open is batch:
                    queue.open = None
        queue.batches.remove(batch)
        self._busy.leave_if_empty(queue)

    def expiry_error(self, batch: ProducerBatch, now: float) -> DeliveryTimeout:
        """What those who wait for an expired batch are told."""
        place = batch.place
        last = f" The last answer: {batch.last_error}." if batch.last_error else ""
        return DeliveryTimeout(
            f"{batch.records_count} records for {place} were not acknowledged within {now - batch.created:.1f} s "
            f"(kafka.delivery.timeout.ms), after {batch.attempts} failed attempts.{last} Look whether the partition has a "
            "leader and enough replicas, or raise the timeout",
            topic=place.topic,
            partition=place.partition,
        )

    def forget(self, topics: Collection[str]) -> None:
        """Give up the queues of topics that nobody writes to any more, as far as nothing waits or flies there."""
        for queue in list(self._queues.values()):
            if queue.place.topic in topics and not queue.in_flight and not queue.gate:
                with queue.lock:  # a thread that is about to open a batch here looks whether it may
                    queue.retired = not queue.batches
                if queue.retired:
                    with self._lock:
                        del self._queues[queue.place]
                        if queue.identity is self._readiness.current_identity and queue.identity is not NO_IDENTITY:
                            self._sequences[queue.place] = queue.sequences
        for topic in topics:
            self._limits.forget(topic)
            self._busy.forget(topic)

    def next_expiry(self) -> float | None:
        """When the oldest batch expires."""
        ages = self._ages
        return ages[0].created + self._delivery_timeout if ages else None

    def abort(self, error: Exception) -> None:
        """End everything with `error`, the first one given: waits wake up, all batches are aborted, nothing more is taken.

        Buffers that the network may read stay where they are; those of waiting batches go back.
        """
        with self._lock:
            self.error = error = self.error or error
        self.pool.close()
        for queue in list(self._queues.values()):
            with queue.lock:
                queue.open = None
        with self._lock:
            left = list(self._ages)
        for batch in left:
            if batch.state is None:
                batch.closed = True
                if not batch.flying:
                    self._release(batch)
                batch.abort(error)
        for queue in list(self._queues.values()):
            queue.batches.clear()
        self._readiness.clear()
        with self._lock:
            self._ages.clear()
            self._completed.notify_all()

    def network_closed(self) -> None:
        """After `abort`: nobody reads the buffers of batches in flight any more, and no answer will come for them."""
        for queue in list(self._queues.values()):
            for batch in list(queue.in_flight):
                self.landed(batch)

    def _release(self, batch: ProducerBatch) -> None:
        buffer = batch.take_buffer()
        if buffer is not None:
            self.pool.release(buffer)


def _number(batch: ProducerBatch) -> int:
    return batch.number
