"""Commits the offsets of a consumer group, as a client that is not a member of it (Kafka's simple consumer)."""

from __future__ import annotations

from collections.abc import Mapping

from spark_producer.admin.client import BlockingClient
from spark_producer.common.cluster import TopicPartition
from spark_producer.common.error_codes import Action, Code
from spark_producer.errors import ConnectionFailed, KafkaTimeout, PyProducerError, broker_error
from spark_producer.protocol import FIND_COORDINATOR, OFFSET_COMMIT
from spark_producer.protocol.messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

GROUP_KEY_TYPE = 0
"""The key type of a group in FindCoordinator; transactional ids have 1."""


class GroupOffsets:
    """The committed offsets of one group. It remembers the group's coordinator between commits."""

    def __init__(self, client: BlockingClient, group: str) -> None:
        self._client = client
        self._group = group
        self._coordinator: int | None = None

    def commit(self, offsets: Mapping[TopicPartition, int], timeout: float) -> None:
        """Commit the next offset to read of each topic-partition, within `timeout` seconds.

        Raises:
            BrokerError: the user lacks READ on the group or a topic, the group has members, or the broker refuses for another
                reason. BrokersUnreachable, KafkaTimeout, ConnectionFailed: the coordinator does not respond in time.
        """
        deadline, attempt = self._client.clock() + timeout, 0
        body = _request(self._group, offsets)
        while True:
            error = self._try(body, deadline)
            if error is None:
                return
            pause = self._client.retry_backoff.delay(attempt)
            if not _may_pass(error) or self._client.clock() + pause >= deadline:
                raise error
            self._coordinator = None
            self._client.pause(pause)
            attempt += 1

    def _try(self, body: OffsetCommitRequest, deadline: float) -> PyProducerError | None:
        """Return the error of one attempt, None after a commit."""
        try:
            if self._coordinator is None:
                self._coordinator = self._find_coordinator(deadline)
            response = self._client.request(OFFSET_COMMIT, body, node=self._coordinator, deadline=deadline)
        except PyProducerError as error:
            return error
        return self._first_error(response)

    def _find_coordinator(self, deadline: float) -> int:
        body = FindCoordinatorRequest(self._group, GROUP_KEY_TYPE, (self._group,))
        response: FindCoordinatorResponse = self._client.request_any(FIND_COORDINATOR, body, deadline)
        row = response.coordinators[0] if response.coordinators else response  # before version 4 it is one
        if row.error_code:
            raise broker_error(row.error_code, self._subject, row.error_message, user=self._client.user)
        if row.node_id not in self._client.brokers:
            self._client.metadata([], deadline)
        return row.node_id

    def _first_error(self, response: OffsetCommitResponse) -> PyProducerError | None:
        for topic in response.topics:
            for row in topic.partitions:
                if row.error_code:
                    subject = f"{self._subject}, topic {topic.name!r}, partition {row.partition_index}"
                    return broker_error(row.error_code, subject, user=self._client.user, advice=_advice(row.error_code))
        return None

    @property
    def _subject(self) -> str:
        return f"the offsets of group {self._group!r}"


def _advice(code: int) -> str:
    """Return what to do about an error code, where that of the code does not fit."""
    if code == Code.TOPIC_AUTHORIZATION_FAILED:
        return "grant READ on the topic to this user"
    if code in (Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION, Code.REBALANCE_IN_PROGRESS):
        return "give the group no other consumers, or choose another name for commitGroup"
    return ""


def _may_pass(error: PyProducerError) -> bool:
    code = getattr(error, "code", None)
    if isinstance(code, Code):
        return Action.RETRY in code.action
    return isinstance(error, ConnectionFailed | KafkaTimeout)


def _request(group: str, offsets: Mapping[TopicPartition, int]) -> OffsetCommitRequest:
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for each, offset in offsets.items():
        row = OffsetCommitRequestPartition(each.partition, offset)
        topics.setdefault(each.topic, []).append(row)
    rows = tuple(OffsetCommitRequestTopic(name, tuple(partitions)) for name, partitions in topics.items())
    return OffsetCommitRequest(group, topics=rows)
