"""Finds lost markers: ended transactions whose marker a partition lacks, and whether they were committed or aborted.

A coordinator remembers the outcome of the last transaction of an id until a new epoch is taken, which the next write does when it
begins. If the coordinator has forgotten it, the outcome is found from what the decision has left in the logs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from spark_producer.common.cluster import ProducerIdAndEpoch, Span, TopicPartition, TransactionVersion
from spark_producer.common.isolation_level import IsolationLevel
from spark_producer.exactly_once.cluster.broker_requests import TransactionAdmin
from spark_producer.exactly_once.cluster.command_executor import find_transaction_version
from spark_producer.exactly_once.cluster.control_log import ControlLog, ControlLogState
from spark_producer.exactly_once.cluster.coordinator_state import (
    ENDING,
    ONGOING,
    describe,
    has_committed,
    how_ended,
)
from spark_producer.exactly_once.cluster.fetch import read_at
from spark_producer.exactly_once.cluster.hanging_transactions import HangingTransaction, find_hanging, still_hanging
from spark_producer.exactly_once.cluster.last_commit import EPOCH_MODULUS, is_missing, noted_commit
from spark_producer.exactly_once.cluster.log_outcome import outcomes_by_span
from spark_producer.exactly_once.cluster.partition_state import (
    Producers,
    TransactionSpan,
    offsets,
    producers,
    still_open,
    transaction_key,
)
from spark_producer.exactly_once.names import control_id
from spark_producer.exactly_once.protocol.commands import TransactionOutcome
from spark_producer.exactly_once.protocol.control_record import DECIDED, ControlRecord, TaskTransaction
from spark_producer.protocol import decoded_records
from spark_producer.protocol.messages import (
    ActiveProducer,
    DescribedTransaction,
)
from spark_producer.record.batch_v2 import HEADER_SIZE, batches
from spark_producer.record.committed_filter import marker_type
from spark_producer.record.control import ControlType

LAST_OFFSET = (1 << 63) - 1
LAST_EPOCH = (1 << 15) - 1


class LostMarker(NamedTuple):
    """A transaction that its coordinator has ended, in a partition without its marker. `commit` is None if unknown."""

    topic_partition: TopicPartition
    producer_id: int
    epoch: int
    coordinator_epoch: int
    first_offset: int
    commit: bool | None


class LostMarkers(NamedTuple):
    """The lost markers. Partitions in `unseen` could not be checked, since the right to see their producers (READ) is missing."""

    markers: tuple[LostMarker, ...]
    unseen: tuple[TopicPartition, ...]


class _Candidate(NamedTuple):
    """Rows of `task`, or of the control id's producer, that must have a marker according to the sink's last control record.

    If the record has no offsets for them, their epochs distinguish them from the rows of another execution.
    """

    topic_partition: TopicPartition
    producer_id: int
    first_offset: int
    last_offset: int
    first_epoch: int = 0
    last_epoch: int = LAST_EPOCH
    task: TaskTransaction | None = None
    is_pending: bool = False
    """Whether they belong to a record of the control partition without a marker."""

    @property
    def is_inline(self) -> bool:
        """Return whether they are inline rows: the control record does not have their offsets."""
        return self.last_offset == LAST_OFFSET

    def is_open(self, row: ActiveProducer) -> bool:
        """Return whether they are in the open transaction that a leader reports."""
        return (
            0 <= row.current_txn_start_offset <= self.last_offset
            and self.first_epoch <= row.producer_epoch <= self.last_epoch
        )


def find_lost_markers(
    brokers: TransactionAdmin,
    log: ControlLog,
    topic_partition: TopicPartition,
    log_state: ControlLogState,
    deadline: float,
    more: Collection[TopicPartition] = (),
) -> LostMarkers:
    """Return the transactions that the sink's last control records name and that hang in its partitions.

    Hanging transactions of dead tasks and drivers are included, also in the partitions of `more`, which no record names.

    The partitions are read before and after the coordinators: a write in between has other transactions open the second time.
    `log` has just been read, in the partition `topic_partition`, with the result `log_state`.

    Raises:
        BrokerError: the right to describe a transaction is missing. KafkaTimeout: brokers do not answer.
    """
    candidates = _candidates(log, topic_partition, log_state)
    known = _known_producers(brokers, candidates, more, deadline)
    rows = _open(candidates, known)
    unseen = tuple(sorted(tp for tp, some in known.items() if some is None))
    named = {(each.topic_partition, each.producer_id) for each in candidates if each in rows or not each.is_inline}
    named |= _named_by_undecided(log, log_state)
    own = control_id(brokers.sink)
    dead = find_hanging(brokers, known, named, deadline)
    transaction_version = find_transaction_version(brokers.client, deadline) if dead else TransactionVersion.EXPLICIT
    has_all = bool(dead) and _has_last_record(brokers, log_state, own, deadline)
    found = [
        LostMarker(
            each.topic_partition,
            each.row.producer_id,
            each.row.producer_epoch,
            each.row.coordinator_epoch,
            each.row.current_txn_start_offset,
            False if has_all and _was_aborted(log, each, transaction_version, own) else None,
        )
        for each in still_hanging(brokers, dead, deadline, 0)
    ]
    if not rows:
        return LostMarkers(tuple(found), unseen)
    states = describe(brokers, sorted({_id_of(each, own) for each in rows}), deadline)
    after = _open(candidates, _known_producers(brokers, candidates, (), deadline))
    for each, row in rows.items():
        state = states[_id_of(each, own)]
        if (
            _is_alive(state, each.producer_id)
            or each not in after
            or transaction_key(row) != transaction_key(after[each])
        ):
            continue
        commit = _how_ended(brokers, log, log_state, each, state, deadline)
        first_offset = max(each.first_offset, row.current_txn_start_offset)
        found.append(
            LostMarker(
                each.topic_partition, each.producer_id, row.producer_epoch, row.coordinator_epoch, first_offset, commit
            )
        )
    return LostMarkers(tuple(found), unseen)


def _has_last_record(brokers: TransactionAdmin, log_state: ControlLogState, own: str, deadline: float) -> bool:
    """Return whether the control topic has the sink's last record, as far as the coordinator of its control id remembers.

    A topic without a record of the sink may be the wrong one: then it is unknown which transactions were decided.
    """
    if log_state.record is None:
        return False
    row = describe(brokers, [own], deadline)[own]
    if row is None:
        return True
    newest = ProducerIdAndEpoch(row.producer_id, row.producer_epoch + 1)
    return not is_missing(noted_commit(row), newest, ProducerIdAndEpoch(log_state.producer_id, log_state.end_epoch))


def _was_aborted(log: ControlLog, each: HangingTransaction, transaction_version: TransactionVersion, own: str) -> bool:
    """Return whether a transaction that no control record names was certainly aborted.

    Inline rows come with a record. If this control topic has no record of that epoch, it may be in another topic, and the
    coordinator forgets the commit as soon as the query is started again.
    """
    if each.state.transactional_id == own and not log.wrote(each.row.producer_id, each.row.producer_epoch):
        return False
    return not each.was_committed(transaction_version)


def _candidates(log: ControlLog, topic_partition: TopicPartition, log_state: ControlLogState) -> list[_Candidate]:
    found = []
    if log_state.record is not None:
        found += [
            _Candidate(each, log_state.producer_id, 0, LAST_OFFSET, last_epoch=log_state.epoch)
            for each in log_state.record.inline
        ]
        found += [
            _Candidate(
                TopicPartition(span.topic, span.partition),
                one.producer_id,
                span.first_offset,
                span.last_offset,
                task=one,
            )
            for one in log_state.record.transactions
            for span in one.spans
        ]
    for producer_id, epoch, first, last in log_state.undecided:
        found.append(_Candidate(topic_partition, producer_id, first, last, epoch, epoch, is_pending=True))
        pending = log.pending(producer_id)
        inline = pending.inline if pending is not None and _decides(pending, log_state) else ()
        found += [_Candidate(each, producer_id, 0, LAST_OFFSET, epoch, epoch, is_pending=True) for each in inline]
    return found


def _named_by_undecided(log: ControlLog, log_state: ControlLogState) -> set[tuple[TopicPartition, int]]:
    """Return the partitions and producers of tasks in undecided records. Their outcome is known after the record's."""
    pending = [log.pending(producer_id) for producer_id, *_ in log_state.undecided]
    return {
        (TopicPartition(span.topic, span.partition), one.producer_id)
        for record in pending
        if record is not None
        for one in record.transactions
        for span in one.spans
    }


