"""Transactions that are ended, and partitions that do not show it since they have lost the marker; and how they were ended.

A coordinator remembers how it has ended the last transaction of an id until the id is taken over, which the next write does as it
begins. So what is not known from it is taken from what the transaction's decision has done in the logs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from spark_producer.common.cluster import ProducerIdAndEpoch, Span, Style, TopicPartition
from spark_producer.exactly_once.cluster.broker_requests import TransactionAdmin
from spark_producer.exactly_once.cluster.command_executor import learn_style
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
    UNCOMMITTED,
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
    """A transaction that its coordinator has ended, and a partition does not show it. `commit` is how it was ended, if known."""

    topic_partition: TopicPartition
    producer_id: int
    epoch: int
    coordinator_epoch: int
    first_offset: int
    commit: bool | None


class LostMarkers(NamedTuple):
    """What was found. In partitions of `unseen` it is not known, since the right to see their producers (READ) is missing."""

    markers: tuple[LostMarker, ...]
    unseen: tuple[TopicPartition, ...]


class _Candidate(NamedTuple):
    """Rows whose end must be in the log by the sink's last word; of `task`, or of the control id's producer.

    Where the word says no offsets, their epochs tell them from the rows of another execution.
    """

    topic_partition: TopicPartition
    producer_id: int
    first_offset: int
    last_offset: int
    first_epoch: int = 0
    last_epoch: int = LAST_EPOCH
    task: TaskTransaction | None = None
    is_pending: bool = False
    """Whether it belongs to a record of the control partition that no marker has decided yet."""

    @property
    def is_inline(self) -> bool:
        """Whether they were left to the driver, and no word says at which offsets they lie."""
        return self.last_offset == LAST_OFFSET

    def is_open(self, row: ActiveProducer) -> bool:
        """Whether they are in the transaction that its leader shows to be open."""
        return (
            0 <= row.current_txn_start_offset <= self.last_offset
            and self.first_epoch <= row.producer_epoch <= self.last_epoch
        )


def find_lost_markers(
    brokers: TransactionAdmin,
    log: ControlLog,
    topic_partition: TopicPartition,
    seen: ControlLogState,
    deadline: float,
    more: Collection[TopicPartition] = (),
) -> LostMarkers:
    """Return what the sink's last words name and is open in its partitions, although the coordinator has ended it; of tasks
    and drivers that have died, too, which may have written to `more` partitions than the last words name.

    The partitions are looked at before and after the coordinators: a write that goes on meanwhile has others open then.
    `log` has just been read, in the partition `topic_partition`, with `seen`.

    Raises:
        BrokerError: the right to see how a transaction was ended is missing. KafkaTimeout: brokers do not answer.
    """
    suspects = _suspects(log, topic_partition, seen)
    known = _known(brokers, suspects, more, deadline)
    rows = _open(suspects, known)
    unseen = tuple(sorted(tp for tp, some in known.items() if some is None))
    named = {(each.topic_partition, each.producer_id) for each in suspects if each in rows or not each.is_inline}
    named |= _named_by_undecided(log, seen)
    own = control_id(brokers.sink)
    dead = find_hanging(brokers, known, named, deadline)
    style = learn_style(brokers.client, deadline) if dead else Style.EXPLICIT
    has_all = bool(dead) and _has_last_record(brokers, seen, own, deadline)
    found = [
        LostMarker(
            each.topic_partition,
            each.row.producer_id,
            each.row.producer_epoch,
            each.row.coordinator_epoch,
            each.row.current_txn_start_offset,
            False if has_all and _was_aborted(log, each, style, own) else None,
        )
        for each in still_hanging(brokers, dead, deadline, 0)
    ]
    if not rows:
        return LostMarkers(tuple(found), unseen)
    states = describe(brokers, sorted({_id_of(each, own) for each in rows}), deadline)
    after = _open(suspects, _known(brokers, suspects, (), deadline))
    for each, row in rows.items():
        state = states[_id_of(each, own)]
        if (
            _is_alive(state, each.producer_id)
            or each not in after
            or transaction_key(row) != transaction_key(after[each])
        ):
            continue
        commit = _how_ended(brokers, log, seen, each, state, deadline)
        begins = max(each.first_offset, row.current_txn_start_offset)
        found.append(
            LostMarker(
                each.topic_partition, each.producer_id, row.producer_epoch, row.coordinator_epoch, begins, commit
            )
        )
    return LostMarkers(tuple(found), unseen)


def _has_last_record(brokers: TransactionAdmin, seen: ControlLogState, own: str, deadline: float) -> bool:
    """Return whether the control topic has the sink's last record, as far as the coordinator of its control id remembers.

    A topic without a record of the sink may be the wrong one: then it is unknown which transactions were decided.
    """
    if seen.record is None:
        return False
    row = describe(brokers, [own], deadline)[own]
    if row is None:
        return True
    newest = ProducerIdAndEpoch(row.producer_id, row.producer_epoch + 1)
    return not is_missing(noted_commit(row), newest, ProducerIdAndEpoch(seen.producer_id, seen.end_epoch))


def _was_aborted(log: ControlLog, each: HangingTransaction, style: Style, own: str) -> bool:
    """Whether a transaction that no word names was surely aborted.

    Rows of a driver come with a record. If no record of its epoch is in this control topic, the word may well be in another one,
    and the coordinator forgets that it was committed as soon as the query is started again.
    """
    if each.state.transactional_id == own and not log.wrote(each.row.producer_id, each.row.producer_epoch):
        return False
    return not each.was_committed(style)


def _suspects(log: ControlLog, topic_partition: TopicPartition, seen: ControlLogState) -> list[_Candidate]:
    found = []
    if seen.record is not None:
        found += [
            _Candidate(each, seen.producer_id, 0, LAST_OFFSET, last_epoch=seen.epoch) for each in seen.record.inline
        ]
        found += [
            _Candidate(
                TopicPartition(span.topic, span.partition),
                one.producer_id,
                span.first_offset,
                span.last_offset,
                task=one,
            )
            for one in seen.record.transactions
            for span in one.spans
        ]
    for producer_id, epoch, first, last in seen.undecided:
        found.append(_Candidate(topic_partition, producer_id, first, last, epoch, epoch, is_pending=True))
        pending = log.pending(producer_id)
        inline = pending.inline if pending is not None and _decides(pending, seen) else ()
        found += [_Candidate(each, producer_id, 0, LAST_OFFSET, epoch, epoch, is_pending=True) for each in inline]
    return found


def _named_by_undecided(log: ControlLog, seen: ControlLogState) -> set[tuple[TopicPartition, int]]:
    """Return where tasks have written that records name whose own end is lost: how they end is seen when those have theirs."""
    pending = [log.pending(producer_id) for producer_id, *_ in seen.undecided]
    return {
        (TopicPartition(span.topic, span.partition), one.producer_id)
        for record in pending
        if record is not None
        for one in record.transactions
        for span in one.spans
    }


def _id_of(suspect: _Candidate, own: str) -> str:
    return own if suspect.task is None else suspect.task.transactional_id


def _known(
    brokers: TransactionAdmin, suspects: Collection[_Candidate], more: Collection[TopicPartition], deadline: float
) -> dict[TopicPartition, Producers]:
    partitions = {each.topic_partition for each in suspects} | set(more)
    return producers(brokers, partitions, deadline) if partitions else {}


def _open(
    suspects: Collection[_Candidate], known: Mapping[TopicPartition, Producers]
) -> dict[_Candidate, ActiveProducer]:
    """Return those whose producer has a transaction open that begins with them or before, by what leaders show."""
    rows = {each: (known.get(each.topic_partition) or {}).get(each.producer_id) for each in suspects}
    return {each: row for each, row in rows.items() if row is not None and each.is_open(row)}


def _is_alive(state: DescribedTransaction | None, producer_id: int) -> bool:
    return state is not None and state.producer_id == producer_id and state.transaction_state in {ONGOING, *ENDING}


def _how_ended(
    brokers: TransactionAdmin,
    log: ControlLog,
    seen: ControlLogState,
    suspect: _Candidate,
    state: DescribedTransaction | None,
    deadline: float,
) -> bool | None:
    """Return whether a transaction was committed; None if nobody knows."""
    if suspect.is_pending:
        style = learn_style(brokers.client, deadline)
        told = how_ended(state, suspect.producer_id, suspect.first_epoch, style)
        if told is None and _is_noted(state, suspect):
            return True
        return _pending_ended(brokers, log, seen, suspect, deadline) if told is None else told
    if suspect.task is None:
        return True  # the marker of the record itself says so
    task = suspect.task
    fates = set(_shown_fates(brokers, [task], deadline).values())
    if len(shown := fates & {TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED}) == 1:
        return TransactionOutcome.COMMITTED in shown
    # Nothing else of it is in the logs: it was decided, unless its time was over before.
    return how_ended(state, task.producer_id, task.epoch, task.style) is not False


def _is_noted(state: DescribedTransaction | None, suspect: _Candidate) -> bool:
    """Return whether the note of the fence is that the last commit of the control id was that of a pending record.

    EndTxn 5 raises the epoch (KIP-890), so the note may have the one after that of the record.
    """
    noted = noted_commit(state)
    if state is None or noted is None or state.producer_id != suspect.producer_id:
        return False
    return (noted - suspect.first_epoch) % EPOCH_MODULUS in (0, 1)


def _decides(pending: ControlRecord, seen: ControlLogState) -> bool:
    """Whether a record is the commit point of its write, and not a word about what was decided before, or an intent."""
    last = seen.record
    told_before = last is not None and last.token == pending.token and last.status in DECIDED
    return pending.status in DECIDED and not told_before


def _pending_ended(
    brokers: TransactionAdmin, log: ControlLog, seen: ControlLogState, suspect: _Candidate, deadline: float
) -> bool | None:
    """Return how the transaction of a record in the control partition was ended, by what its decision has done elsewhere.

    Rows that came with it show that themselves. Tasks are committed behind the commit point alone. A commit point that has made
    nothing visible, and has committed nothing, may be dropped: the batch runs again. So may a word about what was decided
    before: the next begin finds it out again.
    """
    pending = log.pending(suspect.producer_id)
    if pending is None or not _decides(pending, seen):
        return False
    inline = {_inline_fate(brokers, each, suspect, deadline) for each in pending.inline}
    if inline & {TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED}:
        return TransactionOutcome.COMMITTED in inline
    states = describe(brokers, [one.transactional_id for one in pending.transactions], deadline)
    if any(
        has_committed(states[one.transactional_id], one.producer_id, one.epoch, one.style)
        for one in pending.transactions
    ):
        return True
    # In a topic that was made anew the rows are gone (MIXED), and show nothing.
    shown = {*_shown_fates(brokers, pending.transactions, deadline).values(), *inline}
    if TransactionOutcome.COMMITTED in shown:
        return True
    return None if TransactionOutcome.UNKNOWN in shown else False


def _shown_fates(
    brokers: TransactionAdmin, transactions: Sequence[TaskTransaction], deadline: float
) -> dict[tuple[TaskTransaction, Span], TransactionOutcome]:
    """Return what each partition says of a transaction by now: `OPEN` if it does not show the end, `UNKNOWN` if that may be
    because the right to see it (READ) is missing."""
    spans = {
        TransactionSpan(one.producer_id, span.topic, span.partition, span.first_offset, span.last_offset): (one, span)
        for one in transactions
        for span in one.spans
    }
    if not spans:
        return {}
    held = still_open(brokers, spans, deadline)
    fates = dict.fromkeys(held.certain, TransactionOutcome.OPEN) | dict.fromkeys(
        held.unclear, TransactionOutcome.UNKNOWN
    )
    fates |= outcomes_by_span(brokers, [each for each in spans if each not in fates], deadline)
    return {spans[each]: fate for each, fate in fates.items()}


def _inline_fate(
    brokers: TransactionAdmin, tp: TopicPartition, suspect: _Candidate, deadline: float
) -> TransactionOutcome:
    """Return how a pending transaction was ended in a partition, by its marker; `OPEN` if the partition shows nothing of it."""
    producer_id, epoch = suspect.producer_id, suspect.first_epoch
    row = (producers(brokers, [tp], deadline).get(tp) or {}).get(producer_id)
    if row is None and offsets(brokers, [tp], deadline, isolation=UNCOMMITTED).get(tp) == 0:
        return TransactionOutcome.OPEN  # nobody has ever written there
    if row is None or row.last_timestamp < 0:
        return TransactionOutcome.UNKNOWN
    if row.current_txn_start_offset >= 0 or row.producer_epoch < epoch:
        return TransactionOutcome.OPEN  # an older epoch is that of an earlier transaction: the rows never came here
    if row.producer_epoch > epoch + 1:
        return TransactionOutcome.UNKNOWN
    # The last that it has written there is the marker. Nothing before this offset is as new.
    position = offsets(brokers, [tp], deadline, at=row.last_timestamp, isolation=UNCOMMITTED).get(tp, -1)
    end = offsets(brokers, [tp], deadline, isolation=UNCOMMITTED).get(tp, -1)
    while 0 <= position < end:
        answer = read_at(brokers, tp, position, deadline)
        if answer is None or answer.error_code:
            return TransactionOutcome.UNKNOWN
        before = position
        for header, batch in batches(decoded_records(answer.records) or memoryview(b"")):
            position = max(position, header.last_offset + 1)
            if (header.producer_id, header.max_timestamp) == (producer_id, row.last_timestamp) and header.is_control:
                kind = marker_type(header, batch[HEADER_SIZE:])
                return TransactionOutcome.COMMITTED if kind == ControlType.COMMIT else TransactionOutcome.ABORTED
        if position == before:
            break
    return TransactionOutcome.UNKNOWN
