"""All groups together: what a client costs that makes and deletes many of them, or assigns a lot."""

from __future__ import annotations

import struct

from spark_producer.broker.coordinator.groups.consumer_protocol import MAX_PARSED_BYTES
from spark_producer.broker.coordinator.groups.member import ClientInfo, MemberProtocol
from spark_producer.broker.coordinator.groups.registry import MAX_STALE_DEADLINES, Groups
from spark_producer.broker.settings import GroupSettings
from spark_producer.common.cluster import TopicPartition
from spark_producer.common.error_codes import Code
from tests.unit.broker.coordinator.groups.group_harness import completed, join_request


def test_created_and_deleted_groups_leave_no_memory() -> None:
    groups = Groups(GroupSettings(), lambda: 1000.0)
    for number in range(10 * MAX_STALE_DEADLINES):
        name = f"g{number}"
        assert completed(groups.join(join_request(group=name, needs_id=True))).code == Code.MEMBER_ID_REQUIRED
        assert groups.forget(name) == Code.NONE
    assert groups.size == 0
    assert len(groups._deadlines) <= MAX_STALE_DEADLINES + 1


def test_an_assignment_of_millions_of_topics_is_not_read_to_its_end() -> None:
    asked: list[TopicPartition] = []

    def exists(partition: TopicPartition) -> bool:
        asked.append(partition)
        return True

    found: list[tuple[TopicPartition, bool]] = []
    groups = Groups(GroupSettings(), lambda: 1000.0)
    groups.watch_cursors(lambda partition, active: found.append((partition, active)), exists)
    member = completed(groups.join(join_request())).member_id
    nothing = struct.pack(">hi", 0, 0) * (MAX_PARSED_BYTES // 6)
    partition = struct.pack(">h1sii", 1, b"t", 1, 0)
    groups.sync("g", member, None, 1, (None, None), {member: struct.pack(">hi", 0, 2**31 - 1) + nothing + partition})
    assert not found
    assert not asked
    groups.join(join_request(member))
    groups.sync("g", member, None, 2, (None, None), {member: struct.pack(">hi", 0, 1) + partition})
    assert found == [(("t", 0), True)]


def test_an_assignment_that_is_too_large_does_not_reach_those_who_wait_for_it() -> None:
    groups = Groups(GroupSettings(max_bytes=100_000), lambda: 1000.0)
    leader = completed(groups.join(join_request())).member_id
    second = groups.join(join_request())
    again = groups.join(join_request(leader))
    follower = completed(second).member_id
    assert completed(again).generation == completed(second).generation == 2
    waiting = groups.sync("g", follower, None, 2, (None, None), {})
    response = groups.sync("g", leader, None, 2, (None, None), {leader: b"", follower: bytes(100_000)})
    assert completed(response).code == Code.POLICY_VIOLATION
    assert (completed(waiting).code, completed(waiting).assignment) == (Code.POLICY_VIOLATION, b"")


def test_texts_count_with_the_bytes_that_they_take_in_memory() -> None:
    groups = Groups(GroupSettings(), lambda: 1000.0)
    latin, wide = "x" * 1000, "x" * 999 + "\N{GRINNING FACE}"
    sizes = []
    for text in (latin, wide):
        before = groups.size
        completed(groups.join(join_request(group=text, client=ClientInfo(text, text))))
        sizes.append(groups.size - before)
    assert sizes[0] > 4 * 1000
    assert sizes[1] > 4 * 4 * 1000
    one = join_request(instance=latin, protocol_type=latin, protocols=(MemberProtocol(latin, b""),)).size
    assert (
        join_request(instance=wide, protocol_type=wide, protocols=(MemberProtocol(wide, b""),)).size - one
        > 3 * 4 * 1000
    )
