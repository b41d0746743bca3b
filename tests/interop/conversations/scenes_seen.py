"""Scenes of what others see: readers of committed rows, administrators, consumer groups (C4)."""

from __future__ import annotations

from tests.interop.conversations.looking import (
    DescribeProducers,
    DescribeTransactions,
    Fetch,
    FindCoordinator,
    ListOffsets,
    ListTransactions,
    OffsetFetch,
)
from tests.interop.conversations.scene import EXPLICIT, IMPLICIT, Scene, Step, TxnVersion
from tests.interop.conversations.scenes_basic import settled, write
from tests.interop.conversations.writing import (
    AddOffsetsToTxn,
    EndTxn,
    InitProducerId,
    Produce,
    TxnOffsetCommit,
    WriteTxnMarkers,
)


def both_see(*partitions: int) -> list[Step]:
    """A partition as the two kinds of readers see it."""
    return [Step("R", Fetch(committed, number)) for number in partitions for committed in (False, True)]


def interleaved(txn_version: TxnVersion) -> list[Step]:
    """Two producers by turns in one partition; one commits, the other one aborts."""
    return [
        Step("A", InitProducerId("a", "x")),
        Step("B", InitProducerId("b", "y")),
        *write(txn_version, "a", 0),
        *write(txn_version, "b", 0, id="y", connection="B"),
        Step("A", Produce("a", 1, txn_version.produce)),
        Step("B", Produce("b", 1, txn_version.produce, id="y")),
        Step("R", DescribeProducers()),
        Step("R", Fetch(True)),
        Step("A", EndTxn("a", True, txn_version.end, becomes="a")),
        settled("x"),
        *both_see(0),
        Step("R", ListOffsets(True)),
        Step("B", EndTxn("b", False, txn_version.end, "y", becomes="b")),
        settled("y"),
        *both_see(0),
        *(Step("R", Fetch(True, offset=offset)) for offset in range(1, 7)),
        *(Step("R", Fetch(True, offset=offset, max_bytes=1)) for offset in range(6)),
        Step("R", Fetch(False, max_bytes=1)),
        Step("R", ListOffsets(True)),
    ]


def three_in_a_row(txn_version: TxnVersion) -> list[Step]:
    """One producer: aborted, committed, aborted. The same producer id is in the list and has committed rows too (C4)."""
    after = 1 if txn_version is EXPLICIT else 0
    return [
        Step("A", InitProducerId("a")),
        *write(txn_version, "a", 0),
        Step("A", EndTxn("a", False, txn_version.end, becomes="a")),
        settled(),
        *write(txn_version, "a", after),
        Step("A", EndTxn("a", True, txn_version.end, becomes="a")),
        settled(),
        *write(txn_version, "a", 2 * after),
        Step("A", EndTxn("a", False, txn_version.end, becomes="a")),
        settled(),
        *both_see(0),
        *(Step("R", Fetch(True, offset=offset)) for offset in (2, 3, 4, 5, 6, 7)),
        *(Step("R", Fetch(True, offset=offset, max_bytes=1)) for offset in (0, 2, 4)),
    ]


def control_partition(txn_version: TxnVersion) -> list[Step]:
    """C4: an open transaction of another id hides a committed row with a later offset."""
    return [
        Step("B", InitProducerId("other", "other")),
        *write(txn_version, "other", 0, id="other", connection="B"),
        Step("A", InitProducerId("a")),
        *write(txn_version, "a", 0),
        Step("A", EndTxn("a", True, txn_version.end)),
        settled(),
        *both_see(0),
        Step("R", ListOffsets(True)),
        Step("R", ListOffsets(False)),
        Step("B", InitProducerId("other", "other")),
        *both_see(0),
    ]


def listed(txn_version: TxnVersion) -> list[Step]:
    return [
        Step("A", InitProducerId("a", "x")),
        Step("A", InitProducerId("b", "y")),
        Step("A", InitProducerId("c", "z")),
        *write(txn_version, "a", 0, id="x"),
        *write(txn_version, "b", 0, id="y", partitions=(1,)),
        Step("A", EndTxn("b", True, txn_version.end, "y")),
        settled("y"),
        Step("L", ListTransactions()),
        Step("L", ListTransactions(version=0)),
        Step("L", ListTransactions(("Ongoing",))),
        Step("L", ListTransactions(("Empty", "CompleteCommit"))),
        Step("L", ListTransactions(("Sleeping", "Ongoing"))),
        Step("L", ListTransactions(producers=("a", "c"))),
        Step("L", ListTransactions(producers=("a*",))),
        Step("L", ListTransactions(("Empty",), ("a", "c"))),
        Step("L", ListTransactions(duration=0), until="x P1"),
        Step("L", ListTransactions(duration=3_600_000)),
        Step("L", DescribeTransactions("never")),
        Step("L", DescribeTransactions("")),
        Step("L", DescribeProducers(1000)),
        Step("L", DescribeProducers(3)),
        Step("A", EndTxn("a", False, txn_version.end, "x")),
        settled("x"),
        Step("L", ListTransactions()),
        *(
            [Step("L", ListTransactions(version=2, pattern=pattern)) for pattern in ("x", "[xy]", "w", "(")]
            if txn_version is IMPLICIT
            else []
        ),
    ]


