"""Scenes of groups with members: how they come and go, what each may say in which state, and who is refused."""

from __future__ import annotations

from tests.interop.conversations.administering import (
    AllOffsets,
    DeleteGroups,
    DescribeGroups,
    ListGroups,
    OffsetDelete,
)
from tests.interop.conversations.grouping import (
    Answer,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    SyncGroup,
)
from tests.interop.conversations.looking import ApiVersions, FindCoordinator, OffsetFetch
from tests.interop.conversations.scene import CLASSIC, IMPLICIT, Scene, Step, TxnVersion
from tests.interop.conversations.writing import AddOffsetsToTxn, EndTxn, InitProducerId, TxnOffsetCommit

_APIS = (8, 9, 10, 11, 12, 13, 14, 15, 16, 42, 47)


def begin(group: str = "g") -> list[Step]:
    """A group whose coordinator answers."""
    return [
        Step("A", FindCoordinator(group, kind=0), until="here"),
        Step("A", OffsetFetch(False, group=group), until="^NONE"),
    ]


def two_members(group: str = "g") -> list[Step]:
    """Members `a`, who leads, and `b`, in generation 2, each with its name as assignment."""
    return [
        *begin(group),
        Step("A", JoinGroup("a", 3, group=group)),
        Step("A", SyncGroup("a", (("a", "A"),), group=group)),
        Step("B", JoinGroup("b", 3, group=group, waits=True)),
        Step("L", DescribeGroups(group), until="PreparingRebalance"),
        Step("A", JoinGroup("a", group=group)),
        Step("B", Answer()),
        Step("B", SyncGroup("b", group=group, waits=True)),
        Step("A", SyncGroup("a", (("a", "A"), ("b", "B")), group=group)),
        Step("B", Answer()),
    ]


def life(_txn_version: TxnVersion) -> list[Step]:
    """A group of one member, from its first word to its deletion."""
    return [
        *begin(),
        Step("A", DescribeGroups()),
        Step("A", Heartbeat("stranger", 1)),
        Step("A", SyncGroup("stranger", generation=1)),
        Step("A", JoinGroup("a", id="stranger")),
        Step("A", LeaveGroup(("stranger",))),
        Step("A", DeleteGroups()),
        Step("A", OffsetDelete()),
        Step("A", JoinGroup("a")),
        Step("A", JoinGroup("a")),
        Step("A", DescribeGroups()),
        Step("A", Heartbeat("a")),
        Step("A", OffsetCommit(1, "a")),
        Step("A", JoinGroup("a")),
        Step("A", SyncGroup("a", (("a", "A"), ("stranger", "B")))),
        Step("A", DescribeGroups()),
        Step("A", ListGroups()),
        Step("A", ListGroups(("stable",))),
        Step("A", ListGroups(("Empty",))),
        Step("A", SyncGroup("a")),
        Step("A", Heartbeat("a")),
        Step("A", OffsetCommit(5, "a")),
        Step("A", OffsetFetch(False)),
        Step("A", AllOffsets()),
        Step("A", DeleteGroups()),
        Step("A", JoinGroup("a")),
        Step("A", Heartbeat("a")),
        Step("A", OffsetCommit(6, "a")),
        Step("A", SyncGroup("a", generation=1)),
        Step("A", LeaveGroup(("a",))),
        Step("A", LeaveGroup(("a",))),
        Step("A", DescribeGroups()),
        Step("A", ListGroups()),
        Step("A", Heartbeat("a")),
        Step("A", SyncGroup("a")),
        Step("A", OffsetCommit(7, "a")),
        Step("A", OffsetCommit(8)),
        Step("A", JoinGroup("a", id="")),
        Step("A", JoinGroup("a")),
        Step("A", LeaveGroup(("a",))),
        Step("A", DeleteGroups(("g", "never"))),
        Step("A", AllOffsets()),
        Step("A", DescribeGroups()),
        Step("A", ListGroups()),
    ]


def described(_txn_version: TxnVersion) -> list[Step]:
    """DescribeGroups 6, which knows groups that are not there (KIP-1043)."""
    return [
        *begin(),
        Step("A", DescribeGroups(version=6)),
        Step("A", JoinGroup("a")),
        Step("A", JoinGroup("a")),
        Step("A", SyncGroup("a", (("a", "A"),))),
        Step("A", DescribeGroups(version=6)),
        Step("A", LeaveGroup(("a",))),
        Step("A", DescribeGroups(version=6)),
        Step("A", DeleteGroups()),
        Step("A", DescribeGroups(version=6)),
        Step("A", OffsetCommit(1, "stranger", 3, 8)),
    ]