def _id_of(candidate: _Candidate, own: str) -> str:
    return own if candidate.task is None else candidate.task.transactional_id


def _known_producers(
    brokers: TransactionAdmin, candidates: Collection[_Candidate], more: Collection[TopicPartition], deadline: float
) -> dict[TopicPartition, Producers]:
    partitions = {each.topic_partition for each in candidates} | set(more)
    return producers(brokers, partitions, deadline) if partitions else {}


def _open(
    candidates: Collection[_Candidate], known: Mapping[TopicPartition, Producers]
) -> dict[_Candidate, ActiveProducer]:
    """Return the candidates whose producer has, as leaders report, an open transaction that begins with them or before."""
    rows = {each: (known.get(each.topic_partition) or {}).get(each.producer_id) for each in candidates}
    return {each: row for each, row in rows.items() if row is not None and each.is_open(row)}


def _is_alive(state: DescribedTransaction | None, producer_id: int) -> bool:
    return state is not None and state.producer_id == producer_id and state.transaction_state in {ONGOING, *ENDING}


def _how_ended(
    brokers: TransactionAdmin,
    log: ControlLog,
    log_state: ControlLogState,
    candidate: _Candidate,
    state: DescribedTransaction | None,
    deadline: float,
) -> bool | None:
    """Return whether a transaction was committed; None if that is unknown."""
    if candidate.is_pending:
        transaction_version = find_transaction_version(brokers.client, deadline)
        ended = how_ended(state, candidate.producer_id, candidate.first_epoch, transaction_version)
        if ended is None and _is_noted(state, candidate):
            return True
        return _pending_outcome(brokers, log, log_state, candidate, deadline) if ended is None else ended
    if candidate.task is None:
        return True  # the record itself has a commit marker
    task = candidate.task
    outcomes = set(_shown_outcomes(brokers, [task], deadline).values())
    if len(shown := outcomes & {TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED}) == 1:
        return TransactionOutcome.COMMITTED in shown
    # The logs show no other part of it: it was committed, unless it had timed out before.
    return how_ended(state, task.producer_id, task.epoch, task.transaction_version) is not False


