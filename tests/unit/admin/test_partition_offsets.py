"""Topics and offsets of many topic-partitions: against the embedded broker, and against one that refuses at first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest

from spark_producer.admin import BlockingClient
from spark_producer.admin.exchange import NodeRequest
from spark_producer.admin.partition_offsets import NO_OFFSET, find_topics, list_offsets
from spark_producer.broker import LocalBroker
from spark_producer.common.backoff import Backoff
from spark_producer.common.cluster import TopicPartition
from spark_producer.common.offsets import EARLIEST, LATEST
from spark_producer.errors import BrokerError, ConnectionFailed, TopicNotFound
from spark_producer.network import ConnectionSettings
from spark_producer.producer import Producer
from spark_producer.protocol.messages import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from spark_producer.protocol.messages.cluster import OPERATIONS_UNKNOWN

NOT_LEADER, NOT_AUTHORIZED, UNKNOWN = 6, 29, 3

NEGATIVE = 1000
"""Not an error code: the row has a negative offset instead, as no log has."""


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with LocalBroker(auto_create_topics=False) as made:
        yield made


def client_of(broker: LocalBroker) -> BlockingClient:
    host, _, port = broker.bootstrap_servers.partition(":")
    return BlockingClient(ConnectionSettings(((host, int(port)),)), timeout=10)


def test_partitions_of_topics_by_name_and_of_all(broker: LocalBroker) -> None:
    for name, count in (("a", 3), ("b", 1)):
        broker.create_topic(name, count)
    with client_of(broker) as client:
        found = find_topics(client, ["b", "nope"])
        assert list(found.leaders) == [TopicPartition("b", 0)]
        assert (found.missing, len(found.topic_ids["b"])) == (("nope",), 16)
        everything = find_topics(client, None)
        assert {each for each in everything.leaders if not each.topic.startswith("__")} == {
            TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("a", 2), TopicPartition("b", 0)
        }  # fmt: skip
        assert everything.leaders.keys() == {each for each in everything.leaders if not each.topic.startswith("__")}


def test_offsets_of_two_topics_at_different_times(broker: LocalBroker) -> None:
    for name in ("a", "b"):
        broker.create_topic(name, 2)
    with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        for number in range(10):
            producer.send("a", b"v", partition=0, timestamp_ms=1000 + 10 * number)
        producer.send("b", b"v", partition=1, timestamp_ms=5000)
        producer.flush()
    a, b = TopicPartition("a", 0), TopicPartition("b", 1)
    with client_of(broker) as client:
        leaders = find_topics(client, ["a", "b"]).leaders
        before = client.requests
        assert list_offsets(client, {a: 1041, b: LATEST}, leaders) == {a: 5, b: 1}
        assert client.requests == before + 1, "one request for each leader"
        assert list_offsets(client, {a: 2000, b: EARLIEST}, leaders) == {a: NO_OFFSET, b: 0}
        assert list_offsets(client, {}, leaders) == {}
        with pytest.raises(TopicNotFound, match="topic 'c', partition 0"):
            list_offsets(client, {TopicPartition("c", 0): LATEST}, {TopicPartition("c", 0): 1} | leaders)


class _Cluster:
    """One topic with two leaders; the answers about partition 1 come from a script."""

    def __init__(self, *script: int | Exception) -> None:
        self.script = list(script)
        self.asked: list[int | None] = []
        self.now = 0.0
        self.leaders = {0: 1, 1: 2}
        self.brokers = {1: ("h", 1), 2: ("h", 2), 3: ("h", 3)}
        self.retry_backoff = Backoff(0.1, 1.0)
        self.user = "user 'app'"
        self.is_known = True
        self.rights = OPERATIONS_UNKNOWN

    def clock(self) -> float:
        return self.now

    def deadline(self) -> float:
        return self.now + 10

    def pause(self, seconds: float) -> None:
        self.now += seconds

    def metadata(self, topics: Sequence[str], *, with_rights: bool) -> MetadataResponse:
        self.leaders[1] = 3
        rows = tuple(
            MetadataResponsePartition(partition_index=each, leader_id=leader) for each, leader in self.leaders.items()
        )
        row = MetadataResponseTopic(name="t", partitions=rows, topic_authorized_operations=self.rights)
        return MetadataResponse(topics=(row if self.is_known else MetadataResponseTopic(UNKNOWN, "t"),))

    def request_all(self, requests: Sequence[NodeRequest], deadline: float) -> list[Any]:
        return [self._answer(each) for each in requests]

    def _answer(self, request: NodeRequest) -> Any:
        self.asked.append(request.node)
        rows = []
        for each in request.body.topics[0].partitions:
            answer = self.script.pop(0) if each.partition_index == 1 and self.script else 0
            if isinstance(answer, Exception):
                return answer
            negative = answer == NEGATIVE
            row = ListOffsetsPartitionResponse(
                each.partition_index, 0 if negative else answer, offset=-1 if negative else 7
            )
            rows.append(row)
        return ListOffsetsResponse(topics=(ListOffsetsTopicResponse("t", tuple(rows)),))


def listed(cluster: _Cluster) -> dict[TopicPartition, int]:
    wanted = {TopicPartition("t", 0): LATEST, TopicPartition("t", 1): LATEST}
    leaders = {TopicPartition("t", 0): 1, TopicPartition("t", 1): 2}
    return list_offsets(cast(BlockingClient, cluster), wanted, leaders)


@pytest.mark.covers("RD9")
@pytest.mark.parametrize("trouble", [NOT_LEADER, UNKNOWN, NEGATIVE, ConnectionFailed("cut")], ids=str)
def test_what_fails_for_now_is_asked_for_again_at_the_leader_of_then(trouble: int | Exception) -> None:
    cluster = _Cluster(trouble, trouble)
    assert listed(cluster) == {TopicPartition("t", 0): 7, TopicPartition("t", 1): 7}
    assert cluster.asked == [1, 2, 3, 3], "the other partition is not asked for again"


def test_what_fails_for_too_long_is_an_error() -> None:
    with pytest.raises(BrokerError, match="NOT_LEADER_OR_FOLLOWER"):
        listed(_Cluster(*[NOT_LEADER] * 1000))
    with pytest.raises(ConnectionFailed, match="cut"):
        listed(_Cluster(*[ConnectionFailed("cut")] * 1000))


@pytest.mark.covers("RD12")
def test_a_missing_right_names_the_one_of_readers() -> None:
    with pytest.raises(
        BrokerError, match=r"topic 't', partition 1; the broker knows us as user 'app'.*grant READ on the topic"
    ):
        listed(_Cluster(NOT_AUTHORIZED))
    cluster = _Cluster()
    for rights, may_read in ((OPERATIONS_UNKNOWN, True), (1 << 3 | 1 << 8, True), (1 << 8, False)):
        cluster.rights = rights
        if may_read:
            assert len(find_topics(cast(BlockingClient, cluster), ["t"]).leaders) == 2
            continue
        with pytest.raises(BrokerError, match=r"topic 't'; the broker knows us as user 'app'.*grant READ on the topic"):
            find_topics(cast(BlockingClient, cluster), ["t"])


def test_a_topic_that_is_deleted_meanwhile_ends_the_look_up() -> None:
    cluster = _Cluster(UNKNOWN)
    cluster.is_known = False
    with pytest.raises(TopicNotFound):
        listed(cluster)
    assert cluster.now < 1