def two(_txn_version: TxnVersion) -> list[Step]:
    """Two members: each word in each state of the group."""
    return [
        *two_members(),
        Step("L", DescribeGroups()),
        Step("B", JoinGroup("b")),
        Step("B", OffsetCommit(2)),
        Step("B", JoinGroup("b", says="n", waits=True)),
        Step("L", DescribeGroups(), until="PreparingRebalance"),
        Step("A", Heartbeat("a")),
        Step("A", SyncGroup("a", (("a", "A"),))),
        Step("A", OffsetCommit(3, "a")),
        Step("A", OffsetCommit(3, "b", 1)),
        Step("A", OffsetDelete((0, 1, 1000))),
        Step("A", JoinGroup("a")),
        Step("B", Answer()),
        Step("A", JoinGroup("a")),
        Step("B", JoinGroup("b", says="n")),
        Step("L", DescribeGroups()),
        Step("B", SyncGroup("b", waits=True)),
        Step("A", JoinGroup("a", says="n", waits=True)),
        Step("B", Answer()),
        Step("B", JoinGroup("b", says="n")),
        Step("A", Answer()),
        Step("A", SyncGroup("a", (("b", "B"),))),
        Step("B", SyncGroup("b")),
        # the leader goes
        Step("A", LeaveGroup(("a",))),
        Step("B", Heartbeat("b")),
        Step("B", JoinGroup("b")),
        Step("B", SyncGroup("b", (("b", "B"),))),
        Step("L", DescribeGroups()),
        Step("B", LeaveGroup(("b", "a", "stranger"), (None, None, None))),
        Step("L", DescribeGroups()),
    ]


def protocols(_txn_version: TxnVersion) -> list[Step]:
    """Members that like different protocols."""
    return [
        *begin(),
        Step("A", JoinGroup("a", 3, protocols=("range", "sticky"))),
        Step("A", SyncGroup("a", (("a", "A"),), protocol=("consumer", "sticky"))),
        Step("A", SyncGroup("a", (("a", "A"),), protocol=("connect", "range"))),
        Step("A", SyncGroup("a", (("a", "A"),), protocol=(None, "range"))),
        Step("A", SyncGroup("a", (("a", "A"),), version=4)),
        Step("B", JoinGroup("b", 3, protocols=("other",))),
        Step("B", JoinGroup("b", 3, protocols=())),
        Step("B", JoinGroup("b", 3, kind="connect")),
        Step("B", JoinGroup("b", 3, protocols=("sticky", "other"), waits=True)),
        Step("L", DescribeGroups(), until="PreparingRebalance"),
        Step("A", JoinGroup("a", protocols=("range", "sticky"))),
        Step("B", Answer()),
        Step("A", LeaveGroup(("a", "b"), (None, None))),
        Step("B", JoinGroup("c", 3, kind="connect", protocols=("eager",))),
        Step("L", ListGroups()),
        Step("B", SyncGroup("c", (("c", "C"),), protocol=("connect", "eager"))),
        Step("B", OffsetDelete()),
        Step("L", DescribeGroups()),
    ]


def refused(_txn_version: TxnVersion) -> list[Step]:
    """Requests that no group accepts."""
    return [
        *begin(),
        Step("A", JoinGroup("a", group="")),
        Step("A", SyncGroup("a", group="", generation=1)),
        Step("A", Heartbeat("a", 1, group="")),
        Step("A", LeaveGroup(("a",), group="")),
        Step("A", DeleteGroups(("",))),
        Step("A", DescribeGroups("")),
        Step("A", JoinGroup("a", session=5_999)),
        Step("A", JoinGroup("a", session=1_800_001)),
        Step("A", JoinGroup("a", session=6_000)),
        Step("A", LeaveGroup(("a",))),
        Step("A", JoinGroup("a")),
        Step("B", JoinGroup("b", protocols=())),
        Step("B", JoinGroup("b", kind="")),
        Step("B", OffsetCommit(1, "stranger", 3, group="never")),
        Step("B", OffsetCommit(1, "stranger", -1, group="never")),
        Step("B", OffsetCommit(1, "stranger", 3, group="never")),
        Step("B", OffsetCommit(1, partition=1000, group="never")),
        Step("B", OffsetCommit(1, text=4096, group="never")),
        Step("B", OffsetCommit(1, text=4097, group="never")),
        Step("B", OffsetCommit(-1, group="never")),
        Step("B", OffsetFetch(False, group="never")),
        Step("B", DescribeGroups("never")),
        Step("B", ListGroups()),
        Step("B", OffsetDelete((0, 1, 1000), group="never")),
        Step("B", DescribeGroups("never", 4)),
    ]


