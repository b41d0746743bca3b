"""The handlers of DescribeProducers and WriteTxnMarkers, with which administrators repair hanging transactions (KIP-664).

Such a marker ends a transaction in the partition alone, without the coordinator: it is for transactions that block readers of
committed records and that no coordinator knows any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_producer.broker.context import Context, HandlerResult, partition_key
from spark_producer.broker.deferred_response import DeferredResponse
from spark_producer.broker.log.producer_state import ProducerState
from spark_producer.common.error_codes import Code
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import BrokerError
from spark_producer.protocol import messages

logger = escaping_logger(__name__)

MAX_DESCRIBED_PRODUCERS: Final = 50_000
"""Maximum number of producers in one response. Beyond it partitions are refused: a few bytes of the request name each of them."""

MAX_MARKERS: Final = 1_000
"""Maximum number of markers that one request writes, within a tenth of a second or two; the rest must be sent again. Four bytes
of the request name each of them."""

MARKERS_TIMEOUT_S: Final = 30.0
"""Maximum time in seconds that a request waits for the confirmation of its markers (`request.timeout.ms` of Kafka's brokers)."""


def describe_producers(
    context: Context, _version: int, request: messages.DescribeProducersRequest
) -> HandlerResult[messages.DescribeProducersResponse]:
    """Return the producer state of each partition, with the start of open transactions."""
    left = MAX_DESCRIBED_PRODUCERS
    topics = []
    for topic in request.topics:
        partitions = []
        for index in topic.partition_indexes:
            described = _described(context, topic.name, index, left)
            left -= len(described.active_producers)
            partitions.append(described)
        topics.append(messages.DescribeProducersTopicResult(topic.name, tuple(partitions)))
    return HandlerResult(messages.DescribeProducersResponse(topics=tuple(topics)))


def _described(context: Context, topic: str, index: int, limit: int) -> messages.DescribeProducersPartition:
    try:
        partition = context.topics.partition(topic, index)
        _ = partition.log  # raises if it cannot be opened, since its state is unknown then
        if partition.producer_count > limit:
            raise BrokerError(
                f"the response would exceed {MAX_DESCRIBED_PRODUCERS} producers. Request the other partitions separately",
                code=Code.REQUEST_TIMED_OUT,
            )
    except BrokerError as error:
        return messages.DescribeProducersPartition(index, error.code, str(error))
    return messages.DescribeProducersPartition(
        index, Code.NONE, active_producers=tuple(map(_active, partition.active_producers()))
    )


def _active(producer: ProducerState) -> messages.ActiveProducer:
    return messages.ActiveProducer(
        producer.producer_id,
        producer.producer_epoch,
        producer.last_sequence,
        producer.timestamp,
        producer.coordinator_epoch,
        producer.transaction_start,
    )


def write_txn_markers(
    context: Context, _version: int, request: messages.WriteTxnMarkersRequest
) -> HandlerResult[messages.WriteTxnMarkersResponse]:
    """Write a marker into each partition, by the rules of the coordinator's own. The response is delayed until they are
    confirmed."""
    left = MAX_MARKERS
    written: dict[tuple[str, int], int] = {}
    results = []
    for marker in request.markers:
        topics = []
        for topic in marker.topics:
            partitions = []
            for index in topic.partition_indexes:
                left -= 1
                code = _write(context, topic.name, index, marker, written) if left >= 0 else Code.REQUEST_TIMED_OUT
                partitions.append(messages.WritableTxnMarkerPartitionResult(index, code))
            topics.append(messages.WritableTxnMarkerTopicResult(topic.name, tuple(partitions)))
        results.append(messages.WritableTxnMarkerResult(marker.producer_id, tuple(topics)))
    delayed = DelayedMarkers(context, messages.WriteTxnMarkersResponse(tuple(results)), written)
    if delayed.is_ready():
        return HandlerResult(delayed.response(0), delayed.keys)
    return HandlerResult(None, delayed.keys, deferred=delayed)


class DelayedMarkers(DeferredResponse):
    """The delayed response to WriteTxnMarkers, until each partition has confirmed its last marker, whose offset is in
    `written`."""

    def __init__(
        self, context: Context, response: messages.WriteTxnMarkersResponse, written: Mapping[tuple[str, int], int]
    ) -> None:
        super().__init__([partition_key(*each) for each in written], MARKERS_TIMEOUT_S)
        self._context = context
        self._response = response
        self._written = written

    def is_ready(self) -> bool:
        """Return whether each written marker is confirmed or lost."""
        return all(self._code(*each) != Code.REQUEST_TIMED_OUT for each in self._written)

    def response(self, _max_bytes: int) -> messages.WriteTxnMarkersResponse:
        """Return the current results. A marker that may still be confirmed gets REQUEST_TIMED_OUT."""
        markers = [
            marker._replace(
                topics=tuple(
                    topic._replace(partitions=tuple(self._final(topic.name, each) for each in topic.partitions))
                    for topic in marker.topics
                )
            )
            for marker in self._response.markers
        ]
        return self._response._replace(markers=tuple(markers))

    def _final(
        self, topic: str, result: messages.WritableTxnMarkerPartitionResult
    ) -> messages.WritableTxnMarkerPartitionResult:
        if result.error_code != Code.NONE:
            return result
        return result._replace(error_code=self._code(topic, result.partition_index))

    def _code(self, topic: str, index: int) -> int:
        try:
            log = self._context.topics.partition(topic, index).log
            return Code.NONE if log.is_confirmed(self._written[topic, index]) else Code.REQUEST_TIMED_OUT
        except BrokerError as error:
            return error.code


def _write(
    context: Context,
    topic: str,
    index: int,
    marker: messages.WritableTxnMarker,
    written: dict[tuple[str, int], int],
) -> int:
    """Write one marker, and store its offset; return the error code."""
    try:
        offset = context.topics.partition(topic, index).write_marker(
            marker.producer_id,
            marker.producer_epoch,
            marker.transaction_result,
            marker.coordinator_epoch,
            now_ms=context.coordinator.now_ms(),
        )
    except BrokerError as error:
        return error.code
    logger.warning(
        "topic %s, partition %d: an administrator wrote a marker at offset %d, which %s the transaction of producer %d",
        *(topic, index, offset, "commits" if marker.transaction_result else "aborts", marker.producer_id),
    )
    written[topic, index] = offset
    return Code.NONE
