"""Scenes of one producer: versions, commit, abort, repeated EndTxn, sequence numbers, partitions.

The names C0, C1, ... number what is asked; the answers of Kafka stand in `answers/`.
"""

from __future__ import annotations

from tests.interop.conversations.looking import (
    ApiVersions,
    DescribeProducers,
    DescribeTransactions,
    Fetch,
    FindCoordinator,
    ListOffsets,
    UnknownInitProducerId,
)
from tests.interop.conversations.scene import EXPLICIT, IMPLICIT, Scene, Step, TxnVersion
from tests.interop.conversations.writing import AddPartitionsToTxn, EndTxn, InitProducerId, Produce

API_KEYS = (0, 9, 10, 22, 24, 25, 26, 27, 28, 61, 65, 66)


def write(
    txn_version: TxnVersion,
    who: str,
    sequence: int,
    *,
    partitions: tuple[int, ...] = (0,),
    rows: int = 1,
    id: str = "x",  # noqa: A002  # Kafka's word
    connection: str = "A",
) -> list[Step]:
    """The first rows of a transaction in some partitions."""
    said = [Step(connection, AddPartitionsToTxn(who, partitions, id))] if txn_version is EXPLICIT else []
    return [*said, Step(connection, Produce(who, sequence, txn_version.produce, partitions, rows, id))]


def settled(id: str = "x", *, connection: str = "A") -> Step:  # noqa: A002
    """Wait until the markers of an ended transaction are written."""
    return Step(connection, DescribeTransactions(id), until="Complete|Empty")


def versions(txn_version: TxnVersion) -> list[Step]:
    return [
        *(Step("A", ApiVersions(api)) for api in API_KEYS),
        Step("A", ApiVersions()),
        Step("B", FindCoordinator()),
        Step("B", FindCoordinator(version=2)),
        Step("B", FindCoordinator("")),
        Step("B", FindCoordinator("", kind=0)),
        Step("B", FindCoordinator("x", kind=7)),
        Step("C", UnknownInitProducerId()),
    ]


def commit(txn_version: TxnVersion) -> list[Step]:
    return [
        Step("A", InitProducerId("a")),
        Step("A", DescribeTransactions()),
        *write(txn_version, "a", 0, partitions=(0, 1), rows=3),
        Step("A", Produce("a", 3, txn_version.produce, (1,), 2)),
        Step("A", DescribeTransactions()),
        Step("A", DescribeProducers()),
        *(Step("R", Fetch(committed)) for committed in (False, True)),
        *(Step("R", ListOffsets(committed, 1)) for committed in (False, True)),
        Step("A", EndTxn("a", True, txn_version.end, becomes="a")),
        settled(),
        Step("A", DescribeProducers()),
        *(Step("R", Fetch(committed, partition)) for partition in (0, 1) for committed in (False, True)),
        Step("R", ListOffsets(True, 1)),
        *write(txn_version, "a", 3 if txn_version is EXPLICIT else 0),
        Step("A", EndTxn("a", True, txn_version.end)),
        settled(),
        Step("R", Fetch(True)),
        Step("R", Fetch(True, offset=1)),
    ]


def abort(txn_version: TxnVersion) -> list[Step]:
    return [
        Step("A", InitProducerId("a")),
        *write(txn_version, "a", 0, rows=2),
        Step("A", EndTxn("a", False, txn_version.end, becomes="b")),
        settled(),
        *(Step("R", Fetch(committed)) for committed in (False, True)),
        Step("R", Fetch(True, offset=2)),
        Step("R", Fetch(True, offset=3)),
        # a request from before the abort that arrives late
        Step("A", Produce("a", 2, 9)),
        Step("A", Produce("a", 2, 11)),
        *([Step("A", Produce("a", 2, 12))] if txn_version is IMPLICIT else []),
        Step("R", Fetch(False)),
        Step("A", DescribeProducers()),
        Step("A", DescribeTransactions()),
    ]


def ends(txn_version: TxnVersion) -> list[Step]:
    version = txn_version.end
    return [
        Step("A", InitProducerId("a")),
        *write(txn_version, "a", 0),
        # as a driver ends the transaction of a task
        Step("D", EndTxn("a", True, version)),
        settled(),
        Step("D", EndTxn("a", True, version)),
        Step("E", EndTxn("a", True, version)),
        Step("D", EndTxn("a", False, version)),
        Step("A", DescribeTransactions()),
        Step("A", InitProducerId("b")),
        *write(txn_version, "b", 0),
        Step("D", EndTxn("b", False, version, becomes="c")),
        settled(),
        Step("D", EndTxn("b", False, version)),
        Step("D", EndTxn("b", True, version)),
        Step("A", DescribeTransactions()),
        Step("R", Fetch(True)),
        # of unknown producers, and in states without a transaction to end
        Step("D", EndTxn("a", True, version, "never")),
        Step("D", EndTxn("a*", True, version)),
        Step("A", InitProducerId("d")),
        Step("D", EndTxn("d", True, version)),
        Step("D", EndTxn("d", True, 1)),
        Step("D", EndTxn("d", False, version, becomes="e")),
        Step("D", EndTxn("d", False, version)),
        Step("D", EndTxn("e", False, version)),
        settled(),
    ]


