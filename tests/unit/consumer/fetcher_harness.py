"""A fetcher whose brokers are played by a test: it gets each request, and gives the response.

Owns: the time, which passes only when a test says so. Must not know: what is tested.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_producer.common.cluster import TopicPartition
from spark_producer.consumer.decoding import FetchedBatches
from spark_producer.consumer.fetcher import NO_TOPIC_IDS, Fetcher
from spark_producer.consumer.known_cluster import KnownCluster
from spark_producer.consumer.offset_range import OffsetRange
from spark_producer.consumer.requests import Request
from spark_producer.consumer.settings import FetchSettings
from spark_producer.errors import PyProducerError
from spark_producer.network import ConnectionSettings
from spark_producer.protocol import FETCH, LIST_OFFSETS, METADATA
from spark_producer.protocol.messages import (
    FetchPartitionResponse,
    FetchResponse,
    FetchTopicResponse,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.unit.record.test_reading import foreign_batch

TOPIC = "t"
BOOTSTRAP = -1
TOPIC_ID = b"a" * 16


def of(partition: int, start: int, end: int, topic: str = TOPIC) -> OffsetRange:
    return OffsetRange(TopicPartition(topic, partition), start, end)


def batch(first: int, count: int = 1, size: int = 1) -> bytes:
    """A batch of `count` records from offset `first` on."""
    return foreign_batch([(None, b"v" * size, [])] * count, base_offset=first)


def row(partition: int, records: bytes = b"", error: int = 0, **fields: Any) -> FetchPartitionResponse:
    given = {"high_watermark": 1000, "last_stable_offset": 1000, **fields}
    return FetchPartitionResponse(partition, error, records=memoryview(records), **given)


class FetcherHarness:
    """The fetcher, its network, and the brokers 1 and 2, of which 1 leads every partition until a test says otherwise."""

    def __init__(self, *ranges: OffsetRange, planned: Mapping[str, bytes] = NO_TOPIC_IDS, **changes: Any) -> None:
        self.settings = FetchSettings(ConnectionSettings((("localhost", 9092),)), **changes)
        self.cluster = KnownCluster()
        self.fetcher = Fetcher(self.settings, ranges, self.cluster, planned)
        self.partitions = len(ranges)
        self.now = 1000.0
        self.free = self.fetcher.max_bytes
        self.unready: set[int] = set()
        self.backoff = 0.0
        self.leader, self.epoch, self.topic_id = 1, 7, TOPIC_ID

    # The network

    def ready(self, node: int) -> bool:
        return node not in self.unready

    def least_loaded(self) -> int | None:
        return BOOTSTRAP

    def next_attempt_in(self, node: int) -> float:
        return self.backoff

    # The fetcher

    def step(self, seconds: float = 0.0) -> list[Request]:
        """The requests that are sent after some seconds."""
        self.now += seconds
        return list(self.fetcher.step(self.now, self, self.free))

    def next_fetch(self) -> Request:
        """The next Fetch request; Metadata is answered, and pauses pass."""
        for _ in range(10):
            for request in self.step():
                if request.api is METADATA:
                    self.metadata(request)
                else:
                    assert request.api.key == FETCH.key, request.api.name
                    return request
            if self.fetcher.wake_at > self.now and self.fetcher.wake_at < self.now + 2:
                self.now = self.fetcher.wake_at
        raise AssertionError("no Fetch is sent")

    def answer(self, request: Request, body: Any = None, error: PyProducerError | None = None) -> list[FetchedBatches]:
        return list(self.fetcher.on_response(request, body, error, self.now))

    def fetched(self, request: Request, *rows: FetchPartitionResponse) -> list[FetchedBatches]:
        return self.answer(request, FetchResponse(responses=(FetchTopicResponse(TOPIC, partitions=rows),)))

    def metadata(self, request: Request, error: int = 0) -> None:
        assert request.api is METADATA
        brokers = tuple(MetadataResponseBroker(node, f"broker{node}", 9092) for node in (1, 2))
        numbers = range(max(100, self.partitions))
        partitions = tuple(MetadataResponsePartition(0, each, self.leader, self.epoch) for each in numbers)
        topics = (MetadataResponseTopic(error, TOPIC, self.topic_id, partitions=() if error else partitions),)
        self.answer(request, MetadataResponse(brokers=brokers, topics=topics))

    def offset(self, request: Request, offset: int, error: int = 0) -> None:
        """Answer ListOffsets."""
        assert request.api is LIST_OFFSETS
        partition = request.body.topics[0].partitions[0].partition_index
        rows = (ListOffsetsPartitionResponse(partition, error, offset=offset),)
        self.answer(request, ListOffsetsResponse(topics=(ListOffsetsTopicResponse(TOPIC, rows),)))


def positions(request: Request) -> list[tuple[int, int]]:
    """The partitions of a Fetch request with their offsets, in order."""
    return [(each.partition, each.fetch_offset) for topic in request.body.topics for each in topic.partitions]
