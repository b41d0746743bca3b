"""The batches of one partition, and what the I/O thread must know to choose among them.

Owns: the queue, the batches in flight, the partition's gate.
Must not know: nodes other than as numbers, sequences, or when a batch is worth sending (`readiness`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from spark_producer.accumulator.batch import ProducerBatch

NO_LEADER = -1


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"topic {self.topic!r}, partition {self.partition}"


class Identity(NamedTuple):
    """Producer id and epoch, under which sequences count (KIP-98, KIP-360)."""

    producer_id: int
    epoch: int


NO_IDENTITY = Identity(-1, -1)


class Sequences(NamedTuple):
    """How far a partition has come: the fields of this name in its queue."""

    identity: Identity
    next_sequence: int
    last_acked: int
    last_acked_offset: int


class Gate:
    """What may leave a partition: everything; only batches that have a sequence; nothing until its flights have ended."""

    OPEN = 0
    SEQUENCED_ONLY = 1
    SHUT = 2


class PartitionQueue:
    """Task threads append at the tail, the I/O thread takes from the head.

    `lock` is held by whoever writes to, or closes, the open batch. `open` changes under it; `batches` is appended to
    under it, and popped by the I/O thread alone. All other fields belong to the I/O thread.
    """

    __slots__ = (
        "acquainted", "awaited", "backing_off", "batches", "gate", "identity", "in_flight", "last_acked",
        "last_acked_offset", "leader", "leader_epoch", "lingering", "listed", "lock", "next_sequence", "node", "open",
        "place", "retired", "seen", "taken_at",
    )  # fmt: skip

    def __init__(self, place: TopicPartition) -> None:
        self.place = place
        self.lock = threading.Lock()
        self.batches: deque[ProducerBatch] = deque()
        self.open: ProducerBatch | None = None
        self.awaited = False
        """the I/O thread would have sent the open batch, but rows were coming in; it wants to be woken when they are in"""
        self.retired = False
        """set under `lock`, when it is empty: no batch may be opened here any more, the partition has another queue"""
        self.in_flight: list[ProducerBatch] = []
        """the oldest first; a batch that expired in flight stays until its answer, since its bytes may still be read"""
        self.node = NO_LEADER
        """where the batches in flight went"""
        self.taken_at = 0.0
        """when the last of them went there"""
        self.gate = Gate.OPEN
        # Kept by `readiness`:
        self.seen = -1
        """number of the snapshot of the cluster that `leader` is from; the snapshot itself would outlive its use here"""
        self.leader = NO_LEADER
        self.leader_epoch = -1
        self.listed = False
        self.lingering = -1.0
        self.backing_off = -1.0
        # Kept by the sender (spec: kafka_producer.md §2.13):
        self.identity = NO_IDENTITY
        self.next_sequence = 0
        self.last_acked = -1
        self.last_acked_offset = -1
        self.acquainted = False
        """whether the brokers have acknowledged a batch under the identity: then they know it, and refuse gaps"""

    def begin(self, identity: Identity) -> None:
        """Count sequences from 0 under this producer id and epoch."""
        self.identity = identity
        self.next_sequence = 0
        self.last_acked = self.last_acked_offset = -1
        self.acquainted = False

    @property
    def sequences(self) -> Sequences:
        """What a queue that takes this one's place must know."""
        return Sequences(self.identity, self.next_sequence, self.last_acked, self.last_acked_offset)

    def resume(self, sequences: Sequences) -> None:
        """Count on from where another queue of this partition ended; whether the brokers still know the identity is open."""
        self.identity, self.next_sequence, self.last_acked, self.last_acked_offset = sequences

    def put_back(self, batch: ProducerBatch) -> None:
        """Queue a batch at its place in the order of creation: before all that are younger, or were split off it."""
        batches = self.batches
        if not batches or batches[0].number >= batch.number:
            batches.appendleft(batch)
            return
        with self.lock:  # nobody appends meanwhile
            index = next((i for i, other in enumerate(batches) if other.number >= batch.number), len(batches))
            batches.insert(index, batch)

    def has_earlier(self, batch: ProducerBatch) -> bool:
        """Whether a batch that comes before this one, which is itself neither queued nor in flight, is still there."""
        flying, batches = self.in_flight, self.batches
        return bool((flying and flying[0].number < batch.number) or (batches and batches[0].number < batch.number))


class BusyQueues:
    """About those queues that have batches waiting, so that nobody looks at idle ones.

    Any thread may call. There is no lock: a queue is entered after its batch, and whoever leaves an empty one looks again.
    """

    def __init__(self) -> None:
        self._all: set[PartitionQueue] = set()
        self._by_topic: dict[str, set[PartitionQueue]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[PartitionQueue]:
        return iter(self._all.copy())

    def enter(self, queue: PartitionQueue) -> None:
        """A batch waits in `queue` now."""
        self._all.add(queue)
        of_topic = self._by_topic.get(queue.place.topic)
        if of_topic is None:
            of_topic = self._by_topic.setdefault(queue.place.topic, set())
        of_topic.add(queue)

    def leave_if_empty(self, queue: PartitionQueue) -> None:
        """A batch was taken out of `queue`."""
        if queue.batches:
            return
        self._all.discard(queue)
        of_topic = self._by_topic.get(queue.place.topic)
        if of_topic is not None:
            of_topic.discard(queue)
        if queue.batches:  # one was opened meanwhile
            self.enter(queue)

    def forget(self, topic: str) -> None:
        """Nothing is written to this topic any more; should it be, it is entered anew."""
        queues = self._by_topic.pop(topic, None)
        for queue in queues.copy() if queues else ():
            self.enter(queue)

    def lengths(self, topic: str) -> dict[int, int]:
        """Partition → batches waiting, of one topic; it costs what waits there, not what other topics have."""
        queues = self._by_topic.get(topic)
        if not queues:
            return {}
        return {queue.place.partition: waiting for queue in queues.copy() if (waiting := len(queue.batches))}
