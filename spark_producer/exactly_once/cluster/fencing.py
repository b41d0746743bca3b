"""The fence: a new epoch of the control id, which ends the open transaction of any earlier driver."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from spark_producer.common.cluster import ProducerIdAndEpoch
from spark_producer.common.error_codes import Code
from spark_producer.errors import KafkaTimeout, PyProducerError, broker_error
from spark_producer.exactly_once.cluster.broker_requests import TransactionAdmin, refused, worst_error
from spark_producer.exactly_once.cluster.coordinator_state import ENDING, describe, partitions_of
from spark_producer.exactly_once.cluster.end_transactions import describe_wait, require_leaders
from spark_producer.exactly_once.cluster.last_commit import CONTROL_TIMEOUT_MS, noted_commit, timeout_ms
from spark_producer.exactly_once.names import control_id
from spark_producer.exactly_once.protocol.commands import ControlIdHolder, Fenced
from spark_producer.protocol import INIT_PRODUCER_ID
from spark_producer.protocol.messages import InitProducerIdRequest


def fence(
    brokers: TransactionAdmin, topic: str, deadline: float, send_early: Callable[[], None] = lambda: None
) -> Fenced:
    """Take the next epoch of the sink's control id, and find the leader of the control topic and the note of the last commit.

    The coordinator itself is asked for the leader. It has written the marker of the sink's last transaction into the control
    topic, so it knows the leader that took it, or a newer one. Any other broker may be cut off and name a deposed leader, which,
    if it is cut off as well, would show an older control record as the last one.

    `send_early` is called when the epoch is taken: what it sends is in flight together with the request for the leader.

    Without a response the request for an epoch is sent again: each attempt only takes a newer one.

    Raises:
        KafkaTimeout: a transaction of an earlier holder could not be ended in time; the message names the partitions.
        BrokerError: a right is missing, or the cluster allows less than a minute for a transaction.
    """
    own = control_id(brokers.sink)
    for _ in brokers.attempts(deadline, f"the coordinator of {own!r}"):
        fenced = _take(brokers, own, deadline)
        send_early()
        if brokers.learn_from_coordinator(own, [topic], deadline):
            return fenced
    raise AssertionError


def _take(brokers: TransactionAdmin, own: str, deadline: float) -> Fenced:
    row = describe(brokers, [own], deadline)[own]
    require_leaders(brokers, set(partitions_of(row)), deadline)
    noted = noted_commit(row)
    body = InitProducerIdRequest(own, timeout_ms(noted, CONTROL_TIMEOUT_MS))
    response = brokers.request_coordinators(INIT_PRODUCER_ID, {own: body}, deadline, resend=True)[own]
    if isinstance(response, PyProducerError):
        raise response
    code = worst_error(response)
    if code == Code.CONCURRENT_TRANSACTIONS:
        raise KafkaTimeout(
            f"exactlyOnceId {brokers.sink!r}: the transaction of an earlier driver is still being ended; "
            f"{describe_wait(brokers, own)}"
        )
    if code:
        raise refused(
            code,
            f"taking over {own!r} (transaction timeout {body.transaction_timeout_ms} ms)",
            brokers.sink,
            brokers.client.user,
        )
    if response.producer_id < 0 or response.producer_epoch < 0:  # rows with these would be outside of a transaction
        raise broker_error(
            Code.UNKNOWN_SERVER_ERROR, f"taking over {own!r}: its coordinator gave no producer id or epoch"
        )
    fencing = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
    return Fenced(fencing, noted, -1 if row is None else row.producer_epoch)


def holder(brokers: TransactionAdmin, topic: str, deadline: float) -> ControlIdHolder:
    """Return the holder of the control id without fencing it, once no transaction of the id is being completed.

    Like `fence`, it learns the leader of the control topic from the coordinator.

    Raises:
        KafkaTimeout, BrokerError: as `fence`.
    """
    own = control_id(brokers.sink)
    for _ in brokers.attempts(deadline, lambda: f"the end of the last write of {own!r}; {describe_wait(brokers, own)}"):
        row = describe(brokers, [own], deadline)[own]
        if row is not None and row.transaction_state in ENDING:
            continue
        if brokers.learn_from_coordinator(own, [topic], deadline):
            if row is None:
                return ControlIdHolder(None)
            return ControlIdHolder(ProducerIdAndEpoch(row.producer_id, row.producer_epoch), noted_commit(row))
    raise AssertionError


def is_overtaken(brokers: TransactionAdmin, fencing: ProducerIdAndEpoch, deadline: float) -> bool:
    """Return whether another writer is known to have taken the control id since. Only messages depend on it."""
    own = control_id(brokers.sink)
    with suppress(PyProducerError):
        row = describe(brokers, [own], deadline)[own]
        return row is not None and (row.producer_id, row.producer_epoch) != fencing
    return False
