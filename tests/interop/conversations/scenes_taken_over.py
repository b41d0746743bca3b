"""Scenes of two producers that use one transactional id, of transactions that take too long, and of ids that expire."""

from __future__ import annotations

from tests.interop.conversations.looking import (
    DescribeProducers,
    DescribeTransactions,
    Fetch,
    ListTransactions,
)
from tests.interop.conversations.scene import EXPLICIT, IMPLICIT, Scene, Step, TxnVersion
from tests.interop.conversations.scenes_basic import settled, write
from tests.interop.conversations.writing import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    EndTxn,
    InitProducerId,
    Produce,
)


def zombie(txn_version: TxnVersion, who: str) -> list[Step]:
    """All that a producer may say that has been taken over, in all versions."""
    produce = (9, 11) if txn_version is EXPLICIT else (9, 11, 12)
    end = (0, 1, 2, 3, 4) if txn_version is EXPLICIT else (1, 2, 4, 5)
    return [
        *(Step("A", Produce(who, 5, version, (number,))) for version in produce for number in (0, 1)),
        *(Step("A", AddPartitionsToTxn(who, version=version)) for version in range(4)),
        *(Step("A", AddOffsetsToTxn(who, version=version)) for version in (0, 1, 2, 3, 4)),
        *(Step("A", EndTxn(who, True, version)) for version in end),
        Step("A", EndTxn(who, False, txn_version.end)),
        Step("A", InitProducerId("z", given=who)),
        Step("A", InitProducerId("z", given=who, version=3)),
    ]


def fence(txn_version: TxnVersion) -> list[Step]:
    return [
        Step("A", InitProducerId("a")),
        *write(txn_version, "a", 0, rows=2),
        Step("B", InitProducerId("b"), once=True),
        Step("B", InitProducerId("b")),
        Step("B", DescribeTransactions()),
        Step("R", Fetch(False)),
        Step("R", Fetch(True)),
        *zombie(txn_version, "a"),
        Step("A", EndTxn("b+1", True, txn_version.end)),
        Step("A", Produce("b+1", 0, txn_version.produce)),
        Step("A", EndTxn("b*", True, txn_version.end)),
        Step("A", Produce("b*", 0, txn_version.produce)),
        Step("A", EndTxn("b", True, txn_version.end, "never")),
        # the new one works
        *write(txn_version, "b", 0, connection="B"),
        Step("B", EndTxn("b", True, txn_version.end)),
        settled(),
        Step("R", Fetch(True)),
        Step("B", DescribeProducers()),
    ]


def fence_while_the_other_is_open(txn_version: TxnVersion) -> list[Step]:
    return [
        Step("A", InitProducerId("a")),
        Step("B", InitProducerId("b")),
        *write(txn_version, "b", 0, connection="B"),
        *zombie(txn_version, "a")[:-2],
        Step("B", Produce("b", 1, txn_version.produce)),
        Step("B", EndTxn("b", True, txn_version.end)),
        settled(),
        Step("R", Fetch(True)),
    ]


def trap(txn_version: TxnVersion) -> list[Step]:
    """InitProducerId with an expected producer compares nothing while a transaction is open."""
    return [
        Step("A", InitProducerId("a")),
        Step("B", InitProducerId("b")),
        *write(txn_version, "b", 0, connection="B"),
        Step("A", InitProducerId("c", given="a"), once=True),
        Step("A", DescribeTransactions(), until="Complete"),
        Step("A", InitProducerId("c", given="a")),
        Step("B", EndTxn("b", True, txn_version.end)),
        Step("R", Fetch(True)),
        # two requests with the producer before get the same one
        Step("A", InitProducerId("d")),
        Step("A", InitProducerId("e", given="d")),
        Step("B", InitProducerId("f", given="d")),
        Step("B", InitProducerId("g", given="f")),
        Step("B", InitProducerId("h", given="d")),
        Step("B", InitProducerId("h", given="g*")),
        Step("B", InitProducerId("h", given="g+1")),
        Step("B", InitProducerId("h", given="g", id="unused")),
    ]


def init(txn_version: TxnVersion) -> list[Step]:
    return [
        *(Step("A", InitProducerId("a", version=version)) for version in range(6)),
        Step("A", InitProducerId("a", timeout=0)),
        Step("A", InitProducerId("a", timeout=-1)),
        Step("A", InitProducerId("a", timeout=900_000)),
        Step("A", InitProducerId("a", timeout=900_001)),
        Step("A", InitProducerId("a", id="")),
        Step("A", InitProducerId("plain", id="none", timeout=0x7FFFFFFF)),
        Step("A", InitProducerId("plain", id="none", timeout=0)),
        Step("A", InitProducerId("plain", id="none", given="plain")),
        Step("A", DescribeTransactions()),
        *write(txn_version, "a", 0),
        Step("A", EndTxn("a", True, txn_version.end, becomes="a")),
        settled(),
        Step("A", InitProducerId("b", timeout=30_000)),
        Step("A", DescribeTransactions()),
        Step("A", InitProducerId("b", given="b")),
    ]


