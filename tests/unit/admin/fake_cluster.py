"""A cluster of one topic, for tests that ask it for offsets and records without a socket."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from spark_producer.admin.offsets import EARLIEST, LATEST
from spark_producer.common.backoff import Backoff
from spark_producer.protocol import FETCH, LIST_OFFSETS, AnyApi
from spark_producer.protocol.messages import (
    FetchPartitionResponse,
    FetchResponse,
    FetchTopicResponse,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


class FakeCluster:
    """Two partitions of topic `t`, one leader each; answers are set by the test, requests are kept."""

    def __init__(self) -> None:
        self.leaders = {0: 10, 1: 11}
        self.starts, self.ends = {0: 5, 1: 0}, {0: 9, 1: 3}
        self.fetched: list[list[tuple[int, int]]] = []
        self.answers: list[list[FetchPartitionResponse]] = []
        self.list_errors: list[int] = []
        self.unanswered = 0
        """so many of the next answers about offsets have no rows"""
        self.timeout = 60.0
        self.retry_backoff = Backoff(0.1, 1.0)
        self.looked_up = 0
        """how often leaders were asked for"""
        self.by_time: dict[int, int] = {}
        self.asked_times: list[int] = []
        self.isolation_levels: list[int] = []
        """those of all requests"""

    def metadata(self, topics: Sequence[str], *, allow_auto_topic_creation: bool = False) -> MetadataResponse:
        assert not allow_auto_topic_creation
        rows = tuple(MetadataResponsePartition(partition_index=each) for each in sorted(self.leaders, reverse=True))
        known = (MetadataResponseTopic(name="t", partitions=rows),) if list(topics) == ["t"] else ()
        return MetadataResponse(topics=known)

    def leaders_of(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        self.looked_up += 1
        return {partition: self.leaders[partition] for partition in partitions}

    def request(self, api: AnyApi, body: Any, *, node: int) -> Any:
        self.isolation_levels.append(body.isolation_level)
        if api is LIST_OFFSETS:
            return self._list_offsets(body)
        assert api is FETCH
        self.fetched.append([(each.partition, each.fetch_offset) for each in body.topics[0].partitions])
        assert {self.leaders[partition] for partition, _ in self.fetched[-1]} == {node}
        return FetchResponse(responses=(FetchTopicResponse("t", tuple(self.answers.pop(0))),))

    def _list_offsets(self, body: Any) -> ListOffsetsResponse:
        if self.unanswered:
            self.unanswered -= 1
            return ListOffsetsResponse()
        error = self.list_errors.pop(0) if self.list_errors else 0
        known = {EARLIEST: self.starts, LATEST: self.ends}
        self.asked_times += [each.timestamp for each in body.topics[0].partitions]
        rows = tuple(
            ListOffsetsPartitionResponse(
                each.partition_index, error, offset=known.get(each.timestamp, self.by_time)[each.partition_index]
            )
            for each in body.topics[0].partitions
        )
        return ListOffsetsResponse(topics=(ListOffsetsTopicResponse("t", rows),))
