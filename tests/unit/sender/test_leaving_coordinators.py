"""A transaction whose coordinator leaves the cluster while no request is under way to it. Ids: TM."""

from __future__ import annotations

import pytest

from spark_producer.sender.transactions.states import TxnCall, TxnState
from tests.fakes.transaction_fakes import TransactionFakes
from tests.unit.sender.transactions.test_manager import OFFSETS, in_transaction


def in_cluster(made: TransactionFakes, *nodes: int) -> None:
    """The cluster consists of these nodes from now on, and the producer hears of it while it asks no coordinator."""
    made.nodes = nodes
    made.made.metadata.request_update()
    made.made.fakes.clock.advance(1.0)
    made.run()
    assert set(made.made.metadata.cluster.nodes) == set(nodes)


@pytest.mark.covers("TM10")
@pytest.mark.parametrize("end", [TxnCall.COMMIT, TxnCall.ABORT])
def test_a_coordinator_that_has_left_the_cluster_is_looked_up_again(end: TxnCall) -> None:
    made = in_transaction()
    made.made.batches(b"a")
    made.run()
    in_cluster(made, 2)
    made.transaction_node = 2
    assert made.do(end).error is None
    assert made.sent[2:] == ["find transaction", end.name.lower()]


@pytest.mark.covers("TM10", "TM13")
def test_so_is_the_coordinator_of_a_group() -> None:
    made = in_transaction()
    made.do(TxnCall.OFFSETS, OFFSETS)
    in_cluster(made, 1)
    made.group_node = 1
    made.sent.clear()
    assert made.do(TxnCall.OFFSETS, OFFSETS).error is None
    assert made.sent == ["find group", "offsets readers"]


@pytest.mark.covers("TM10")
def test_so_it_is_when_the_bootstrap_servers_know_other_nodes() -> None:
    made = in_transaction(rebootstrap_after=1000.0)
    made.made.batches(b"a")
    made.run()
    made.made.metadata.rebootstrap(made.made.now)
    made.nodes = (2, 3)
    made.transaction_node = 3
    assert made.do(TxnCall.COMMIT).error is None
    assert made.state is TxnState.READY
    assert made.sent[-2:] == ["find transaction", "commit"]


@pytest.mark.covers("TM10")
def test_a_coordinator_that_metadata_does_not_name_yet_is_looked_up_with_pauses_only() -> None:
    """A broker that has just joined; or one that brokers name as coordinator, and not as a node."""
    made = in_transaction()
    made.made.batches(b"a")
    made.run()
    made.sent.clear()
    made.nodes, made.transaction_node = (2,), 5
    made.made.sender.on_disconnect(1)
    began = made.made.now
    commit = made.ask(TxnCall.COMMIT)
    made.run(seconds=10.0)
    assert not commit.done
    assert 2 <= len(made.sent) <= (made.made.now - began) / 0.1 + 1
    made.made.metadata.request_update()
    made.nodes = (2, 5)
    made.run()
    assert commit.error is None
