"""The handlers of transactional producers' requests, and of those that describe and list transactions.

The coordinator's error codes are those of the newest versions; older versions get an older code for a fenced producer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from spark_producer.broker.context import Context, HandlerResult, partition_key
from spark_producer.broker.coordinator.coordinator import MAX_NAME_LENGTH, NO_PRODUCER
from spark_producer.broker.coordinator.transactions import UNSET, Transaction, TransactionState
from spark_producer.broker.requests.patterns import matching_names
from spark_producer.common.cluster import ProducerIdAndEpoch, TopicPartition
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError
from spark_producer.protocol import messages

_FENCED_SINCE_INIT: Final = 4
_FENCED_SINCE: Final = 2
"""The first versions of InitProducerId and of the other requests with PRODUCER_FENCED (KIP-360)."""

_IMPLICIT_END: Final = 5
"""The first version of EndTxn that raises the epoch (KIP-890)."""

_STATE_NAMES: Final = frozenset(state.value for state in TransactionState) | {"PrepareEpochFence"}
"""The states that a filter may name. Kafka's PrepareEpochFence never shows here: it is the moment before an abort."""


def init_producer_id(
    context: Context, version: int, request: messages.InitProducerIdRequest
) -> HandlerResult[messages.InitProducerIdResponse]:
    """Return a producer id and epoch. Without a transactional id they are new, whatever the client had, as in Kafka."""
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    try:
        if (producer.producer_id == UNSET) != (producer.epoch == UNSET) or request.transactional_id == "":
            raise BrokerError(
                "a producer id needs an epoch, and a transactional id must not be empty", code=Code.INVALID_REQUEST
            )
        if request.transactional_id is None:
            code, given = Code.NONE, ProducerIdAndEpoch(context.topics.directory.new_producer_id(), 0)
        else:
            code, given = context.coordinator.init_producer_id(
                request.transactional_id, request.transaction_timeout_ms, None if producer == NO_PRODUCER else producer
            )
    except BrokerError as error:
        code, given = Code(error.code), NO_PRODUCER
    if version < _FENCED_SINCE_INIT:
        code = _older_code(code)
    body = messages.InitProducerIdResponse(error_code=code, producer_id=given.producer_id, producer_epoch=given.epoch)
    return HandlerResult(body, _changed(context))


def _older_code(code: Code) -> Code:
    return Code.INVALID_PRODUCER_EPOCH if code == Code.PRODUCER_FENCED else code


def _changed(context: Context) -> tuple[object, ...]:
    return tuple(partition_key(*partition) for partition in context.coordinator.take_changed())


def add_partitions(
    context: Context, version: int, request: messages.AddPartitionsToTxnRequest
) -> HandlerResult[messages.AddPartitionsToTxnResponse]:
    """Add partitions to a transaction. If one of them does not exist, none is added."""
    topics = request.v3_and_below_topics
    wanted = [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]
    unknown = {partition for partition in wanted if not context.topics.has_partition(*partition)}
    if unknown:
        codes = {
            partition: Code.UNKNOWN_TOPIC_OR_PARTITION if partition in unknown else Code.OPERATION_NOT_ATTEMPTED
            for partition in wanted
        }
    else:
        producer = ProducerIdAndEpoch(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        code = _added(context, version, request.v3_and_below_transactional_id, producer, wanted, ())
        codes = dict.fromkeys(wanted, code)
    by_topic: dict[str, list[messages.AddPartitionsToTxnPartitionResult]] = {}
    for (name, index), code in codes.items():
        by_topic.setdefault(name, []).append(messages.AddPartitionsToTxnPartitionResult(index, code))
    results = [messages.AddPartitionsToTxnTopicResult(name, tuple(rows)) for name, rows in by_topic.items()]
    return HandlerResult(messages.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=tuple(results)))


def _added(
    context: Context,
    version: int,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    partitions: list[TopicPartition],
    groups: tuple[str, ...],
) -> Code:
    if not transactional_id:
        return Code.INVALID_REQUEST
    try:
        code = context.coordinator.add(transactional_id, producer, partitions, groups)
    except BrokerError as error:
        code = Code(error.code)
    return _older_code(code) if version < _FENCED_SINCE else code


