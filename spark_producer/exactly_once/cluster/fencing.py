"""The fence: a new epoch of the control id, which ends what any earlier driver had begun to write."""

from __future__ import annotations

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


def fence(brokers: TransactionAdmin, topic: str, deadline: float) -> Fenced:
    """Take the next epoch of the sink's control id, and find the leader of the control topic and the note of the last commit.

    That is asked of the coordinator itself. It has written the end of the sink's last transaction into the control topic, so it
    knows the leader that took it, or a newer one. Any other broker may be cut off, and name a leader that was deposed since: that
    one, if it is cut off as well, would show an older word as the last one.

    The epoch is asked for again when no answer comes: each attempt is only a newer one.

    Raises:
        KafkaTimeout: a transaction of an earlier holder could not be ended in time; the text names the partitions.
        BrokerError: a right is missing, or the cluster allows less than a minute for a transaction.
    """
    own = control_id(brokers.sink)
    for _ in brokers.attempts(deadline, f"the coordinator of {own!r}"):
        fenced = _take(brokers, own, deadline)
        if brokers.learn_from_coordinator(own, [topic], deadline):
            return fenced
    raise AssertionError


def _take(brokers: TransactionAdmin, own: str, deadline: float) -> Fenced:
    row = describe(brokers, [own], deadline)[own]
    require_leaders(brokers, set(partitions_of(row)), deadline)
    noted = noted_commit(row)
    body = InitProducerIdRequest(own, timeout_ms(noted, CONTROL_TIMEOUT_MS))
    answer = brokers.settle(INIT_PRODUCER_ID, {own: body}, deadline, resend=True)[own]
    if isinstance(answer, PyProducerError):
        raise answer
    code = worst_error(answer)
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
    if answer.producer_id < 0 or answer.producer_epoch < 0:  # with these rows would be in no transaction
        raise broker_error(
            Code.UNKNOWN_SERVER_ERROR, f"taking over {own!r}: its coordinator gave no producer id or epoch"
        )
    fencing = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
    return Fenced(fencing, noted, -1 if row is None else row.producer_epoch)


def holder(brokers: TransactionAdmin, topic: str, deadline: float) -> ControlIdHolder:
    """Return who holds the control id, without fencing, when no transaction of it is just being ended.

    As `fence`, it learns from the coordinator who leads the control topic.

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
    """Whether it is known that another writer has taken the control id since. Nothing but words depends on it."""
    own = control_id(brokers.sink)
    with suppress(PyProducerError):
        row = describe(brokers, [own], deadline)[own]
        return row is not None and (row.producer_id, row.producer_epoch) != fencing
    return False
