"""The state of transactions at their coordinators, and the open ones of a sink."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from spark_producer.admin.exchange import NodeRequest
from spark_producer.common.cluster import TopicPartition, TransactionVersion
from spark_producer.common.error_codes import Code
from spark_producer.errors import PyProducerError
from spark_producer.exactly_once.cluster.broker_requests import (
    MAX_IDS_PER_REQUEST,
    MOVED,
    TransactionAdmin,
    by_node,
    refused,
    worst_error,
)
from spark_producer.exactly_once.names import PREFIX, is_task_of, sink_of, task_prefix
from spark_producer.exactly_once.protocol.control_record import TaskTransaction
from spark_producer.protocol import DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS
from spark_producer.protocol.messages import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    ListedTransaction,
    ListTransactionsRequest,
)

ONGOING = "Ongoing"
COMPLETE_COMMIT, COMPLETE_ABORT = "CompleteCommit", "CompleteAbort"
PREPARE_COMMIT = "PrepareCommit"
ENDING = frozenset({PREPARE_COMMIT, "PrepareAbort", "PrepareEpochFence"})
"""The states in which a coordinator has decided the transaction and is still writing markers."""


def describe(
    brokers: TransactionAdmin, ids: Collection[str], deadline: float
) -> dict[str, DescribedTransaction | None]:
    """Return the state of each id's transaction; None for an id that its coordinator does not know.

    Raises:
        BrokerError: the right to see it is missing. KafkaTimeout: a coordinator did not answer in time.
    """
    found: dict[str, DescribedTransaction | None] = {}
    left, asked = list(ids), frozenset(ids)
    attempts = brokers.attempts(deadline, "the state of its transactions")
    for _ in attempts:
        calls = _describe_calls(brokers.coordinators(left, deadline))
        for response in brokers.early.request_all(calls, deadline):
            if isinstance(response, PyProducerError):
                attempts.waiting_for = f"the state of its transactions ({response})"
                continue
            for row in response.transaction_states:
                if row.transactional_id not in asked:
                    continue  # a row that was not requested must never count as one of the sink
                if row.error_code in MOVED:
                    attempts.waiting_for = f"the coordinator of {row.transactional_id!r} ({Code(row.error_code).name})"
                elif row.error_code and row.error_code != Code.TRANSACTIONAL_ID_NOT_FOUND:
                    raise refused(
                        row.error_code,
                        f"the transaction of {row.transactional_id!r}",
                        brokers.sink,
                        brokers.client.user,
                    )
                else:
                    found[row.transactional_id] = None if row.error_code else row
        left = [each for each in left if each not in found]
        if not left:
            break
        brokers.forget_coordinators(left)
    return found


def ask_states(brokers: TransactionAdmin, ids: Collection[str]) -> None:
    """Send the requests of `describe` early, if all coordinators are known."""
    nodes = brokers.known_coordinators(ids)
    if len(nodes) == len(ids):
        brokers.early.send(_describe_calls(nodes))


def _describe_calls(nodes: Mapping[str, int]) -> list[NodeRequest]:
    """Return the requests that describe transactional ids; `nodes` has the coordinator of each."""
    return [
        NodeRequest(
            node, DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest(tuple(some[at : at + MAX_IDS_PER_REQUEST]))
        )
        for node, some in by_node(nodes).items()
        for at in range(0, len(some), MAX_IDS_PER_REQUEST)
    ]


def has_committed(
    state: DescribedTransaction | None, producer_id: int, epoch: int, transaction_version: TransactionVersion
) -> bool:
    """Return whether a coordinator has committed this transaction, or is about to. A later one of its id has a newer epoch.

    With `IMPLICIT` the end of a transaction has the next epoch (KIP-890).
    """
    if state is None or state.producer_id != producer_id:
        return False
    last = epoch + 1 if transaction_version is TransactionVersion.IMPLICIT else epoch
    return epoch <= state.producer_epoch <= last and state.transaction_state in (COMPLETE_COMMIT, PREPARE_COMMIT)


def how_ended(
    state: DescribedTransaction | None, producer_id: int, epoch: int, transaction_version: TransactionVersion
) -> bool | None:
    """Return whether a coordinator has committed this transaction; None if it is not the last one of its id.

    An abort has the same epoch or the next one, whether the producer, the timeout or a fence caused it.
    """
    if has_committed(state, producer_id, epoch, transaction_version):
        return True
    if state is None or state.producer_id != producer_id or state.transaction_state != COMPLETE_ABORT:
        return None
    return False if epoch <= state.producer_epoch <= epoch + 1 else None


def partitions_of(row: DescribedTransaction | None) -> list[TopicPartition]:
    """Return the partitions of a transaction that the user has the right to see."""
    return (
        [] if row is None else [TopicPartition(topic.topic, each) for topic in row.topics for each in topic.partitions]
    )


def open_tasks(
    brokers: TransactionAdmin,
    transaction_version: TransactionVersion,
    deadline: float,
    excluding: Collection[str] = (),
    *,
    nodes_known: bool = False,
) -> tuple[TaskTransaction, ...]:
    """Return the open transactions of the sink's tasks on all brokers, without their spans and without the ids in `excluding`.

    `nodes_known` and Raises: as `listed`.
    """
    rows = listed(brokers, _open_tasks_request(brokers), deadline, nodes_known=nodes_known)
    ids = {row.transactional_id for row in rows if row.transaction_state == ONGOING} - set(excluding)
    ids = {each for each in ids if is_task_of(brokers.sink, each)}
    states = describe(brokers, sorted(ids), deadline) if ids else {}
    return tuple(
        TaskTransaction(each, row.producer_id, row.producer_epoch, transaction_version, ())
        for each, row in states.items()
        if row is not None and row.transaction_state == ONGOING
    )


def ask_open_tasks(brokers: TransactionAdmin, *, nodes_known: bool = False) -> None:
    """Send the requests of `open_tasks` early, to the brokers that are known."""
    if not nodes_known:
        brokers.early.send_metadata([])
    body = _open_tasks_request(brokers)
    brokers.early.send(NodeRequest(node, LIST_TRANSACTIONS, body) for node in sorted(brokers.client.brokers))


def _open_tasks_request(brokers: TransactionAdmin) -> ListTransactionsRequest:
    return ListTransactionsRequest((ONGOING,), transactional_id_pattern=f"{re.escape(task_prefix(brokers.sink))}.*")


def open_by_sink(brokers: TransactionAdmin, deadline: float) -> dict[str, tuple[str, ...]]:
    """Return the ids with open transactions by sink, for all sinks of the cluster, also those without a commit so far.

    Raises: as `listed`.
    """
    body = ListTransactionsRequest((ONGOING,), transactional_id_pattern=f"{re.escape(f'{PREFIX}.')}.*")
    ids = {row.transactional_id for row in listed(brokers, body, deadline) if sink_of(row.transactional_id)}
    states = describe(brokers, sorted(ids), deadline) if ids else {}
    found: dict[str, tuple[str, ...]] = {}
    for each in sorted(states):
        row, sink = states[each], sink_of(each)
        if sink is not None and row is not None and row.transaction_state == ONGOING:
            found[sink] = (*found.get(sink, ()), each)
    return found


def listed(
    brokers: TransactionAdmin, body: ListTransactionsRequest, deadline: float, *, nodes_known: bool = False
) -> list[ListedTransaction]:
    """Return the transactions that all brokers list, with retries. The list may have more than was requested.

    The brokers of the cluster are requested first, unless a response has just named them (`nodes_known`).

    Raises:
        KafkaTimeout, BrokerError: a broker does not answer, or refuses.
    """
    found: list[ListedTransaction] = []
    attempts = brokers.attempts(deadline, "")
    for number in attempts:
        refresh = number > 0 or not nodes_known
        nodes = brokers.nodes(deadline, refresh=refresh)  # a broker that has joined since may coordinate some of them
        responses = brokers.early.request_all([NodeRequest(node, LIST_TRANSACTIONS, body) for node in nodes], deadline)
        complete = [one for one in responses if not isinstance(one, PyProducerError) and not worst_error(one)]
        found += [row for response in complete for row in response.transaction_states]
        if len(complete) == len(responses):
            break
        failed = next(one for one in responses if one not in complete)
        cause = str(failed) if isinstance(failed, PyProducerError) else Code(worst_error(failed)).name
        attempts.waiting_for = f"the list of open transactions ({cause})"
        if not isinstance(failed, PyProducerError) and worst_error(failed) not in MOVED:
            raise refused(worst_error(failed), "the list of open transactions", brokers.sink, brokers.client.user)
    return found
