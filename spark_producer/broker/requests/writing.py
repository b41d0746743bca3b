"""The requests of producers: Produce and InitProducerId.

Owns: from request tuple to response tuple.
Must not know: sockets; how a batch is checked and stored (`partition`).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from spark_producer.broker.context import Answer, Context, partition_key
from spark_producer.broker.validation import Unpacking
from spark_producer.codes import Code
from spark_producer.errors import BrokerError
from spark_producer.protocol import messages

LEGAL_ACKS: Final = (-1, 0, 1)


def produce(context: Context, _version: int, request: messages.ProduceRequest) -> Answer:
    """Append each partition's batch, each with its own result.

    Of a partition that is named twice the last naming counts, as in Kafka, which gathers them in a map (KafkaApis).
    """
    unpacking = Unpacking()
    changed: list[Hashable] = []
    responses = []
    failed = False
    last = {
        (topic.name, partition.index): partition for topic in request.topic_data for partition in topic.partition_data
    }
    for topic in request.topic_data:
        results = []
        for partition in topic.partition_data:
            if last[topic.name, partition.index] is not partition:
                continue
            result = _append(context, request.acks, topic.name, partition, unpacking)
            results.append(result)
            if result.error_code == Code.NONE:
                changed.append(partition_key(topic.name, partition.index))
            failed = failed or result.error_code != Code.NONE
        responses.append(messages.ProduceTopicResponse(topic.name, tuple(results)))
    if request.acks == 0:
        return Answer(None, tuple(changed), close=failed)
    return Answer(messages.ProduceResponse(tuple(responses)), tuple(changed))


def _append(
    context: Context, acks: int, topic: str, data: messages.ProducePartition, unpacking: Unpacking
) -> messages.ProducePartitionResponse:
    try:
        if acks not in LEGAL_ACKS:
            raise BrokerError(f"acks is {acks}; legal are -1, 0 and 1", code=Code.INVALID_REQUIRED_ACKS)
        partition = context.topics.partition(topic, data.index)
        records = data.records
        if records is not None and not isinstance(records, memoryview):
            raise TypeError(f"decoded records are a memoryview, not {type(records).__name__}")
        base_offset = partition.append(records, unpacking)
    except BrokerError as error:
        return messages.ProducePartitionResponse(data.index, error.code, error_message=str(error))
    return messages.ProducePartitionResponse(
        data.index, Code.NONE, base_offset, log_start_offset=partition.log.start_offset
    )


def init_producer_id(context: Context, _version: int, request: messages.InitProducerIdRequest) -> Answer:
    """A new producer id with epoch 0, whatever id the client had before: so does Kafka without a transactional id."""
    if request.transactional_id is not None:
        # Transactions need a coordinator, which ApiVersions does not offer.
        return Answer(messages.InitProducerIdResponse(error_code=Code.INVALID_REQUEST))
    try:
        producer_id = context.topics.new_producer_id()
    except BrokerError as error:
        return Answer(messages.InitProducerIdResponse(error_code=error.code))
    return Answer(messages.InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))
