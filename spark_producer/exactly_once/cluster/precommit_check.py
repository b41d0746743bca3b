"""The vote before the commit point: every task's transaction must be open, this write's, alone, and far from its timeout."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from spark_producer.admin.exchange import NodeRequest
from spark_producer.common.cluster import TopicPartition
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import PyProducerError
from spark_producer.exactly_once.cluster.broker_requests import TransactionAdmin, format_partitions, worst_error
from spark_producer.exactly_once.cluster.coordinator_state import ONGOING, ask_states, describe
from spark_producer.exactly_once.cluster.end_transactions import wait_for_leaders
from spark_producer.exactly_once.cluster.partition_state import TransactionSpan, ask_producers, find_uncommittable
from spark_producer.exactly_once.names import task_prefix
from spark_producer.exactly_once.protocol.control_record import TaskTransaction
from spark_producer.protocol import LIST_TRANSACTIONS
from spark_producer.protocol.messages import DescribedTransaction, ListTransactionsRequest

logger = escaping_logger(__name__)

MIN_TIME_LEFT_FRACTION = 1 / 3
"""Minimum fraction of its timeout that a transaction must have left."""

STEPS_LEFT = 4
"""The number of commands from the vote to the end of the tasks' transactions, each of which may take the client's timeout: the
write, a fence and a read if it has no response, and the end."""

LISTING = LIST_TRANSACTIONS._replace(min_version=1)
"""ListTransactions with a minimum duration, by the clock of the coordinator (KIP-994, Kafka 3.8)."""

_warned_timeouts: set[int] = set()
"""The timeouts of which this process has warned that they are too short."""


def objections(brokers: TransactionAdmin, transactions: Sequence[TaskTransaction], deadline: float) -> tuple[str, ...]:
    """Return the reasons why transactions must not be committed; nothing if all can be.

    Raises:
        KafkaTimeout: a coordinator or a leader did not answer. BrokerError: a right is missing.
    """
    wait_for_leaders(brokers, transactions, deadline)
    states = describe(brokers, [each.transactional_id for each in transactions], deadline)
    late = _late(brokers, [row for row in states.values() if row is not None], deadline)
    found = [text for each in transactions if (text := _objection(each, states[each.transactional_id], late))]
    _warn_of_short_timeouts(brokers, [row for row in states.values() if row is not None])
    if found:
        return tuple(found)
    owners = {
        TransactionSpan(each.producer_id, span.topic, span.partition, span.first_offset, span.last_offset): each
        for each in transactions
        for span in each.spans
    }
    older_hanging, gone = find_uncommittable(brokers, list(owners), deadline)
    return (
        *(
            f"{owners[one].transactional_id!r}: an older transaction of its producer hangs in {_partition_name(one)}"
            for one in older_hanging
        ),
        *(f"{owners[one].transactional_id!r}: its rows are no longer in {_partition_name(one)}" for one in gone),
    )


def ask(brokers: TransactionAdmin, transactions: Sequence[TaskTransaction]) -> bool:
    """Send the requests of `objections` early, as far as coordinators and leaders are known.

    Return whether all leaders are known and all requests are under way. Otherwise a broker may be down, and the vote take long.
    """
    if not transactions:
        return True
    ids = [each.transactional_id for each in transactions]
    partitions = {TopicPartition(span.topic, span.partition) for each in transactions for span in each.spans}
    brokers.early.send_metadata(sorted({topic for topic, _ in partitions}))
    ask_states(brokers, ids)
    nodes = dict.fromkeys(brokers.known_coordinators(ids).values())
    brokers.early.send(_late_call(brokers, node, timeout) for node in nodes for timeout in brokers.timeouts_ms)
    ask_producers(brokers, partitions)
    return brokers.early.is_sent and len(brokers.known_leaders(partitions)) == len(partitions)


def _partition_name(span: TransactionSpan) -> str:
    return format_partitions([span.topic_partition])


def _late(brokers: TransactionAdmin, rows: Sequence[DescribedTransaction], deadline: float) -> set[str]:
    """Return the ids of the transactions that have too little time left, by the clock of the coordinator, which will abort them.

    If a coordinator is too old for that, or cannot answer now, the clock of this process is used.
    """
    nodes = brokers.coordinators([row.transactional_id for row in rows], deadline) if rows else {}
    groups: dict[tuple[int, int], list[DescribedTransaction]] = {}
    for row in rows:
        groups.setdefault((nodes[row.transactional_id], row.transaction_timeout_ms), []).append(row)
    brokers.timeouts_ms = {timeout for _, timeout in groups}
    calls = [_late_call(brokers, node, timeout) for node, timeout in groups]
    found: set[str] = set()
    for group, response in zip(groups.values(), brokers.early.request_all(calls, deadline), strict=True):
        if isinstance(response, PyProducerError) or worst_error(response):
            now = brokers.client.now_ms()
            found |= {row.transactional_id for row in group if _is_late(row, now)}
        else:
            listed = {each.transactional_id for each in response.transaction_states}
            found |= {row.transactional_id for row in group if row.transactional_id in listed}
    return found


def _late_call(brokers: TransactionAdmin, node: int, timeout_ms: int) -> NodeRequest:
    """Return the request for the transactions of the sink's tasks with this timeout that have too little time left."""
    pattern = f"{re.escape(task_prefix(brokers.sink))}.*"
    age_ms = int(timeout_ms * (1 - MIN_TIME_LEFT_FRACTION))
    return NodeRequest(node, LISTING, ListTransactionsRequest((ONGOING,), (), age_ms, pattern))


def _is_late(row: DescribedTransaction, now_ms: int) -> bool:
    age = max(0, now_ms - row.transaction_start_time_ms)
    return row.transaction_timeout_ms - age < row.transaction_timeout_ms * MIN_TIME_LEFT_FRACTION


def _warn_of_short_timeouts(brokers: TransactionAdmin, rows: Sequence[DescribedTransaction]) -> None:
    """Warn once about timeouts that leave less time than the rest of the commit may take: the write could end as PARTIAL."""
    needed = STEPS_LEFT * brokers.client.timeout
    shortest = min((row.transaction_timeout_ms for row in rows), default=0)
    if not rows or shortest in _warned_timeouts or shortest * MIN_TIME_LEFT_FRACTION >= needed * 1000:
        return
    _warned_timeouts.add(shortest)
    logger.warning(
        "sink %r: kafka.transaction.timeout.ms is %d, of which only a third may be left at a commit. With slow brokers a commit "
        "takes up to %d times kafka.max.block.ms: %g s. If transactions time out meanwhile, the write ends as PARTIAL. Raise the "
        "former above %d, or lower the latter",
        brokers.sink,
        shortest,
        STEPS_LEFT,
        needed,
        needed / MIN_TIME_LEFT_FRACTION * 1000,
    )


def _objection(transaction: TaskTransaction, row: DescribedTransaction | None, late: Collection[str]) -> str:
    name = repr(transaction.transactional_id)
    if row is None:
        return f"{name}: its coordinator does not know it"
    if (row.producer_id, row.producer_epoch) != (transaction.producer_id, transaction.epoch):
        return f"{name}: it has timed out, or another producer has taken over its id"
    if row.transaction_state != ONGOING:
        return f"{name}: it is not open, but in state {row.transaction_state}"
    if transaction.transactional_id in late:
        return f"{name}: of its timeout of {row.transaction_timeout_ms / 1000:g} s less than a third is left"
    return ""
