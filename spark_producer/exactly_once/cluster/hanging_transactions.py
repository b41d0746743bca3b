"""Hanging transactions (KIP-664) of dead tasks and drivers: aborted ones whose marker a partition has lost (R8).

A coordinator aborts a transaction after its timeout, even if a partition has no leader at that moment. No driver
ends such a transaction again, but the last stable offset of the partition stays before it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from spark_producer.common.cluster import TopicPartition, TransactionVersion
from spark_producer.exactly_once.cluster.broker_requests import TransactionAdmin
from spark_producer.exactly_once.cluster.coordinator_state import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    ENDING,
    describe,
    has_committed,
    listed,
)
from spark_producer.exactly_once.cluster.partition_state import Producers, producers, transaction_key
from spark_producer.exactly_once.names import control_id, is_task_of
from spark_producer.protocol.messages import ActiveProducer, DescribedTransaction, ListTransactionsRequest


class HangingTransaction(NamedTuple):
    """A transaction that is open in a partition, by the `row` of its leader, and has ended by the `state` of its coordinator."""

    topic_partition: TopicPartition
    row: ActiveProducer
    state: DescribedTransaction

    def was_committed(self, transaction_version: TransactionVersion) -> bool:
        """Return whether the coordinator has committed this transaction, by its epoch. Then it is not a dead task's.

        The sink's last control record names committed transactions until all partitions have the marker. If it does not name
        this one, it is not the last record of that sink.
        """
        return has_committed(self.state, self.row.producer_id, self.row.producer_epoch, transaction_version)


def find_hanging(
    brokers: TransactionAdmin,
    seen: Mapping[TopicPartition, Producers],
    excluding: Collection[tuple[TopicPartition, int]],
    deadline: float,
) -> tuple[HangingTransaction, ...]:
    """Return the ended transactions of the sink's tasks and of its control id (rows of inline tasks) that are open in `seen`.

    `seen` has the producers by partition, as their leaders report them; those in `excluding` are left out. Without open
    transactions no request is sent. The sink's transactions are recognized by their ids. Leaders may report a marker late: see
    `still_hanging`.

    Raises:
        BrokerError: a right is missing. KafkaTimeout: not all brokers answer.
    """
    candidates = [(tp, row) for tp, row in _open(seen) if (tp, row.producer_id) not in excluding]
    if not candidates:
        return ()
    asked = {row.producer_id for _, row in candidates}
    names = {
        row.producer_id: row.transactional_id
        for row in listed(brokers, ListTransactionsRequest((), tuple(sorted(asked))), deadline)
        if row.producer_id in asked and _is_of(brokers.sink, row.transactional_id)
    }
    states = describe(brokers, sorted(names.values()), deadline) if names else {}
    return tuple(
        HangingTransaction(tp, row, state)
        for tp, row in candidates
        if (state := states.get(names.get(row.producer_id, ""))) is not None and _is_over(state, row)
    )


def still_hanging(
    brokers: TransactionAdmin, found: Collection[HangingTransaction], deadline: float, grace_period: float
) -> tuple[HangingTransaction, ...]:
    """Return those that are still open in their partitions after `grace_period` seconds.

    Raises: as `producers`.
    """
    remaining = {(each.topic_partition, each.row.producer_id): each for each in found}
    began = brokers.client.clock()
    for _ in brokers.attempts(deadline, "the end of the transactions of dead tasks"):
        if not remaining:
            break
        partitions = {each.topic_partition for each in remaining.values()}
        brokers.forget_leaders(partitions)  # a deposed leader may not know that it is one
        now = {
            (tp, row.producer_id): transaction_key(row) for tp, row in _open(producers(brokers, partitions, deadline))
        }
        remaining = {name: each for name, each in remaining.items() if now.get(name) == transaction_key(each.row)}
        if brokers.client.clock() - began >= grace_period:
            break
    return tuple(remaining[name] for name in sorted(remaining))


def _is_of(sink: str, transactional_id: str) -> bool:
    return transactional_id == control_id(sink) or is_task_of(sink, transactional_id)


def _open(seen: Mapping[TopicPartition, Producers]) -> Iterator[tuple[TopicPartition, ActiveProducer]]:
    for tp, rows in seen.items():
        yield from ((tp, row) for row in (rows or {}).values() if row.current_txn_start_offset >= 0)


def _is_over(state: DescribedTransaction, row: ActiveProducer) -> bool:
    """Return whether the coordinator has ended the transaction of a row. Each transaction has its own epoch.

    While markers are being written, that of this transaction may be among them. A coordinator with an older epoch was deposed.
    """
    if state.transaction_state in ENDING or state.producer_id != row.producer_id:
        return False
    if state.producer_epoch == row.producer_epoch:
        return state.transaction_state in (COMPLETE_ABORT, COMPLETE_COMMIT)
    return state.producer_epoch > row.producer_epoch
