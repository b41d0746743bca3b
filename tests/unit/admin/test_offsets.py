"""Offsets of partitions: leaders that are not there yet, times, refusals."""

from __future__ import annotations

from typing import cast

import pytest

from spark_producer.admin import BlockingClient
from spark_producer.admin.offsets import LATEST, OFFSET_ATTEMPTS, offsets
from spark_producer.errors import BrokerError, TopicNotFound
from tests.unit.admin.fake_cluster import FakeCluster

NOT_LEADER, NOT_AUTHORIZED = 6, 29


def test_offsets_are_asked_for_again_while_a_new_topic_gets_its_leaders() -> None:
    cluster, pauses = FakeCluster(), list[float]()
    cluster.list_errors = [NOT_LEADER, NOT_LEADER]
    assert offsets(cast(BlockingClient, cluster), "t", pause=pauses.append) == {0: 9, 1: 3}
    assert len(pauses) == 1


def test_offsets_of_leaders_that_never_appear() -> None:
    cluster = FakeCluster()
    cluster.list_errors = [NOT_LEADER] * 1000
    with pytest.raises(BrokerError, match="NOT_LEADER_OR_FOLLOWER"):
        offsets(cast(BlockingClient, cluster), "t", pause=lambda _: None)


def test_a_time_after_the_last_record_is_the_end_of_the_log() -> None:
    """Brokers answer -1 then; to fetch from there would begin at the start."""
    cluster = FakeCluster()
    cluster.by_time = {0: -1, 1: 2}
    asked = offsets(cast(BlockingClient, cluster), "t", 5000)
    assert asked == {0: 9, 1: 2}
    assert cluster.asked_times == [-1, -1, 5000, 5000], "the end first: nothing that comes in between is left out"


def test_offsets_that_may_not_be_known() -> None:
    cluster = FakeCluster()
    cluster.list_errors = [NOT_AUTHORIZED]
    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
        offsets(cast(BlockingClient, cluster), "t", pause=lambda _: None)


def test_a_topic_that_is_not_there() -> None:
    with pytest.raises(TopicNotFound, match="'nope'"):
        offsets(cast(BlockingClient, FakeCluster()), "nope")


def test_a_partition_whose_offset_is_left_out_is_asked_for_again() -> None:
    cluster = FakeCluster()
    cluster.unanswered = 2
    assert offsets(cast(BlockingClient, cluster), "t", LATEST, pause=lambda _: None) == {0: 9, 1: 3}
    cluster.unanswered = 2 * OFFSET_ATTEMPTS
    with pytest.raises(BrokerError, match=r"NETWORK_EXCEPTION.*partition 0"):
        offsets(cast(BlockingClient, cluster), "t", LATEST, pause=lambda _: None)


def test_the_leaders_of_all_partitions_are_one_question() -> None:
    cluster = FakeCluster()
    cluster.leaders = dict.fromkeys(range(1000), 10)
    cluster.ends = dict.fromkeys(range(1000), 7)
    assert offsets(cast(BlockingClient, cluster), "t") == cluster.ends
    assert cluster.looked_up == 1


def test_offsets_are_asked_for_no_longer_than_for_an_answer() -> None:
    cluster, now = FakeCluster(), 0.0

    def pause(seconds: float) -> None:
        nonlocal now
        now += 4

    cluster.list_errors = [NOT_LEADER] * 1000
    with pytest.raises(BrokerError, match="NOT_LEADER_OR_FOLLOWER"):
        offsets(cast(BlockingClient, cluster), "t", pause=pause, clock=lambda: now)
    assert now == 12, "three pauses within 10 s"
    cluster.timeout, now = 5.0, 0.0
    with pytest.raises(BrokerError, match="NOT_LEADER_OR_FOLLOWER"):
        offsets(cast(BlockingClient, cluster), "t", pause=pause, clock=lambda: now)
    assert now == 8, "two pauses within 5 s"


def test_the_pauses_between_questions_for_offsets_grow() -> None:
    cluster, pauses = FakeCluster(), list[float]()
    cluster.list_errors = [NOT_LEADER] * 8
    offsets(cast(BlockingClient, cluster), "t", pause=pauses.append)
    assert len(pauses) == 4
    assert all(0.8 <= pause / usual <= 1.2 for pause, usual in zip(pauses, (0.1, 0.2, 0.4, 0.8), strict=True))
