"""EndTxn for the tasks' transactions: the driver ends thousands at once, by id, epoch and transaction version alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from spark_producer.common.cluster import TopicPartition, TransactionVersion
from spark_producer.common.error_codes import FENCING, Code
from spark_producer.common.failpoints import failpoint
from spark_producer.errors import KafkaTimeout, PyProducerError
from spark_producer.exactly_once.cluster.broker_requests import (
    TransactionAdmin,
    format_partitions,
    refused,
    worst_error,
)
from spark_producer.exactly_once.cluster.coordinator_state import ask_states, describe, partitions_of
from spark_producer.exactly_once.names import control_id
from spark_producer.exactly_once.protocol.commands import Ended, EndRefused
from spark_producer.exactly_once.protocol.control_record import TaskTransaction
from spark_producer.protocol import END_TXN, Api
from spark_producer.protocol.messages import EndTxnRequest, EndTxnResponse

END_TXN_APIS: dict[TransactionVersion, Api[EndTxnRequest, EndTxnResponse]] = {
    TransactionVersion.EXPLICIT: END_TXN._replace(max_version=4),
    TransactionVersion.IMPLICIT: END_TXN._replace(min_version=5),
}
"""A repeated request must have the same version: another one is refused after the first, which would say nothing."""

_REFUSALS = FENCING | {Code.INVALID_TXN_STATE}


def end_tasks(
    brokers: TransactionAdmin, transactions: Sequence[TaskTransaction], commit: bool, deadline: float
) -> tuple[Ended | EndRefused, ...]:
    """Commit or abort transactions, and return the coordinators' result for each, in order.

    A request without a response is sent again: that is harmless, since each transaction has its own epoch. After a commit the
    logs are read, so the requests for the transactions' states, which that needs, follow at once.

    Raises:
        KafkaTimeout: some had no response in time; the message names one of them, and the partitions that it waits for.
        BrokerError: a coordinator refuses for another reason than that the transaction has ended.
    """
    wait_for_leaders(brokers, transactions, deadline)
    responses: dict[str, Any] = {}
    for transaction_version in TransactionVersion:
        requests = {
            each.transactional_id: EndTxnRequest(each.transactional_id, each.producer_id, each.epoch, commit)
            for each in transactions
            if each.transaction_version is transaction_version
        }
        responses |= (
            brokers.request_coordinators(
                END_TXN_APIS[transaction_version],
                requests,
                deadline,
                resend=True,
                ask_next=partial(ask_states, brokers, [*requests, control_id(brokers.sink)])
                if commit
                else lambda: None,
            )
            if requests
            else {}
        )
    return tuple(_result(brokers, each, responses[each.transactional_id]) for each in transactions)


def _result(
    brokers: TransactionAdmin, transaction: TaskTransaction, response: EndTxnResponse | PyProducerError
) -> Ended | EndRefused:
    if isinstance(response, PyProducerError):
        raise KafkaTimeout(f"{_named(brokers, transaction)} was not ended in time: {response}") from response
    code = worst_error(response)
    failpoint("task.ended")
    if not code:
        return Ended()
    if code in _REFUSALS:
        return EndRefused(code)
    if code == Code.CONCURRENT_TRANSACTIONS:
        raise KafkaTimeout(
            f"{_named(brokers, transaction)} is still being ended; {describe_wait(brokers, transaction.transactional_id)}"
        )
    raise refused(code, f"the end of transaction {transaction.transactional_id!r}", brokers.sink, brokers.client.user)


def _named(brokers: TransactionAdmin, transaction: TaskTransaction) -> str:
    return f"exactlyOnceId {brokers.sink!r}: transaction {transaction.transactional_id!r}"


def wait_for_leaders(brokers: TransactionAdmin, transactions: Sequence[TaskTransaction], deadline: float) -> None:
    """Wait until every partition of the transactions has a live leader: Kafka 4.3 drops the marker of one without a leader (R9).

    Raises:
        KafkaTimeout: some still have none; the message names them.
    """
    partitions: set[TopicPartition] = {
        TopicPartition(span.topic, span.partition) for each in transactions for span in each.spans
    }
    unknown = [each.transactional_id for each in transactions if not each.spans]
    for row in describe(brokers, unknown, deadline).values() if unknown else ():
        partitions |= set(partitions_of(row))
    require_leaders(brokers, partitions, deadline)


def require_leaders(brokers: TransactionAdmin, partitions: set[TopicPartition], deadline: float) -> None:
    """Wait until all these partitions have a live leader.

    Raises:
        KafkaTimeout: some still have none; the message names them.
    """
    leaderless = sorted(partitions)
    if not leaderless:
        return
    attempts = brokers.attempts(deadline, "")
    for _ in attempts:
        leaderless = brokers.leaderless(leaderless, deadline)
        if not leaderless:
            return
        attempts.waiting_for = f"a live leader of {format_partitions(leaderless)}: start its broker"


def describe_wait(brokers: TransactionAdmin, transactional_id: str) -> str:
    """Return the text for messages of what an unfinished transaction waits for."""
    deadline = brokers.client.clock() + 2
    try:
        row = describe(brokers, [transactional_id], deadline)[transactional_id]
        partitions = partitions_of(row)
        leaderless = brokers.leaderless(partitions, deadline) if partitions else []
    except PyProducerError as error:
        return f"its coordinator does not answer what it waits for ({error})"
    state = "unknown to its coordinator" if row is None else f"in state {row.transaction_state}"
    missing = (
        f", of which {format_partitions(leaderless)} have no live leader: start their brokers" if leaderless else ""
    )
    return f"it is {state}, and still has to write markers to {format_partitions(partitions) or 'no visible partition'}{missing}"
