"""The coordinator of a broker: it applies the rules to each transactional id, keeps the result, and has the markers written.

Every change is in the log before anybody hears of it. An outcome is decided by one entry; the markers follow at once, or in the
next turns of the server's loop where they are many. Until all of them are there, and confirmed by the storage, the id answers
CONCURRENT_TRANSACTIONS.
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
from spark_producer.broker.coordinator.log import CoordinatorLog
from spark_producer.broker.coordinator.offsets import CommittedOffset, GroupOffsets, weight
from spark_producer.broker.coordinator.transactions import (
    DECIDED,
    UNSET,
    ProducerIdAndEpoch,
    TopicPartition,
    Transaction,
    TransactionState,
)
from spark_producer.broker.log.partition import Partition
from spark_producer.broker.log_quoting import quoted
from spark_producer.broker.settings import BrokerSettings
from spark_producer.broker.topic_store import TopicStore
from spark_producer.common.error_codes import Code
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import BrokerError, CorruptRecord

logger = escaping_logger(__name__)

COORDINATOR_EPOCH: Final = 0
"""The coordinator's epoch in every marker; it stays the same because the one coordinator never changes."""

MARKERS_AT_A_TIME: Final = 200
"""So many markers are written before the broker serves others again: some 10 ms."""

MAX_NAME_LENGTH: Final = 255
"""The most characters of a transactional id or group: thousands are kept for days, and written anew with the log."""

_NOT_NEEDED: Final = frozenset({Code.INVALID_PRODUCER_EPOCH, Code.TRANSACTION_COORDINATOR_FENCED})
"""The answers of a partition that has a newer marker, which an administrator wrote."""

NO_PRODUCER: Final = ProducerIdAndEpoch(UNSET, UNSET)
"""The producer id and epoch in an answer that gives none."""


