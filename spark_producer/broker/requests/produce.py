"""The handler of Produce.

With acks=all a Produce waits until its batches are confirmed, so that nothing is lost after its acknowledgement; with acks=1
until they are written, which most engines do at once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final

from spark_producer.broker.context import Context, HandlerResult, partition_key
from spark_producer.broker.deferred_response import DeferredResponse, waiting_size
from spark_producer.broker.log.validation import DecompressionBudget, RecordsWithoutKey
from spark_producer.broker.requests.transactional_batches import ADDS_SINCE, check_transactions
from spark_producer.broker.storage.base import Log
from spark_producer.common.cluster import TopicPartition
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError
from spark_producer.protocol import decoded_records, messages

ACKS_ALL: Final = -1
LEGAL_ACKS: Final = (ACKS_ALL, 0, 1)

NO_KEY: Final = "Compacted topic cannot accept message without key in topic partition."
"""The error message of each record without a key in a compacted topic (LogValidator.validateKey)."""


def produce(
    context: Context, version: int, request: messages.ProduceRequest
) -> HandlerResult[messages.ProduceResponse]:
    """Append the batch of each partition, each with its own result. Transactional batches are checked by the coordinator first.

    The last mention of a repeated partition counts, as in Kafka, which collects them in a map (KafkaApis).
    """
    decompression = DecompressionBudget()
    changed: list[Hashable] = []
    responses = []
    failed = unconfirmed = False
    known, unknown = _with_names(context, request)
    last = {TopicPartition(name, each.index): each for name, topic in known for each in topic.partition_data}
    refusals = check_transactions(context, version, request.transactional_id, last)
    for name, topic in known:
        results = []
        for partition in topic.partition_data:
            tp = TopicPartition(name, partition.index)
            if last[tp] is not partition:
                continue
            refusal = refusals.get(tp) if refusals else None
            result, is_final = _append(
                context, request.acks, name, partition, decompression, refusal, new_epochs=version >= ADDS_SINCE
            )
            results.append(result)
            unconfirmed = unconfirmed or not is_final
            if result.error_code == Code.NONE:
                changed.append(partition_key(name, partition.index))
            else:
                failed = True
        responses.append(messages.ProduceTopicResponse(topic.name, topic.topic_id, tuple(results)))
    failed = failed or bool(unknown)
    responses += unknown
    if request.acks == 0:
        return HandlerResult(None, tuple(changed), close=failed)
    response = messages.ProduceResponse(tuple(responses))
    if unconfirmed:
        delayed = DelayedProduce(context, request.acks, response, changed, request.timeout_ms / 1000)
        return HandlerResult(None, tuple(changed), deferred=delayed)
    return HandlerResult(response, tuple(changed))


def _with_names(
    context: Context, request: messages.ProduceRequest
) -> tuple[list[tuple[str, messages.ProduceTopic]], list[messages.ProduceTopicResponse]]:
    """Return the topics of a request with their names, and the responses for ids that no topic has (KIP-516)."""
    known: list[tuple[str, messages.ProduceTopic]] = []
    unknown: list[messages.ProduceTopicResponse] = []
    for topic in request.topic_data:
        try:
            known.append((context.topics.name_of(topic.name, topic.topic_id), topic))
        except BrokerError as error:
            refused = tuple(_refused(each.index, error) for each in topic.partition_data)
            unknown.append(messages.ProduceTopicResponse(topic.name, topic.topic_id, refused))
    return known, unknown


def _append(
    context: Context,
    acks: int,
    topic: str,
    data: messages.ProducePartition,
    decompression: DecompressionBudget,
    refusal: BrokerError | None,
    *,
    new_epochs: bool,
) -> tuple[messages.ProducePartitionResponse, bool]:
    """Append one batch; return its result, and whether that is final."""
    try:
        if acks not in LEGAL_ACKS:
            raise BrokerError(f"illegal acks {acks}. Use -1, 0 or 1", code=Code.INVALID_REQUIRED_ACKS)
        if refusal is not None:
            raise refusal
        partition = context.topics.partition(topic, data.index)
        base_offset = partition.append(decoded_records(data.records), decompression, new_epochs=new_epochs)
        log = partition.log
        is_final = acks == 0 or _is_safe(log, base_offset, acks)
    except BrokerError as error:
        return _refused(data.index, error), True
    result = messages.ProducePartitionResponse(data.index, Code.NONE, base_offset, log_start_offset=log.start_offset)
    return result, is_final


def _refused(index: int, error: BrokerError) -> messages.ProducePartitionResponse:
    rows = error.rows if isinstance(error, RecordsWithoutKey) else ()
    refused = tuple(messages.BatchIndexAndErrorMessage(row, NO_KEY) for row in rows)
    return messages.ProducePartitionResponse(index, error.code, record_errors=refused, error_message=str(error))


class DelayedProduce(DeferredResponse):
    """The delayed response to a Produce, until its batches are as safe as `acks` requires (Kafka's DelayedProduce).

    The request itself is gone: its memory is free again.
    """

    allows_next_produce = True

    def __init__(
        self,
        context: Context,
        acks: int,
        response: messages.ProduceResponse,
        partitions: Iterable[Hashable],
        wait_s: float,
    ) -> None:
        """Delay `response`, which acknowledges batches of `partitions` (`partition_key`), for `wait_s` seconds at most."""
        super().__init__(
            partitions, wait_s, waiting_size(sum(len(each.partition_responses) for each in response.responses))
        )
        self._context = context
        self._acks = acks
        self._response = response

    def is_ready(self) -> bool:
        """Return whether each acknowledged batch is safe or has failed."""
        return all(
            result.error_code != Code.NONE or self._settled(topic, result) is not None
            for topic in self._response.responses
            for result in topic.partition_responses
        )

    def response(self, _max_bytes: int) -> messages.ProduceResponse:
        """Return the current results.

        A batch that failed gets its error; one that may still be confirmed gets REQUEST_TIMED_OUT.
        """
        topics = [
            topic._replace(partition_responses=tuple(self._final(topic, each) for each in topic.partition_responses))
            for topic in self._response.responses
        ]
        return self._response._replace(responses=tuple(topics))

    def _final(
        self, topic: messages.ProduceTopicResponse, result: messages.ProducePartitionResponse
    ) -> messages.ProducePartitionResponse:
        if result.error_code != Code.NONE:
            return result
        return self._settled(topic, result) or _late(result)

    def _settled(
        self, topic: messages.ProduceTopicResponse, result: messages.ProducePartitionResponse
    ) -> messages.ProducePartitionResponse | None:
        """Return the final result of an appended batch, or None if it is not known yet."""
        try:
            topics = self._context.topics
            log = topics.partition(topics.name_of(topic.name, topic.topic_id), result.index).log
            return result if _is_safe(log, result.base_offset, self._acks) else None
        except BrokerError as error:
            return _refused(result.index, error)


def _is_safe(log: Log, offset: int, acks: int) -> bool:
    """Return whether the batch with `offset` can be acknowledged with `acks`, all or 1."""
    return log.is_confirmed(offset) if acks == ACKS_ALL else log.is_written(offset)


def _late(result: messages.ProducePartitionResponse) -> messages.ProducePartitionResponse:
    why = f"the batch at offset {result.base_offset} was not confirmed within the timeout of the request: send it again"
    return _refused(result.index, BrokerError(why, code=Code.REQUEST_TIMED_OUT))
