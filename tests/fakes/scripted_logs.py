"""The admin client over the logs of one topic: offsets and batches for tests that read a topic without sockets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from spark_producer.common.backoff import Backoff
from spark_producer.common.error_codes import Code
from spark_producer.common.offsets import EARLIEST, LATEST
from spark_producer.protocol import FETCH, LIST_OFFSETS
from spark_producer.protocol.messages import (
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    MetadataResponse,
)
from tests.fakes.scripted_client import ScriptedClient

TOPIC = "t"


class ScriptedLogs(ScriptedClient):
    """Two partitions of topic `t`, each with its leader; a test sets what Fetch returns."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts |= {LIST_OFFSETS.name: self._list_offsets, FETCH.name: self._fetch}
        self.timeout = 60.0
        self.retry_backoff = Backoff(0.1, 1.0)
        self.leaders = {(TOPIC, 1): 11, (TOPIC, 0): 10}
        self.starts, self.ends = {0: 5, 1: 0}, {0: 9, 1: 3}
        self.by_time: dict[int, int] = {}
        """the offset of each partition for any other timestamp"""
        self.batches: list[list[FetchPartitionResponse]] = []
        """the rows of the next Fetch responses"""
        self.list_errors: list[int] = []
        """error codes of the next ListOffsets responses"""
        self.empty_responses = 0
        """the number of ListOffsets responses without rows that come first"""
        self.lookups = 0
        """the number of look-ups of leaders"""

    def metadata(
        self,
        topics: Sequence[str],
        deadline: float = 0.0,
        node: int | None = None,
        *,
        with_rights: bool = False,
    ) -> MetadataResponse:
        self.lookups += 1
        response = super().metadata(topics, deadline, node)
        self.brokers = {leader: (f"broker{leader}", 9092) for leader in self.leaders.values()}
        unknown = Code.UNKNOWN_TOPIC_OR_PARTITION
        rows = (row if row.name == TOPIC else row._replace(error_code=unknown) for row in response.topics)
        return response._replace(topics=tuple(rows))

    def leaders_of(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        self.lookups += 1
        return {partition: self.leaders[topic, partition] for partition in partitions}

    def request(self, api: Any, body: Any, *, node: int | None = None, deadline: float = 0.0) -> Any:
        if api is FETCH:
            assert {self.leaders[TOPIC, row.partition] for row in body.topics[0].partitions} == {node}
        return super().request(api, body, node=node, deadline=deadline)

    @property
    def fetched(self) -> list[list[tuple[int, int]]]:
        """(partition, offset) of each Fetch request."""
        return [[(row.partition, row.fetch_offset) for row in body.topics[0].partitions] for body in self.bodies(FETCH)]

    def _fetch(self, body: FetchRequest) -> FetchResponse:
        return FetchResponse(responses=(FetchTopicResponse(TOPIC, partitions=tuple(self.batches.pop(0))),))

    def _list_offsets(self, body: ListOffsetsRequest) -> ListOffsetsResponse:
        if self.empty_responses:
            self.empty_responses -= 1
            return ListOffsetsResponse()
        code = self.list_errors.pop(0) if self.list_errors else 0
        known = {EARLIEST: self.starts, LATEST: self.ends}
        rows = tuple(
            ListOffsetsPartitionResponse(
                row.partition_index, code, offset=known.get(row.timestamp, self.by_time)[row.partition_index]
            )
            for row in body.topics[0].partitions
        )
        return ListOffsetsResponse(topics=(ListOffsetsTopicResponse(TOPIC, rows),))
