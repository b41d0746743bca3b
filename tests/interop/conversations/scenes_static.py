"""Scenes of static members (KIP-345), and of time that goes by."""

from __future__ import annotations

from tests.interop.conversations.administering import DescribeGroups
from tests.interop.conversations.grouping import Answer, Heartbeat, JoinGroup, LeaveGroup, OffsetCommit, SyncGroup
from tests.interop.conversations.scene import CLASSIC, Scene, Step, TxnVersion
from tests.interop.conversations.scenes_groups import begin, two_members


def two_static() -> list[Step]:
    """Static members `a`, who leads, and `b`, in generation 2."""
    return [
        *begin(),
        Step("A", JoinGroup("a", instance="x")),
        Step("A", SyncGroup("a", (("a", "A"),), instance="x")),
        Step("B", JoinGroup("b", instance="y", waits=True)),
        Step("L", DescribeGroups(), until="PreparingRebalance"),
        Step("A", JoinGroup("a", instance="x")),
        Step("B", Answer()),
        Step("B", SyncGroup("b", instance="y", waits=True)),
        Step("A", SyncGroup("a", (("a", "A"), ("b", "B")), instance="x")),
        Step("B", Answer()),
    ]


def static(_txn_version: TxnVersion) -> list[Step]:
    """Each comes back, with its id and without."""
    return [
        *two_static(),
        Step("L", DescribeGroups()),
        Step("C", JoinGroup("b2", id="", instance="y")),
        Step("C", SyncGroup("b2", instance="y")),
        Step("B", Heartbeat("b", instance="y")),
        Step("B", Heartbeat("b")),
        Step("B", JoinGroup("b3", id="b", instance="y")),
        Step("B", SyncGroup("b", instance="y")),
        Step("B", OffsetCommit(1, "b", instance="y")),
        Step("B", OffsetCommit(1, "b2", instance="z")),
        Step("B", LeaveGroup(("b",), ("y",))),
        Step("C", Heartbeat("b2", instance="y")),
        Step("C", OffsetCommit(1, "b2", instance="y")),
        Step("C", JoinGroup("b2", instance="y")),
        # the leader comes back
        Step("D", JoinGroup("a2", id="", instance="x")),
        Step("D", JoinGroup("a3", 8, id="", instance="x")),
        Step("D", SyncGroup("a3", instance="x")),
        Step("L", DescribeGroups()),
        # with something else to say, by which nothing changes
        Step("D", JoinGroup("a4", id="", instance="x", says="n")),
        Step("L", DescribeGroups()),
        # with another protocol
        Step("D", JoinGroup("a5", id="", instance="x", protocols=("sticky", "range"))),
        Step("D", LeaveGroup(("", ""), ("y", "z"))),
        Step("D", LeaveGroup(("a4", "a5"), ("x", "x"))),
        Step("L", DescribeGroups()),
    ]


def replaced_while_waiting(_txn_version: TxnVersion) -> list[Step]:
    """A static member that waits for a response is fenced by another one with its instance id."""
    return [
        *two_static(),
        Step("B", JoinGroup("b", instance="y", says="n", waits=True)),
        Step("L", DescribeGroups(), until="PreparingRebalance"),
        Step("C", JoinGroup("b2", id="", instance="y", waits=True)),
        Step("B", Answer()),
        Step("A", JoinGroup("a", instance="x")),
        Step("C", Answer()),
        Step("C", SyncGroup("b2", instance="y", waits=True)),
        Step("B", JoinGroup("b3", id="", instance="y", waits=True)),
        Step("C", Answer()),
        Step("A", JoinGroup("a", instance="x")),
        Step("B", Answer()),
    ]


def time_goes_by(_txn_version: TxnVersion) -> list[Step]:
    """Members without heartbeats, that do not join again, that do not sync."""
    return [
        *two_members(),
        # `c` makes them join again; only `a` does
        Step("C", JoinGroup("c", 3, session=6_000, rebalance=3_000, waits=True)),
        Step("L", DescribeGroups(), until="PreparingRebalance"),
        Step("A", JoinGroup("a", session=6_000, rebalance=3_000, waits=True)),
        Step("B", JoinGroup("b", session=6_000, rebalance=3_000)),
        Step("A", Answer()),
        Step("C", Answer()),
        Step("B", SyncGroup("b", waits=True)),
        Step("C", SyncGroup("c", waits=True)),
        # the leader brings no assignment within its rebalance timeout
        Step("B", Answer()),
        Step("C", Answer()),
        Step("A", Heartbeat("a")),
        Step("B", JoinGroup("b", session=6_000, rebalance=3_000, waits=True)),
        # `c` does not join again
        Step("B", Answer()),
        Step("C", Heartbeat("c")),
        Step("B", SyncGroup("b", (("b", "B"),))),
        # and no member sends anything more
        Step("L", DescribeGroups(), until="Empty"),
        Step("B", Heartbeat("b")),
        Step("B", JoinGroup("b")),
        Step("D", JoinGroup("d", session=6_000)),
        Step("L", JoinGroup("e", 3, session=6_000)),
        Step("L", SyncGroup("e", (("e", "E"),))),
        Step("L", DescribeGroups()),
    ]


LATE = Scene("group-late", "Members that are late, and members that have gone", time_goes_by, (CLASSIC,), slow=True)

SCENES = [
    Scene("group-static", "KIP-345: static members that come back", static, (CLASSIC,)),
    Scene("group-replaced", "KIP-345: who waits is fenced", replaced_while_waiting, (CLASSIC,)),
    LATE,
]