def markers(txn_version: TxnVersion) -> list[Step]:
    """An administrator ends a transaction in one partition; the coordinator does not know."""
    return [
        Step("A", InitProducerId("a")),
        *write(txn_version, "a", 0, partitions=(0, 1)),
        Step("M", WriteTxnMarkers("a-1", True, 0)),
        Step("M", WriteTxnMarkers("a", True, 0, (0, 1000))),
        *both_see(0),
        Step("M", DescribeProducers()),
        Step("M", DescribeTransactions()),
        Step("M", WriteTxnMarkers("a+1", False, 1, (1,))),
        *both_see(1),
        Step("M", WriteTxnMarkers("a+1", False, 0, (1,))),
        Step("M", WriteTxnMarkers("a", False, 1, (1,))),
        Step("M", DescribeProducers(1)),
        # where there is nothing to end
        Step("M", WriteTxnMarkers("a*", False, 0, (2,))),
        Step("R", Fetch(False, 2)),
        Step("M", DescribeProducers(2)),
        Step("A", EndTxn("a", True, txn_version.end)),
        # the coordinator's marker is refused where one of a later coordinator is, and its transaction is never over
        Step("A", DescribeTransactions(), until=r"\[1\]|Complete"),
        *both_see(1),
    ]


def offsets(txn_version: TxnVersion) -> list[Step]:
    """Offsets of a group in a transaction: added, committed, hidden while it is open, thrown away when it is aborted."""
    version = 3 if txn_version is EXPLICIT else 5
    join = [Step("A", AddOffsetsToTxn("a"))] if txn_version is EXPLICIT else []
    return [
        Step("A", FindCoordinator("g", kind=0), until="here"),
        Step("A", InitProducerId("a")),
        Step("A", OffsetFetch(True)),
        *([Step("A", TxnOffsetCommit("a", 5, 3))] if txn_version is EXPLICIT else []),
        *join,
        Step("A", TxnOffsetCommit("a", 10, version)),
        Step("A", TxnOffsetCommit("a", 11, version)),
        Step("A", TxnOffsetCommit("a", 11, version, partition=1)),
        Step("A", DescribeTransactions()),
        Step("A", OffsetFetch(True)),
        Step("A", OffsetFetch(False)),
        Step("A", EndTxn("a", True, txn_version.end, becomes="a")),
        settled(),
        Step("A", OffsetFetch(True), until=": NONE"),
        Step("A", OffsetFetch(True, 1)),
        *join,
        Step("A", TxnOffsetCommit("a", 20, version)),
        Step("A", OffsetFetch(True)),
        Step("A", OffsetFetch(False)),
        Step("A", EndTxn("a", False, txn_version.end, becomes="b")),
        settled(),
        Step("A", OffsetFetch(True), until=": NONE"),
    ]


def offsets_refused(txn_version: TxnVersion) -> list[Step]:
    version = 3 if txn_version is EXPLICIT else 5
    join = [Step("A", AddOffsetsToTxn("a"))] if txn_version is EXPLICIT else []
    return [
        Step("A", FindCoordinator("g", kind=0), until="here"),
        Step("A", InitProducerId("a")),
        *join,
        Step("A", TxnOffsetCommit("a", 1, version, member="stranger")),
        Step("A", TxnOffsetCommit("a", 1, version, generation=3)),
        Step("A", TxnOffsetCommit("a", 1, version, generation=3, member="stranger")),
        Step("A", TxnOffsetCommit("a", 1, version, partition=1000)),
        Step("A", TxnOffsetCommit("a", 1, version, group="")),
        Step("A", TxnOffsetCommit("a*", 1, version)),
        Step("A", AddOffsetsToTxn("a", group="")),
        Step("A", AddOffsetsToTxn("a*")),
        Step("A", AddOffsetsToTxn("a", id="never")),
        Step("A", AddOffsetsToTxn("a+1")),
        *(Step("A", TxnOffsetCommit("a", number, number)) for number in range(version + 1)),
        Step("A", InitProducerId("b")),
        Step("A", TxnOffsetCommit("a", 2, version)),
        Step("A", OffsetFetch(True), until=": NONE"),
        Step("A", OffsetFetch(True, group="never")),
    ]


def offsets_strange(txn_version: TxnVersion) -> list[Step]:
    """Offsets in the name of others, where the transaction has offsets already."""
    version = 3 if txn_version is EXPLICIT else 5
    join = [Step("A", AddOffsetsToTxn("a"))] if txn_version is EXPLICIT else []
    return [
        Step("A", FindCoordinator("g", kind=0), until="here"),
        Step("A", InitProducerId("a")),
        *join,
        Step("A", TxnOffsetCommit("a", 1, version)),
        Step("A", TxnOffsetCommit("a", 2, version, id="never")),
        Step("A", TxnOffsetCommit("a+1", 3, version)),
        Step("B", InitProducerId("b")),
        Step("A", OffsetFetch(True), until=": NONE"),
    ]


SCENES = [
    Scene("interleaved", "Two transactions in one partition, one committed and one aborted", interleaved),
    Scene("three-in-a-row", "C4: aborted, committed, aborted by one producer", three_in_a_row),
    Scene("hidden", "C4: an open transaction of another id hides a committed row", control_partition),
    Scene("listed", "ListTransactions, DescribeTransactions and DescribeProducers", listed),
    Scene("markers", "WriteTxnMarkers by an administrator", markers),
    Scene("offsets", "Offsets of a consumer group in transactions", offsets),
    Scene("offsets-refused", "Offsets that are refused", offsets_refused),
    Scene("offsets-strange", "Offsets in the name of others", offsets_strange),
]
