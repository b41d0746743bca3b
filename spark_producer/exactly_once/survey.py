"""What people ask about a sink: its last word, its open transactions, and what holds readers of committed records back."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from spark_producer.cluster import Style
from spark_producer.codes import Code
from spark_producer.errors import BrokerError, ExactlyOnceError, PyProducerError, broker_error
from spark_producer.exactly_once.asks import Fate
from spark_producer.exactly_once.brokers import Brokers
from spark_producer.exactly_once.control_log import ControlLog, Seen, WholeControlLog
from spark_producer.exactly_once.control_record import ControlRecord, Status, TopicPartition
from spark_producer.exactly_once.control_topic import PARTITION
from spark_producer.exactly_once.coordinator_state import ENDING, ONGOING, describe, open_tasks, partitions_of
from spark_producer.exactly_once.lost import LostEnds, lost_ends
from spark_producer.exactly_once.names import control_id
from spark_producer.exactly_once.partition_state import LATEST, UNCOMMITTED, offsets, producers
from spark_producer.exactly_once.verdicts import look
from spark_producer.protocol.messages import DescribedTransaction
from spark_producer.tools.parallel import ParallelClient


class SinkLine(NamedTuple):
    """A sink in the list: its last word (or why it cannot be read), when it was said, and its open transactions."""

    sink: str
    record: ControlRecord | PyProducerError
    written_ms: int
    open_ids: tuple[str, ...]


class OpenTransaction(NamedTuple):
    """An open transaction: how long it is open, of how long it may be, in milliseconds; and where."""

    transactional_id: str
    state: str
    open_ms: int
    timeout_ms: int
    partitions: tuple[TopicPartition, ...]


class HeldBack(NamedTuple):
    """A partition in which readers of committed records have not reached the end, and who holds them back there.

    `producers` are (producer id, epoch, offset at which its transaction begins), None if the right to see them is missing.
    """

    where: TopicPartition
    stable: int
    end: int
    producers: tuple[tuple[int, int, int], ...] | None


class Survey(NamedTuple):
    """All about one sink. `fates` are those of the transactions of a `PARTIAL` record, by what the logs say; else empty."""

    seen: Seen
    written_ms: int
    control: DescribedTransaction | None
    open: tuple[OpenTransaction, ...]
    held_back: tuple[HeldBack, ...]
    lost: LostEnds
    fates: tuple[Fate, ...] = ()


def list_sinks(client: ParallelClient, topic: str) -> list[SinkLine]:
    """Return all sinks of a control topic.

    Raises: as `ControlLog.read`.
    """
    deadline = client.deadline()
    log = WholeControlLog(Brokers(client, "*"), topic)
    with _control_topic(topic):
        records = log.records(deadline)
    return [
        SinkLine(
            sink,
            record,
            log.written_ms(sink),
            tuple(one.transactional_id for one in open_tasks(Brokers(client, sink), Style.EXPLICIT, deadline)),
        )
        for sink, record in records.items()
    ]


def known_sinks(brokers: Brokers, topic: str) -> list[str]:
    """Return the names of all sinks of a control topic.

    Raises: as `ControlLog.read`.
    """
    return list(WholeControlLog(brokers, topic).records(brokers.client.deadline()))


@contextmanager
def _control_topic(topic: str) -> Iterator[None]:
    """Says of a control topic that is not there what that means: nobody shall make it by hand."""
    try:
        yield
    except BrokerError as error:
        if error.code != Code.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise ExactlyOnceError(
            f"there is no topic {topic!r}: nothing was ever written exactly once on this cluster, or with another control topic. "
            "Check --bootstrap-servers and --control-topic; the first write makes the topic"
        ) from error


def survey(brokers: Brokers, topic: str, more: Collection[TopicPartition] = ()) -> Survey:
    """Look at a sink from all sides, and change nothing. `more` are partitions to look at besides those of its last batch.

    Raises: as `ControlLog.read`, and for rights that are missing.
    """
    deadline = brokers.client.deadline()
    log = ControlLog(brokers, topic)
    with _control_topic(topic):
        seen = log.read(deadline)
    own = control_id(brokers.sink)
    tasks = [one.transactional_id for one in open_tasks(brokers, Style.EXPLICIT, deadline)]
    states = describe(brokers, [own, *tasks], deadline)
    now = brokers.client.now_ms()
    opened = [
        OpenTransaction(
            each,
            row.transaction_state,
            max(0, now - row.transaction_start_time_ms),
            row.transaction_timeout_ms,
            tuple(partitions_of(row)),
        )
        for each, row in states.items()
        if row is not None and row.transaction_state in {ONGOING, *ENDING}
    ]
    where = {(topic, PARTITION), *(each for one in opened for each in one.partitions), *_partitions(seen.record), *more}
    return Survey(
        seen,
        log.written_ms(brokers.sink),
        states[own],
        tuple(opened),
        _held_back(brokers, where, deadline),
        lost_ends(brokers, log, (topic, PARTITION), seen, deadline, more),
        _fates(brokers, seen.record, deadline),
    )


def partitions_of_topics(brokers: Brokers, topics: Collection[str]) -> set[TopicPartition]:
    """Return the partitions of topics.

    Raises:
        BrokerError: one is not there, or the right to see it is missing. KafkaTimeout: no broker tells.
    """
    if not topics:
        return set()
    answer = brokers.client.metadata(sorted(topics), brokers.client.deadline())
    for row in answer.topics:
        if row.error_code:
            raise broker_error(row.error_code, f"topic {row.name!r}", user=brokers.client.user)
    return {(row.name or "", each.partition_index) for row in answer.topics for each in row.partitions}


def _fates(brokers: Brokers, record: ControlRecord | None, deadline: float) -> tuple[Fate, ...]:
    if record is None or record.status is not Status.PARTIAL:
        return ()
    return look(brokers, record.transactions, (), deadline, dead_tasks=False).fates


def _partitions(record: ControlRecord | None) -> set[TopicPartition]:
    if record is None:
        return set()
    return {(span.topic, span.partition) for one in record.transactions for span in one.spans} | set(record.inline)


def _held_back(brokers: Brokers, where: set[TopicPartition], deadline: float) -> tuple[HeldBack, ...]:
    stable = offsets(brokers, where, deadline)
    ends = offsets(brokers, where, deadline, at=LATEST, isolation=UNCOMMITTED)
    behind = sorted(each for each in stable if stable[each] < ends[each])
    known = producers(brokers, behind, deadline) if behind else {}
    found = []
    for each in behind:
        rows = known.get(each)
        holders = (
            None
            if rows is None
            else tuple(
                sorted(
                    (row.producer_id, row.producer_epoch, row.current_txn_start_offset)
                    for row in rows.values()
                    if row.current_txn_start_offset >= 0
                )
            )
        )
        found.append(HeldBack(each, stable[each], ends[each], holders))
    return tuple(found)
