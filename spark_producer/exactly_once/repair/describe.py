"""The description of a sink for people: its last control record, its open transactions, and what blocks readers."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from spark_producer.admin import BlockingClient
from spark_producer.common.cluster import TopicPartition, TransactionVersion
from spark_producer.common.error_codes import Code
from spark_producer.common.isolation_level import IsolationLevel
from spark_producer.common.offsets import LATEST
from spark_producer.errors import BrokerError, ExactlyOnceError, PyProducerError, broker_error
from spark_producer.exactly_once.cluster.broker_requests import TransactionAdmin
from spark_producer.exactly_once.cluster.control_log import ControlLog, ControlLogState, WholeControlLog
from spark_producer.exactly_once.cluster.control_topic import PARTITION
from spark_producer.exactly_once.cluster.coordinator_state import (
    ENDING,
    ONGOING,
    describe,
    listed,
    open_by_sink,
    open_tasks,
    partitions_of,
)
from spark_producer.exactly_once.cluster.log_outcome import read_outcomes
from spark_producer.exactly_once.cluster.partition_state import offsets, producers
from spark_producer.exactly_once.names import control_id
from spark_producer.exactly_once.protocol.commands import TransactionOutcome
from spark_producer.exactly_once.protocol.control_record import ControlRecord, Status
from spark_producer.exactly_once.repair.lost_markers import LostMarkers, find_lost_markers
from spark_producer.protocol.messages import DescribedTransaction, ListTransactionsRequest

MISSING_AFTER_S = 1.0
"""Seconds for which a control topic must be unknown to count as missing: one that was just created may be."""


class SinkSummary(NamedTuple):
    """A sink in the list: its last control record (or the error), when it was written, and its open transactions.

    A sink with open transactions and no commit so far has no record.
    """

    sink: str
    record: ControlRecord | PyProducerError | None
    written_ms: int
    open_ids: tuple[str, ...]


class SinkList(NamedTuple):
    """The sinks of a cluster. Without a control topic, `missing` is the error, and `lines` are those with open transactions."""

    lines: tuple[SinkSummary, ...]
    missing: ExactlyOnceError | None = None


class OpenTransaction(NamedTuple):
    """An open transaction: how long it has been open and its timeout, in milliseconds, and its partitions."""

    transactional_id: str
    state: str
    open_ms: int
    timeout_ms: int
    partitions: tuple[TopicPartition, ...]


class BlockingProducer(NamedTuple):
    """A producer that blocks readers: the first offset of its transaction, and its coordinator's description, if visible."""

    producer_id: int
    epoch: int
    first_offset: int
    transaction: OpenTransaction | None


class BlockedReaders(NamedTuple):
    """A partition whose last stable offset is before its end, and the producers that block readers there.

    `producers` is None if the right to see them is missing.
    """

    topic_partition: TopicPartition
    last_stable_offset: int
    end_offset: int
    producers: tuple[BlockingProducer, ...] | None


class SinkDescription(NamedTuple):
    """The state of one sink. `outcomes` has those of the transactions of a `PARTIAL` record from the logs; else it is empty."""

    log_state: ControlLogState
    written_ms: int
    control: DescribedTransaction | None
    open: tuple[OpenTransaction, ...]
    blocked_readers: tuple[BlockedReaders, ...]
    lost_markers: LostMarkers
    outcomes: tuple[TransactionOutcome, ...] = ()


def list_sinks(client: BlockingClient, topic: str) -> SinkList:
    """Return all sinks of a control topic, and those with open transactions only.

    Raises: as `ControlLog.read` and `listed`.
    """
    deadline = client.deadline()
    brokers = TransactionAdmin(client, "*")
    log = WholeControlLog(brokers, topic)
    records: dict[str, ControlRecord | PyProducerError] = {}
    missing = _missing_topic(brokers, topic, deadline)
    opened = open_by_sink(brokers, deadline)  # before the records: a sink that commits in between has one
    if missing is None:
        records = log.records(deadline)
    lines = (
        SinkSummary(sink, records.get(sink), log.written_ms(sink), opened.get(sink, ()))
        for sink in sorted(records.keys() | opened.keys())
    )
    return SinkList(tuple(lines), missing)


def known_sinks(brokers: TransactionAdmin, topic: str) -> list[str]:
    """Return the names of all sinks of a control topic, and of those with open transactions only.

    Raises: as `ControlLog.read` and `listed`.
    """
    deadline = brokers.client.deadline()
    return sorted({*WholeControlLog(brokers, topic).records(deadline), *open_by_sink(brokers, deadline)})


def _missing_topic(brokers: TransactionAdmin, topic: str, deadline: float) -> ExactlyOnceError | None:
    """Return the error for a control topic that does not exist; None if it does. It must not be created by hand.

    Raises: as `BlockingClient.metadata`.
    """
    began = brokers.client.clock()
    for _ in brokers.attempts(deadline, f"the control topic {topic!r}"):
        rows = brokers.client.metadata([topic], deadline).topics
        if all(row.error_code not in (Code.UNKNOWN_TOPIC_OR_PARTITION, Code.INVALID_TOPIC_EXCEPTION) for row in rows):
            return None
        if brokers.client.clock() - began >= min(MISSING_AFTER_S, (deadline - began) / 2):
            break
    return ExactlyOnceError(
        f"there is no topic {topic!r}: this cluster has no exactly-once writes, or they use another control topic. "
        "Check --bootstrap-servers and --control-topic; the first write creates the topic"
    )


