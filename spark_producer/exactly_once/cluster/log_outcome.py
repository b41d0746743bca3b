"""The outcomes of transactions in the logs: committed, aborted or open, by producer and first offset in each partition (D3)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from spark_producer.admin.exchange import NodeRequest
from spark_producer.common.cluster import Span, TopicPartition, TransactionVersion
from spark_producer.common.error_codes import Action, Code
from spark_producer.common.escape import escaping_logger
from spark_producer.common.isolation_level import IsolationLevel
from spark_producer.common.offsets import EARLIEST
from spark_producer.errors import PyProducerError, broker_error
from spark_producer.exactly_once.cluster.await_markers import LostMarkers, find_lost_markers
from spark_producer.exactly_once.cluster.broker_requests import GONE_AFTER_S, TransactionAdmin, format_partitions
from spark_producer.exactly_once.cluster.fetch import fetch_request, read_at, rows_of
from spark_producer.exactly_once.cluster.partition_state import Producers, TransactionSpan, offsets
from spark_producer.exactly_once.cluster.required_acls import Right, missing_right
from spark_producer.exactly_once.protocol.commands import LogOutcomes, TransactionOutcome
from spark_producer.exactly_once.protocol.control_record import TaskTransaction
from spark_producer.protocol import FETCH, decoded_records
from spark_producer.record.batch_v2 import HEADER_SIZE, batches, read_header
from spark_producer.record.committed_filter import marker_type
from spark_producer.record.control import ControlType

logger = escaping_logger(__name__)

MAX_FETCHES_AT_ONCE = 64
"""Maximum number of transactions and partitions that are fetched at once: each brings a batch of up to some megabytes."""


def read_outcomes(
    brokers: TransactionAdmin,
    transactions: Sequence[TaskTransaction],
    ended: Collection[TaskTransaction],
    deadline: float,
    *,
    rows_seen: bool = False,
    dead_tasks: bool = True,
    control: Mapping[str, Sequence[TransactionSpan]] = MappingProxyType({}),
    without_tasks: Collection[TopicPartition] = (),
) -> LogOutcomes:
    """Return the outcome of each transaction, once all partitions have its marker or have lost it.

    The coordinators have committed those in `ended`. Their partitions are not read if the epoch of the producer's last marker
    shows that it ended the transaction, which saves thousands of batches. A topic that was created again has the marker and not
    the rows; that is checked unless the rows were there just before (`rows_seen`, R7). In partitions in which a dead task's
    hanging transaction blocks readers, the marker counts as lost too, unless `dead_tasks` is false; those in `without_tasks` are
    left out. `control` has the rows of the control record's own transaction by its id: its markers are awaited with the others.

    Raises:
        KafkaTimeout: markers were still being written at the deadline; the message names the partitions.
        BrokerError: a right is missing.
    """
    spans = {each.transactional_id: [_transaction_span(each, span) for span in each.spans] for each in transactions}
    seen: dict[TopicPartition, Producers] = {}
    left_out = set(without_tasks)
    if not dead_tasks:
        left_out |= {each.topic_partition for some in spans.values() for each in some}
    found = find_lost_markers(brokers, {**spans, **control}, deadline, seen=seen, without_tasks=left_out)
    own = [each for some in control.values() for each in some]
    hanging = _lost_partitions(found, own)
    lost = _lost_partitions(found, [each for some in spans.values() for each in some])
    closed = [each for some in spans.values() for each in some if each.topic_partition not in lost]
    outcomes = {
        each: TransactionOutcome.OPEN for some in spans.values() for each in some if each.topic_partition in lost
    }
    confirmed = {
        each for one in ended for each in spans.get(one.transactional_id, ()) if each.topic_partition not in lost
    }
    if confirmed:
        last = {
            each: one.epoch + (one.transaction_version is TransactionVersion.IMPLICIT)
            for one in ended
            for each in spans[one.transactional_id]
        }
        for each in confirmed if rows_seen else confirmed - _missing_rows(brokers, confirmed, deadline):
            row = (seen.get(each.topic_partition) or {}).get(each.producer_id)
            if row is not None and row.producer_epoch <= last[each]:
                outcomes[each] = TransactionOutcome.COMMITTED
    outcomes |= outcomes_by_span(brokers, [each for each in closed if each not in outcomes], deadline)
    return LogOutcomes(
        tuple(_combined(outcomes[each] for each in spans[one.transactional_id]) for one in transactions), lost, hanging
    )


def _lost_partitions(found: LostMarkers, spans: Collection[TransactionSpan]) -> tuple[TopicPartition, ...]:
    """Return the partitions in which markers of `spans` are lost, or a dead task's transaction hangs."""
    lost = {each.topic_partition for each in found.spans if each in spans}
    return tuple(sorted(lost | (found.of_dead_tasks & {each.topic_partition for each in spans})))


