"""The wait for transaction markers in the partitions: the coordinator's response is not enough, since markers get lost (R8)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from spark_producer.common.cluster import TopicPartition
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import BrokerError, ConnectionFailed, KafkaTimeout, SecurityError
from spark_producer.exactly_once.cluster.broker_requests import TransactionAdmin, format_partitions
from spark_producer.exactly_once.cluster.coordinator_state import ENDING, ONGOING, describe
from spark_producer.exactly_once.cluster.hanging_transactions import find_hanging, still_hanging
from spark_producer.exactly_once.cluster.partition_state import MAX_READS, Producers, TransactionSpan, still_open
from spark_producer.exactly_once.cluster.required_acls import Right, missing_right
from spark_producer.protocol.messages import DescribedTransaction

logger = escaping_logger(__name__)

LOST_AFTER_S = 3.0
"""Seconds for which a partition must not show a marker that its coordinator has written until it counts as lost. After a restart
of all nodes a leader may take a second or two to show what is in its log."""

DEAD_TASKS_TIMEOUT_S = 2.0
"""Maximum time in seconds of requests about transactions of dead tasks: the write itself is completed by then."""


class LostMarkers(NamedTuple):
    """The rows whose marker is lost, and the partitions in which a dead task's hanging transaction blocks readers."""

    spans: list[TransactionSpan]
    of_dead_tasks: set[TopicPartition]


def await_markers(
    brokers: TransactionAdmin,
    spans: Mapping[str, Sequence[TransactionSpan]],
    deadline: float,
    *,
    markers_written: bool = False,
    seen: dict[TopicPartition, Producers] | None = None,
    without_tasks: Collection[TopicPartition] = (),
) -> tuple[TopicPartition, ...]:
    """Wait as `find_lost_markers` does, and return all partitions with a lost marker.

    Raises: as `find_lost_markers`.
    """
    found = find_lost_markers(
        brokers, spans, deadline, markers_written=markers_written, seen=seen, without_tasks=without_tasks
    )
    return tuple(sorted({each.topic_partition for each in found.spans} | found.of_dead_tasks))


def find_lost_markers(
    brokers: TransactionAdmin,
    spans: Mapping[str, Sequence[TransactionSpan]],
    deadline: float,
    *,
    markers_written: bool = False,
    seen: dict[TopicPartition, Producers] | None = None,
    without_tasks: Collection[TopicPartition] = (),
) -> LostMarkers:
    """Wait until partitions have the markers of transactions, given by transactional id; return those that are lost.

    Partitions in which a dead task's hanging transaction blocks readers count too, except those in `without_tasks`.

    First the coordinator must have written all markers (`markers_written`: it has). A leader shows a marker before it is
    replicated, and if that leader dies, Kafka 4.3 may not write it again. So a marker counts as lost only if leaders lack it
    after that. `seen` is filled with the producers that leaders reported last.

    Raises:
        KafkaTimeout: a coordinator was still writing markers at the deadline. The message names the partitions and the cause.
    """
    seen = {} if seen is None else seen
    left = [each for some in spans.values() for each in some]
    last = {each.topic_partition: each.last_offset for each in sorted(left, key=lambda one: one.last_offset)}
    own = {(each.topic_partition, each.producer_id) for each in left}
    ids = {each: transactional_id for transactional_id, some in spans.items() for each in some}
    attempts = brokers.attempts(deadline, "")
    clock = brokers.client.clock
    missing_since = clock()
    for number in attempts:
        states: dict[str, DescribedTransaction | None] = {}
        if number or not markers_written:
            states = describe(brokers, {ids[each] for each in left}, deadline)
        waiting = [each for each in left if _has_state(ENDING, states.get(ids[each]), each)]
        found = still_open(brokers, set(left).difference(waiting), deadline, seen)
        left = [*waiting, *found.certain, *found.unclear]
        lost = {each for each in found.certain if not _has_state({ONGOING}, states.get(ids[each]), each)}
        if not lost.issuperset(left):
            missing_since = clock()
        if not left or clock() - missing_since >= LOST_AFTER_S:
            break
        if number >= MAX_READS:
            brokers.forget_leaders(
                each.topic_partition for each in left
            )  # a deposed leader may not know that it is one
        attempts.waiting_for = partial(_describe_missing, brokers, left)
    shown = {tp: _begun_until(last[tp], rows) for tp, rows in seen.items() if tp in last.keys() - without_tasks}
    return LostMarkers(left, _hanging_of_dead_tasks(brokers, shown, own, deadline))


def _hanging_of_dead_tasks(
    brokers: TransactionAdmin,
    shown: Mapping[TopicPartition, Producers],
    own: Collection[tuple[TopicPartition, int]],
    deadline: float,
) -> set[TopicPartition]:
    """Return the partitions in which a dead task's hanging transaction blocks readers, leaving out the `own` producers.

    The write is completed, and must not fail because brokers do not answer this now.
    """
    clock = brokers.client.clock
    try:
        found = find_hanging(brokers, shown, own, min(deadline, clock() + DEAD_TASKS_TIMEOUT_S))
        until = min(deadline, clock() + LOST_AFTER_S + DEAD_TASKS_TIMEOUT_S)
        return {each.topic_partition for each in still_hanging(brokers, found, until, LOST_AFTER_S)}
    except (KafkaTimeout, BrokerError, ConnectionFailed, SecurityError) as error:
        logger.warning(
            "sink %r: another transaction is open in its partitions, and it could not be checked whether a dead task left it: "
            "%s. If so, it blocks readers of committed records. The next write and `pyproducer txn describe` check it again",
            brokers.sink,
            error,
        )
        return set()


def _begun_until(offset: int, rows: Producers) -> Producers:
    """Return the producers without those whose transaction begins after an offset."""
    return None if rows is None else {name: row for name, row in rows.items() if row.current_txn_start_offset <= offset}


def _has_state(some: Collection[str], row: DescribedTransaction | None, span: TransactionSpan) -> bool:
    """Return whether the coordinator has this producer's transaction in one of these states. It forgets ids after some days."""
    return row is not None and row.producer_id == span.producer_id and row.transaction_state in some


def _describe_missing(brokers: TransactionAdmin, left: Sequence[TransactionSpan]) -> str:
    partitions = [each.topic_partition for each in left]
    blind = sorted(still_open(brokers, left, brokers.client.clock() + 1).unclear)
    if blind:
        return str(missing_right(Right.READ_TOPIC, brokers.sink, brokers.client.user, blind[0].topic))
    return f"the markers of transactions in {format_partitions(partitions)}{leaderless_note(brokers, partitions)}"


def leaderless_note(brokers: TransactionAdmin, partitions: Sequence[TopicPartition]) -> str:
    """Return the text for messages of which partitions have no live leader; empty if all have one."""
    leaderless = brokers.leaderless(partitions, brokers.client.clock() + 1) if partitions else []
    return f"; {format_partitions(leaderless)} have no live leader: start their brokers" if leaderless else ""