def describe_sink(brokers: TransactionAdmin, topic: str, more: Collection[TopicPartition] = ()) -> SinkDescription:
    """Return the state of a sink, and change nothing. `more` are partitions to check besides those of its last batch.

    Raises:
        ExactlyOnceError: there is no such control topic. And as `ControlLog.read`, and for rights that are missing.
    """
    deadline = brokers.client.deadline()
    log = ControlLog(brokers, topic)
    missing = _missing_topic(brokers, topic, deadline)
    if missing is not None:
        raise missing
    log_state = log.read(deadline)
    own = control_id(brokers.sink)
    tasks = [one.transactional_id for one in open_tasks(brokers, TransactionVersion.EXPLICIT, deadline)]
    states = describe(brokers, [own, *tasks], deadline)
    now = brokers.client.now_ms()
    opened = [_opened(row, now) for row in states.values() if row is not None and _is_open(row)]
    partitions = {
        TopicPartition(topic, PARTITION),
        *(each for one in opened for each in one.partitions),
        *_partitions(log_state.record),
        *more,
    }
    return SinkDescription(
        log_state,
        log.written_ms(brokers.sink),
        states[own],
        tuple(opened),
        find_blocked_readers(brokers, partitions, deadline),
        find_lost_markers(brokers, log, TopicPartition(topic, PARTITION), log_state, deadline, more),
        _outcomes(brokers, log_state.record, deadline),
    )


def partitions_of_topics(brokers: TransactionAdmin, topics: Collection[str]) -> set[TopicPartition]:
    """Return the partitions of topics.

    Raises:
        BrokerError: one does not exist, or the right to see it is missing. KafkaTimeout: no broker answers.
    """
    if not topics:
        return set()
    response = brokers.client.metadata(sorted(topics), brokers.client.deadline())
    for row in response.topics:
        if row.error_code:
            raise broker_error(row.error_code, f"topic {row.name!r}", user=brokers.client.user)
    return {TopicPartition(row.name or "", each.partition_index) for row in response.topics for each in row.partitions}


def _outcomes(
    brokers: TransactionAdmin, record: ControlRecord | None, deadline: float
) -> tuple[TransactionOutcome, ...]:
    if record is None or record.status is not Status.PARTIAL:
        return ()
    return read_outcomes(brokers, record.transactions, (), deadline, dead_tasks=False).outcomes


def _partitions(record: ControlRecord | None) -> set[TopicPartition]:
    if record is None:
        return set()
    return {TopicPartition(span.topic, span.partition) for one in record.transactions for span in one.spans} | set(
        record.inline
    )


def find_blocked_readers(
    brokers: TransactionAdmin, partitions: Collection[TopicPartition], deadline: float
) -> tuple[BlockedReaders, ...]:
    """Return the partitions among these whose last stable offset is before their end.

    Raises:
        BrokerError: the right to see a topic is missing. KafkaTimeout: not all brokers answer.
    """
    stable = offsets(brokers, partitions, deadline)
    ends = offsets(brokers, partitions, deadline, at=LATEST, isolation=IsolationLevel.READ_UNCOMMITTED)
    blocked = sorted(each for each in stable if stable[each] < ends[each])
    known = producers(brokers, blocked, deadline) if blocked else {}
    holding = {
        each: [row for row in (rows or {}).values() if row.current_txn_start_offset >= 0]
        for each, rows in known.items()
    }
    open_transactions = _transactions(brokers, {row.producer_id for rows in holding.values() for row in rows}, deadline)
    found = []
    for each in blocked:
        holders = sorted(
            BlockingProducer(
                row.producer_id,
                row.producer_epoch,
                row.current_txn_start_offset,
                open_transactions.get(row.producer_id),
            )
            for row in holding.get(each, ())
        )
        found.append(
            BlockedReaders(each, stable[each], ends[each], None if known.get(each) is None else tuple(holders))
        )
    return tuple(found)


def _transactions(
    brokers: TransactionAdmin, producer_ids: Collection[int], deadline: float
) -> dict[int, OpenTransaction]:
    """Return the open transactions of producers, of any program, as far as the user may see them."""
    if not producer_ids:
        return {}
    rows = listed(brokers, ListTransactionsRequest((), tuple(sorted(producer_ids))), deadline)
    ids = sorted({row.transactional_id for row in rows if row.producer_id in producer_ids})
    try:
        states = describe(brokers, ids, deadline) if ids else {}
    except BrokerError as error:
        if error.code != Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            raise
        return {}
    now = brokers.client.now_ms()
    return {row.producer_id: _opened(row, now) for row in states.values() if row is not None and _is_open(row)}


def _is_open(row: DescribedTransaction) -> bool:
    return row.transaction_state in {ONGOING, *ENDING}


def _opened(row: DescribedTransaction, now_ms: int) -> OpenTransaction:
    return OpenTransaction(
        row.transactional_id,
        row.transaction_state,
        max(0, now_ms - row.transaction_start_time_ms),
        row.transaction_timeout_ms,
        tuple(partitions_of(row)),
    )
