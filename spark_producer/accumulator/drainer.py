"""Chooses the batches to send now, and takes them from their queues (Kafka's `RecordAccumulator.ready` and `drain`).

Everything here belongs to the I/O thread, except for the state that `IncompleteBatches` shares.
"""

from __future__ import annotations

from collections.abc import Collection

from spark_producer.accumulator.batch import PartitionQueue, ProducerBatch
from spark_producer.accumulator.compressing import close_for_appends
from spark_producer.accumulator.readiness import Leaders, ReadyCheck
from spark_producer.accumulator.state import AccumulatorState
from spark_producer.common.cluster import ProducerIdAndEpoch, TopicPartition
from spark_producer.record.batch_v2 import NO_SEQUENCE

MAX_SKIPPED_BATCHES = 8
"""Maximum number of batches that a drain skips because they do not fit into the rest of a request."""

IN_FLIGHT_DIVISOR = 4
"""If batches in flight to responsive nodes hold at least one in this many bytes of the pool, a thread that waits for memory gets
it from them, and open batches need not be sent half full."""

UNKNOWN_PRODUCER_AFTER = 10.0
"""Seconds without a batch after which a partition's brokers may no longer know the producer id, because it has expired there or
the topic was created again. To find out costs a round trip, a hundredth of that time even if it takes 100 ms."""


class Drainer:
    """Finds the nodes that batches are ready for, and takes the batches of a request. Only the I/O thread calls it."""

    def __init__(self, state: AccumulatorState) -> None:
        self._incomplete = state.incomplete
        self._nonempty = state.incomplete.nonempty
        self._readiness = state.readiness
        self._in_flight_bytes = state.in_flight_bytes
        self._limits = state.limits
        self._compression = state.compression
        self._enough = state.pool.total // IN_FLIGHT_DIVISOR

    @property
    def current_identity(self) -> ProducerIdAndEpoch:
        """The producer id and epoch under which new batches are sent."""
        return self._readiness.current_identity

    @current_identity.setter
    def current_identity(self, identity: ProducerIdAndEpoch) -> None:
        self._readiness.current_identity = identity
        self._incomplete.forget_sequences()

    def ready(self, now: float, leaders: Leaders) -> ReadyCheck:
        """Return the nodes for which there is something to send: batches that are full, have lingered or have backed off.

        Every batch counts while a flush is under way, while the producer closes, or while a thread waits for memory and too
        little of it is in flight to nodes that answer.
        """
        incomplete = self._incomplete
        skip_linger, until = incomplete.flushing > 0, None
        if incomplete.starving and not skip_linger:
            coming, until = self._in_flight_bytes.expected(now)
            skip_linger = coming < self._enough
        found = self._readiness.check(now, leaders, skip_linger, incomplete.changed)
        if skip_linger or until is None or (found.next_time is not None and found.next_time <= until):
            return found
        return found._replace(next_time=until)  # a node may have stalled then

    def drain(self, node: int, max_bytes: int, now: float) -> list[ProducerBatch]:
        """Put the batches for one request to `node` in flight, and return them.

        There is one per partition, and the partition that waits longest comes first. Together they take at most `max_bytes`,
        except that the first may be of any size.
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
            if taken and head.position - head.begin > max_bytes:
                skipped.append(queue)
                if len(skipped) >= MAX_SKIPPED_BATCHES:
                    break
                continue
            queue.listed = False
            if self._readiness.must_not_leave(queue, head, now):
                self._readiness.consider(queue, now)
            elif self._take(queue, head, node, now):
                max_bytes -= head.position - head.begin
                taken.append(head)
        queues.extendleft(reversed(skipped))
        return taken

    def admit(self, partitions: Collection[TopicPartition] | None, now: float) -> None:
        """Drain these partitions only, which are in the transaction; None for all."""
        self._readiness.admit(partitions, now)

    def forget(self, topics: Collection[str]) -> None:
        """Retire the queues of topics that are no longer written to, if no batch waits or is in flight there."""
        self._incomplete.retire_queues(topics, self._readiness.current_identity)
        for topic in topics:
            self._limits.forget(topic)

    def _take(self, queue: PartitionQueue, head: ProducerBatch, node: int, now: float) -> bool:
        """Take the head of the queue, which is then in flight; return False if a thread is appending rows to it."""
        if not head.closed and not self._close(queue, head):
            return False
        queue.batches.popleft()
        if not queue.batches:
            self._nonempty.remove_if_empty(queue)
        head.in_flight = True
        self._in_flight_bytes.add(node, head.capacity, now)
        head.drained = now
        head.leader_epoch = queue.leader_epoch
        queue.node = node
        in_flight = queue.in_flight
        if queue.identity is not self._readiness.current_identity and head.base_sequence == NO_SEQUENCE:
            queue.begin(self._readiness.current_identity)
        elif not in_flight and now - queue.drained_at >= UNKNOWN_PRODUCER_AFTER:
            queue.known_to_broker = False
        queue.drained_at = now
        in_flight.append(head)
        if len(in_flight) > 1 and in_flight[-2].number > head.number:
            in_flight.sort(key=_number)  # a batch that is sent again is older than those still in flight
        self._readiness.consider(queue, now)
        return True

    def _close(self, queue: PartitionQueue, head: ProducerBatch) -> bool:
        """Close the open batch, unless a thread is writing to it; that thread then notifies the I/O thread."""
        queue.awaited = True  # set before the attempt, or an append that ends between the two would not see it
        if not queue.lock.acquire(blocking=False):
            return False
        try:
            queue.awaited = False
            mine = queue.open is head  # otherwise it was closed or dropped meanwhile, and its queue is in `changed`
            if mine:
                queue.open = None
                close_for_appends(head, self._compression)
        finally:
            queue.lock.release()
        return mine


def _number(batch: ProducerBatch) -> int:
    return batch.number