class BrokerCoordinator:
    """The transactions, groups and committed offsets of a broker. Only the broker's thread uses it.

    groups: the groups with members. They live in memory only: after a restart members join again.
    """

    def __init__(
        self,
        topics: TopicStore,
        settings: BrokerSettings,
        time_of_day: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read the state back from the data directory of `topics`, and end what was decided before the broker died.

        Raises:
            CorruptRecord: the log is damaged; the text says what to do.
            OSError: the disk refused.
        """
        self._topics = topics
        self._settings = settings
        self._time_of_day = time_of_day
        self._ledger = CoordinatorState()
        self.groups = Groups(settings.groups, clock)
        self._changed: dict[TopicPartition, None] = {}
        self._unmarked: dict[str, list[TopicPartition]] = {}
        """The partitions of decided transactions whose markers are still to be written."""
        self._stuck: set[str] = set()
        """Those of them that the disk has refused: they wait for the next scan."""
        self._unconfirmed: dict[str, list[tuple[TopicPartition, Partition, int]]] = {}
        """Where decided transactions have markers, and at which offset, that are written and not confirmed yet."""
        self._log = CoordinatorLog(
            topics.data_dir,
            sync=settings.sync_each_append,
            known_bytes=topics.coordinator_bytes,
            note_length=topics.note_coordinator,
            skip_damage=settings.skip_damage,
            check_moved=topics.check_moved,
        )
        entries = self._log.read()
        self._apply(entries)
        if self._log.was_damaged or len(entries) > 1 + 2 * len(self._ledger.transactions):
            self._rewrite()
        self._forget_missing_topics()
        for transactional_id, transaction in self._ledger.transactions.items():
            if transaction.state in DECIDED:
                self._unmarked[transactional_id] = sorted(transaction.partitions)
        for transactional_id in list(self._unmarked):
            self._finish(transactional_id, most=len(self._unmarked[transactional_id]))

    def _apply(self, entries: Iterable[Entry]) -> None:
        """Apply the entries of the log; skip those that contradict others if the log was damaged.

        Raises:
            CorruptRecord: it contradicts itself.
        """
        for entry in merge_added(entries):
            try:
                self._ledger.apply(entry)
            except ValueError as error:
                text = f"the coordinator's log in {self._topics.data_dir} contradicts itself: {error}"
                if not self._log.was_damaged:
                    self._log.close()
                    raise CorruptRecord(text) from error
                logger.error("%s; this entry is skipped", text)

    def _forget_missing_topics(self) -> None:
        """Do what a crash between the end of a topic and the end of its offsets has left undone."""
        named = {topic for _, (topic, _) in self.offsets.partitions()}
        try:
            self.forget_topics({topic for topic in named if self._topics.get(topic) is None})
        except BrokerError as error:
            logger.error("offsets of groups for topics that are gone are still there: %s", error)

    @property
    def transactions(self) -> Mapping[str, Transaction]:
        """The state of every transactional id."""
        return self._ledger.transactions

    @property
    def offsets(self) -> GroupOffsets:
        """The offsets of all groups, to be read."""
        return self._ledger.offsets

    def now_ms(self) -> int:
        """Return the time of day in milliseconds since 1970."""
        return int(self._time_of_day() * 1000)

    def take_changed(self) -> tuple[TopicPartition, ...]:
        """Return the partitions that got markers since the last call."""
        changed, self._changed = tuple(self._changed), {}
        return changed

    # --- requests --------------------------------------------------------------------------------------------------------

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdAndEpoch | None
    ) -> tuple[Code, ProducerIdAndEpoch]:
        """Give the id to a new producer, or a new epoch to the one that has it. An open transaction is aborted first.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR, or POLICY_VIOLATION if there are too many ids.
        """
        if not 0 < timeout_ms <= self._settings.transaction_max_timeout_ms:
            return Code.INVALID_TRANSACTION_TIMEOUT, NO_PRODUCER
        current = self.transactions.get(transactional_id)
        if current is None:
            self._check_room_for_id(transactional_id)
        now = self.now_ms()
        step = transactions.init_producer_id(current, expected, timeout_ms, self._topics.new_producer_id, now)
        if step.transaction is not None:
            self._keep([TransactionSet(transactional_id, step.transaction)])
            return Code.NONE, ProducerIdAndEpoch(step.transaction.producer_id, step.transaction.epoch)
        if (
            step.code == Code.CONCURRENT_TRANSACTIONS
            and current is not None
            and current.state is TransactionState.ONGOING
        ):
            self._decide(transactional_id, self._fenced(current, now))
        return step.code, NO_PRODUCER

    def _check_room_for_id(self, transactional_id: str) -> None:
        if len(transactional_id) > MAX_NAME_LENGTH:
            raise BrokerError(f"transactional id {quoted(transactional_id)} is too long", code=Code.INVALID_REQUEST)
        if len(self.transactions) >= self._settings.max_transactional_ids:
            raise BrokerError(
                f"there are {len(self.transactions)} transactional ids, as many as BrokerSettings.max_transactional_ids allows",
                code=Code.POLICY_VIOLATION,
            )

    def add(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition] = (),
        groups: Collection[str] = (),
    ) -> Code:
        """Note what a transaction is about to touch.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR, or POLICY_VIOLATION if there is too much.
        """
        current = self.transactions.get(transactional_id)
        now = self.now_ms()
        step = transactions.add_partitions(current, producer, partitions, groups, now)
        if step.transaction is None or current is None:
            return step.code
        after = step.transaction
        more_partitions, more_groups = after.partitions - current.partitions, after.groups - current.groups
        self._check_room(len(more_partitions) + GROUP_WEIGHT * len(more_groups))
        if current.state is TransactionState.ONGOING:
            self._keep([PartitionsAdded(transactional_id, tuple(more_partitions), tuple(more_groups), now)])
        else:
            self._keep([TransactionSet(transactional_id, after)])
        return step.code

    def _check_room(self, more: int) -> None:
        if self._ledger.touched + more > self._settings.max_transaction_partitions:
            raise BrokerError(
                f"open transactions touch {self._ledger.touched} partitions, and {more} more would be too many "
                "(BrokerSettings.max_transaction_partitions)",
                code=Code.POLICY_VIOLATION,
            )

    def check_partition(self, transactional_id: str, producer: ProducerIdAndEpoch, partition: TopicPartition) -> Code:
        """Check that the transaction of this producer may write to a partition that was added before."""
        current = self.transactions.get(transactional_id)
        is_added = current is not None and partition in current.partitions
        return transactions.verify(current, producer, is_added=is_added)

    def check_group(self, transactional_id: str, producer: ProducerIdAndEpoch, group: str) -> Code:
        """Check that the transaction of this producer may commit offsets of a group that was added before."""
        current = self.transactions.get(transactional_id)
        return transactions.verify(current, producer, is_added=current is not None and group in current.groups)

    def put_offsets(self, producer_id: int, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Keep offsets until the end of the producer's transaction, which was checked.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR, or POLICY_VIOLATION if there are too many.
        """
        self._check_room_for_offsets(weight(group, offsets.values()))
        self._keep([PendingOffsets(producer_id, group, offsets)])

    def _check_room_for_offsets(self, more: int) -> None:
        kept = self.offsets.weight
        if more > 0 and kept + more > self._settings.max_committed_offsets:
            raise BrokerError(
                f"{kept} offsets are kept, and {more} more would be too many (BrokerSettings.max_committed_offsets)",
                code=Code.POLICY_VIOLATION,
            )

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Put offsets of a group into force. Whether the client may do that was checked.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR, or POLICY_VIOLATION if there are too many.
        """
        self._check_room_for_offsets(self.offsets.added_weight(group, offsets))
        self._keep([OffsetsCommitted(group, offsets)])

    def delete_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete offsets of a group, as far as it has them: those in force, and those that open transactions would commit, as
        Kafka's OffsetMetadataManager does.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """
        known = self.offsets.of(group)
        gone = tuple(each for each in partitions if each in known)
        if gone:
            self._keep([OffsetsDeleted(group, gone)])

    def forget_topics(self, topics: Collection[str]) -> None:
        """Delete the offsets of all groups for topics that are gone: they mean nothing in later topics of these names.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """
        gone: dict[str, dict[TopicPartition, None]] = {}
        for group, partition in self.offsets.partitions():
            if partition[0] in topics:
                gone.setdefault(group, {})[partition] = None
        entries: list[Entry] = [OffsetsDeleted(group, tuple(partitions)) for group, partitions in gone.items()]
        if entries:
            self._keep(entries)

    def end(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, commit: bool, implicit: bool
    ) -> tuple[Code, ProducerIdAndEpoch]:
        """End a transaction; return the producer id and epoch for the next one too.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """
        current = self.transactions.get(transactional_id)
        step = ending.end_transaction(
            current,
            producer,
            commit=commit,
            implicit=implicit,
            new_producer_id=self._topics.new_producer_id,
            now_ms=self.now_ms(),
        )
        if step.transaction is not None:
            self._decide(transactional_id, step.transaction)
            return step.code, _next_producer(step.transaction)
        if step.code == Code.NONE and current is not None:
            return step.code, ProducerIdAndEpoch(current.producer_id, current.epoch)
        return step.code, NO_PRODUCER

    # --- what happens by itself --------------------------------------------------------------------------------------------

    @property
    def has_markers_to_write(self) -> bool:
        """Whether `work` should be called soon again."""
        waiting = self._unconfirmed.keys() - self._stuck
        return len(self._unmarked) > len(self._stuck) + sum(not self._unmarked[each] for each in waiting)

    def work(self) -> None:
        """Write some of the markers of transactions that are decided, the oldest decision first, and see what is confirmed."""
        left = MARKERS_AT_A_TIME
        for transactional_id in [each for each in self._unmarked if each not in self._stuck]:
            if left <= 0:
                return
            left -= 1 + len(self._unmarked[transactional_id])
            self._finish(transactional_id)

    def scan(self) -> None:
        """Abort the transactions whose time is up, forget the ids that nobody has used for long, and try again what failed."""
        self._stuck.clear()
        try:
            self._abort_late()
        except BrokerError as error:
            logger.error("late transactions could not be aborted: %s", error)

    def _abort_late(self) -> None:
        now = self.now_ms()
        expiration = self._settings.transactional_id_expiration_ms
        late = {name: each for name, each in self.transactions.items() if transactions.has_timed_out(each, now)}
        for transactional_id, transaction in late.items():
            logger.info(
                "transaction of %s is aborted after %d ms", quoted(transactional_id), now - transaction.started_ms
            )
            self._keep_decision(transactional_id, self._fenced(transaction, now))  # `work` writes the markers
        expired = [name for name, each in self.transactions.items() if transactions.has_expired(each, now, expiration)]
        if expired:
            self._keep([TransactionExpired(name) for name in expired])

    def close(self) -> None:
        """Close the log. Everything is in it already."""
        self._log.close()

    # --- changes -----------------------------------------------------------------------------------------------------------

    def _fenced(self, current: Transaction, now_ms: int) -> Transaction:
        implicit = self._settings.transaction_version > 0
        return ending.fence(current, implicit=implicit, new_producer_id=self._topics.new_producer_id, now_ms=now_ms)

    def _decide(self, transactional_id: str, decided: Transaction) -> None:
        """Keep the decision, and write the first of its markers."""
        self._keep_decision(transactional_id, decided)
        self._finish(transactional_id)

    def _keep_decision(self, transactional_id: str, decided: Transaction) -> None:
        """Keep the decision, from which there is no way back. Its markers are owed from now on."""
        self._keep([TransactionSet(transactional_id, decided)])
        self._unmarked[transactional_id] = sorted(decided.partitions)

    def _finish(self, transactional_id: str, most: int | None = None) -> None:
        """Write markers of a decided transaction, at most so many. When all are there and confirmed, it is complete.

        What the disk refuses is tried again later: nobody can be told of it.
        """
        transaction, unmarked = self.transactions[transactional_id], self._unmarked[transactional_id]
        now_ms, most = self.now_ms(), MARKERS_AT_A_TIME if most is None else most
        try:
            now, unmarked[:] = unmarked[:most], unmarked[most:]
            refused = [place for place in now if not self._mark(transactional_id, transaction, place, now_ms)]
            refused += self._lost(transactional_id)
            unmarked += refused
            if refused:
                self._stuck.add(transactional_id)
            elif not unmarked and transactional_id not in self._unconfirmed:
                self._complete(transactional_id, transaction)
        except BrokerError as error:
            self._stuck.add(transactional_id)
            logger.error("the end of the transaction of %s is not written yet: %s", quoted(transactional_id), error)

    def _mark(self, transactional_id: str, transaction: Transaction, partition: TopicPartition, now_ms: int) -> bool:
        """Write one marker; return whether it is there, or is not needed, because the topic is gone or knows a newer producer."""
        try:
            found = self._topics.partition(*partition)
        except BrokerError:
            return True
        commit = transaction.state is TransactionState.PREPARE_COMMIT
        try:
            offset = found.write_marker(
                transaction.producer_id, transaction.epoch, commit, COORDINATOR_EPOCH, now_ms=now_ms
            )
            if not found.log.is_confirmed(offset):
                self._unconfirmed.setdefault(transactional_id, []).append((partition, found, offset))
        except BrokerError as error:
            logger.error("topic %s, partition %d: no marker was written: %s", *partition, error)
            return error.code in _NOT_NEEDED
        self._changed[partition] = None
        return True

    def _lost(self, transactional_id: str) -> list[TopicPartition]:
        """Go on waiting for the markers that are still to be confirmed; return the partitions where that can no longer happen."""
        lost = []
        for partition, written, offset in self._unconfirmed.pop(transactional_id, ()):
            try:
                found = self._topics.partition(*partition)
            except BrokerError:
                continue  # the topic is gone
            try:
                if found is written and not found.log.is_confirmed(offset):  # else the topic was made anew
                    self._unconfirmed.setdefault(transactional_id, []).append((partition, found, offset))
            except BrokerError as error:
                logger.error("topic %s, partition %d: the marker at offset %d is lost: %s", *partition, offset, error)
                lost.append(partition)
        return lost

    def _complete(self, transactional_id: str, decided: Transaction) -> None:
        entries: list[Entry] = [TransactionSet(transactional_id, ending.complete(decided, self.now_ms()))]
        if decided.groups:
            commit = decided.state is TransactionState.PREPARE_COMMIT
            entries.insert(0, PendingOffsetsEnded(decided.producer_id, tuple(sorted(decided.groups)), commit))
        self._keep(entries)
        del self._unmarked[transactional_id]

    def _keep(self, entries: list[Entry]) -> None:
        self._log.append(entries)
        for entry in entries:
            self._ledger.apply(entry)
        if self._log.wants_rewrite:
            self._rewrite()

    def _rewrite(self) -> None:
        try:
            self._log.rewrite(self._ledger.entries())
        except BrokerError as error:
            logger.error("the coordinator's log could not be made smaller: %s", error)


def _next_producer(decided: Transaction) -> ProducerIdAndEpoch:
    """Return the producer id and epoch of the transaction after a decided one."""
    if decided.next_producer_id != UNSET:
        return ProducerIdAndEpoch(decided.next_producer_id, 0)
    return ProducerIdAndEpoch(decided.producer_id, decided.epoch)