def versions(_txn_version: TxnVersion) -> list[Step]:
    """The same in each version that brokers support."""
    steps = [Step("A", ApiVersions(api)) for api in _APIS]
    for version in range(10):
        group = f"g{version}"
        sync, beat, leave = min(version, 5), min(version, 4), min(version, 5)
        steps += begin(group)
        steps += [Step("A", JoinGroup(f"m{version}", version, group=group)) for _ in range(2 if version >= 4 else 1)]
        steps += [
            Step("A", SyncGroup(f"m{version}", ((f"m{version}", "M"),), sync, group=group)),
            Step("A", Heartbeat(f"m{version}", version=beat, group=group)),
            Step("A", OffsetCommit(version, f"m{version}", version=max(version, 2), group=group)),
            Step("A", AllOffsets(group, max(version, 2))),
            Step("A", DescribeGroups(group, min(version, 5))),
            Step("A", LeaveGroup((f"m{version}",), version=leave, group=group)),
            Step("A", LeaveGroup((f"m{version}",), version=leave, group=group)),
            Step("A", DeleteGroups((group,), min(version, 2))),
        ]
    return steps


def subscribed(_txn_version: TxnVersion) -> list[Step]:
    """Offsets are deleted, of topics that no member reads."""
    return [
        *two_members(),
        Step("A", OffsetCommit(1, "a")),
        Step("A", OffsetCommit(2, "a", partition=1)),
        Step("A", OffsetDelete((0, 1, 2, 1000))),
        Step("A", LeaveGroup(("a", "b"), (None, None))),
        Step("A", OffsetDelete((0, 2, 1000))),
        Step("A", AllOffsets()),
        Step("A", OffsetDelete((1,))),
        Step("A", AllOffsets()),
        Step("A", DescribeGroups()),
    ]


def fenced(txn_version: TxnVersion) -> list[Step]:
    """Offsets in a transaction, by members of the group and by others (KIP-447)."""
    del txn_version
    return [
        *two_members(),
        Step("P", InitProducerId("p")),
        Step("P", AddOffsetsToTxn("p")),
        Step("P", AddOffsetsToTxn("p", group="h")),
        Step("P", TxnOffsetCommit("p", 1, 3, generation=3, member="a", group="h")),
        Step("P", TxnOffsetCommit("p", 1, 3, group="h")),
        Step("P", TxnOffsetCommit("p", 1, 3, generation=2, member="a", group="h")),
        Step("P", DescribeGroups("h")),
        Step("P", TxnOffsetCommit("p", 1, 3, generation=2, member="a")),
        Step("P", TxnOffsetCommit("p", 2, 3, generation=1, member="a")),
        Step("P", TxnOffsetCommit("p", 3, 3, generation=2, member="stranger")),
        Step("P", TxnOffsetCommit("p", 4, 3, generation=-1, member="a")),
        Step("P", TxnOffsetCommit("p", 5, 3, generation=2)),
        Step("P", TxnOffsetCommit("p", 6, 3)),
        Step("B", JoinGroup("b", says="n", waits=True)),
        Step("L", DescribeGroups(), until="PreparingRebalance"),
        Step("P", TxnOffsetCommit("p", 7, 3, generation=2, member="a")),
        Step("A", JoinGroup("a")),
        Step("B", Answer()),
        Step("P", TxnOffsetCommit("p", 8, 3, generation=2, member="a")),
        Step("P", TxnOffsetCommit("p", 9, 3, generation=3, member="a")),
        Step("P", EndTxn("p", True, 4)),
        Step("P", OffsetFetch(True), until=": NONE"),
    ]


SCENES = [
    Scene("group-life", "A group of one member, from its first word to its deletion", life, (CLASSIC,)),
    Scene("group-described", "KIP-1043: a group that is there, and one that is not", described, (IMPLICIT,)),
    Scene("group-two", "A group of two members: each word in each state", two, (CLASSIC,)),
    Scene("group-protocols", "Members that like different protocols", protocols, (CLASSIC,)),
    Scene("group-refused", "What no group takes", refused, (CLASSIC,)),
    Scene("group-versions", "Each version of the requests of groups", versions, (CLASSIC,)),
    Scene("group-subscribed", "Offsets are deleted, of topics that no member reads", subscribed, (CLASSIC,)),
    Scene("group-fenced", "KIP-447: offsets in a transaction, by members and by others", fenced, (CLASSIC,)),
]
