"""The state machine of one group: members join and rebalance, generation by generation (Kafka's GroupCoordinator).

A generation begins when all members have joined, or when the longest rebalance timeout has passed; members that have not joined
are removed, except static ones. Its leader then sends the assignments. All delayed results are complete by the deadline of the
join or of the sync. Each method takes the time `now` in seconds; nothing here reads a clock. `join_rules` and `member_requests`
have the rules of the requests.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from typing import Final

from spark_producer.broker.coordinator.groups.member import (
    GroupResponseFuture,
    GroupResult,
    JoinGroupMember,
    JoinGroupResult,
    JoinRequest,
    Member,
    SyncGroupResult,
    text_size,
)
from spark_producer.common.error_codes import Code

NEW_MEMBER_TIMEOUT_S: Final = 300.0
"""Maximum time in seconds that a new member waits for its first generation (Kafka's GroupCoordinator.NewMemberJoinTimeoutMs)."""

RECHECK_S: Final = 1.0
"""Minimum time in seconds between two checks whether a member has joined: a rebalance timeout of 0 must not make the broker check
continuously."""

GROUP_COST: Final = 2048
"""Bytes of memory that are counted for a group, besides its members."""

PENDING_COST: Final = 512
"""Bytes of memory that are counted for a pending member id."""


class GroupState(enum.Enum):
    """The states of a group, with Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


class ClassicGroup:
    """One group. `completed` collects the futures that were completed since it was last cleared."""

    def __init__(self, name: str, initial_delay_s: float, max_rebalance_s: float, now: float) -> None:
        self.name = name
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static: dict[str, str] = {}
        """Instance id → member id."""
        self.pending: dict[str, float] = {}
        """Member ids without a member yet (KIP-394) → the time until which they must join."""
        self.completed: list[Hashable] = []
        self.emptied_at = now
        self._initial_delay_s = initial_delay_s
        self._max_rebalance_s = max_rebalance_s
        self._not_synced: set[str] = set()
        self._join_deadline: float | None = None
        self._sync_deadline: float | None = None
        self._delay_left: float | None = None
        """While an empty group waits for its first members: the seconds by which that wait can still be extended."""
        self._newcomers = False

    # --- queries ------------------------------------------------------------------------------------------------------------

    @property
    def is_unused(self) -> bool:
        """Whether it has no members, and no pending ones."""
        return self.state is GroupState.EMPTY and not self.pending

    @property
    def size(self) -> int:
        """The bytes of memory that are counted for the group."""
        members = sum(each.size + len(each.assignment) for each in self.members.values())
        pending = sum(PENDING_COST + text_size(each) for each in self.pending)
        return GROUP_COST + text_size(self.name) + pending + members

    @property
    def rebalance_s(self) -> float:
        """The longest rebalance timeout of its members, in seconds."""
        longest = max((each.rebalance_s for each in self.members.values()), default=0.0)
        return min(max(longest, 0.0), self._max_rebalance_s)

    def next_deadline(self) -> float:
        """Return the time at which `advance` is next due, if nothing else happens before."""
        times = [each.expires_at for each in self.members.values() if not each.is_kept]
        times += self.pending.values()
        times += [time for time in (self._join_deadline, self._sync_deadline) if time is not None]
        return min(times, default=float("inf"))

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Return whether a client with these protocols can join the other members."""
        if not self.members:
            return bool(protocol_type) and any(True for _ in names)
        votes = Counter(name for each in self.members.values() for name in each.names)
        return protocol_type == self.protocol_type and any(votes[name] == len(self.members) for name in names)

    def chosen_protocol(self) -> str:
        """Return the protocol that most members prefer, of those that all support."""
        common = frozenset.intersection(*(each.names for each in self.members.values()))
        votes = Counter(
            next(each.name for each in member.protocols if each.name in common) for member in self.members.values()
        )
        return votes.most_common(1)[0][0]

    def join_group_members(self) -> tuple[JoinGroupMember, ...]:
        """Return all members for the leader's response."""
        return tuple(
            JoinGroupMember(each.id, each.instance, each.metadata(self.protocol)) for each in self.members.values()
        )

    def join_result(self, member: Member) -> JoinGroupResult:
        """Return the JoinGroup result of `member` in this generation."""
        is_leader = member.id == self.leader
        members = self.join_group_members() if is_leader else ()
        return JoinGroupResult(
            Code.NONE, member.id, self.generation, self.protocol_type, self.protocol, self.leader or "", members
        )

    # --- requests --------------------------------------------------------------------------------------------------------------

    def add(self, member_id: str, join_request: JoinRequest, now: float) -> GroupResponseFuture[JoinGroupResult]:
        """Add a new member, and rebalance."""
        if not self.members:
            self.protocol_type = join_request.protocol_type
        self.pending.pop(member_id, None)
        member = Member(
            member_id,
            join_request.instance,
            join_request.client,
            join_request.session_s,
            join_request.rebalance_s,
            join_request.protocols,
            now + NEW_MEMBER_TIMEOUT_S,
            join_request.size,
        )
        member.joining = future = GroupResponseFuture[JoinGroupResult]()
        self.members[member_id] = member
        if member.instance is not None:
            self.static[member.instance] = member_id
        self.leader = self.leader or member_id
        self._newcomers = self._delay_left is not None
        self.rebalance(now)
        return future

    def join_again(self, member: Member, join_request: JoinRequest, now: float) -> GroupResponseFuture[JoinGroupResult]:
        """Let a member wait for the next generation."""
        member.update(join_request)
        if member.joining is not None:  # of an abandoned connection of the member
            self.complete(member.joining, JoinGroupResult(Code.REBALANCE_IN_PROGRESS, member.id))
        member.joining = future = GroupResponseFuture[JoinGroupResult]()
        self.rebalance(now)
        return future

    def replace_static(self, instance: str, new_id: str) -> Member:
        """Give the static member of this instance a new id; a client with the old one is fenced (KIP-345)."""
        old_id = self.static[instance]
        member = self.members.pop(old_id)
        self._end_waits(member, Code.FENCED_INSTANCE_ID)
        member.id = self.static[instance] = new_id
        self.members[new_id] = member
        if old_id in self._not_synced:
            self._not_synced.remove(old_id)
            self._not_synced.add(new_id)
        if self.leader == old_id:
            self.leader = new_id
        return member

    def remove(self, member_id: str, now: float) -> None:
        """Remove a member, and rebalance."""
        self._drop(member_id)
        if self.state in (GroupState.STABLE, GroupState.COMPLETING):
            self._prepare(now)
        else:
            self._complete_if_all_joined(now)

    def remove_pending(self, member_id: str, now: float) -> None:
        """Remove a pending member id."""
        del self.pending[member_id]
        self._complete_if_all_joined(now)

    def sync(self, member: Member) -> GroupResponseFuture[SyncGroupResult]:
        """Let a member wait for its assignment."""
        if member.syncing is not None:
            self.complete(member.syncing, SyncGroupResult(Code.REBALANCE_IN_PROGRESS))
        member.syncing = future = GroupResponseFuture[SyncGroupResult]()
        self._not_synced.discard(member.id)
        return future

    def sync_result(self, member: Member) -> SyncGroupResult:
        """Return the SyncGroup result of a member in a stable generation."""
        self._not_synced.discard(member.id)
        return SyncGroupResult(Code.NONE, self.protocol_type, self.protocol, member.assignment)

    def assign(self, assignments: dict[str, bytes], now: float) -> None:
        """Complete the SyncGroups with the leader's assignments; a member without one gets none."""
        self.state = GroupState.STABLE
        for member in self.members.values():
            member.assignment = assignments.get(member.id, b"")
            if member.syncing is not None:
                self.complete(
                    member.syncing, SyncGroupResult(Code.NONE, self.protocol_type, self.protocol, member.assignment)
                )
                member.syncing = None
            self.extend_session(member, now)

    def fail_sync(self, code: Code, now: float) -> None:
        """Fail all waiting SyncGroups with `code`, and rebalance."""
        self._end_syncs(code, now)
        self._prepare(now)

    def extend_session(self, member: Member, now: float) -> None:
        """Restart the session timeout of a member."""
        member.expires_at = now + member.session_s

    def rebalance(self, now: float) -> None:
        """Begin a rebalance, or complete one if all members have joined."""
        if self.state is GroupState.PREPARING:
            self._complete_if_all_joined(now)
        else:
            self._prepare(now)

    # --- time --------------------------------------------------------------------------------------------------------------

    def advance(self, now: float) -> None:
        """Remove members whose session has expired, and end waits whose deadline has passed."""
        for member_id in [each for each, until in self.pending.items() if until <= now]:
            self.remove_pending(member_id, now)
        for member in [each for each in self.members.values() if each.expires_at <= now]:
            if member.id in self.members and not member.is_kept and member.expires_at <= now:
                self.remove(member.id, now)
        if self._join_deadline is not None and self._join_deadline <= now:
            if self._newcomers and self._delay_left:
                self._extend(self._delay_left, now)
            else:
                self._complete(now)
        if self._sync_deadline is not None and self._sync_deadline <= now:
            self._sync_deadline = None
            late = list(self._not_synced)
            for member_id in late:
                self._drop(member_id)
            if late:
                self._prepare(now)

    # --- steps ---------------------------------------------------------------------------------------------------------------

    def complete(self, future: GroupResponseFuture[GroupResult], result: GroupResult) -> None:
        """Complete a future."""
        future.result = result
        self.completed.append(future)

    def _prepare(self, now: float) -> None:
        """Make all members join again; the first ones of an empty group wait a while for others."""
        if self.state is GroupState.COMPLETING:
            self._end_syncs(Code.REBALANCE_IN_PROGRESS, now)
        self._sync_deadline, self._not_synced = None, set()
        before, self.state = self.state, GroupState.PREPARING
        if before is not GroupState.EMPTY:
            self._join_deadline = now + self.rebalance_s
            self._complete_if_all_joined(now)
        elif self._initial_delay_s:
            self._extend(self.rebalance_s, now)
        else:
            self._complete(now)

    def _extend(self, left: float, now: float) -> None:
        """Wait for further members of a group that was empty (KIP-134)."""
        delay = min(self._initial_delay_s, left)
        self._join_deadline, self._delay_left, self._newcomers = now + delay, left - delay, False

    def _complete_if_all_joined(self, now: float) -> None:
        if self.state is not GroupState.PREPARING or self._delay_left is not None or self.pending:
            return
        if all(each.joining is not None for each in self.members.values()):
            self._complete(now)

    def _complete(self, now: float) -> None:
        """Begin the next generation with the members that have joined."""
        for member in self._not_joined():
            if member.instance is None:
                self._drop(member.id)
        if self.members and not self._has_leader():
            # All members are static and absent: wait until one of them joins, or their sessions expire.
            self._join_deadline = now + max(self.rebalance_s, RECHECK_S)
            return
        self._join_deadline = self._delay_left = None
        self.generation += 1
        self._not_synced = set(self.members)
        if not self.members:
            self.state, self.protocol, self.emptied_at = GroupState.EMPTY, None, now
            return
        self.state, self.protocol = GroupState.COMPLETING, self.chosen_protocol()
        self._sync_deadline = now + self.rebalance_s
        for member in self.members.values():
            if member.joining is not None:
                self.complete(member.joining, self.join_result(member))
            member.joining, member.is_new = None, False
            self.extend_session(member, now)

    def _not_joined(self) -> list[Member]:
        return [each for each in self.members.values() if each.joining is None]

    def _has_leader(self) -> bool:
        """Return whether the leader has joined, or a joined member can replace it."""
        if self.leader is None or self.members[self.leader].joining is None:
            found = self._first(each.id for each in self.members.values() if each.joining is not None)
            if found is None:
                return False
            self.leader = found
        return True

    def _drop(self, member_id: str) -> None:
        """Remove a member, and fail its futures."""
        member = self.members.pop(member_id)
        self._end_waits(member, Code.UNKNOWN_MEMBER_ID)
        self._not_synced.discard(member_id)
        if member.instance is not None:
            del self.static[member.instance]
        if self.leader == member_id:
            self.leader = self._first(iter(self.members))

    def _end_waits(self, member: Member, code: Code) -> None:
        if member.joining is not None:
            self.complete(member.joining, JoinGroupResult(code, member.id))
        if member.syncing is not None:
            self.complete(member.syncing, SyncGroupResult(code))
        member.joining = member.syncing = None

    def _end_syncs(self, code: Code, now: float) -> None:
        for member in self.members.values():
            member.assignment = b""
            if member.syncing is not None:
                self.complete(member.syncing, SyncGroupResult(code))
                member.syncing = None
                self.extend_session(member, now)  # its session could not expire while it waited

    @staticmethod
    def _first(ids: Iterator[str]) -> str | None:
        return next(ids, None)
