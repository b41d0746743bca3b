"""Requests of group members: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, OffsetCommit.

A member is called by a name; its id is the one that the group has given it. What does not fit is sent as it is.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from spark_producer.common.error_codes import Code
from spark_producer.protocol import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, OFFSET_COMMIT, SYNC_GROUP, messages
from tests.interop.conversations.talk import UUID_LENGTH, Talk, error

_COUNT = struct.Struct(">i")


class JoinGroup(NamedTuple):
    """`id` is a member whose id is sent, else that of `who`. With `waits` the answer is not waited for: `Answer` takes it."""

    who: str
    version: int = 9
    id: str | None = None
    group: str = "g"
    instance: str | None = None
    says: str = "m"
    protocols: tuple[str, ...] = ("range",)
    kind: str = "consumer"
    session: int = 30_000
    rebalance: int = 60_000
    waits: bool = False

    def ask(self, talk: Talk, connection: str) -> str:
        known = talk.member(self.who) if talk.is_member(self.who) else ""
        body = messages.JoinGroupRequest(
            talk.named(self.group),
            self.session,
            self.rebalance if self.version else -1,
            known if self.id is None else talk.member(self.id),
            self.instance,
            self.kind,
            tuple(messages.JoinGroupRequestProtocol(name, _metadata(talk, self.says)) for name in self.protocols),
        )
        client = talk.client(connection)
        client.send(JOIN_GROUP, body, self.version)
        if self.waits:
            talk.unanswered[connection] = lambda: self._describe(talk, client.receive(JOIN_GROUP, self.version)[1])
            return "waits"
        return self._describe(talk, client.receive(JOIN_GROUP, self.version)[1])

    def _describe(self, talk: Talk, answer: messages.JoinGroupResponse) -> str:
        if answer.error_code in (Code.NONE, Code.MEMBER_ID_REQUIRED):
            talk.meet_member(self.who, answer.member_id)
        if answer.error_code == Code.NONE:
            talk.generation = answer.generation_id
        own = talk.member_called(answer.member_id) or "none"
        begins = f" ({answer.member_id[:-UUID_LENGTH]}-…)" if talk.is_member(own) else ""
        members = ", ".join(
            sorted(
                f"{talk.member_called(each.member_id)} {each.group_instance_id} {_said(bytes(each.metadata))}"
                for each in answer.members
            )
        )
        leader = talk.member_called(answer.leader) if answer.leader else "none"
        return (
            f"{error(answer.error_code)}, generation {answer.generation_id}, {answer.protocol_type!r} {answer.protocol_name!r}, "
            f"member {own}{begins}, leader {leader}, [{members}]{', skips' if answer.skip_assignment else ''}"
        )


def _metadata(talk: Talk, says: str) -> bytes:
    """Return a subscription to the topic of the conversation (ConsumerProtocolSubscription 0), followed by user data."""
    topic = talk.place.topic.encode()
    data = b"|" + says.encode()
    head = struct.pack(">hih", 0, 1, len(topic)) + topic
    return head + _COUNT.pack(len(data)) + data


def _said(metadata: bytes) -> str:
    return metadata.rpartition(b"|")[2].decode() or "nothing"


class Answer(NamedTuple):
    """The answer to what was sent on the connection before."""

    def ask(self, talk: Talk, connection: str) -> str:
        return talk.unanswered.pop(connection)()


class SyncGroup(NamedTuple):
    """`assigns` has members and their assignments. The default generation is the last one that the group returned."""

    who: str
    assigns: tuple[tuple[str, str], ...] = ()
    version: int = 5
    generation: int | None = None
    group: str = "g"
    instance: str | None = None
    protocol: tuple[str | None, str | None] = ("consumer", "range")
    waits: bool = False

    def ask(self, talk: Talk, connection: str) -> str:
        body = messages.SyncGroupRequest(
            talk.named(self.group),
            talk.generation if self.generation is None else self.generation,
            talk.member(self.who),
            self.instance,
            *(self.protocol if self.version >= 5 else (None, None)),
            tuple(messages.SyncGroupRequestAssignment(talk.member(who), data.encode()) for who, data in self.assigns),
        )
        client = talk.client(connection)
        client.send(SYNC_GROUP, body, self.version)
        if self.waits:
            talk.unanswered[connection] = lambda: self._describe(client.receive(SYNC_GROUP, self.version)[1])
            return "waits"
        return self._describe(client.receive(SYNC_GROUP, self.version)[1])

    def _describe(self, answer: messages.SyncGroupResponse) -> str:
        protocol = f"{answer.protocol_type!r} {answer.protocol_name!r}"
        return f"{error(answer.error_code)}, {protocol}, {bytes(answer.assignment).decode()!r}"


class Heartbeat(NamedTuple):
    """A sign of life."""

    who: str
    generation: int | None = None
    version: int = 4
    group: str = "g"
    instance: str | None = None

    def ask(self, talk: Talk, connection: str) -> str:
        generation = talk.generation if self.generation is None else self.generation
        body = messages.HeartbeatRequest(talk.named(self.group), generation, talk.member(self.who), self.instance)
        return error(talk.ask(connection, HEARTBEAT, self.version, body).error_code)


class LeaveGroup(NamedTuple):
    """The members go, each with an instance id or None."""

    who: tuple[str, ...]
    instances: tuple[str | None, ...] = (None,)
    version: int = 5
    group: str = "g"

    def ask(self, talk: Talk, connection: str) -> str:
        rows = tuple(
            messages.LeaveGroupRequestMember(talk.member(who), instance)
            for who, instance in zip(self.who, self.instances, strict=True)
        )
        if self.version < 3:
            body = messages.LeaveGroupRequest(talk.named(self.group), rows[0].member_id)
        else:
            body = messages.LeaveGroupRequest(talk.named(self.group), members=rows)
        answer = talk.ask(connection, LEAVE_GROUP, self.version, body)
        members = ", ".join(
            f"{talk.member_called(each.member_id) or 'none'} {each.group_instance_id} {error(each.error_code)}"
            for each in answer.members
        )
        return f"{error(answer.error_code)}, [{members}]"


class OffsetCommit(NamedTuple):
    """The offset of one partition. Without `who`, it has no member id, and no generation unless one is given."""

    offset: int
    who: str = ""
    generation: int | None = None
    version: int = 9
    partition: int = 0
    group: str = "g"
    instance: str | None = None
    text: int = 3

    def ask(self, talk: Talk, connection: str) -> str:
        usual = talk.generation if self.who else -1
        row = messages.OffsetCommitRequestPartition(
            talk.partition(self.partition), self.offset, 0 if self.version >= 6 else -1, "x" * self.text
        )
        body = messages.OffsetCommitRequest(
            talk.named(self.group),
            usual if self.generation is None else self.generation,
            talk.member(self.who),
            self.instance,
            topics=(messages.OffsetCommitRequestTopic(talk.place.topic, (row,)),),
        )
        answer = talk.ask(connection, OFFSET_COMMIT, self.version, body)
        return "; ".join(error(each.error_code) for topic in answer.topics for each in topic.partitions)
