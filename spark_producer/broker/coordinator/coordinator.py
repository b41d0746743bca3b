"""The coordinator of the broker: it applies the rules to each transactional id, logs the result, and has the markers written.

Every change is in the log before a client learns of it. One entry decides the outcome of a transaction; its markers follow at
once, or in the next turns of the server's loop if they are many. Until all of them are written, and confirmed by the storage, the
id responds with CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from spark_producer.broker.coordinator import ending, transactions
from spark_producer.broker.coordinator.entries import (
    GROUP_WEIGHT,
    CoordinatorState,
    Entry,
    OffsetsCommitted,
    OffsetsDeleted,
    PartitionsAdded,
    PendingOffsets,
    PendingOffsetsEnded,
    TransactionExpired,
    TransactionSet,
    merge_added,
)
from spark_producer.broker.coordinator.groups.registry import Groups
from spark_producer.broker.coordinator.log import NOTE_INTERVAL_S, CoordinatorLog
from spark_producer.broker.coordinator.markers import PendingMarkers
from spark_producer.broker.coordinator.offsets import CommittedOffset, OffsetStore, weight
from spark_producer.broker.coordinator.transactions import DECIDED, UNSET, Transaction, TransactionState
from spark_producer.broker.log_quoting import quoted
from spark_producer.broker.settings import BrokerSettings
from spark_producer.broker.topic_store import TopicStore
from spark_producer.common.cluster import ProducerIdAndEpoch, TopicPartition
from spark_producer.common.error_codes import Code
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import BrokerError, CorruptRecord

logger = escaping_logger(__name__)

MAX_MARKERS_AT_ONCE: Final = 200
"""Maximum number of markers that are written before the broker serves clients again: some 10 ms."""

MAX_NAME_LENGTH: Final = 255
"""Maximum length of a transactional id or group id: thousands are kept for days, and rewritten with the log."""

NO_PRODUCER: Final = ProducerIdAndEpoch(UNSET, UNSET)
"""The producer id and epoch of a response without one."""


class BrokerCoordinator:
    """The transactions, groups and committed offsets of a broker. Only the broker's thread uses it.

    groups: the groups with members. They are in memory only: after a restart members join again.
    """

    def __init__(
        self,
        topics: TopicStore,
        settings: BrokerSettings,
        time_of_day: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Load the log from the data directory of `topics`, and complete the transactions that were decided before the broker
        died.

        Raises:
            CorruptRecord: the log is damaged; the message says what to do.
            OSError: the disk refused.
        """
        self._topics = topics
        self._settings = settings
        self._time_of_day, self._clock = time_of_day, clock
        self._next_note = clock() + NOTE_INTERVAL_S
        self._state = CoordinatorState()
        self.groups = Groups(settings.groups, clock)
        self._markers = PendingMarkers(topics)
        self._log = CoordinatorLog(
            topics.directory.path,
            sync=settings.sync_each_append,
            known_bytes=topics.directory.coordinator_bytes,
            note_length=topics.directory.store_coordinator_bytes,
            skip_damage=settings.skip_damage,
            check_moved=topics.directory.check_moved,
        )
        entries = self._log.read()
        self._apply(entries)
        if self._log.was_damaged or len(entries) > 1 + 2 * len(self._state.transactions):
            self._rewrite()
        self._forget_missing_topics()
        for transactional_id, transaction in self._state.transactions.items():
            if transaction.state in DECIDED:
                self._markers.add(transactional_id, transaction)
        for transactional_id, count in self._markers.ready():
            self._finish(transactional_id, count)

    def _apply(self, entries: Iterable[Entry]) -> None:
        """Apply the entries of the log; skip contradictory ones if the log was damaged.

        Raises:
            CorruptRecord: an undamaged log contradicts itself.
        """
        for entry in merge_added(entries):
            try:
                self._state.apply(entry)
            except ValueError as error:
                text = f"the coordinator's log in {self._topics.directory.path} contradicts itself: {error}"
                if not self._log.was_damaged:
                    self._log.close()
                    raise CorruptRecord(text) from error
                logger.error("%s; this entry is skipped", text)

    def _forget_missing_topics(self) -> None:
        """Delete the offsets of deleted topics, if a crash came between the two deletions."""
        named = {topic for _, (topic, _) in self.offsets.partitions()}
        try:
            self.forget_topics({topic for topic in named if self._topics.get(topic) is None})
        except BrokerError as error:
            logger.error("the offsets of groups for deleted topics could not be deleted: %s", error)

    @property
    def transactions(self) -> Mapping[str, Transaction]:
        """The state of every transactional id."""
        return self._state.transactions

    @property
    def offsets(self) -> OffsetStore:
        """The offsets of all groups; read only."""
        return self._state.offsets

    def now_ms(self) -> int:
        """Return the time of day in milliseconds since 1970."""
        return int(self._time_of_day() * 1000)

    def take_changed(self) -> tuple[TopicPartition, ...]:
        """Return the partitions that got markers since the last call."""
        return self._markers.take_changed()

    # --- requests --------------------------------------------------------------------------------------------------------

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdAndEpoch | None
    ) -> tuple[Code, ProducerIdAndEpoch]:
        """Assign the id to a new producer, or raise the epoch of its current one. An open transaction is aborted first.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR, or POLICY_VIOLATION if there are too many ids.
        """
        if not 0 < timeout_ms <= self._settings.transaction_max_timeout_ms:
            return Code.INVALID_TRANSACTION_TIMEOUT, NO_PRODUCER
        current = self.transactions.get(transactional_id)
        if current is None:
            self._check_id_limit(transactional_id)
        now = self.now_ms()
        step = transactions.init_producer_id(current, expected, timeout_ms, self._topics.directory.new_producer_id, now)
        if step.transaction is not None:
            self._store([TransactionSet(transactional_id, step.transaction)])
            return Code.NONE, ProducerIdAndEpoch(step.transaction.producer_id, step.transaction.epoch)
        if (
            step.code == Code.CONCURRENT_TRANSACTIONS
            and current is not None
            and current.state is TransactionState.ONGOING
        ):
            self._decide(transactional_id, self._fence(current, now))
        return step.code, NO_PRODUCER

    def _check_id_limit(self, transactional_id: str) -> None:
        if len(transactional_id) > MAX_NAME_LENGTH:
            raise BrokerError(
                f"transactional id {quoted(transactional_id)} exceeds {MAX_NAME_LENGTH} characters",
                code=Code.INVALID_REQUEST,
            )
        if len(self.transactions) >= self._settings.max_transactional_ids:
            raise BrokerError(
                f"there are {len(self.transactions)} transactional ids, the maximum of BrokerSettings.max_transactional_ids",
                code=Code.POLICY_VIOLATION,
            )

    def add(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition] = (),
        groups: Collection[str] = (),
    ) -> Code:
        """Add partitions and groups to a transaction, which begins with the first of them.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR, or POLICY_VIOLATION if there are too many.
        """
        current = self.transactions.get(transactional_id)
        now = self.now_ms()
        step = transactions.add_partitions(current, producer, partitions, groups, now)
        if step.transaction is None or current is None:
            return step.code
        after = step.transaction
        more_partitions, more_groups = after.partitions - current.partitions, after.groups - current.groups
        self._check_partition_limit(len(more_partitions) + GROUP_WEIGHT * len(more_groups))
        if current.state is TransactionState.ONGOING:
            self._store([PartitionsAdded(transactional_id, tuple(more_partitions), tuple(more_groups), now)])
        else:
            self._store([TransactionSet(transactional_id, after)])
        return step.code

    def _check_partition_limit(self, more: int) -> None:
        if self._state.open_partitions + more > self._settings.max_transaction_partitions:
            raise BrokerError(
                f"open transactions have {self._state.open_partitions} partitions, and {more} more would exceed the maximum "
                "(BrokerSettings.max_transaction_partitions)",
                code=Code.POLICY_VIOLATION,
            )

    def check_partition(self, transactional_id: str, producer: ProducerIdAndEpoch, partition: TopicPartition) -> Code:
        """Return whether the producer's transaction may write to a partition: only to one that was added to it."""
        current = self.transactions.get(transactional_id)
        is_added = current is not None and partition in current.partitions
        return transactions.verify(current, producer, is_added=is_added)

    def check_group(self, transactional_id: str, producer: ProducerIdAndEpoch, group: str) -> Code:
        """Return whether the producer's transaction may commit offsets of a group, which must have been added."""
        current = self.transactions.get(transactional_id)
        return transactions.verify(current, producer, is_added=current is not None and group in current.groups)

    def put_offsets(self, producer_id: int, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Store offsets that take effect if the producer's transaction commits. The caller has checked the transaction.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR, or POLICY_VIOLATION if there are too many.
        """
        self._check_offset_limit(weight(group, offsets.values()))
        self._store([PendingOffsets(producer_id, group, offsets)])

    def _check_offset_limit(self, more: int) -> None:
        kept = self.offsets.weight
        if more > 0 and kept + more > self._settings.max_committed_offsets:
            raise BrokerError(
                f"{kept} offsets are stored, and {more} more would exceed max_committed_offsets. Raise it, or delete groups",
                code=Code.POLICY_VIOLATION,
            )

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit offsets of a group. The caller has checked the client's membership.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR, or POLICY_VIOLATION if there are too many.
        """
        self._check_offset_limit(self.offsets.added_weight(group, offsets))
        self._store([OffsetsCommitted(group, offsets)])

    def delete_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete the offsets that a group has for `partitions`: committed ones, and those pending in open transactions, as
        Kafka's OffsetMetadataManager does.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """
        known = self.offsets.partitions_of(group)
        gone = tuple(each for each in partitions if each in known)
        if gone:
            self._store([OffsetsDeleted(group, gone)])

    def forget_topics(self, topics: Collection[str]) -> None:
        """Delete the offsets of all groups for deleted topics: they are wrong for later topics of the same names.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """
        gone: dict[str, dict[TopicPartition, None]] = {}
        for group, partition in self.offsets.partitions():
            if partition[0] in topics:
                gone.setdefault(group, {})[partition] = None
        entries: list[Entry] = [OffsetsDeleted(group, tuple(partitions)) for group, partitions in gone.items()]
        if entries:
            self._store(entries)

    def end(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, commit: bool, implicit: bool
    ) -> tuple[Code, ProducerIdAndEpoch]:
        """Commit or abort a transaction. Return the error code, and the producer id and epoch of the next transaction.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """
        current = self.transactions.get(transactional_id)
        step = ending.end_transaction(
            current,
            producer,
            commit=commit,
            implicit=implicit,
            new_producer_id=self._topics.directory.new_producer_id,
            now_ms=self.now_ms(),
        )
        if step.transaction is not None:
            self._decide(transactional_id, step.transaction)
            return step.code, _next_producer(step.transaction)
        if step.code == Code.NONE and current is not None:
            return step.code, ProducerIdAndEpoch(current.producer_id, current.epoch)
        return step.code, NO_PRODUCER

    # --- background work -----------------------------------------------------------------------------------------------------

    @property
    def has_markers_to_write(self) -> bool:
        """Whether `write_markers` should be called again soon."""
        return self._markers.has_work

    def write_markers(self) -> None:
        """Write some markers of decided transactions, oldest decision first, and complete those whose markers are confirmed."""
        left = MAX_MARKERS_AT_ONCE
        for transactional_id, count in self._markers.ready():
            if left <= 0:
                return
            left -= 1 + count
            self._finish(transactional_id)

    def check_timeouts(self) -> None:
        """Abort transactions after their timeout, forget ids that are unused for long, retry failed markers, and note the length
        of the log once a minute."""
        self._markers.retry_failed()
        if self._clock() >= self._next_note:
            self._next_note = self._clock() + NOTE_INTERVAL_S
            self._log.note_length()
        try:
            self._abort_timed_out()
        except BrokerError as error:
            logger.error("timed-out transactions could not be aborted: %s", error)

    def _abort_timed_out(self) -> None:
        now = self.now_ms()
        expiration = self._settings.transactional_id_expiration_ms
        timed_out = {name: each for name, each in self.transactions.items() if transactions.has_timed_out(each, now)}
        for transactional_id, transaction in timed_out.items():
            logger.info(
                "transaction of %s is aborted after %d ms", quoted(transactional_id), now - transaction.started_ms
            )
            self._store_decision(transactional_id, self._fence(transaction, now))  # `write_markers` does the rest
        expired = [name for name, each in self.transactions.items() if transactions.has_expired(each, now, expiration)]
        if expired:
            self._store([TransactionExpired(name) for name in expired])

    def close(self) -> None:
        """Close the log, which has everything already."""
        self._log.close()

    # --- changes -----------------------------------------------------------------------------------------------------------

    def _fence(self, current: Transaction, now_ms: int) -> Transaction:
        implicit = self._settings.transaction_version > 0
        return ending.fence(
            current, implicit=implicit, new_producer_id=self._topics.directory.new_producer_id, now_ms=now_ms
        )

    def _decide(self, transactional_id: str, decided: Transaction) -> None:
        """Log the decision, and write the first of its markers."""
        self._store_decision(transactional_id, decided)
        self._finish(transactional_id)

    def _store_decision(self, transactional_id: str, decided: Transaction) -> None:
        """Log the decision, which is final. Its markers are pending from now on."""
        self._store([TransactionSet(transactional_id, decided)])
        self._markers.add(transactional_id, decided)

    def _finish(self, transactional_id: str, max_markers: int | None = None) -> None:
        """Write markers of a decided transaction, and complete it once all of them are confirmed."""
        transaction, now_ms = self.transactions[transactional_id], self.now_ms()
        try:
            if self._markers.write(transactional_id, transaction, now_ms, max_markers or MAX_MARKERS_AT_ONCE):
                self._complete(transactional_id, transaction)
        except BrokerError as error:
            self._markers.fail(transactional_id)
            logger.error("the end of the transaction of %s is not written yet: %s", quoted(transactional_id), error)

    def _complete(self, transactional_id: str, decided: Transaction) -> None:
        entries: list[Entry] = [TransactionSet(transactional_id, ending.complete(decided, self.now_ms()))]
        if decided.groups:
            commit = decided.state is TransactionState.PREPARE_COMMIT
            entries.insert(0, PendingOffsetsEnded(decided.producer_id, tuple(sorted(decided.groups)), commit))
        self._store(entries)
        self._markers.remove(transactional_id)

    def _store(self, entries: list[Entry]) -> None:
        self._log.append(entries)
        for entry in entries:
            self._state.apply(entry)
        if self._log.wants_rewrite:
            self._rewrite()

    def _rewrite(self) -> None:
        try:
            self._log.rewrite(self._state.entries())
        except BrokerError as error:
            logger.error("the coordinator's log could not be rewritten: %s", error)


def _next_producer(decided: Transaction) -> ProducerIdAndEpoch:
    """Return the producer id and epoch of the next transaction after a decided one."""
    if decided.next_producer_id != UNSET:
        return ProducerIdAndEpoch(decided.next_producer_id, 0)
    return ProducerIdAndEpoch(decided.producer_id, decided.epoch)