def _is_noted(state: DescribedTransaction | None, candidate: _Candidate) -> bool:
    """Return whether the coordinator's note of the last commit (`noted_commit`) is that of a pending record.

    EndTxn 5 raises the producer epoch (KIP-890), so the note has the epoch of the record or the next one.
    """
    noted = noted_commit(state)
    if state is None or noted is None or state.producer_id != candidate.producer_id:
        return False
    return (noted - candidate.first_epoch) % EPOCH_MODULUS in (0, 1)


def _decides(pending: ControlRecord, log_state: ControlLogState) -> bool:
    """Return whether a record is the commit point of its write, not a final status after that, and not an intent."""
    last = log_state.record
    decided_before = last is not None and last.token == pending.token and last.status in DECIDED
    return pending.status in DECIDED and not decided_before


def _pending_outcome(
    brokers: TransactionAdmin, log: ControlLog, log_state: ControlLogState, candidate: _Candidate, deadline: float
) -> bool | None:
    """Return whether the transaction of a record in the control partition was committed, from its effects elsewhere.

    The inline rows have their own markers, and tasks are committed only after the commit point. If neither shows a commit, the
    record counts as aborted: the batch runs again. The record of a final status always counts as aborted: the next BEGIN
    determines the status again. None is returned if the right to see a partition's markers is missing.
    """
    pending = log.pending(candidate.producer_id)
    if pending is None or not _decides(pending, log_state):
        return False
    inline = {_inline_outcome(brokers, each, candidate, deadline) for each in pending.inline}
    if inline & {TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED}:
        return TransactionOutcome.COMMITTED in inline
    states = describe(brokers, [one.transactional_id for one in pending.transactions], deadline)
    if any(
        has_committed(states[one.transactional_id], one.producer_id, one.epoch, one.transaction_version)
        for one in pending.transactions
    ):
        return True
    # In a topic that was created again the rows are gone (MIXED), and show nothing.
    shown = {*_shown_outcomes(brokers, pending.transactions, deadline).values(), *inline}
    if TransactionOutcome.COMMITTED in shown:
        return True
    return None if TransactionOutcome.UNKNOWN in shown else False


