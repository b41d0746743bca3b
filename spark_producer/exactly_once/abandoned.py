"""Transactions of dead tasks that were aborted, and partitions that do not show it since they have lost the marker (R8).

A coordinator aborts by itself what its producer has left open, whether partitions have a leader just then or not. Nobody asks for
such a transaction any more, but readers of committed rows stand still before it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from spark_producer.errors import PyProducerError
from spark_producer.exactly_once.brokers import Brokers, code_of
from spark_producer.exactly_once.control_record import TopicPartition
from spark_producer.exactly_once.coordinator_state import ENDING, ONGOING, describe
from spark_producer.exactly_once.names import is_task_of
from spark_producer.exactly_once.partition_state import Producers, producers
from spark_producer.protocol import LIST_TRANSACTIONS
from spark_producer.protocol.messages import ActiveProducer, DescribedTransaction, ListTransactionsRequest
from spark_producer.tools.parallel import Call


class Abandoned(NamedTuple):
    """A producer whose transaction is open in a partition, and what its coordinator says: that it is ended."""

    where: TopicPartition
    row: ActiveProducer
    state: DescribedTransaction


def abandoned(
    brokers: Brokers,
    seen: Mapping[TopicPartition, Producers],
    besides: Collection[int],
    deadline: float,
    patience: float,
) -> tuple[Abandoned, ...]:
    """Return the abandoned transactions of the sink's tasks that leaders have shown in `seen`, but for some producer ids.

    Nothing is asked if no other transaction is open in these partitions. Else the sink's are told from those of strangers by
    their ids; and what is abandoned must stay so for `patience` seconds, since a leader may be late with what it shows.

    Raises:
        BrokerError: the right to see it is missing. KafkaTimeout: brokers do not answer.
    """
    suspects = {each: row for each, row in _open(seen) if each[1] not in besides}
    if not suspects:
        return ()
    names = _names(brokers, {producer_id for _, producer_id in suspects}, deadline)
    states = describe(brokers, sorted(names.values()), deadline) if names else {}
    ended = {
        producer_id: row
        for producer_id, name in names.items()
        if (row := states[name]) is not None and row.transaction_state not in {ONGOING, *ENDING}
    }
    left = {each: row for each, row in suspects.items() if each[1] in ended}
    began = brokers.client.clock()
    for _ in brokers.attempts(deadline, "the end of the transactions of dead tasks"):
        now = dict(_open(producers(brokers, {where for where, _ in left}, deadline))) if left else {}
        left = {each: row for each, row in left.items() if each in now and _begin(now[each]) == _begin(row)}
        if not left or brokers.client.clock() - began >= patience:
            break
    return tuple(Abandoned(where, row, ended[producer_id]) for (where, producer_id), row in sorted(left.items()))


def _open(seen: Mapping[TopicPartition, Producers]) -> Iterator[tuple[tuple[TopicPartition, int], ActiveProducer]]:
    for where, rows in seen.items():
        for row in (rows or {}).values():
            if row.current_txn_start_offset >= 0:
                yield (where, row.producer_id), row


def _begin(row: ActiveProducer) -> tuple[int, int]:
    return row.producer_epoch, row.current_txn_start_offset


def _names(brokers: Brokers, producer_ids: Collection[int], deadline: float) -> dict[int, str]:
    """Return the ids of the sink's tasks by producer id. A broker that does not answer now is left to the next look."""
    body = ListTransactionsRequest((), tuple(sorted(producer_ids)))
    calls = [Call(node, LIST_TRANSACTIONS, body) for node in brokers.nodes(deadline, anew=False)]
    return {
        row.producer_id: row.transactional_id
        for answer in brokers.client.ask_all(calls, deadline)
        if not isinstance(answer, PyProducerError) and not code_of(answer)
        for row in answer.transaction_states
        if row.producer_id in producer_ids and is_task_of(brokers.sink, row.transactional_id)
    }