def timeout(txn_version: TxnVersion) -> list[Step]:
    version = txn_version.end
    return [
        Step("A", InitProducerId("a", timeout=1000)),
        *write(txn_version, "a", 0),
        Step("R", Fetch(True)),
        Step("A", DescribeTransactions(), until="Complete"),
        Step("R", Fetch(True)),
        Step("A", DescribeProducers()),
        *([Step("A", EndTxn("a", True, number)) for number in (0, 1, 2, 3)] if txn_version is EXPLICIT else []),
        Step("A", EndTxn("a", True, version)),
        Step("A", EndTxn("a", False, version)),
        Step("A", DescribeTransactions()),
        Step("A", Produce("a", 1, txn_version.produce)),
        Step("A", Produce("a", 1, txn_version.produce, (1,))),
        Step("A", AddPartitionsToTxn("a")),
        Step("A", InitProducerId("b", given="a")),
        Step("A", InitProducerId("b")),
        *write(txn_version, "b", 0),
        Step("A", EndTxn("b", True, version)),
        settled(),
        Step("R", Fetch(True)),
    ]


def timeout_while_it_writes(txn_version: TxnVersion) -> list[Step]:
    """The clock of a transaction begins once: other partitions do not prolong it."""
    return [
        Step("A", InitProducerId("a", timeout=1500)),
        *write(txn_version, "a", 0),
        *(step for number in (1, 2, 3) for step in write(txn_version, "a", 0, partitions=(number,))),
        Step("A", DescribeTransactions(), until="Complete"),
        *(Step("R", Fetch(True, number)) for number in (0, 3)),
        Step("A", InitProducerId("b")),
    ]


def expired(txn_version: TxnVersion) -> list[Step]:
    """C9: an unused transactional id expires, and one with an open transaction does not."""
    return [
        Step("A", InitProducerId("o", id="open", timeout=900_000)),
        *write(txn_version, "o", 0, id="open", partitions=(1,)),
        Step("A", InitProducerId("a")),
        *write(txn_version, "a", 0),
        Step("A", EndTxn("a", True, txn_version.end, becomes="b")),
        settled(),
        Step("A", DescribeTransactions(), until="105"),
        Step("A", ListTransactions()),
        Step("A", EndTxn("a", True, txn_version.end)),
        Step("A", EndTxn("b", False, txn_version.end)),
        Step("A", AddPartitionsToTxn("b")),
        Step("A", Produce("b", 1, txn_version.produce)),
        Step("A", InitProducerId("c", given="b")),
        Step("A", InitProducerId("c")),
        Step("A", DescribeTransactions("open")),
        Step("A", EndTxn("o", True, txn_version.end, "open")),
        settled("open"),
        Step("R", Fetch(True, 1)),
    ]


def mixed(txn_version: TxnVersion) -> list[Step]:
    """C7: Produce 12 after EndTxn 4 opens a transaction that no request ends."""
    return [
        Step("A", InitProducerId("a")),
        *write(EXPLICIT, "a", 0),
        Step("A", EndTxn("a", True, 4)),
        settled(),
        Step("A", Produce("a", 1, 12)),
        Step("A", DescribeTransactions()),
        Step("A", DescribeProducers()),
        Step("R", Fetch(True)),
        Step("A", InitProducerId("b")),
        Step("R", Fetch(True)),
        # late rows of the implicit transaction version
        *write(IMPLICIT, "b", 0),
        Step("A", EndTxn("b", True, 5, becomes="c")),
        settled(),
        Step("A", Produce("b", 1, 12)),
        Step("A", Produce("b", 1, 12, (1,))),
        Step("A", Produce("c+1", 0, 12)),
        Step("A", Produce("c", 0, 12)),
        Step("A", DescribeTransactions()),
    ]


SCENES = [
    Scene("fence", "C1: the next producer of an id ends the open transaction of the one before", fence),
    Scene("fence-open", "C1: what the one before may say while the next one writes", fence_while_the_other_is_open),
    Scene("trap", "C1: InitProducerId with an expected producer is no compare-and-swap", trap),
    Scene("init", "InitProducerId in all versions, with good and bad timeouts, with and without ids", init),
    Scene("timeout", "C5: a transaction that takes too long is aborted", timeout, slow=True),
    Scene("timeout-clock", "C5: its time is not prolonged", timeout_while_it_writes, slow=True),
    Scene("expired", "C9: an id that expired, beside one that cannot", expired, slow=True),
    Scene("mixed", "C7: requests of both transaction versions mixed, and late rows", mixed, (IMPLICIT,)),
]