def _shown_outcomes(
    brokers: TransactionAdmin, transactions: Sequence[TaskTransaction], deadline: float
) -> dict[tuple[TaskTransaction, Span], TransactionOutcome]:
    """Return the outcome of a transaction in each partition: `OPEN` without a marker, `UNKNOWN` if READ is missing."""
    spans = {
        TransactionSpan(one.producer_id, span.topic, span.partition, span.first_offset, span.last_offset): (one, span)
        for one in transactions
        for span in one.spans
    }
    if not spans:
        return {}
    found = still_open(brokers, spans, deadline)
    outcomes = dict.fromkeys(found.certain, TransactionOutcome.OPEN) | dict.fromkeys(
        found.unclear, TransactionOutcome.UNKNOWN
    )
    outcomes |= outcomes_by_span(brokers, [each for each in spans if each not in outcomes], deadline)
    return {spans[each]: outcome for each, outcome in outcomes.items()}


def _inline_outcome(
    brokers: TransactionAdmin, tp: TopicPartition, candidate: _Candidate, deadline: float
) -> TransactionOutcome:
    """Return the outcome of a pending transaction in a partition, by its marker; `OPEN` if the partition has nothing of it."""
    producer_id, epoch = candidate.producer_id, candidate.first_epoch
    row = (producers(brokers, [tp], deadline).get(tp) or {}).get(producer_id)
    if row is None and offsets(brokers, [tp], deadline, isolation=IsolationLevel.READ_UNCOMMITTED).get(tp) == 0:
        return TransactionOutcome.OPEN  # the partition has never had a record
    if row is None or row.last_timestamp < 0:
        return TransactionOutcome.UNKNOWN
    if row.current_txn_start_offset >= 0 or row.producer_epoch < epoch:
        return TransactionOutcome.OPEN  # the epoch of an earlier transaction: the rows never came here
    if row.producer_epoch > epoch + 1:
        return TransactionOutcome.UNKNOWN
    # The producer's last write in this partition is the marker, so no earlier offset has its timestamp.
    position = offsets(brokers, [tp], deadline, at=row.last_timestamp, isolation=IsolationLevel.READ_UNCOMMITTED).get(
        tp, -1
    )
    end = offsets(brokers, [tp], deadline, isolation=IsolationLevel.READ_UNCOMMITTED).get(tp, -1)
    while 0 <= position < end:
        response = read_at(brokers, tp, position, deadline)
        if response is None or response.error_code:
            return TransactionOutcome.UNKNOWN
        before = position
        for header, batch in batches(decoded_records(response.records) or memoryview(b"")):
            position = max(position, header.last_offset + 1)
            if (header.producer_id, header.max_timestamp) == (producer_id, row.last_timestamp) and header.is_control:
                kind = marker_type(header, batch[HEADER_SIZE:])
                return TransactionOutcome.COMMITTED if kind == ControlType.COMMIT else TransactionOutcome.ABORTED
        if position == before:
            break
    return TransactionOutcome.UNKNOWN
