"""The partitions with a ready batch, listed by leader (Kafka's RecordAccumulator.ready).

A partition is examined (`consider`) when it changes, or when its linger or back-off is over, never because others are ready:
with one active partition among 5,000 only that one costs time. Everything here belongs to the I/O thread.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection
from typing import NamedTuple, Protocol

from spark_producer.accumulator.batch import PartitionQueue, ProducerBatch
from spark_producer.accumulator.sequence_state import NO_IDENTITY, DrainGate
from spark_producer.common.cluster import NO_LEADER, TopicPartition
from spark_producer.record.batch_v2 import NO_SEQUENCE

NO_TOPICS: frozenset[str] = frozenset()
NO_PARTITIONS: frozenset[TopicPartition] = frozenset()
_NO_QUEUES: deque[PartitionQueue] = deque()


class Leaders(Protocol):
    """A snapshot of the cluster."""

    @property
    def number(self) -> int:
        """A number that differs between snapshots."""

    def leader_of(self, tp: TopicPartition) -> tuple[int, int]:
        """Return the leader of a partition, or `NO_LEADER` if it is unknown, and the leader epoch."""


class ReadyCheck(NamedTuple):
    """The nodes that have a ready batch, the time at which the next batch is ready, and topics with batches for unknown leaders.

    `not_admitted` are the partitions with batches that must wait until their partition is in the transaction.
    """

    nodes: list[int]
    next_time: float | None
    unknown_leaders: frozenset[str]
    not_admitted: frozenset[TopicPartition] = NO_PARTITIONS


class Readiness:
    """The partitions that are listed for a node, lingering, or backing off; each is in at most one of these three states.

    All other partitions wait for a response, or have nothing to send.
    """

    def __init__(self, *, linger: float, keep_order: bool) -> None:
        self._linger = linger
        self._keep_order = keep_order
        self._leaders: Leaders | None = None
        self._skip_linger = False
        self._nodes: dict[int, deque[PartitionQueue]] = {}
        self._lingering: list[tuple[float, int, PartitionQueue]] = []
        self._backing_off: list[tuple[float, int, PartitionQueue]] = []
        self._entries = 0
        self.current_identity = NO_IDENTITY
        """the producer id and epoch in use; a partition under another one completes its batches in flight before it sends more"""
        self.admitted: Collection[TopicPartition] | None = None
        """the partitions whose new batches may be sent, because they are in the transaction; None for all"""
        self._not_admitted: set[PartitionQueue] = set()

    def linger_end(self, batch: ProducerBatch) -> float:
        """Return the time at which an open batch is sent although it is not full. Any thread may call this."""
        return batch.created + self._linger

    def admit(self, partitions: Collection[TopicPartition] | None, now: float) -> None:
        """Admit the batches of these partitions only (None: of all), and examine again those that were not admitted."""
        self.admitted = partitions
        waiting, self._not_admitted = self._not_admitted, set()
        for queue in waiting:
            self.consider(queue, now)

    def check(self, now: float, leaders: Leaders, skip_linger: bool, changed: deque[PartitionQueue]) -> ReadyCheck:
        """List the partitions whose linger or back-off is over for their nodes, and return the nodes that are ready.

        With `skip_linger` no batch lingers. The queues in `changed` are examined, and removed from it.
        """
        if leaders is not self._leaders:
            self._leaders = leaders
            self._regroup(now)
        self._skip_linger = skip_linger
        if skip_linger and self._lingering:
            waiting, self._lingering = self._lingering, []
            for _, _, queue in waiting:
                queue.lingering = -1.0
                self.consider(queue, now)
        while changed:
            self.consider(changed.popleft(), now)
        lingering, backing_off = self._lingering, self._backing_off
        while lingering and lingering[0][0] <= now:
            queue = heapq.heappop(lingering)[2]
            queue.lingering = -1.0
            self.consider(queue, now)
        while backing_off and backing_off[0][0] <= now:
            at, _, queue = heapq.heappop(backing_off)
            if queue.backing_off == at:
                queue.backing_off = -1.0
            self.consider(queue, now)
        next_time = lingering[0][0] if lingering else None
        if backing_off and (next_time is None or backing_off[0][0] < next_time):
            next_time = backing_off[0][0]
        nodes = [node for node, queues in self._nodes.items() if queues and node != NO_LEADER]
        leaderless = self._leaderless()
        topics = frozenset([queue.topic_partition.topic for queue in leaderless]) if leaderless else NO_TOPICS
        kept_back = NO_PARTITIONS
        if self._not_admitted:
            kept_back = frozenset([queue.topic_partition for queue in self._not_admitted if queue.batches])
        return ReadyCheck(nodes, next_time, topics, kept_back)

    def _leaderless(self) -> deque[PartitionQueue]:
        """Return the listed partitions without a leader, after removing those whose batches are complete meanwhile."""
        queues = self._nodes.get(NO_LEADER, _NO_QUEUES)
        if not all(queue.batches for queue in queues):
            for queue in queues:
                queue.listed = bool(queue.batches)
            queues = self._nodes[NO_LEADER] = deque(queue for queue in queues if queue.listed)
        return queues

    def consider(self, queue: PartitionQueue, now: float) -> None:
        """List a partition for its node, or enter it as lingering, backing off or not admitted."""
        batches = queue.batches
        if queue.listed or not batches:
            return
        head = batches[0]
        if self._leaders is not None and queue.leaders_number != self._leaders.number:
            queue.leaders_number = self._leaders.number
            queue.leader, queue.leader_epoch = self._leaders.leader_of(queue.topic_partition)
        if self.must_wait(queue, head):
            return
        if self.admitted is not None and queue.topic_partition not in self.admitted:
            self._not_admitted.add(queue)
            return
        if self.backs_off(queue, head, now):
            if queue.backing_off < 0 or head.retry_at < queue.backing_off:
                queue.backing_off = head.retry_at
                self._enter(self._backing_off, head.retry_at, queue)
            return
        if not (head.closed or self._skip_linger):
            due = self.linger_end(head)
            if due > now:
                if queue.lingering < 0:  # else the entry of an earlier head brings the queue here again in time
                    queue.lingering = due
                    self._enter(self._lingering, due, queue)
                return
        queue.listed = True
        queues = self._nodes.get(queue.leader)
        if queues is None:
            queues = self._nodes[queue.leader] = deque()
        queues.append(queue)

    def listed(self, node: int) -> deque[PartitionQueue] | None:
        """Return the ready partitions of a node, the longest ready first. A caller that removes one clears its `listed`."""
        return self._nodes.get(node)

    def must_wait(self, queue: PartitionQueue, head: ProducerBatch) -> bool:
        """Return whether the head must wait for the response to a batch in flight, or until the sender opens the gate.

        A batch that is sent again goes alone and in order, because later ones would overtake it if it failed again. New batches
        wait for it too: if it was written and only its response was lost, five later batches would make the broker forget it,
        and its next retry would look like a gap. A former leader must respond before the next one is used, or more than five
        batches could be in doubt.

        Brokers accept any first sequence from a producer that they do not know in a partition (Kafka's ProducerAppendInfo). If
        they rejected the first batch and accepted the second, the order would change, and no gap would be seen. So the first
        batch is sent alone until it is acknowledged, as in franz-go (`okOnSink`), which costs one round trip.
        """
        fresh = head.base_sequence == NO_SEQUENCE
        if queue.gate and (fresh or queue.gate == DrainGate.SHUT):
            return True
        if queue.gate == DrainGate.RENUMBER and head.number >= queue.renumber_from_batch:
            return True
        in_flight = queue.in_flight
        if not in_flight:
            return False
        if queue.node != queue.leader or (fresh and queue.identity is not self.current_identity):
            return True
        if not queue.known_to_broker and queue.identity is not NO_IDENTITY:
            return True
        oldest = in_flight[0]
        return oldest.number <= head.number and (self._keep_order or head.resent or oldest.resent)

    def must_not_leave(self, queue: PartitionQueue, head: ProducerBatch, now: float) -> bool:
        """Return whether a listed head must not be sent, because its partition has changed since it was listed."""
        if self.must_wait(queue, head) or self.backs_off(queue, head, now):
            return True
        return self.admitted is not None and queue.topic_partition not in self.admitted

    def backs_off(self, queue: PartitionQueue, head: ProducerBatch, now: float) -> bool:
        """Return whether the head pauses before it is sent again. A leader newer than the one that rejected it ends the pause."""
        return head.retry_at > now and head.leader_epoch >= queue.leader_epoch

    def clear(self) -> None:
        """Remove all partitions, because the producer closes."""
        self._nodes.clear()
        self._lingering.clear()
        self._backing_off.clear()
        self._not_admitted.clear()

    def _enter(self, heap: list[tuple[float, int, PartitionQueue]], at: float, queue: PartitionQueue) -> None:
        self._entries += 1  # breaks ties, since queues cannot be compared
        heapq.heappush(heap, (at, self._entries, queue))

    def _regroup(self, now: float) -> None:
        """Examine again all partitions that are listed or backing off, because the leaders have changed."""
        listed = [queue for queues in self._nodes.values() for queue in queues]
        waiting = [queue for _, _, queue in self._backing_off]
        self._nodes.clear()
        self._backing_off.clear()
        for queue in listed:
            queue.listed = False
        for queue in waiting:
            queue.backing_off = -1.0
        for queue in (*listed, *waiting):
            self.consider(queue, now)
