"""The handler of Fetch.

A Fetch that finds fewer than `min_bytes` waits for more until its timeout (Kafka's DelayedFetch).

With the isolation level read_committed, reading ends at the last stable offset instead of the high watermark, and the response
has the aborted transactions: the consumer skips their records. All responses have control batches, because consumers need them.
"""

from __future__ import annotations

import contextlib
from typing import Final

from spark_producer.broker.context import Context, HandlerResult, partition_key
from spark_producer.broker.deferred_response import DeferredResponse, waiting_size
from spark_producer.broker.log.partition import Partition
from spark_producer.broker.storage.base import LEADER_EPOCH
from spark_producer.common.error_codes import Code
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import BrokerError
from spark_producer.protocol import messages

logger = escaping_logger(__name__)

MAX_FETCH_BYTES: Final = 55 * 1024 * 1024
"""Maximum bytes of records in one response, whatever the client requests (Kafka's `fetch.max.bytes` of a broker)."""

ABORTED_COST: Final = 100
"""Number of bytes that an aborted transaction counts for in a response: thousands may concern the one batch that is read."""

_NO_EPOCH: Final = -1
READ_COMMITTED: Final = 1
"""The isolation level of reading to the last stable offset; with any other, reading ends at the high watermark."""


def must_wait(context: Context, request: messages.FetchRequest) -> bool:
    """Return whether the Fetch has to wait: fewer than `min_bytes` can be read, and there is no error."""
    waiting = 0
    last = _last_mentions(request)
    for topic, wanted in last.values():
        try:
            partition = find_partition(
                context,
                _name_of(context, topic),
                wanted.partition,
                wanted.current_leader_epoch,
            )
            log = partition.log
            log.check_offset(wanted.fetch_offset)
            end = partition.last_stable_offset if request.isolation_level == READ_COMMITTED else None
            waiting += log.available(wanted.fetch_offset, wanted.partition_max_bytes, up_to=end)
        except BrokerError:
            return False
        if waiting >= request.min_bytes:
            return False
    return bool(last) and request.session_id == 0


def _last_mentions(
    request: messages.FetchRequest,
) -> dict[tuple[str, bytes, int], tuple[messages.FetchTopic, messages.FetchPartition]]:
    """Return the request for each partition. The last mention of a repeated one counts, as in Kafka (FetchRequest.fetchData)."""
    return {
        (topic.topic, topic.topic_id, wanted.partition): (topic, wanted)
        for topic in request.topics
        for wanted in topic.partitions
    }


def _name_of(context: Context, topic: messages.FetchTopic) -> str:
    return context.topics.name_of(topic.topic, topic.topic_id)


def _waits_for(context: Context, request: messages.FetchRequest) -> list[object]:
    """Return the keys of the partitions that the request reads, without those of unknown topics, which do not wait."""
    found: list[object] = []
    for topic in request.topics:
        with contextlib.suppress(BrokerError):
            name = _name_of(context, topic)
            found += [partition_key(name, wanted.partition) for wanted in topic.partitions]
    return found


class DelayedFetch(DeferredResponse):
    """The delayed response to a Fetch, until `min_bytes` can be read (Kafka's DelayedFetch)."""

    carries_records = True

    def __init__(self, context: Context, request: messages.FetchRequest) -> None:
        size = waiting_size(sum(1 + len(topic.partitions) for topic in request.topics))
        super().__init__(_waits_for(context, request), request.max_wait_ms / 1000, size)
        self._context = context
        self._request = request

    def is_ready(self) -> bool:
        """Return whether `min_bytes` can be read, or there is an error."""
        return not must_wait(self._context, self._request)

    def response(self, max_bytes: int) -> messages.FetchResponse:
        """Return the records that can be read now."""
        return _read_all(self._context, self._request, max_bytes)


def fetch(context: Context, _version: int, request: messages.FetchRequest) -> HandlerResult[messages.FetchResponse]:
    """Respond, perhaps delayed, with whole batches of each partition: `max_bytes` in all, but at least one batch if there is any
    (KIP-74)."""
    return HandlerResult(None, deferred=DelayedFetch(context, request))


