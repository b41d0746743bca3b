"""Groups by requests: delayed responses, restarts, limits, and the partitions with a cursor."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from spark_producer.broker import BrokerSettings, GroupSettings
from spark_producer.broker.context import Context
from spark_producer.broker.coordinator.groups.consumer_protocol import (
    MAX_PARSED_BYTES,
    assigned_partitions,
    subscribed_topics,
)
from spark_producer.broker.coordinator.groups.registry import EMPTY_GROUP_RETENTION_S
from spark_producer.common.error_codes import Code
from spark_producer.errors import ConfigError
from spark_producer.protocol import (
    DELETE_GROUPS,
    DELETE_TOPICS,
    DESCRIBE_GROUPS,
    JOIN_GROUP,
    LIST_GROUPS,
    MAX_STRING_BYTES,
    OFFSET_DELETE,
    encode_response,
    messages,
)
from tests.fakes.disk import Disk
from tests.unit.broker.coordinator.conftest import Broker
from tests.unit.broker.coordinator.group_requests import (
    assignment,
    commit,
    committed,
    heartbeat,
    join,
    join_later,
    join_request,
    leave,
    stable,
    subscription,
    sync,
)
from tests.unit.broker.handler_calls import MAX_RECORDS, ask, handled

T0, T1 = ("t", 0), ("t", 1)
ONE = b"\0\0\0\1"


def with_groups(broker: Broker, **settings: Any) -> Context:
    """The broker, opened again with these settings."""
    broker.close()
    broker.settings = BrokerSettings(groups=GroupSettings(**settings))
    return broker.open()


def size(context: Context) -> int:
    return context.coordinator.groups.size


def test_a_join_waits_until_the_others_have_joined(context: Context) -> None:
    first, _ = stable(context)
    waiting = join_later(context)
    assert not waiting.is_ready()
    response = handled(context, JOIN_GROUP, join_request(first), 3)
    assert set(waiting.keys) <= set(response.changed)
    assert waiting.is_ready()
    assert waiting.response(MAX_RECORDS).generation_id == 2


def test_a_join_that_waits_too_long_has_to_join_again(context: Context) -> None:
    """The group responds earlier. This is for brokers whose idle timeout is shorter than their clients' rebalance timeouts."""
    stable(context)
    late = join_later(context).response(MAX_RECORDS)
    assert (late.error_code, late.generation_id) == (Code.REBALANCE_IN_PROGRESS, -1)


def test_time_moves_groups_on(broker: Broker) -> None:
    groups = broker.context.coordinator.groups
    first, generation = stable(broker.context)
    waiting = join_later(broker.context)
    assert groups.due == broker.now + 10.0, "then the first one's session ends"
    broker.now += 9.9
    assert groups.run_if_due(broker.now) == ()
    broker.now += 0.1
    assert groups.run_if_due(broker.now) == waiting.keys
    assert waiting.response(MAX_RECORDS).generation_id == generation + 1
    assert heartbeat(broker.context, first, generation) == Code.UNKNOWN_MEMBER_ID


def test_an_empty_group_is_forgotten_after_a_while_and_its_offsets_are_kept(broker: Broker) -> None:
    member = stable(broker.context)
    assert commit(broker.context, {T0: 5}, member) == {T0: Code.NONE}
    assert leave(broker.context, member[0]) == Code.NONE
    broker.now += EMPTY_GROUP_RETENTION_S - 1
    broker.context.coordinator.groups.run_if_due(broker.now)
    assert join(broker.context).generation_id == 3
    broker.now += 10
    broker.context.coordinator.groups.run_if_due(broker.now)
    broker.now += EMPTY_GROUP_RETENTION_S + 1
    broker.context.coordinator.groups.run_if_due(broker.now)
    assert size(broker.context) == 0
    assert committed(broker.context) == {T0: 5}
    assert broker.context.coordinator.groups.due == float("inf")


