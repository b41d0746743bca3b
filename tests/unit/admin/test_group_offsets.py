"""Offsets of a group, committed by a client that is not a member: a coordinator that moves, refuses, or is silent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from spark_producer.admin import BlockingClient
from spark_producer.admin.group_offsets import GroupOffsets
from spark_producer.common.backoff import Backoff
from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import BrokerError, ConnectionFailed, PyProducerError
from spark_producer.protocol import FIND_COORDINATOR, OFFSET_COMMIT, AnyApi
from spark_producer.protocol.messages import (
    FindCoordinatorResponse,
    FoundCoordinator,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

NOT_COORDINATOR, GROUP_DENIED, TOPIC_DENIED, NOT_A_MEMBER = 16, 30, 29, 25
OFFSETS = {TopicPartition("t", 0): 5, TopicPartition("u", 1): 7}

pytestmark = pytest.mark.covers("RD12", "RD18")


class _Cluster:
    """The answers to commits come from a script; then they are good. The coordinator is another one each time."""

    def __init__(self, *script: int | PyProducerError, found: int = 0) -> None:
        self.script, self.found = list(script), found
        self.now = 0.0
        self.brokers = {1: ("h", 1)}
        self.user = "user 'app'"
        self.retry_backoff = Backoff(0.1, 1.0)
        self.committed: list[tuple[int, Any]] = []
        self.looked_up = 0

    def clock(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds

    def metadata(self, topics: Sequence[str], deadline: float) -> None:
        self.brokers[self.looked_up] = ("h", self.looked_up)

    def request_any(self, api: AnyApi, body: Any, deadline: float) -> FindCoordinatorResponse:
        assert api is FIND_COORDINATOR
        assert (body.key, body.key_type, body.coordinator_keys) == ("g", 0, ("g",))
        self.looked_up += 1
        if self.looked_up == 1:  # as before version 4
            return FindCoordinatorResponse(0, self.found, None, self.looked_up)
        return FindCoordinatorResponse(coordinators=(FoundCoordinator("g", self.looked_up, error_code=self.found),))

    def request(self, api: AnyApi, body: Any, *, node: int, deadline: float) -> OffsetCommitResponse:
        assert api is OFFSET_COMMIT
        assert node in self.brokers
        answer = self.script.pop(0) if self.script else 0
        if isinstance(answer, PyProducerError):
            raise answer
        self.committed.append((node, body))
        rows = OffsetCommitResponsePartition(0, 0), OffsetCommitResponsePartition(1, answer)
        return OffsetCommitResponse(
            topics=tuple(OffsetCommitResponseTopic(n, (row,)) for n, row in zip("tu", rows, strict=True))
        )


def commit(cluster: _Cluster, times: int = 1) -> None:
    group = GroupOffsets(cast(BlockingClient, cluster), "g")
    for _ in range(times):
        group.commit(OFFSETS, 10.0)


def test_the_coordinator_is_looked_up_once() -> None:
    cluster = _Cluster()
    commit(cluster, 3)
    assert cluster.looked_up == 1
    assert [node for node, _ in cluster.committed] == [1, 1, 1]
    body = cluster.committed[0][1]
    assert (body.group_id, body.generation_id_or_member_epoch, body.member_id) == ("g", -1, "")
    rows = {
        (topic.name, row.partition_index): row.committed_offset for topic in body.topics for row in topic.partitions
    }
    assert rows == {("t", 0): 5, ("u", 1): 7}


@pytest.mark.parametrize("trouble", [NOT_COORDINATOR, ConnectionFailed("cut")], ids=str)
def test_a_coordinator_that_moves_is_looked_up_again(trouble: int | PyProducerError) -> None:
    cluster = _Cluster(trouble, trouble)
    commit(cluster)
    assert cluster.looked_up == 3
    assert cluster.committed[-1][0] == 3


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (GROUP_DENIED, r"offsets of group 'g'.*user 'app'.*grant READ on the group"),
        (TOPIC_DENIED, r"offsets of group 'g', topic 'u', partition 1.*user 'app'.*grant READ on the topic"),
        (NOT_A_MEMBER, r"give the group no other consumers, or choose another name for commitGroup"),
    ],
)
def test_a_refusal_says_what_to_do(code: int, said: str) -> None:
    cluster = _Cluster(code)
    with pytest.raises(BrokerError, match=said):
        commit(cluster)
    assert cluster.now == 0


def test_a_group_that_may_not_be_seen() -> None:
    with pytest.raises(BrokerError, match=r"GROUP_AUTHORIZATION_FAILED.*group 'g'"):
        commit(_Cluster(found=GROUP_DENIED))


def test_a_coordinator_that_is_never_there_takes_no_longer_than_it_may() -> None:
    cluster = _Cluster(*[NOT_COORDINATOR] * 1000)
    with pytest.raises(BrokerError, match="NOT_COORDINATOR"):
        commit(cluster)
    assert 8 < cluster.now <= 10
