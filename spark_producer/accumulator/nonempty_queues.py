"""The partitions with waiting batches, so that loops over partitions skip the idle ones."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from spark_producer.accumulator.batch import PartitionQueue

_NONE: set[PartitionQueue] = set()


class NonemptyQueues:
    """The queues with waiting batches, as far as can be known without a lock.

    Any thread may call. A queue is added after its batch was appended, and the thread that removes an empty queue checks again.
    """

    def __init__(self) -> None:
        self._all: set[PartitionQueue] = set()
        self._by_topic: dict[str, set[PartitionQueue]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[PartitionQueue]:
        return iter(self._all.copy())

    def add(self, queue: PartitionQueue) -> None:
        """Add `queue`, in which a batch waits now."""
        self._all.add(queue)
        of_topic = self._by_topic.get(queue.topic_partition.topic)
        if of_topic is None:
            of_topic = self._by_topic.setdefault(queue.topic_partition.topic, set())
        of_topic.add(queue)

    def remove_if_empty(self, queue: PartitionQueue) -> None:
        """Remove `queue` if no batch waits in it any more."""
        if queue.batches:
            return
        self._all.discard(queue)
        of_topic = self._by_topic.get(queue.topic_partition.topic)
        if of_topic is not None:
            of_topic.discard(queue)
        if queue.batches:  # one was opened meanwhile
            self.add(queue)

    def forget(self, topic: str) -> None:
        """Remove a topic that is no longer written to. Its queues that still have batches are added again."""
        queues = self._by_topic.pop(topic, None)
        for queue in queues.copy() if queues else ():
            self.add(queue)

    def of_topics(self, topics: Collection[str]) -> list[PartitionQueue]:
        """Return the queues of these topics in which batches wait."""
        return [queue for topic in topics for queue in self._by_topic.get(topic, _NONE).copy()]

    def lengths(self, topic: str) -> dict[int, int]:
        """Map each partition of one topic to its number of waiting batches. The cost does not depend on other topics."""
        queues = self._by_topic.get(topic)
        if not queues:
            return {}
        return {queue.topic_partition.partition: waiting for queue in queues.copy() if (waiting := len(queue.batches))}
