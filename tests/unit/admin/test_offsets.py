"""Offsets of partitions: leaders that are not there yet, times, refusals."""

from __future__ import annotations

from typing import cast

import pytest

from spark_producer.admin import BlockingClient
from spark_producer.admin.offsets import offsets
from spark_producer.common.offsets import LATEST
from spark_producer.errors import BrokerError, TopicNotFound
from spark_producer.protocol import LIST_OFFSETS
from tests.fakes.scripted_client import TIMEOUT_S
from tests.fakes.scripted_logs import ScriptedLogs

NOT_LEADER, NOT_AUTHORIZED = 6, 29


def test_offsets_are_asked_for_again_while_a_new_topic_gets_its_leaders() -> None:
    client = ScriptedLogs()
    client.list_errors = [NOT_LEADER, NOT_LEADER]
    assert offsets(cast(BlockingClient, client), "t") == {0: 9, 1: 3}
    assert len(client.pauses) == 1


def test_offsets_of_leaders_that_never_appear() -> None:
    client = ScriptedLogs()
    client.list_errors = [NOT_LEADER] * 1000
    with pytest.raises(BrokerError, match="NOT_LEADER_OR_FOLLOWER"):
        offsets(cast(BlockingClient, client), "t")


def test_a_time_after_the_last_record_is_the_end_of_the_log() -> None:
    """Brokers answer -1 then; to fetch from there would begin at the start."""
    client = ScriptedLogs()
    client.by_time = {0: -1, 1: 2}
    asked = offsets(cast(BlockingClient, client), "t", 5000)
    assert asked == {0: 9, 1: 2}
    times = [row.timestamp for body in client.bodies(LIST_OFFSETS) for row in body.topics[0].partitions]
    assert times == [-1, -1, 5000, 5000], "the end first: nothing that comes in between is left out"


def test_offsets_that_may_not_be_known() -> None:
    client = ScriptedLogs()
    client.list_errors = [NOT_AUTHORIZED]
    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
        offsets(cast(BlockingClient, client), "t")


def test_a_topic_that_is_not_there() -> None:
    with pytest.raises(TopicNotFound, match="'nope'"):
        offsets(cast(BlockingClient, ScriptedLogs()), "nope")


def test_a_partition_whose_offset_is_left_out_is_asked_for_again() -> None:
    client = ScriptedLogs()
    client.empty_responses = 2
    assert offsets(cast(BlockingClient, client), "t", LATEST) == {0: 9, 1: 3}
    client.empty_responses = 1000
    with pytest.raises(BrokerError, match=r"NETWORK_EXCEPTION.*partition 0"):
        offsets(cast(BlockingClient, client), "t", LATEST)


def test_the_leaders_of_all_partitions_are_one_question() -> None:
    client = ScriptedLogs()
    client.leaders = {("t", partition): 10 for partition in range(1000)}
    client.ends = dict.fromkeys(range(1000), 7)
    assert offsets(cast(BlockingClient, client), "t") == client.ends
    assert client.lookups == 1


def test_offsets_are_asked_for_no_longer_than_for_an_answer() -> None:
    client = ScriptedLogs()
    client.list_errors = [NOT_LEADER] * 1000
    with pytest.raises(BrokerError, match="NOT_LEADER_OR_FOLLOWER"):
        offsets(cast(BlockingClient, client), "t")
    assert TIMEOUT_S - 1.2 <= sum(client.pauses) < TIMEOUT_S


@pytest.mark.parametrize("number", [2, -1])
def test_a_partition_that_is_not_there(number: int) -> None:
    with pytest.raises(TopicNotFound, match=f"topic 't' has no partition {number}: it has 2"):
        offsets(cast(BlockingClient, ScriptedLogs()), "t", LATEST, [0, number])


def test_the_pauses_between_questions_for_offsets_grow() -> None:
    client = ScriptedLogs()
    client.list_errors = [NOT_LEADER] * 8
    offsets(cast(BlockingClient, client), "t")
    assert len(client.pauses) == 4
    assert all(0.8 <= pause / usual <= 1.2 for pause, usual in zip(client.pauses, (0.1, 0.2, 0.4, 0.8), strict=True))
