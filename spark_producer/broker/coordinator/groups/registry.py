"""All groups of a broker: they are created by their first member, limited in memory, advanced by the clock, and forgotten once
they are unused. Only the broker's thread uses them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import islice
from typing import Final

from spark_producer.broker.coordinator.groups import member_requests
from spark_producer.broker.coordinator.groups.consumer_protocol import (
    MAX_PARSED_BYTES,
    PROTOCOL_TYPE,
    assigned_partitions,
)
from spark_producer.broker.coordinator.groups.group import GROUP_COST, PENDING_COST, ClassicGroup, GroupState
from spark_producer.broker.coordinator.groups.join_rules import join
from spark_producer.broker.coordinator.groups.member import (
    GroupResponseFuture,
    JoinGroupResult,
    JoinRequest,
    SyncGroupResult,
    text_size,
)
from spark_producer.broker.settings import GroupSettings
from spark_producer.common.cluster import TopicPartition
from spark_producer.common.error_codes import Code

EMPTY_GROUP_RETENTION_S: Final = 600.0
"""The time in seconds for which an empty group keeps its generation (Kafka's `offsets.retention.check.interval.ms`)."""

MAX_ASSIGNED_PARTITIONS: Final = 100_000
"""Maximum number of assigned partitions of a group that are read, whatever its leader assigns: there are fewer
(`BrokerSettings.max_partitions`)."""

MAX_STALE_DEADLINES: Final = 100
"""Maximum number of stale deadlines in the heap: it is not rebuilt with each new one."""

CursorListener = Callable[[TopicPartition, bool], None]
"""Is called when the first group reads a partition (True), or when none does any more (False)."""


class Groups:
    """All groups with members, by name. `clock` returns seconds."""

    def __init__(self, settings: GroupSettings, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self._groups: dict[str, ClassicGroup] = {}
        self._sizes: dict[str, int] = {}
        self._size = 0
        self._deadlines: list[tuple[float, str]] = []
        self._scheduled: dict[str, float] = {}
        self._completed: list[Hashable] = []
        self._read: dict[str, tuple[int, frozenset[TopicPartition]]] = {}
        self._readers: dict[TopicPartition, int] = {}
        self._watcher: CursorListener | None = None
        self._exists: Callable[[TopicPartition], bool] = lambda _: True

    def get(self, name: str) -> ClassicGroup | None:
        """Return a group with members, or one that became empty a while ago."""
        return self._groups.get(name)

    def names(self) -> Iterable[str]:
        """Return the names of all groups that `get` returns."""
        return self._groups.keys()

    @property
    def size(self) -> int:
        """The bytes of memory that are counted for all groups."""
        return self._size

    def take_completed(self) -> tuple[Hashable, ...]:
        """Return the futures that were completed since the last call."""
        completed, self._completed = tuple(self._completed), []
        return completed

    def watch_cursors(self, watcher: CursorListener, exists: Callable[[TopicPartition], bool]) -> None:
        """Call `watcher` for the existing partitions that are assigned to members of any group: they have an active durable
        cursor, as Pulsar calls it."""
        self._watcher, self._exists = watcher, exists
        for group in self._groups.values():
            self._report_cursors(group)

    # --- requests ------------------------------------------------------------------------------------------------------------

    def join(self, join_request: JoinRequest) -> GroupResponseFuture[JoinGroupResult]:
        """Return the future result of a JoinGroup."""
        now = self._clock()
        bounds = (self._settings.min_session_timeout_ms, self._settings.max_session_timeout_ms)
        if not bounds[0] <= join_request.session_s * 1000 <= bounds[1]:
            return GroupResponseFuture(JoinGroupResult(Code.INVALID_SESSION_TIMEOUT, join_request.member_id))
        group = self._advance(join_request.group, now)
        if group is None and join_request.member_id:
            return GroupResponseFuture(JoinGroupResult(Code.UNKNOWN_MEMBER_ID, join_request.member_id))
        code = self._join_error(group, join_request)
        if code != Code.NONE:
            return GroupResponseFuture(JoinGroupResult(code, join_request.member_id))
        if group is None:
            longest, delay = bounds[1] / 1000, self._settings.initial_rebalance_delay_ms / 1000
            group = self._groups[join_request.group] = ClassicGroup(join_request.group, delay, longest, now)
        future = join(group, join_request, now)
        self._settle(group)
        return future

    def _join_error(self, group: ClassicGroup | None, join_request: JoinRequest) -> Code:
        """Return the error if a limit forbids another member; NONE otherwise."""
        known = group.members.get(join_request.member_id) if group is not None else None
        if group is not None and known is None and join_request.instance not in group.static:
            others = len(group.members) + len(group.pending.keys() - {join_request.member_id})
            if others >= self._settings.max_size:
                return Code.GROUP_MAX_SIZE_REACHED
        more = join_request.size - (known.size if known is not None else 0) + PENDING_COST
        more += GROUP_COST + text_size(join_request.group) if group is None else 0
        return Code.POLICY_VIOLATION if self._size + more > self._settings.max_bytes else Code.NONE

    def sync(
        self,
        name: str,
        member_id: str,
        instance: str | None,
        generation: int,
        protocol: tuple[str | None, str | None],
        assignments: dict[str, bytes],
    ) -> GroupResponseFuture[SyncGroupResult]:
        """Return the future result of a SyncGroup."""
        now = self._clock()
        group = self._advance(name, now)
        if group is None:
            return GroupResponseFuture(SyncGroupResult(Code.UNKNOWN_MEMBER_ID))
        before = sum(len(each.assignment) for each in group.members.values())
        max_bytes = self._settings.max_bytes - self._size + before
        future = member_requests.sync(
            group, member_id, instance, generation, protocol, assignments, now, max_bytes=max_bytes
        )
        self._settle(group)
        return future

    def heartbeat(self, name: str, member_id: str, instance: str | None, generation: int) -> Code:
        """Extend the session of a member; return whether it has to join again."""
        now = self._clock()
        group = self._advance(name, now)
        return (
            Code.UNKNOWN_MEMBER_ID
            if group is None
            else member_requests.heartbeat(group, member_id, instance, generation, now)
        )

    def leave(self, name: str, member_id: str, instance: str | None) -> Code:
        """Remove a member."""
        now = self._clock()
        group = self._advance(name, now)
        if group is None:
            return Code.UNKNOWN_MEMBER_ID
        code = member_requests.leave(group, member_id, instance, now)
        if code == Code.NONE:  # a request may name thousands of non-members
            self._settle(group)
        return code

    def check_commit(
        self, name: str, member_id: str, instance: str | None, generation: int, *, transactional: bool
    ) -> Code:
        """Return whether a client may commit offsets of a group; GROUP_ID_NOT_FOUND for a member of a missing one."""
        now = self._clock()
        group = self._advance(name, now)
        if group is None:
            return Code.GROUP_ID_NOT_FOUND if generation >= 0 else Code.NONE
        return member_requests.commit(group, member_id, instance, generation, transactional=transactional, now=now)

    def forget(self, name: str) -> Code:
        """Delete a group without members; NON_EMPTY_GROUP if it has some, GROUP_ID_NOT_FOUND if it is missing."""
        group = self._advance(name, self._clock())
        if group is None:
            return Code.GROUP_ID_NOT_FOUND
        if group.state is not GroupState.EMPTY:
            return Code.NON_EMPTY_GROUP
        self._forget(group)
        return Code.NONE

    # --- time ------------------------------------------------------------------------------------------------------------------

    @property
    def due(self) -> float:
        """The time of the clock at which `run_if_due` is next due."""
        return self._deadlines[0][0] if self._deadlines else float("inf")

    def run_if_due(self, now: float) -> tuple[Hashable, ...]:
        """Run what is due; return the futures that were completed."""
        while self._deadlines and self._deadlines[0][0] <= now:
            time, name = heapq.heappop(self._deadlines)
            if self._scheduled.get(name) == time:
                del self._scheduled[name]
                self._advance(name, now)
        return self.take_completed()

    def _advance(self, name: str, now: float) -> ClassicGroup | None:
        """Advance a group to the current time; return it, or None if there is none."""
        group = self._groups.get(name)
        if group is None or self._scheduled.get(name, float("-inf")) > now:
            return group
        group.advance(now)
        if group.is_unused and group.emptied_at + EMPTY_GROUP_RETENTION_S <= now:
            self._forget(group)
            return None
        self._settle(group)
        return group

    def _settle(self, group: ClassicGroup) -> None:
        """Update the tables after a change of a group: completed futures, size, deadline, and cursors."""
        self._completed += group.completed
        group.completed.clear()
        before, size = self._sizes.get(group.name, 0), group.size
        self._size += size - before
        self._sizes[group.name] = size
        deadline = group.next_deadline()
        if group.is_unused:
            deadline = min(deadline, group.emptied_at + EMPTY_GROUP_RETENTION_S)
        if deadline < self._scheduled.get(group.name, float("inf")):
            self._scheduled[group.name] = deadline
            heapq.heappush(self._deadlines, (deadline, group.name))
            self._sweep()
        if self._watcher is not None:
            self._report_cursors(group)

    def _sweep(self) -> None:
        """Rebuild the heap once stale deadlines outnumber the others."""
        if len(self._deadlines) > 2 * len(self._scheduled) + MAX_STALE_DEADLINES:
            self._deadlines = [(time, name) for name, time in self._scheduled.items()]
            heapq.heapify(self._deadlines)

    def _forget(self, group: ClassicGroup) -> None:
        del self._groups[group.name]
        self._size -= self._sizes.pop(group.name)
        self._scheduled.pop(group.name, None)
        self._report_cursors(group)

    # --- cursors ---------------------------------------------------------------------------------------------------------------

    def _report_cursors(self, group: ClassicGroup) -> None:
        """Report changed cursors of a group that is stable or empty."""
        stamp, before = self._read.get(group.name, (0, frozenset()))
        if group.state is GroupState.EMPTY:
            after: frozenset[TopicPartition] = frozenset()
        elif group.state is GroupState.STABLE and stamp != group.generation and group.protocol_type == PROTOCOL_TYPE:
            found = _assigned(group)
            after = frozenset(each for each in islice(found, MAX_ASSIGNED_PARTITIONS) if self._exists(each))
        else:
            return
        if after:
            self._read[group.name] = (group.generation, after)
        else:
            self._read.pop(group.name, None)
        for partition in after - before:
            self._count(partition, 1)
        for partition in before - after:
            self._count(partition, -1)

    def _count(self, partition: TopicPartition, change: int) -> None:
        before = self._readers.get(partition, 0)
        after = before + change
        if after:
            self._readers[partition] = after
        else:
            self._readers.pop(partition, None)
        if self._watcher is not None and bool(before) != bool(after):
            self._watcher(partition, bool(after))


def _assigned(group: ClassicGroup) -> Iterator[TopicPartition]:
    """Yield the assigned partitions, within the limit of parsed bytes."""
    left = MAX_PARSED_BYTES
    for member in group.members.values():
        yield from assigned_partitions(member.assignment[:left])
        left = max(left - len(member.assignment), 0)