def test_offsets_last_and_members_do_not(broker: Broker) -> None:
    member = stable(broker.context)
    assert commit(broker.context, {T0: 5, T1: 6}, member) == {T0: Code.NONE, T1: Code.NONE}
    assert commit(broker.context, {T0: 7}, member) == {T0: Code.NONE}
    context = broker.restart()
    assert committed(context) == {T0: 7, T1: 6}
    assert heartbeat(context, *member) == Code.UNKNOWN_MEMBER_ID
    assert commit(context, {T0: 8}, member) == {T0: Code.UNKNOWN_MEMBER_ID}
    assert commit(context, {T0: 9}) == {T0: Code.NONE}, "it has no members"
    stable(context)
    assert commit(context, {T0: 10}) == {T0: Code.UNKNOWN_MEMBER_ID}


def test_offsets_end_with_their_topic(broker: Broker) -> None:
    broker.context.topics.create("u", 1)
    commit(broker.context, {T0: 5, ("u", 0): 6})
    commit(broker.context, {("u", 0): 6}, group="h")
    ask(broker.context, DELETE_TOPICS, messages.DeleteTopicsRequest(("u",)))
    for context in (broker.context, broker.restart()):
        assert committed(context) == {T0: 5}
        assert [row.group_id for row in ask(context, LIST_GROUPS, messages.ListGroupsRequest()).groups] == ["g"]
    assert broker.context.coordinator.offsets.weight == 1


def test_offsets_whose_topic_ended_in_a_crash_end_at_the_next_start(broker: Broker) -> None:
    broker.context.topics.create("u", 1)
    commit(broker.context, {T0: 5, ("u", 0): 6})
    broker.context.topics.delete_all(["u"])
    assert committed(broker.restart()) == {T0: 5}


def test_groups_are_deleted_with_their_offsets(broker: Broker) -> None:
    def delete(*names: str) -> dict[str, int]:
        response = ask(broker.context, DELETE_GROUPS, messages.DeleteGroupsRequest(names))
        return {row.group_id: row.error_code for row in response.results}

    member_id, _ = stable(broker.context)
    commit(broker.context, {T0: 5}, group="h")
    assert delete("g", "h", "i", "h") == {"g": Code.NON_EMPTY_GROUP, "h": Code.NONE, "i": Code.GROUP_ID_NOT_FOUND}
    leave(broker.context, member_id)
    assert delete("g") == {"g": Code.NONE}
    assert committed(broker.restart(), "h") == {}


def test_a_disk_that_refuses_at_the_start_is_no_reason_not_to_serve(broker: Broker, disk: Disk) -> None:
    commit(broker.context, {T0: 5})
    broker.context.topics.delete("t")  # and a crash before its offsets are deleted
    broker.close()
    disk.refuse("write", errno.ENOSPC)
    context = broker.open()
    assert committed(context) == {T0: 5}
    disk.restore()
    assert committed(broker.restart()) == {}


