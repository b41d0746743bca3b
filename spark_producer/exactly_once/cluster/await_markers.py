"""The end of transactions in the partitions themselves: a coordinator's word is not enough, since markers may be lost (R8)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial

from spark_producer.common.cluster import TopicPartition
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import BrokerError, ConnectionFailed, KafkaTimeout, SecurityError
from spark_producer.exactly_once.cluster.broker_requests import TransactionAdmin, format_partitions
from spark_producer.exactly_once.cluster.coordinator_state import ENDING, ONGOING, describe
from spark_producer.exactly_once.cluster.hanging_transactions import find_hanging, still_hanging
from spark_producer.exactly_once.cluster.partition_state import LOOKS, Producers, TransactionSpan, still_open
from spark_producer.exactly_once.cluster.required_acls import Right, missing_right
from spark_producer.protocol.messages import DescribedTransaction

logger = escaping_logger(__name__)

LOST_AFTER_S = 3.0
"""For so long a partition must not show a marker that its coordinator says is written, before that counts as lost. After the
restart of all nodes a leader may take a second or two to show what is there."""

ASKING_S = 2.0
"""For so long brokers are asked about the transactions of dead tasks: the write itself is carried out by then."""


def await_markers(
    brokers: TransactionAdmin,
    spans: Mapping[str, Sequence[TransactionSpan]],
    deadline: float,
    *,
    told: bool = False,
    seen: dict[TopicPartition, Producers] | None = None,
    without_tasks: Collection[TopicPartition] = (),
) -> tuple[TopicPartition, ...]:
    """Wait until partitions show the end of transactions, given by transactional id; return those that have lost the marker, also
    that of a dead task which holds their readers back (but not in partitions `without_tasks`).

    First the coordinator must have ended the transaction, with all markers written, which `told` says that it has: a leader
    shows a marker before it is replicated, and if that leader dies, Kafka 4.3 may not write it again. Only what leaders show
    after that is believed: a marker that is missing then is lost. `seen` takes what they have said last of their producers.

    Raises:
        KafkaTimeout: a coordinator was still writing markers at the deadline. The text names the partitions and why.
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
        if number or not told:
            states = describe(brokers, {ids[each] for each in left}, deadline)
        waiting = [each for each in left if _is_in(ENDING, states.get(ids[each]), each)]
        found = still_open(brokers, set(left).difference(waiting), deadline, seen)
        left = [*waiting, *found.certain, *found.unclear]
        lost = {each for each in found.certain if not _is_in({ONGOING}, states.get(ids[each]), each)}
        if not lost.issuperset(left):
            missing_since = clock()
        if not left or clock() - missing_since >= LOST_AFTER_S:
            break
        if number >= LOOKS:
            brokers.forget_leaders(each.topic_partition for each in left)  # one that was deposed may not know it
        attempts.waiting_for = partial(_held_up, brokers, left)
    shown = {tp: _until(last[tp], rows) for tp, rows in seen.items() if tp in last.keys() - without_tasks}
    return tuple(sorted({each.topic_partition for each in left} | _held_by_dead_tasks(brokers, shown, own, deadline)))


def _held_by_dead_tasks(
    brokers: TransactionAdmin,
    shown: Mapping[TopicPartition, Producers],
    own: Collection[tuple[TopicPartition, int]],
    deadline: float,
) -> set[TopicPartition]:
    """Return the partitions whose readers wait for the end of a dead task's transaction, but for the `own` producers.

    The write is carried out, and must not fail because that cannot be seen now.
    """
    clock = brokers.client.clock
    try:
        found = find_hanging(brokers, shown, own, min(deadline, clock() + ASKING_S))
        until = min(deadline, clock() + LOST_AFTER_S + ASKING_S)
        return {each.topic_partition for each in still_hanging(brokers, found, until, LOST_AFTER_S)}
    except (KafkaTimeout, BrokerError, ConnectionFailed, SecurityError) as error:
        logger.warning(
            "sink %r: another transaction is open where it has written, and whether it is that of a dead task, and holds back "
            "readers of committed records, cannot be seen now. The next write looks again, or `pyproducer txn describe`. %s",
            brokers.sink,
            error,
        )
        return set()


def _until(offset: int, rows: Producers) -> Producers:
    """Leave out the producers whose transaction begins behind an offset."""
    return None if rows is None else {name: row for name, row in rows.items() if row.current_txn_start_offset <= offset}


def _is_in(some: Collection[str], row: DescribedTransaction | None, span: TransactionSpan) -> bool:
    """Whether the coordinator has a transaction of this producer in one of these states; ids are forgotten after some days."""
    return row is not None and row.producer_id == span.producer_id and row.transaction_state in some


def _held_up(brokers: TransactionAdmin, left: Sequence[TransactionSpan]) -> str:
    partitions = [each.topic_partition for each in left]
    blind = sorted(still_open(brokers, left, brokers.client.clock() + 1).unclear)
    if blind:
        return str(missing_right(Right.READ_TOPIC, brokers.sink, brokers.client.user, blind[0].topic))
    return f"the end of transactions in {format_partitions(partitions)}{leaderless_note(brokers, partitions)}"


def leaderless_note(brokers: TransactionAdmin, partitions: Sequence[TopicPartition]) -> str:
    """Return which of these partitions have no live leader, for a message; nothing if all have one."""
    lame = brokers.leaderless(partitions, brokers.client.clock() + 1) if partitions else []
    return f"; {format_partitions(lame)} have no live leader: start their brokers" if lame else ""