def _read_all(context: Context, request: messages.FetchRequest, max_bytes: int) -> messages.FetchResponse:
    if request.session_id != 0:
        # This broker opens no session (KIP-227), so clients send full requests; this one has another broker's session.
        return messages.FetchResponse(error_code=Code.FETCH_SESSION_ID_NOT_FOUND)
    left = min(request.max_bytes, max_bytes, MAX_FETCH_BYTES)
    is_empty = True
    responses = []
    last = _last_mentions(request)
    for topic in request.topics:
        partitions = []
        for wanted in topic.partitions:
            if last[topic.topic, topic.topic_id, wanted.partition][1] is not wanted:
                continue
            result, size = _read(context, topic, wanted, left, request.isolation_level, at_least_one=is_empty)
            left -= size
            is_empty = is_empty and size == 0
            partitions.append(result)
        responses.append(messages.FetchTopicResponse(topic.topic, topic.topic_id, tuple(partitions)))
    return messages.FetchResponse(responses=tuple(responses))


def _read(
    context: Context,
    topic: messages.FetchTopic,
    wanted: messages.FetchPartition,
    left: int,
    isolation_level: int,
    *,
    at_least_one: bool,
) -> tuple[messages.FetchPartitionResponse, int]:
    """Return the response for one partition, and the bytes that it counts for."""
    limit = max(min(wanted.partition_max_bytes, left), 0)
    try:
        partition = find_partition(context, _name_of(context, topic), wanted.partition, wanted.current_leader_epoch)
        log = partition.log
        log.check_offset(wanted.fetch_offset)
        stable = partition.last_stable_offset
        # No disk access without a byte to read: a request may name thousands of partitions.
        readable = limit > 0 or at_least_one
        records, aborted = b"", None
        if readable:
            end = stable if isolation_level == READ_COMMITTED else None
            records = log.read(wanted.fetch_offset, limit, at_least_one=at_least_one, up_to=end)
        if isolation_level == READ_COMMITTED:
            aborted = _aborted(partition, wanted.fetch_offset, len(records))
    except BrokerError as error:
        if error.code == Code.KAFKA_STORAGE_ERROR:  # the response has no field for the reason
            logger.error(
                "partition %d of topic %s: %s",
                wanted.partition,
                _name_of(context, topic),
                error,
            )
        return messages.FetchPartitionResponse(
            wanted.partition, error.code, high_watermark=-1, aborted_transactions=None, records=b""
        ), 0
    response = messages.FetchPartitionResponse(
        wanted.partition,
        Code.NONE,
        high_watermark=log.high_watermark,
        last_stable_offset=stable,
        log_start_offset=log.start_offset,
        aborted_transactions=aborted,
        records=records,
    )
    return response, len(records) + ABORTED_COST * len(aborted or ())


def _aborted(partition: Partition, first: int, size: int) -> tuple[messages.FetchAbortedTransaction, ...]:
    """Return the aborted transactions of the `size` bytes read from offset `first` on, perhaps with some of later ones."""
    if not size or not partition.has_aborted(first):
        return ()
    last = partition.log.offset_upper_bound(first, size) - 1
    found = partition.aborted_transactions(first, last)
    return tuple(messages.FetchAbortedTransaction(each.producer_id, each.first_offset) for each in found)


def find_partition(context: Context, topic: str, index: int, leader_epoch: int) -> Partition:
    """Return a partition, and check the leader epoch that the client states (-1: none).

    Raises:
        BrokerError: UNKNOWN_TOPIC_OR_PARTITION or UNKNOWN_LEADER_EPOCH.
    """
    partition = context.topics.partition(topic, index)
    if leader_epoch not in (_NO_EPOCH, LEADER_EPOCH):
        raise BrokerError(f"leader epoch is {LEADER_EPOCH}, not {leader_epoch}", code=Code.UNKNOWN_LEADER_EPOCH)
    return partition