def _missing_rows(
    brokers: TransactionAdmin, spans: Collection[TransactionSpan], deadline: float
) -> set[TransactionSpan]:
    """Return those whose rows may be gone: the log ends before them, or a partition shows that the topic was created again."""
    ends = offsets(
        brokers, {each.topic_partition for each in spans}, deadline, isolation=IsolationLevel.READ_UNCOMMITTED
    )
    samples = {each.topic: each for each in sorted(spans)}
    shown = outcomes_by_span(brokers, list(samples.values()), deadline)
    recreated = {topic for topic, each in samples.items() if shown[each] is TransactionOutcome.MIXED}
    return {each for each in spans if each.topic in recreated or ends.get(each.topic_partition, -1) <= each.last_offset}


def _transaction_span(transaction: TaskTransaction, span: Span) -> TransactionSpan:
    return TransactionSpan(transaction.producer_id, span.topic, span.partition, span.first_offset, span.last_offset)


def outcomes_by_span(
    brokers: TransactionAdmin, spans: Sequence[TransactionSpan], deadline: float
) -> dict[TransactionSpan, TransactionOutcome]:
    """Return the outcomes of transactions that are no longer open in these partitions; `MIXED` if the rows are gone.

    Raises: as `read_outcomes`.
    """
    found: dict[TransactionSpan, TransactionOutcome] = {}
    for at in range(0, len(spans), MAX_FETCHES_AT_ONCE):
        found |= _read_outcomes(brokers, spans[at : at + MAX_FETCHES_AT_ONCE], deadline)
    return found


def _read_outcomes(
    brokers: TransactionAdmin, spans: Sequence[TransactionSpan], deadline: float
) -> dict[TransactionSpan, TransactionOutcome]:
    """Return the outcomes from the rows themselves.

    Each partition is fetched alone: only the first partition of a Fetch surely gets data, and without data the list of aborted
    transactions may lack the one that begins there.
    """
    found: dict[TransactionSpan, TransactionOutcome] = {}
    left = list(spans)
    began = brokers.client.clock()
    attempts = brokers.attempts(deadline, "")
    for _ in attempts:
        leaders = brokers.leaders((each.topic_partition for each in left), deadline)
        found.update((each, _without_partition(brokers, each)) for each in left if each.topic_partition not in leaders)
        asked = [each for each in left if each.topic_partition in leaders]
        calls = [
            NodeRequest(
                leaders[each.topic_partition],
                FETCH,
                fetch_request(brokers, each.topic_partition, each.first_offset, IsolationLevel.READ_COMMITTED, 1),
            )
            for each in asked
        ]
        left = []
        for each, response in zip(asked, brokers.client.request_all(calls, deadline), strict=True):
            row = None if isinstance(response, PyProducerError) else dict(rows_of(response)).get(each.topic_partition)
            if row is None or Action.RETRY in Code(row.error_code).action:
                left.append(each)
            elif (outcome := _outcome(brokers, each, row, deadline)) is not None:
                found[each] = outcome
            elif brokers.client.clock() - began < GONE_AFTER_S:
                left.append(each)
            else:
                logger.error("rows of %s from offset %d on are gone, although they were acknowledged", *_location(each))
                found[each] = TransactionOutcome.MIXED
        if not left:
            break
        partitions = [each.topic_partition for each in left]
        brokers.forget_leaders(partitions)
        attempts.waiting_for = f"the leaders of {format_partitions(partitions)}, or the rows that were written there"
    return found


def _without_partition(brokers: TransactionAdmin, span: TransactionSpan) -> TransactionOutcome:
    """Return the outcome of rows whose partition does not exist: a topic with other ones was created again."""
    if not brokers.has_topic(span.topic):
        return TransactionOutcome.UNKNOWN
    logger.error(
        "rows of %s from offset %d on are gone, with the partition: the topic was created again", *_location(span)
    )
    return TransactionOutcome.MIXED


def _location(span: TransactionSpan) -> tuple[str, int]:
    return format_partitions([span.topic_partition]), span.first_offset


