"""The markers of decided transactions, until each is written and confirmed (Kafka's TransactionMarkerChannelManager)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from spark_producer.broker.coordinator.transactions import Transaction, TransactionState
from spark_producer.broker.log.partition import Partition
from spark_producer.broker.topic_store import TopicStore
from spark_producer.common.cluster import TopicPartition
from spark_producer.common.error_codes import Code
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import BrokerError

logger = escaping_logger(__name__)

COORDINATOR_EPOCH: Final = 0
"""The coordinator epoch of every marker; it never changes, because the broker has one coordinator."""

_SUPERSEDED: Final = frozenset({Code.INVALID_PRODUCER_EPOCH, Code.TRANSACTION_COORDINATOR_FENCED})
"""The errors of a partition that has a newer marker, which an administrator wrote."""


class PendingMarkers:
    """The markers that are not written or not confirmed yet, by transactional id. Only the broker's thread uses it."""

    def __init__(self, topics: TopicStore) -> None:
        self._topics = topics
        self._changed: dict[TopicPartition, None] = {}
        self._unwritten: dict[str, list[TopicPartition]] = {}
        """The partitions of each decided transaction that have no marker yet."""
        self._failed: set[str] = set()
        """The transactions whose markers the disk refused: they are retried after `retry_failed`."""
        self._unconfirmed: dict[str, list[tuple[TopicPartition, Partition, int]]] = {}
        """The partition and the offset of each marker that is written and not confirmed yet."""

    def add(self, transactional_id: str, transaction: Transaction) -> None:
        """Add the markers of a transaction that was just decided."""
        self._unwritten[transactional_id] = sorted(transaction.partitions)

    def remove(self, transactional_id: str) -> None:
        """Remove a transaction that is complete."""
        del self._unwritten[transactional_id]

    def fail(self, transactional_id: str) -> None:
        """Suspend a transaction until `retry_failed`."""
        self._failed.add(transactional_id)

    def retry_failed(self) -> None:
        """Make all suspended transactions ready again."""
        self._failed.clear()

    def ready(self) -> list[tuple[str, int]]:
        """Return the transactional ids that are not suspended, oldest decision first, with their number of unwritten markers."""
        return [(name, len(markers)) for name, markers in self._unwritten.items() if name not in self._failed]

    @property
    def has_work(self) -> bool:
        """Whether `write` is due for a transaction: not if each one is suspended, or only waits for confirmations."""
        waiting = self._unconfirmed.keys() - self._failed
        return len(self._unwritten) > len(self._failed) + sum(not self._unwritten[each] for each in waiting)

    def take_changed(self) -> tuple[TopicPartition, ...]:
        """Return the partitions that got markers since the last call."""
        changed, self._changed = tuple(self._changed), {}
        return changed

    def write(self, transactional_id: str, transaction: Transaction, now_ms: int, max_markers: int) -> bool:
        """Write up to `max_markers` markers of a transaction; return whether all of them are written and confirmed.

        A marker that the disk refuses is retried later, since no client waits for its error.
        """
        unwritten = self._unwritten[transactional_id]
        next_ones, unwritten[:] = unwritten[:max_markers], unwritten[max_markers:]
        refused = [tp for tp in next_ones if not self._write(transactional_id, transaction, tp, now_ms)]
        refused += self._check_unconfirmed(transactional_id)
        unwritten += refused
        if refused:
            self.fail(transactional_id)
        return not unwritten and transactional_id not in self._unconfirmed

    def _write(self, transactional_id: str, transaction: Transaction, tp: TopicPartition, now_ms: int) -> bool:
        """Write one marker; return whether it is written, or obsolete because the topic is gone or has a newer epoch."""
        try:
            partition = self._topics.partition(*tp)
        except BrokerError:
            return True
        commit = transaction.state is TransactionState.PREPARE_COMMIT
        try:
            offset = partition.write_marker(
                transaction.producer_id, transaction.epoch, commit, COORDINATOR_EPOCH, now_ms=now_ms
            )
            if not partition.log.is_confirmed(offset):
                self._unconfirmed.setdefault(transactional_id, []).append((tp, partition, offset))
        except BrokerError as error:
            logger.error("topic %s, partition %d: no marker was written: %s", *tp, error)
            return error.code in _SUPERSEDED
        self._changed[tp] = None
        return True

    def _check_unconfirmed(self, transactional_id: str) -> Iterable[TopicPartition]:
        """Drop the markers that are confirmed; return the partitions whose marker is lost."""
        lost = []
        for tp, written, offset in self._unconfirmed.pop(transactional_id, ()):
            try:
                partition = self._topics.partition(*tp)
            except BrokerError:
                continue  # the topic is gone
            try:
                if partition is written and not partition.log.is_confirmed(offset):  # else the topic was created again
                    self._unconfirmed.setdefault(transactional_id, []).append((tp, partition, offset))
            except BrokerError as error:
                logger.error("topic %s, partition %d: the marker at offset %d is lost: %s", *tp, offset, error)
                lost.append(tp)
        return lost
