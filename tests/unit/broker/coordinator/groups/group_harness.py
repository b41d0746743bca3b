"""A harness for one group: requests of members, their results, and a clock that the test moves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from spark_producer.broker.coordinator.groups import member_requests
from spark_producer.broker.coordinator.groups.group import ClassicGroup, GroupState
from spark_producer.broker.coordinator.groups.join_rules import join
from spark_producer.broker.coordinator.groups.member import (
    ClientInfo,
    GroupResponseFuture,
    GroupResult,
    JoinGroupResult,
    JoinRequest,
    MemberProtocol,
    SyncGroupResult,
)

SESSION, REBALANCE = 10.0, 60.0
RANGE = (MemberProtocol("range", b"t"),)


def join_request(member_id: str = "", instance: str | None = None, **fields: Any) -> JoinRequest:
    usual = JoinRequest(
        "g", member_id, instance, ClientInfo("c", "host"), SESSION, REBALANCE, "consumer", RANGE, needs_id=False
    )
    return usual._replace(**fields)


@dataclass
class GroupHarness:
    """A group with its clock."""

    delay: float = 0.0
    longest: float = 1800.0
    now: float = 1000.0
    group: ClassicGroup = field(init=False)

    def __post_init__(self) -> None:
        self.group = ClassicGroup("g", self.delay, self.longest, self.now)

    def has_state(self, state: GroupState) -> bool:
        return self.group.state is state

    def join(
        self, member_id: str = "", instance: str | None = None, **fields: Any
    ) -> GroupResponseFuture[JoinGroupResult]:
        self.group.advance(self.now)
        return join(self.group, join_request(member_id, instance, **fields), self.now)

    def sync(
        self, member_id: str, assignments: dict[str, bytes] | None = None, **fields: Any
    ) -> GroupResponseFuture[SyncGroupResult]:
        self.group.advance(self.now)
        arguments: dict[str, Any] = {
            "instance": None,
            "generation": self.group.generation,
            "protocol": (None, None),
        } | fields
        return member_requests.sync(self.group, member_id, assignments=assignments or {}, now=self.now, **arguments)

    def heartbeat(self, member_id: str, instance: str | None = None, generation: int | None = None) -> int:
        self.group.advance(self.now)
        known = self.group.generation if generation is None else generation
        return member_requests.heartbeat(self.group, member_id, instance, known, self.now)

    def leave(self, member_id: str, instance: str | None = None) -> int:
        self.group.advance(self.now)
        return member_requests.leave(self.group, member_id, instance, self.now)

    def wait(self, seconds: float) -> None:
        """Move the clock, and stop at each deadline of the group, as a broker does."""
        end = self.now + seconds
        while (due := self.group.next_deadline()) <= end:
            self.now = max(self.now, due)
            self.group.advance(self.now)
        self.now = end

    def stable(self, count: int, **fields: Any) -> list[str]:
        """Member ids of a new group in which each of them has its own id as assignment; the first one leads."""
        ids = [completed(self.join(**fields)).member_id]
        for _ in range(count - 1):
            newcomer = self.join(**fields)
            again = [self.join(each, **fields) for each in ids]
            ids.append(completed(newcomer).member_id)
            assert all(each.result for each in again)
        leader, *others = ids
        waits = [self.sync(each) for each in others]
        completed(self.sync(leader, {each: each.encode() for each in ids}))
        assert [completed(each).assignment for each in waits] == [each.encode() for each in others]
        return ids


def completed(waiting: GroupResponseFuture[GroupResult]) -> GroupResult:
    """Return the result, which must be there."""
    assert waiting.result is not None
    return waiting.result
