"""The look-up of many topics and offsets at once: one Metadata request, and one ListOffsets request for each leader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from spark_producer.admin.client import BlockingClient
from spark_producer.admin.exchange import NodeRequest
from spark_producer.common.cluster import NO_LEADER, TopicPartition
from spark_producer.common.error_codes import Action, Code
from spark_producer.errors import ConnectionFailed, KafkaTimeout, PyProducerError, broker_error
from spark_producer.protocol import LIST_OFFSETS
from spark_producer.protocol.messages import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from spark_producer.protocol.messages.cluster import OPERATIONS_UNKNOWN

NO_OFFSET = -1
"""The offset in a response if no record is as late as the requested timestamp."""

READ = 3
"""The bit of the right to read a topic in its authorized operations (AclOperation)."""

READ_ADVICE = {
    Code.TOPIC_AUTHORIZATION_FAILED: "grant READ on the topic to this user",
    Code.CLUSTER_AUTHORIZATION_FAILED: "grant DESCRIBE on the cluster to this user",
}
"""What to do about a missing right to read; the advice of the codes is for writers."""


class FoundTopics(NamedTuple):
    """The partitions of topics that exist, and the names of those that do not."""

    leaders: dict[TopicPartition, int]
    """The node that leads each partition, -1 if none does now."""
    topic_ids: dict[str, bytes]
    """The id of each topic (KIP-516); 16 zero bytes from brokers before 2.8."""
    missing: tuple[str, ...] = ()


def find_topics(client: BlockingClient, topics: Sequence[str] | None) -> FoundTopics:
    """Return the partitions of `topics`; None: of all topics that the user may see and that are not internal.

    Topics without leaders yet, as just after their creation, are waited for.

    Raises:
        BrokerError: the user may not see or read one of `topics`, or the broker refuses for another reason.
        MetadataTimeout: a topic has no leaders within the client's timeout. And as `BlockingClient.metadata`.
    """
    found = FoundTopics({}, {})
    missing = list[str]()
    for row in _topic_rows(client, client.metadata(topics, with_rights=topics is not None)):
        if row.is_internal and topics is None:
            continue
        name = row.name or ""
        if row.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION:
            missing.append(name)
            continue
        if topics is None and row.error_code:  # it is being deleted or made, and was not asked for by name
            continue
        if topics is not None:
            _check_right(client, row)
        leaders = _leaders_of(client, row)
        found.leaders.update((TopicPartition(name, each), leader) for each, leader in enumerate(leaders))
        found.topic_ids[name] = row.topic_id
    return found._replace(missing=tuple(missing))


def _topic_rows(client: BlockingClient, response: MetadataResponse) -> Iterator[MetadataResponseTopic]:
    if response.error_code:
        raise read_error(client, response.error_code, "the list of topics")
    yield from response.topics


def _check_right(client: BlockingClient, row: MetadataResponseTopic) -> None:
    """Raise an error if the brokers report that the user may not read a topic: else each task would fail (KIP-430)."""
    granted = row.topic_authorized_operations
    if not row.error_code and granted != OPERATIONS_UNKNOWN and not granted >> READ & 1:
        raise read_error(client, Code.TOPIC_AUTHORIZATION_FAILED, f"topic {row.name!r}")


def _leaders_of(client: BlockingClient, row: MetadataResponseTopic) -> tuple[int, ...]:
    """Return the leader of each partition. A topic that is not complete in the response is asked for until it is."""
    name, partitions = row.name or "", sorted(row.partitions, key=lambda each: each.partition_index)
    whole = bool(partitions) and [each.partition_index for each in partitions] == list(range(len(partitions)))
    if not row.error_code and whole:
        return tuple(each.leader_id if each.leader_id in client.brokers else NO_LEADER for each in partitions)
    if row.error_code and Action.RETRY not in Code(row.error_code).action:
        raise read_error(client, row.error_code, f"topic {name!r}")
    return client.wait_for_topic(name, may_appear=True)


def list_offsets(
    client: BlockingClient,
    wanted: Mapping[TopicPartition, int],
    leaders: Mapping[TopicPartition, int],
    *,
    isolation_level: int = 0,
) -> dict[TopicPartition, int]:
    """Return the first offset at or after a timestamp (ms, or `EARLIEST`, `LATEST`) for each of `wanted`.

    It is `NO_OFFSET` if no record is as late. With `isolation_level` 1 (read_committed) the latest is the last stable offset.
    The leaders are asked in parallel. Failures that may pass are retried at
    the leaders of that moment, up to the client's timeout.

    Raises:
        TopicNotFound, BrokerError: a topic-partition does not exist, or the broker refuses.
        KafkaTimeout, ConnectionFailed, BrokersUnreachable: a leader cannot be reached in time.
    """
    found: dict[TopicPartition, int] = {}
    left, known = dict(wanted), dict(leaders)
    deadline, attempt = client.deadline(), 0
    while left:
        failed = dict(_ask_leaders(client, left, known, isolation_level, found, deadline))
        pause = client.retry_backoff.delay(attempt)
        if failed and client.clock() + pause >= deadline:
            raise next(iter(failed.values()))
        left = {each: wanted[each] for each in wanted if each in failed}
        if left:
            client.pause(pause)
            topics = find_topics(client, sorted({each.topic for each in left}))
            for each in left:
                if each.topic in topics.missing:
                    raise failed[each]
            known |= topics.leaders
            attempt += 1
    return found


def _ask_leaders(
    client: BlockingClient,
    wanted: Mapping[TopicPartition, int],
    leaders: Mapping[TopicPartition, int],
    isolation_level: int,
    found: dict[TopicPartition, int],
    deadline: float,
) -> Iterator[tuple[TopicPartition, PyProducerError]]:
    """Put the offsets that the leaders return into `found`, and yield the others with the reason, if it may pass.

    Raises: as `list_offsets`, if a retry would fail too.
    """
    by_leader: dict[int, list[TopicPartition]] = {}
    for each in wanted:
        by_leader.setdefault(leaders.get(each, NO_LEADER), []).append(each)
    for each in by_leader.pop(NO_LEADER, ()):
        yield each, read_error(client, Code.LEADER_NOT_AVAILABLE, str(each))
    requests = [
        NodeRequest(leader, LIST_OFFSETS, _request(wanted, asked, isolation_level))
        for leader, asked in by_leader.items()
    ]
    for asked, response in zip(by_leader.values(), client.request_all(requests, deadline), strict=True):
        if isinstance(response, ConnectionFailed | KafkaTimeout):
            yield from ((each, response) for each in asked)
            continue
        if isinstance(response, PyProducerError):
            raise response
        offsets = _offsets_in(response)
        for each in asked:
            code, offset = offsets.get(each, (Code.NETWORK_EXCEPTION, NO_OFFSET))
            if not code and (offset >= 0 or wanted[each] >= 0):
                found[each] = offset
                continue
            code = code or Code.NETWORK_EXCEPTION  # the start and the end of a log are never negative
            error = read_error(client, code, str(each))
            if Action.RETRY not in Code(code).action:
                raise error
            yield each, error


def _request(
    wanted: Mapping[TopicPartition, int], asked: Sequence[TopicPartition], isolation_level: int
) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for each in asked:
        row = ListOffsetsPartition(partition_index=each.partition, timestamp=wanted[each])
        topics.setdefault(each.topic, []).append(row)
    rows = tuple(ListOffsetsTopic(name, tuple(partitions)) for name, partitions in topics.items())
    return ListOffsetsRequest(isolation_level=isolation_level, topics=rows)


def _offsets_in(response: ListOffsetsResponse) -> dict[TopicPartition, tuple[int, int]]:
    """Return the error code and the offset of each topic-partition in a response."""
    return {
        TopicPartition(topic.name, row.partition_index): (row.error_code, row.offset)
        for topic in response.topics
        for row in topic.partitions
    }


def read_error(client: BlockingClient, code: int, subject: str) -> PyProducerError:
    """Return the error of a code in a response to a reader, with the right that it lacks."""
    return broker_error(code, subject, user=client.user, advice=READ_ADVICE.get(Code(code), ""))