def ends_in_another_version(txn_version: TxnVersion) -> list[Step]:
    return [
        Step("A", InitProducerId("a")),
        *write(EXPLICIT, "a", 0),
        Step("A", EndTxn("a", True, 4)),
        settled(),
        Step("A", EndTxn("a", True, 5)),
        Step("A", EndTxn("a", False, 5, becomes="b")),
        Step("A", InitProducerId("b")),
        *write(IMPLICIT, "b", 0),
        Step("A", EndTxn("b", True, 5)),
        settled(),
        Step("A", EndTxn("b", True, 4)),
        Step("A", EndTxn("b", False, 4)),
        # partitions added as with one transaction version, and the end as with the other
        Step("A", InitProducerId("c")),
        *write(EXPLICIT, "c", 0),
        Step("A", EndTxn("c", True, 5, becomes="c")),
        settled(),
        *write(EXPLICIT, "c", 0),
        Step("A", EndTxn("c", False, 5)),
        settled(),
        Step("R", Fetch(True)),
    ]


def end_that_comes_late(txn_version: TxnVersion) -> list[Step]:
    """KAFKA-17754: the first EndTxn arrives again when the next transaction is open."""
    second = "b" if txn_version is IMPLICIT else "a"
    return [
        Step("A", InitProducerId("a")),
        *write(txn_version, "a", 0),
        Step("A", EndTxn("a", True, txn_version.end, becomes="b")),
        settled(),
        *write(txn_version, second, 0 if txn_version is IMPLICIT else 1),
        Step("L", EndTxn("a", True, txn_version.end)),
        Step("A", DescribeTransactions(), until="Complete" if txn_version is EXPLICIT else "Ongoing"),
        Step("A", Produce(second, 1 if txn_version is IMPLICIT else 2, txn_version.produce)),
        Step("A", EndTxn(second, False, txn_version.end)),
        Step("A", DescribeTransactions(), until="Complete"),
        Step("R", Fetch(True)),
        # with a new epoch for each transaction it finds nothing to end with either transaction version
        Step("A", InitProducerId("c")),
        *write(txn_version, "c", 0),
        Step("L", EndTxn(second, True, txn_version.end)),
        Step("A", DescribeTransactions()),
    ]


def partitions(txn_version: TxnVersion) -> list[Step]:
    return [
        Step("A", InitProducerId("a")),
        *(Step("A", AddPartitionsToTxn("a", (0, 1), version=version)) for version in range(4)),
        Step("A", AddPartitionsToTxn("a", (1, 2))),
        Step("A", AddPartitionsToTxn("a", (3, 1000))),
        Step("A", DescribeTransactions()),
        Step("A", AddPartitionsToTxn("a", ())),
        Step("A", AddPartitionsToTxn("a+1", (0,))),
        Step("A", AddPartitionsToTxn("a*", (0,))),
        Step("A", AddPartitionsToTxn("a", (0,), id="never")),
        Step("A", AddPartitionsToTxn("a", (0,), id="")),
        Step("A", EndTxn("a", True, txn_version.end)),
        settled(),
        # partitions in which nothing was written have got a marker too
        Step("R", Fetch(False, 2)),
        Step("A", DescribeProducers(2)),
    ]


SCENES = [
    Scene("versions", "C0: versions, the level of transactions, coordinators", versions, (EXPLICIT,)),
    Scene("commit", "A transaction in two partitions is committed, and another one after it", commit),
    Scene("abort", "A transaction is aborted, and rows of it come late (C7)", abort),
    Scene("ends", "C2: EndTxn from other connections, repeated, contradicted, and where nothing is to be ended", ends),
    Scene("ends-mixed", "C2, C7: EndTxn in another version than before", ends_in_another_version, (IMPLICIT,)),
    Scene("end-late", "C2, KAFKA-17754: an EndTxn that arrives when the next transaction is open", end_that_comes_late),
    Scene("partitions", "AddPartitionsToTxn, right and wrong", partitions, (EXPLICIT,)),
]