def add_offsets(
    context: Context, version: int, request: messages.AddOffsetsToTxnRequest
) -> HandlerResult[messages.AddOffsetsToTxnResponse]:
    """Add a group to a transaction, which will commit its offsets."""
    if len(request.group_id) > MAX_NAME_LENGTH:
        return HandlerResult(messages.AddOffsetsToTxnResponse(error_code=Code.INVALID_GROUP_ID))
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    code = _added(context, version, request.transactional_id, producer, [], (request.group_id,))
    return HandlerResult(messages.AddOffsetsToTxnResponse(error_code=code))


def end_txn(context: Context, version: int, request: messages.EndTxnRequest) -> HandlerResult[messages.EndTxnResponse]:
    """Commit or abort a transaction, by the rules of the request's version (KIP-890)."""
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    if not request.transactional_id:
        return HandlerResult(messages.EndTxnResponse(error_code=Code.INVALID_REQUEST))
    try:
        code, following = context.coordinator.end(
            request.transactional_id, producer, commit=request.committed, implicit=version >= _IMPLICIT_END
        )
    except BrokerError as error:
        code, following = Code(error.code), NO_PRODUCER
    if version < _FENCED_SINCE:
        code = _older_code(code)
    body = messages.EndTxnResponse(error_code=code, producer_id=following.producer_id, producer_epoch=following.epoch)
    return HandlerResult(body, _changed(context))


def describe_transactions(
    context: Context, _version: int, request: messages.DescribeTransactionsRequest
) -> HandlerResult[messages.DescribeTransactionsResponse]:
    """Return the state of each of these ids, once for each. Groups whose offsets are committed are not shown."""
    known = context.coordinator.transactions
    rows = [_described(name, known.get(name)) for name in dict.fromkeys(request.transactional_ids)]
    return HandlerResult(messages.DescribeTransactionsResponse(transaction_states=tuple(rows)))


def _described(transactional_id: str, transaction: Transaction | None) -> messages.DescribedTransaction:
    if transaction is None:
        code = Code.TRANSACTIONAL_ID_NOT_FOUND if transactional_id else Code.INVALID_REQUEST
        return messages.DescribedTransaction(code, transactional_id)
    return messages.DescribedTransaction(
        Code.NONE,
        transactional_id,
        transaction.state.value,
        transaction.timeout_ms,
        transaction.started_ms,
        transaction.producer_id,
        transaction.epoch,
        tuple(_by_topic(transaction.partitions)),
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> list[messages.DescribedTransactionTopic]:
    topics: dict[str, list[int]] = {}
    for name, index in sorted(partitions):
        topics.setdefault(name, []).append(index)
    return [messages.DescribedTransactionTopic(name, tuple(indexes)) for name, indexes in topics.items()]


def list_transactions(
    context: Context, _version: int, request: messages.ListTransactionsRequest
) -> HandlerResult[messages.ListTransactionsResponse]:
    """Return the ids that pass all filters (KIP-664, KIP-994, KIP-1152)."""
    unknown = tuple(name for name in request.state_filters if name not in _STATE_NAMES)
    states, producers = frozenset(request.state_filters), frozenset(request.producer_id_filters)
    now = context.coordinator.now_ms()
    found = {
        name: transaction
        for name, transaction in context.coordinator.transactions.items()
        if (not states or transaction.state.value in states)
        and (not producers or transaction.producer_id in producers)
        and (request.duration_filter < 0 or now - transaction.started_ms > request.duration_filter)
    }
    try:
        pattern = request.transactional_id_pattern
        names = matching_names(list(found), pattern) if pattern else list(found)
    except ValueError:
        return HandlerResult(messages.ListTransactionsResponse(error_code=Code.INVALID_REGULAR_EXPRESSION))
    rows = [messages.ListedTransaction(name, found[name].producer_id, found[name].state.value) for name in names]
    return HandlerResult(
        messages.ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=tuple(rows))
    )
