"""Any order of what members do, and of what time does: hypothesis looks for one that breaks a promise of the group.

The promises: in one generation no partition belongs to two members; all members get the same response, and one of them leads;
and every wait ends by its deadline.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from spark_producer.broker.coordinator.groups.member import (
    GroupResponseFuture,
    JoinGroupResult,
    MemberProtocol,
    SyncGroupResult,
)
from spark_producer.common.error_codes import Code
from tests.unit.broker.coordinator.groups.group_harness import GroupHarness

PARTITIONS = 6
LONGEST = 40.0
CLIENTS = 4
PROTOCOLS = (MemberProtocol("range", b""), MemberProtocol("sticky", b""))


class Client:
    """A consumer that continues after any response: it joins, syncs, and rejoins when the response asks for it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.instance = "static" if number == 0 else None
        self.member_id = ""
        self.generation = -1
        self.joining: GroupResponseFuture[JoinGroupResult] | None = None
        self.syncing: GroupResponseFuture[SyncGroupResult] | None = None
        self.joined: JoinGroupResult | None = None
        self.waits_since = 0.0

    def gone(self) -> None:
        """Forget the member's pending requests and its assignment."""
        self.joining = self.syncing = self.joined = None
        self.generation = -1


def shared_out(joined: JoinGroupResult) -> dict[str, bytes]:
    """Each partition to one member, by turns."""
    owners = itertools.cycle(each.member_id for each in joined.members)
    shares: dict[str, bytes] = defaultdict(bytes)
    for partition in range(PARTITIONS):
        shares[next(owners)] += bytes((partition,))
    return dict(shares)


class Schedules(RuleBasedStateMachine):
    """Four clients, one of which is static, and one group."""

    def __init__(self) -> None:
        super().__init__()
        self.play = GroupHarness(longest=LONGEST)
        self.clients = [Client(number) for number in range(CLIENTS)]
        self.protocols: dict[int, set[str | None]] = defaultdict(set)
        self.leaders: dict[int, set[int]] = defaultdict(set)
        self.owners: dict[int, dict[int, int]] = defaultdict(dict)

    any_client = st.integers(0, CLIENTS - 1)

    @rule(
        number=any_client,
        needs_id=st.booleans(),
        timeouts=st.tuples(st.sampled_from((6.0, 20.0)), st.sampled_from((1.0, 30.0, 500.0))),
        protocols=st.sampled_from((PROTOCOLS, PROTOCOLS[:1], PROTOCOLS[1:])),
    )
    def join(
        self, number: int, needs_id: bool, timeouts: tuple[float, float], protocols: tuple[MemberProtocol, ...]
    ) -> None:
        client = self.clients[number]
        client.gone()
        arguments: dict[str, Any] = {
            "session_s": timeouts[0],
            "rebalance_s": timeouts[1],
            "protocols": protocols,
            "needs_id": needs_id,
        }
        client.joining = self.play.join(client.member_id, client.instance, **arguments)
        client.waits_since = self.play.now

    @rule(number=any_client)
    def look(self, number: int) -> None:
        """Process the response, as a consumer does."""
        client = self.clients[number]
        if client.joining is not None and client.joining.result is not None:
            self._take_joined(client, client.joining.result)
        elif client.syncing is not None and client.syncing.result is not None:
            self._take_synced(client, client.syncing.result)

    def _take_joined(self, client: Client, joined: JoinGroupResult) -> None:
        client.gone()
        client.member_id = "" if joined.code == Code.UNKNOWN_MEMBER_ID else joined.member_id
        if joined.code != Code.NONE:
            return
        client.joined, client.generation = joined, joined.generation
        self.protocols[joined.generation].add(joined.protocol)
        if joined.members:
            self.leaders[joined.generation].add(client.number)

    def _take_synced(self, client: Client, synced: SyncGroupResult) -> None:
        client.syncing = None
        if synced.code != Code.NONE:
            client.gone()
            return
        for partition in synced.assignment:
            owner = self.owners[client.generation].setdefault(partition, client.number)
            assert owner == client.number, f"{partition} has two owners in generation {client.generation}"

    @rule(number=any_client)
    def sync(self, number: int) -> None:
        client = self.clients[number]
        if client.joined is None or client.syncing is not None:
            return
        shares = shared_out(client.joined) if client.joined.leader == client.member_id else {}
        arguments: dict[str, Any] = {"instance": client.instance, "generation": client.generation}
        client.syncing = self.play.sync(client.member_id, shares, **arguments)
        client.waits_since = self.play.now

    @rule(number=any_client)
    def heartbeat(self, number: int) -> None:
        client = self.clients[number]
        if client.generation > 0:
            self.play.heartbeat(client.member_id, client.instance, client.generation)

    @rule(number=any_client)
    def leave(self, number: int) -> None:
        client = self.clients[number]
        self.play.leave(client.member_id, client.instance)
        client.gone()
        client.member_id = ""

    @rule(number=any_client)
    def crash(self, number: int) -> None:
        """The process that replaces it knows no member id."""
        self.clients[number].gone()
        self.clients[number].member_id = ""

    @rule(seconds=st.sampled_from((0.5, 3.0, 10.0, 45.0)))
    def time_goes_by(self, seconds: float) -> None:
        self.play.wait(seconds)

    @precondition(lambda self: self.play.group.members)
    @rule()
    def everybody_goes(self) -> None:
        """Without further requests the group becomes empty from any state, and every request has a response."""
        for client in self.clients:
            client.member_id = ""
        self.play.wait(1000.0)
        assert self.play.group.is_unused
        assert all(each.joining is None or each.joining.result for each in self.clients)
        assert all(each.syncing is None or each.syncing.result for each in self.clients)
        assert self.play.group.next_deadline() == float("inf")

    @invariant()
    def every_wait_ends_by_its_deadline(self) -> None:
        for client in self.clients:
            for waiting in (client.joining, client.syncing):
                if waiting is not None and waiting.result is None:
                    assert self.play.now <= client.waits_since + LONGEST

    @invariant()
    def a_generation_has_one_leader_and_one_protocol(self) -> None:
        assert all(len(protocols) == 1 for protocols in self.protocols.values())
        assert all(len(leaders) == 1 for leaders in self.leaders.values())

    @invariant()
    def the_group_agrees_with_itself(self) -> None:
        group = self.play.group
        assert all(group.members[member_id].instance == instance for instance, member_id in group.static.items())
        assert (group.leader is None) == (not group.members)
        assert group.leader is None or group.leader in group.members
        assert not group.pending.keys() & group.members.keys()
        if group.state.value in ("CompletingRebalance", "Stable"):
            assert group.protocol is not None
            assert all(group.protocol in each.names for each in group.members.values())
            assert all(each.joining is None for each in group.members.values())
        if group.state.value != "CompletingRebalance":
            assert all(each.syncing is None for each in group.members.values())


TestSchedules = pytest.mark.slow(Schedules.TestCase)
TestSchedules.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