def test_offsets_are_deleted_of_topics_that_no_member_reads(broker: Broker) -> None:
    broker.context.topics.create("u", 1)
    member = stable(broker.context, metadata=subscription("t"))
    commit(broker.context, {T0: 5, ("u", 0): 6}, member)
    rows = {name: (messages.OffsetDeleteRequestPartition(0),) for name in ("t", "u", "v")}
    topics = tuple(messages.OffsetDeleteRequestTopic(*row) for row in rows.items())
    response = ask(broker.context, OFFSET_DELETE, messages.OffsetDeleteRequest("g", topics))
    assert {topic.name: topic.partitions[0].error_code for topic in response.topics} == {
        "t": Code.GROUP_SUBSCRIBED_TO_TOPIC,
        "u": Code.NONE,
        "v": Code.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert committed(broker.restart()) == {T0: 5}


@pytest.mark.parametrize("metadata", [b"?", bytes(MAX_PARSED_BYTES + 1)], ids=["nonsense", "more than is looked at"])
def test_a_group_with_unknown_subscriptions_keeps_its_offsets(context: Context, metadata: bytes) -> None:
    stable(context, metadata=metadata)
    topics = (messages.OffsetDeleteRequestTopic("t", (messages.OffsetDeleteRequestPartition(0),)),)
    response = ask(context, OFFSET_DELETE, messages.OffsetDeleteRequest("g", topics))
    assert response.topics[0].partitions[0].error_code == Code.GROUP_SUBSCRIBED_TO_TOPIC


@pytest.mark.parametrize("group", ["", "x" * 256])
def test_names_that_no_group_has(context: Context, group: str) -> None:
    assert join(context, group=group).error_code == Code.INVALID_GROUP_ID
    assert commit(context, {T0: 1}, group="x" * 256) == {T0: Code.INVALID_GROUP_ID}
    assert size(context) == 0


def test_committed_offsets_are_limited_and_old_ones_can_be_replaced(broker: Broker) -> None:
    broker.close()
    broker.settings = BrokerSettings(max_committed_offsets=2)
    context = broker.open()
    assert set(commit(context, {T0: 1, T1: 1}).values()) == {Code.NONE}
    assert commit(context, {T0: 2}) == {T0: Code.NONE}
    assert commit(context, {("t", 2): 1}) == {("t", 2): Code.POLICY_VIOLATION}
    assert commit(context, {T0: 3}, metadata="x" * 100) == {T0: Code.POLICY_VIOLATION}


def test_members_of_a_group_are_limited(broker: Broker) -> None:
    context = with_groups(broker, max_size=2)
    first = join(context, version=4)
    assert first.error_code == Code.MEMBER_ID_REQUIRED
    second = join(context)
    assert second.error_code == Code.NONE
    assert join(context).error_code == Code.GROUP_MAX_SIZE_REACHED
    assert not join_later(context, first.member_id).is_ready(), "it has a place already"
    assert join(context, second.member_id).error_code == Code.NONE
    assert join(context, group="h").error_code == Code.NONE


def test_the_memory_of_groups_is_limited(broker: Broker) -> None:
    """A hostile client makes groups, members, unused member ids, metadata and assignments."""
    context = with_groups(broker, max_bytes=100_000)
    assert join(context, metadata=bytes(100_000)).error_code == Code.POLICY_VIOLATION
    assert size(context) == 0
    assert join(context, metadata=bytes(50_000)).error_code == Code.NONE
    codes = [join(context, group=f"g{number}", version=3 + number % 2).error_code for number in range(100)]
    assert set(codes) == {Code.NONE, Code.MEMBER_ID_REQUIRED, Code.POLICY_VIOLATION}
    assert 90_000 < size(context) <= 100_000
    codes = [join(context, group="g1", version=4).error_code for _ in range(100)]
    assert codes[-1] == Code.POLICY_VIOLATION
    assert size(context) <= 100_000


def test_nothing_that_a_member_is_made_of_is_free(context: Context) -> None:
    """Protocols without names, and names of 32 KB: of the group, the client, the instance, the protocol."""
    many = (messages.JoinGroupRequestProtocol(),) * 1000
    assert join(context, protocols=many).error_code == Code.NONE
    before = size(context)
    assert before > 1000 * 100
    assert join(context, group="h", group_instance_id="x" * 30_000, version=5).error_code == Code.NONE
    assert size(context) > before + 60_000, "it is part of the member's id"
    before = size(context)
    assert join(context, group="i", protocol_type="x" * 30_000).error_code == Code.NONE
    assert size(context) > before + 30_000


def test_a_group_that_is_named_often_is_described_once(context: Context) -> None:
    stable(context)
    response = ask(context, DESCRIBE_GROUPS, messages.DescribeGroupsRequest(("g",) * 1000))
    assert [row.group_id for row in response.groups] == ["g"]


def test_a_too_large_assignment_reaches_no_member(broker: Broker) -> None:
    context = with_groups(broker, max_bytes=100_000)
    joined = join(context)
    before = size(context)
    response = sync(context, joined.member_id, 1, {joined.member_id: bytes(100_000)})
    assert (response.error_code, response.assignment) == (Code.POLICY_VIOLATION, b"")
    assert size(context) == before
    again = join(context, joined.member_id)
    assert again.generation_id == 2
    assert sync(context, joined.member_id, 2, {joined.member_id: b"x"}).assignment == b"x"


def test_what_is_over_gives_its_memory_back(broker: Broker) -> None:
    member_id, _ = stable(broker.context, b"x" * 1000, metadata=b"y" * 1000)
    assert size(broker.context) > 2000
    join(broker.context, version=4, group="h")
    leave(broker.context, member_id)
    broker.now += EMPTY_GROUP_RETENTION_S + 10
    broker.context.coordinator.groups.run_if_due(broker.now)
    assert size(broker.context) == 0
    assert not list(broker.context.coordinator.groups.names())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"min_session_timeout_ms": 0}, "0 to 1800000 ms"),
        ({"max_session_timeout_ms": 5999}, "6000 to 5999 ms"),
        ({"initial_rebalance_delay_ms": -1}, "initial_rebalance_delay_ms of groups is -1"),
        ({"max_size": 0}, "max_size of groups is 0"),
        ({"max_bytes": 0}, "max_bytes of groups is 0"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        GroupSettings(**settings)


def test_groups_are_described_as_their_members_are(context: Context) -> None:
    member_id, _ = stable(context, b"mine", metadata=b"me")
    response = ask(context, DESCRIBE_GROUPS, messages.DescribeGroupsRequest(("g", "h")))
    found, missing = response.groups
    assert found.members == (messages.DescribedGroupMember(member_id, None, "test", "/", b"me", b"mine"),)
    assert (found.group_state, found.protocol_type, found.protocol_data) == ("Stable", "consumer", "range")
    assert (missing.error_code, missing.error_message) == (Code.GROUP_ID_NOT_FOUND, "Group h not found.")


def test_a_group_whose_name_is_as_long_as_a_text_can_be_is_not_found_either(context: Context) -> None:
    """The message that names it could not be written, and the connection was closed."""
    [missing] = ask(context, DESCRIBE_GROUPS, messages.DescribeGroupsRequest(("g" * MAX_STRING_BYTES,))).groups
    assert missing.error_code == Code.GROUP_ID_NOT_FOUND
    assert len(missing.error_message or "") < MAX_STRING_BYTES
    encode_response(DESCRIBE_GROUPS, DESCRIBE_GROUPS.max_version, 1, messages.DescribeGroupsResponse(groups=(missing,)))


# --- who reads what ----------------------------------------------------------------------------------------------------------


def test_cursors_are_the_partitions_that_some_group_is_assigned(broker: Broker) -> None:
    events: list[tuple[tuple[str, int], bool]] = []
    context, groups = broker.context, broker.context.coordinator.groups
    stable(context, assignment({"t": (0,)}), group="early")
    groups.watch_cursors(lambda partition, active: events.append((partition, active)), lambda each: each[1] < 3)
    assert events == [(T0, True)]
    member_id, generation = stable(context, assignment({"t": (0, 1, 7)}))
    assert events[1:] == [(T1, True)], "0 is read already, 7 is none"
    waiting = join_later(context)
    assert events[2:] == [], "a rebalance removes no cursor"
    join(context, member_id)
    newcomer = waiting.response(MAX_RECORDS).member_id
    shares = {member_id: assignment({"t": (1,)}), newcomer: assignment({"t": (2,)})}
    sync(context, member_id, generation + 1, shares)
    assert events[2:] == [(("t", 2), True)]
    broker.now += 100
    groups.run_if_due(broker.now)
    assert sorted(events[3:]) == [(T0, False), (T1, False), (("t", 2), False)]


@pytest.mark.parametrize(
    "suffix", [b"", b"\0", ONE, ONE + b"\0\5abc", ONE + b"\xff\xff", ONE + b"\0\1\xff", ONE + b"\0"], ids=repr
)
def test_bytes_that_no_consumer_writes(suffix: bytes) -> None:
    assert list(assigned_partitions(b"\0\0" + suffix)) == []
    assert subscribed_topics(b"\0\0" + suffix) is None


def test_a_consumer_that_names_too_many_topics_is_not_understood() -> None:
    assert subscribed_topics(subscription(*[""] * 10_000)) == {""}
    assert subscribed_topics(subscription(*[""] * 10_001)) is None


def test_the_bytes_of_consumers() -> None:
    assert subscribed_topics(subscription("t", "u")) == {"t", "u"}
    assert list(assigned_partitions(assignment({"t": (0, 2), "u": ()}))) == [("t", 0), ("t", 2)]
