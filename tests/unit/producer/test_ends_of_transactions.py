"""What callers are told of the end of a transaction when something fails beside it. Ids: TM, KP."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_producer import Producer
from spark_producer.cluster import TRANSACTIONS
from spark_producer.errors import PyProducerError, TransactionTimeout
from spark_producer.producer import parts_of
from tests.stages.scripted_cluster import ScriptedCluster
from tests.stages.workbench import Runner, until

# The fixtures of the calls' own tests.
from tests.unit.producer.test_transactions import cluster, producer

__all__ = ["cluster", "producer"]


def committing_with_an_epoch_behind(cluster: ScriptedCluster, producer: Producer) -> None:
    """A transaction in the older style, at whose end the cluster changes to the newer one; the next epoch is held back."""
    producer.begin_transaction()
    producer.send("t", "a")
    producer.flush()
    cluster.wake(levels={TRANSACTIONS: 2})
    cluster.holding_apis.add("raise")


ENDS: dict[str, Callable[[ScriptedCluster, Producer], None]] = {
    "refused": lambda cluster, _: cluster.release_apis(),
    "unreachable for good": lambda cluster, _: cluster.wake(poll_error=KeyError("surprise")),
    "closed": lambda _, producer: producer.close(0.0),
}
"""What ends the producer."""


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("late", [False, True])
def test_tm27_a_commit_that_is_done_succeeds_whatever_ends_the_producer_behind_it(
    cluster: ScriptedCluster, producer: Producer, end: str, late: bool
) -> None:
    committing_with_an_epoch_behind(cluster, producer)
    cluster.codes["raise"] = [53]
    if late:
        with pytest.raises(TransactionTimeout):
            producer.commit_transaction(0.05)
        until(lambda: "raise" in cluster.names, "the epoch is asked for")
        ENDS[end](cluster, producer)
        until(lambda: not parts_of(producer).io_thread.is_alive, "the thread ends")
        producer.commit_transaction()
    else:
        waiting = Runner(producer.commit_transaction)
        until(lambda: "raise" in cluster.names, "the epoch is asked for")
        ENDS[end](cluster, producer)
        waiting.result()
    until(lambda: parts_of(producer).accumulator.backlog.error is not None, "the producer has ended")
    with pytest.raises(PyProducerError):
        producer.begin_transaction()
    with pytest.raises(PyProducerError):
        producer.commit_transaction()