def _outcome(brokers: TransactionAdmin, span: TransactionSpan, row: Any, deadline: float) -> TransactionOutcome | None:
    """Return the outcome from a response about the first row; None if its offset is after the end of the log.

    Then the rows are gone, or the leader was deposed and does not know it.
    """
    if row.error_code == Code.OFFSET_OUT_OF_RANGE:
        return (
            TransactionOutcome.UNKNOWN
            if _is_before_log(brokers, span.topic_partition, span.first_offset, deadline)
            else None
        )
    if 0 <= span.first_offset < row.log_start_offset:
        return TransactionOutcome.UNKNOWN
    _check(brokers, span, row)
    if row.last_stable_offset <= span.first_offset:
        if row.high_watermark <= span.first_offset and _is_after_log(brokers, span, deadline):
            return None
        return _await_marker_after(brokers, span, deadline)  # another producer's transaction is open before it
    data = decoded_records(row.records) or memoryview(b"")
    if not len(data) or not _begins_at(data, span.first_offset):
        return TransactionOutcome.UNKNOWN  # compaction has removed the rows
    header = read_header(data)
    if header.producer_id != span.producer_id or header.is_control:
        logger.error("rows of %s from offset %d on are gone: other records have these offsets", *_location(span))
        return TransactionOutcome.MIXED
    aborted = {(one.producer_id, one.first_offset) for one in row.aborted_transactions or ()}
    return (
        TransactionOutcome.ABORTED if (span.producer_id, span.first_offset) in aborted else TransactionOutcome.COMMITTED
    )


def _is_before_log(brokers: TransactionAdmin, tp: TopicPartition, offset: int, deadline: float) -> bool:
    """Return whether the log begins after this offset, because of retention, or no longer exists."""
    start = offsets(brokers, [tp], deadline, at=EARLIEST, isolation=IsolationLevel.READ_UNCOMMITTED).get(tp)
    return start is None or offset < start


def _is_after_log(brokers: TransactionAdmin, span: TransactionSpan, deadline: float) -> bool:
    """Return whether the log ends before these rows. A new leader answers this only when it knows it (KIP-207)."""
    end = offsets(brokers, [span.topic_partition], deadline, isolation=IsolationLevel.READ_UNCOMMITTED).get(
        span.topic_partition, -1
    )
    return 0 <= end <= span.first_offset


def _begins_at(data: memoryview, offset: int) -> bool:
    """Return whether the first batch has this offset, also if the batch is cut off."""
    return len(data) >= HEADER_SIZE and (header := read_header(data)).base_offset <= offset <= header.last_offset


def _await_marker_after(brokers: TransactionAdmin, span: TransactionSpan, deadline: float) -> TransactionOutcome:
    """Return the outcome from the marker after the rows. It exists, since the producer has no open transaction any more.

    The leader knows the marker as soon as it has written it, but serves it only when all in-sync replicas have it.
    """
    for _ in brokers.attempts(
        deadline, f"the replicas of {format_partitions([span.topic_partition])}: a marker is on its way to them"
    ):
        outcome = _marker_after(brokers, span, deadline)
        if outcome is not None:
            return outcome
    raise AssertionError


def _marker_after(brokers: TransactionAdmin, span: TransactionSpan, deadline: float) -> TransactionOutcome | None:
    """Return the outcome from the marker after the rows; None while it is not served."""
    position, end = span.last_offset + 1, -1
    while end < 0 or position < end:
        row = read_at(brokers, span.topic_partition, position, deadline)
        if row is None:
            return TransactionOutcome.UNKNOWN
        if row.error_code == Code.OFFSET_OUT_OF_RANGE:
            return (
                TransactionOutcome.UNKNOWN
                if _is_before_log(brokers, span.topic_partition, position, deadline)
                else None
            )
        _check(brokers, span, row)
        end = row.high_watermark if end < 0 else end
        found = decoded_records(row.records) or memoryview(b"")
        for header, batch in batches(found):
            position = max(position, header.last_offset + 1)
            if header.is_control and header.producer_id == span.producer_id and header.records_count:
                kind = marker_type(header, batch[HEADER_SIZE:])
                return TransactionOutcome.COMMITTED if kind == ControlType.COMMIT else TransactionOutcome.ABORTED
        if not len(found):
            break
    return None


def _check(brokers: TransactionAdmin, span: TransactionSpan, row: Any) -> None:
    if row.error_code == Code.TOPIC_AUTHORIZATION_FAILED:
        raise missing_right(Right.READ_TOPIC, brokers.sink, brokers.client.user, span.topic)
    if row.error_code:
        raise broker_error(row.error_code, f"topic {span.topic!r}, partition {span.partition}")


def _combined(outcomes: Iterable[TransactionOutcome]) -> TransactionOutcome:
    """Return the outcome of a whole transaction from those in its partitions."""
    found = set(outcomes)
    if TransactionOutcome.OPEN in found:
        return TransactionOutcome.OPEN
    if TransactionOutcome.MIXED in found or {TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED} <= found:
        return TransactionOutcome.MIXED
    return next(
        (outcome for outcome in (TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED) if outcome in found),
        TransactionOutcome.UNKNOWN,
    )
