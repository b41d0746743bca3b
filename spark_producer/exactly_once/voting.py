"""The vote before the commit point: is every transaction of a task open, ours, alone, and far from its timeout?"""

from __future__ import annotations

from collections.abc import Sequence

from spark_producer.exactly_once.brokers import Brokers, spoken
from spark_producer.exactly_once.control_record import TaskTransaction
from spark_producer.exactly_once.coordinator_state import ONGOING, describe
from spark_producer.exactly_once.ending import wait_for_leaders
from spark_producer.exactly_once.partition_state import Stretch, unfit
from spark_producer.protocol.messages import DescribedTransaction

LEAST_TIME_LEFT = 1 / 3
"""The part of its timeout that a transaction must have left."""


def objections(brokers: Brokers, transactions: Sequence[TaskTransaction], deadline: float) -> tuple[str, ...]:
    """Return why transactions must not be committed; nothing if all may.

    Raises:
        KafkaTimeout: a coordinator or a leader did not answer. BrokerError: a right is missing.
    """
    wait_for_leaders(brokers, transactions, deadline)
    states = describe(brokers, [each.transactional_id for each in transactions], deadline)
    now = brokers.client.now_ms()
    found = [text for each in transactions if (text := _objection(each, states[each.transactional_id], now))]
    if found:
        return tuple(found)
    owners = {
        Stretch(each.producer_id, span.topic, span.partition, span.first_offset, span.last_offset): each
        for each in transactions
        for span in each.spans
    }
    glued, gone = unfit(brokers, list(owners), deadline)
    return (
        *(
            f"{owners[one].transactional_id!r}: an older transaction of its producer hangs in {_place(one)}"
            for one in glued
        ),
        *(f"{owners[one].transactional_id!r}: its rows are not in {_place(one)} any more" for one in gone),
    )


def _place(stretch: Stretch) -> str:
    return spoken([stretch.where])


def _objection(transaction: TaskTransaction, row: DescribedTransaction | None, now_ms: int) -> str:
    name = repr(transaction.transactional_id)
    if row is None:
        return f"{name}: its coordinator does not know it"
    if (row.producer_id, row.producer_epoch) != (transaction.producer_id, transaction.epoch):
        return f"{name}: it has timed out, or another producer has taken over its id"
    if row.transaction_state != ONGOING:
        return f"{name}: it is not open but in state {row.transaction_state}"
    left = row.transaction_timeout_ms - max(0, now_ms - row.transaction_start_time_ms)
    if left < row.transaction_timeout_ms * LEAST_TIME_LEFT:
        return (
            f"{name}: of its timeout of {row.transaction_timeout_ms / 1000:g} s only {max(0, left) / 1000:g} s are left"
        )
    return ""
