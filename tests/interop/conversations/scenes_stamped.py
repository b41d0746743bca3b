"""Scenes of what brokers check of each batch: epoch, sequence, the bit of transactions, and whose partition it is (C3, C7)."""

from __future__ import annotations

from tests.interop.conversations.looking import DescribeProducers, DescribeTransactions, Fetch
from tests.interop.conversations.scene import EXPLICIT, Scene, Step, TxnVersion
from tests.interop.conversations.scenes_basic import settled, write
from tests.interop.conversations.writing import AddPartitionsToTxn, EndTxn, InitProducerId, Produce


def stamped(txn_version: TxnVersion) -> list[Step]:
    """Each mistake once; the transaction can still be committed, since brokers do not remember them."""
    version = txn_version.produce
    return [
        Step("A", InitProducerId("a")),
        *write(txn_version, "a", 0, rows=2),
        Step("A", Produce("a", 2, version, damage="crc")),
        Step("A", Produce("a", 2, version, damage="twice")),
        Step("A", Produce("a", 7, version)),
        Step("A", Produce("a", 0, version, rows=2)),
        Step("A", Produce("a", 0, version, rows=2, value="w")),
        Step("A", Produce("a", 0, version, rows=1)),
        Step("A", Produce("a", 1, version, rows=2)),
        Step("A", Produce("a", 2, version, marked=False)),
        Step("A", Produce("a", 3, version, id="none")),
        Step("A", Produce("a*", 0, version)),
        Step("A", Produce("stranger", -1, version, marked=False)),
        Step("A", Produce("stranger", -1, version, marked=False, id="none")),
        Step("A", Produce("a", 3, version, partitions=(1000,))),
        Step("A", DescribeProducers()),
        Step("A", EndTxn("a", True, txn_version.end)),
        settled(),
        Step("R", Fetch(True)),
    ]


def strange(txn_version: TxnVersion) -> list[Step]:
    """Batches in the name of others, where a transaction is open."""
    version = txn_version.produce
    return [
        Step("A", InitProducerId("a")),
        *write(txn_version, "a", 0),
        Step("A", Produce("a", 1, version, id="never")),
        Step("A", Produce("stranger", -1, version)),
        Step("A", DescribeProducers()),
        Step("A", EndTxn("a", False, txn_version.end)),
        settled(),
        Step("R", Fetch(True)),
    ]


def unmarked(txn_version: TxnVersion) -> list[Step]:
    """The first batch without the bit of transactions is written, and belongs to none."""
    return [
        Step("A", InitProducerId("a")),
        *([Step("A", AddPartitionsToTxn("a"))] if txn_version is EXPLICIT else []),
        Step("A", Produce("a", 0, txn_version.produce, marked=False)),
        Step("R", Fetch(True)),
        Step("A", DescribeTransactions()),
        Step("A", Produce("a", 1, txn_version.produce)),
        Step("A", EndTxn("a", False, txn_version.end)),
        settled(),
        Step("R", Fetch(True)),
    ]


def future_epoch(txn_version: TxnVersion) -> list[Step]:
    """An epoch that was not given to anybody. Kafka 3.9 writes it, and its coordinator has no marker that ends the transaction.

    Only the next producer, whose markers have an epoch more, ends it.
    """
    return [
        Step("A", InitProducerId("a")),
        *write(txn_version, "a", 0),
        Step("A", Produce("a+1", 0, txn_version.produce)),
        Step("A", DescribeProducers()),
        Step("B", InitProducerId("b")),
        Step("R", Fetch(True)),
    ]


def first_sequence(txn_version: TxnVersion) -> list[Step]:
    """A partition that knows nothing of a producer, and one that knows its last epoch."""
    return [
        Step("A", InitProducerId("a")),
        *write(txn_version, "a", 7),
        *write(txn_version, "a", 0),
        Step("A", EndTxn("a", False, txn_version.end, becomes="b")),
        settled(),
        Step("A", InitProducerId("b")),
        *write(txn_version, "b", 3),
        *write(txn_version, "b", 0),
        Step("A", Produce("b", 1, txn_version.produce)),
        Step("A", EndTxn("b", True, txn_version.end)),
        settled(),
        Step("R", Fetch(True)),
        Step("A", DescribeProducers()),
    ]


def resent(txn_version: TxnVersion) -> list[Step]:
    """The five last batches of a producer are known again, in this transaction and in the next one."""
    version = txn_version.produce
    return [
        Step("A", InitProducerId("a")),
        *write(txn_version, "a", 0),
        *(Step("A", Produce("a", sequence, version)) for sequence in range(1, 7)),
        Step("A", Produce("a", 2, version)),
        Step("A", Produce("a", 6, version)),
        Step("A", Produce("a", 1, version)),
        Step("A", Produce("a", 0, version)),
        Step("A", EndTxn("a", True, txn_version.end, becomes="b")),
        settled(),
        # the answer of the last batch was lost: it is sent again when all is over
        Step("A", Produce("a", 6, version)),
        Step("R", Fetch(True)),
    ]


def not_added(txn_version: TxnVersion) -> list[Step]:
    """C7: Produce to a partition that was not added to the transaction."""
    versions = (3, 8, 9, 10, 11)
    return [
        Step("A", InitProducerId("a")),
        *(Step("A", Produce("a", 0, version)) for version in versions),
        Step("A", DescribeTransactions()),
        Step("A", AddPartitionsToTxn("a", (0,))),
        *(Step("A", Produce("a", 0, version, (1,))) for version in versions),
        Step("A", Produce("a", 0, 11, (0, 1))),
        Step("A", EndTxn("a", True, txn_version.end)),
        settled(),
        Step("R", Fetch(False)),
        Step("R", Fetch(False, 1)),
    ]


def plain_beside(txn_version: TxnVersion) -> list[Step]:
    """Rows without a transaction are hidden after the first open transaction, and may be between its rows."""
    return [
        Step("B", InitProducerId("p", id="none")),
        Step("B", Produce("p", 0, txn_version.produce, id="none", marked=False)),
        Step("A", InitProducerId("a")),
        *write(txn_version, "a", 0),
        Step("B", Produce("p", 1, txn_version.produce, id="none", marked=False)),
        Step("C", Produce("stranger", -1, txn_version.produce, id="none", marked=False)),
        Step("R", Fetch(True)),
        Step("R", Fetch(False)),
        Step("B", Produce("p", 2, txn_version.produce, id="none")),
        Step("A", EndTxn("a", False, txn_version.end)),
        settled(),
        Step("R", Fetch(True)),
        Step("R", DescribeProducers()),
    ]


SCENES = [
    Scene("stamped", "C3: batches that are not as they should be, in a transaction that is committed", stamped),
    Scene("strange", "C3: batches with the id of another producer, and of none", strange),
    Scene("unmarked", "C3: a batch without the bit of transactions", unmarked),
    Scene("future-epoch", "C1: an epoch that was not given to anybody, in a transaction that is open", future_epoch),
    Scene("first-sequence", "C3: the first sequence in a partition", first_sequence),
    Scene("resent", "C3: batches that come again, up to five back", resent),
    Scene("not-added", "C7: partitions that were not added", not_added, (EXPLICIT,)),
    Scene("plain-beside", "Rows without a transaction beside those of one", plain_beside),
]
