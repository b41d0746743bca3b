"""Requests of administrators about groups: DescribeGroups, ListGroups, DeleteGroups, OffsetDelete, OffsetFetch of all offsets."""

from __future__ import annotations

from typing import NamedTuple

from spark_producer.protocol import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    OFFSET_DELETE,
    OFFSET_FETCH,
    messages,
)
from tests.interop.conversations.talk import Talk, error


class DescribeGroups(NamedTuple):
    """The state of a group, and its members in the order of their names.

    Assignments are compared for stable groups only: before, Kafka 4 returns the old ones, and Kafka 3.9 none.
    """

    group: str = "g"
    version: int = 5

    def ask(self, talk: Talk, connection: str) -> str:
        body = messages.DescribeGroupsRequest((talk.named(self.group),))
        (row,) = talk.ask(connection, DESCRIBE_GROUPS, self.version, body).groups
        assert row.group_id == talk.named(self.group)
        stable = row.group_state == "Stable"
        members = sorted(
            f"{talk.member_called(each.member_id)} {each.group_instance_id} {each.client_id} {each.client_host} "
            f"{bytes(each.member_metadata).rpartition(b'|')[2].decode()!r}"
            + (f" {bytes(each.member_assignment).decode()!r}" if stable else "")
            for each in row.members
        )
        reported = "with a message" if row.error_message else "without a message"
        message = f", {reported}" if self.version >= 6 else ""
        return (
            f"{error(row.error_code)}{message}, {row.group_state}, {row.protocol_type!r} {row.protocol_data!r}, "
            f"[{', '.join(members)}]"
        )


class ListGroups(NamedTuple):
    """The groups of the conversation that pass the filters."""

    states: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    version: int = 5

    def ask(self, talk: Talk, connection: str) -> str:
        body = messages.ListGroupsRequest(self.states, self.types)
        answer = talk.ask(connection, LIST_GROUPS, self.version, body)
        rows = sorted(
            f"{talk.called(row.group_id)} {row.protocol_type!r} {row.group_state!r} {row.group_type!r}"
            for row in answer.groups
            if talk.is_ours(row.group_id)
        )
        return f"{error(answer.error_code)}, [{', '.join(rows)}]"


class DeleteGroups(NamedTuple):
    """Groups that are not needed any more."""

    groups: tuple[str, ...] = ("g",)
    version: int = 2

    def ask(self, talk: Talk, connection: str) -> str:
        body = messages.DeleteGroupsRequest(tuple(talk.named(group) for group in self.groups))
        answer = talk.ask(connection, DELETE_GROUPS, self.version, body)
        return "; ".join(sorted(f"{talk.called(row.group_id)}: {error(row.error_code)}" for row in answer.results))


class OffsetDelete(NamedTuple):
    """Offsets of some partitions that are not needed any more."""

    partitions: tuple[int, ...] = (0,)
    group: str = "g"

    def ask(self, talk: Talk, connection: str) -> str:
        rows = tuple(messages.OffsetDeleteRequestPartition(talk.partition(number)) for number in self.partitions)
        topics = (messages.OffsetDeleteRequestTopic(talk.place.topic, rows),)
        answer = talk.ask(connection, OFFSET_DELETE, 0, messages.OffsetDeleteRequest(talk.named(self.group), topics))
        reported = sorted(
            f"{talk.partitions_text([row.partition_index])}: {error(row.error_code)}"
            for topic in answer.topics
            for row in topic.partitions
        )
        return f"{error(answer.error_code)}, [{', '.join(reported)}]"


class AllOffsets(NamedTuple):
    """OffsetFetch of all offsets of a group."""

    group: str = "g"
    version: int = 8

    def ask(self, talk: Talk, connection: str) -> str:
        group = messages.OffsetFetchRequestGroup(talk.named(self.group), topics=None)
        body = messages.OffsetFetchRequest(talk.named(self.group), None, (group,))
        if self.version < 8:
            body = body._replace(groups=())
        else:
            body = body._replace(group_id="", topics=())
        answer = talk.ask(connection, OFFSET_FETCH, self.version, body)
        found = answer.groups[0] if self.version >= 8 else answer
        rows = sorted(
            f"{talk.partitions_text([row.partition_index])} {row.committed_offset} {row.metadata!r}"
            for topic in found.topics
            for row in topic.partitions
        )
        return f"{error(found.error_code)}, [{', '.join(rows)}]"
