"""Transactions of dead tasks and drivers that were aborted, in partitions that have lost the marker and do not show it (R8).

A coordinator aborts by itself what its producer has left open, whether partitions have a leader just then or not. Nobody asks for
such a transaction any more, but readers of committed rows stand still before it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from spark_producer.common.cluster import Style, TopicPartition
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
    """A transaction that is open in a partition, as its leader shows it, and over by the `state` that its coordinator has."""

    topic_partition: TopicPartition
    row: ActiveProducer
    state: DescribedTransaction

    def was_committed(self, style: Style) -> bool:
        """Whether the coordinator has committed this very transaction, by its epoch. Then it is nobody's who has died.

        What is committed is named by the sink's last word until all partitions show it, so this is not the word of that sink.
        """
        return has_committed(self.state, self.row.producer_id, self.row.producer_epoch, style)


def find_hanging(
    brokers: TransactionAdmin,
    seen: Mapping[TopicPartition, Producers],
    besides: Collection[tuple[TopicPartition, int]],
    deadline: float,
) -> tuple[HangingTransaction, ...]:
    """Return the transactions of the sink's tasks, and of its control id (rows that were left to a driver), that leaders have
    shown in `seen` and that are over, but for some producers in some partitions.

    Nothing is asked if no other transaction is open there. Else the sink's are told from those of strangers by their ids. Leaders
    may be late with what they show: see `still_hanging`.

    Raises:
        BrokerError: the right to see it is missing. KafkaTimeout: not all brokers tell.
    """
    suspects = [(tp, row) for tp, row in _open(seen) if (tp, row.producer_id) not in besides]
    if not suspects:
        return ()
    asked = {row.producer_id for _, row in suspects}
    names = {
        row.producer_id: row.transactional_id
        for row in listed(brokers, ListTransactionsRequest((), tuple(sorted(asked))), deadline)
        if row.producer_id in asked and _is_of(brokers.sink, row.transactional_id)
    }
    states = describe(brokers, sorted(names.values()), deadline) if names else {}
    return tuple(
        HangingTransaction(tp, row, state)
        for tp, row in suspects
        if (state := states.get(names.get(row.producer_id, ""))) is not None and _is_over(state, row)
    )


def still_hanging(
    brokers: TransactionAdmin, found: Collection[HangingTransaction], deadline: float, patience: float
) -> tuple[HangingTransaction, ...]:
    """Return those that partitions still do not end after so many seconds.

    Raises: as `producers`.
    """
    left = {(each.topic_partition, each.row.producer_id): each for each in found}
    began = brokers.client.clock()
    for _ in brokers.attempts(deadline, "the end of the transactions of dead tasks"):
        if not left:
            break
        partitions = {each.topic_partition for each in left.values()}
        brokers.forget_leaders(partitions)  # one that was deposed may not know it
        now = {
            (tp, row.producer_id): transaction_key(row) for tp, row in _open(producers(brokers, partitions, deadline))
        }
        left = {name: each for name, each in left.items() if now.get(name) == transaction_key(each.row)}
        if brokers.client.clock() - began >= patience:
            break
    return tuple(left[name] for name in sorted(left))


def _is_of(sink: str, transactional_id: str) -> bool:
    return transactional_id == control_id(sink) or is_task_of(sink, transactional_id)


def _open(seen: Mapping[TopicPartition, Producers]) -> Iterator[tuple[TopicPartition, ActiveProducer]]:
    for tp, rows in seen.items():
        yield from ((tp, row) for row in (rows or {}).values() if row.current_txn_start_offset >= 0)


def _is_over(state: DescribedTransaction, row: ActiveProducer) -> bool:
    """Whether the coordinator has ended the transaction of a row: each has an epoch of its own, so a newer one is the next.

    While markers are on their way, that of this transaction may be. A coordinator with an older epoch was deposed.
    """
    if state.transaction_state in ENDING or state.producer_id != row.producer_id:
        return False
    if state.producer_epoch == row.producer_epoch:
        return state.transaction_state in (COMPLETE_ABORT, COMPLETE_COMMIT)
    return state.producer_epoch > row.producer_epoch
