"""The transactional id of a worker that a task gets, and the time at which an id may be used again."""

from __future__ import annotations

import subprocess
import sys

import pytest

from spark_producer.common.cluster import ProducerIdAndEpoch
from spark_producer.datasource.write.worker import transactional_ids as module
from spark_producer.datasource.write.worker.transactional_ids import SinkKey, TransactionalId, TransactionalIdPool
from spark_producer.errors import ExactlyOnceError

ORDERS = SinkKey("orders", "here:9092")


def used(pool: TransactionalIdPool, fencing: ProducerIdAndEpoch, sink: SinkKey = ORDERS) -> TransactionalId:
    """An id that a task of this fencing has left a transaction in."""
    own_id = pool.take(sink, fencing)
    own_id.fencing = fencing
    return own_id


def test_a_slot_without_a_transaction_is_used_again() -> None:
    pool = TransactionalIdPool()
    assert pool.take(ORDERS, ProducerIdAndEpoch(1, 5)) is pool.take(ORDERS, ProducerIdAndEpoch(1, 5))


@pytest.mark.parametrize(
    ("later", "free"),
    [
        (ProducerIdAndEpoch(1, 6), True),
        (ProducerIdAndEpoch(1, 7), True),
        (ProducerIdAndEpoch(1, 5), False),  # another task of the same batch
        (ProducerIdAndEpoch(1, 4), False),  # a task that a newer driver has overtaken
        (
            ProducerIdAndEpoch(2, 0),
            False,
        ),  # the control id has got another producer id: which is the newer one is not known
        (ProducerIdAndEpoch(2, 6), False),
        (ProducerIdAndEpoch(0, 6), False),
    ],
)
def test_a_transaction_blocks_its_slot_until_the_control_id_has_a_newer_epoch(
    later: ProducerIdAndEpoch, free: bool
) -> None:
    """Two runs of one application share workers, and tokens would not say which run is the newer one."""
    pool = TransactionalIdPool()
    left = used(pool, ProducerIdAndEpoch(1, 5))
    again = pool.take(ORDERS, later)
    assert (again is left) == free
    assert (again.name == left.name) == free


def test_the_last_used_slot_is_used_first() -> None:
    """A worker keeps the producers of four: each batch begins with those of the last."""
    pool = TransactionalIdPool()
    first = [used(pool, ProducerIdAndEpoch(1, 5)) for _ in range(6)]
    second = [used(pool, ProducerIdAndEpoch(1, 6)) for _ in range(6)]
    assert second == first[::-1]
    assert [used(pool, ProducerIdAndEpoch(1, 7)) for _ in range(6)] == first


def test_sinks_have_slots_of_their_own() -> None:
    pool = TransactionalIdPool()
    one, two = (pool.take(SinkKey(name, "here:9092"), ProducerIdAndEpoch(1, 5)) for name in ("orders", "orders.eu"))
    assert one.name == f"pyproducer.orders.{pool.worker}.0"
    assert two.name == f"pyproducer.orders.eu.{pool.worker}.1"


def test_a_sink_of_the_same_name_on_another_cluster_has_slots_of_its_own() -> None:
    """The epochs of two clusters cannot be compared, although producer ids may be equal by chance."""
    pool = TransactionalIdPool()
    left = used(pool, ProducerIdAndEpoch(1, 5))
    assert pool.take(SinkKey("orders", "there:9092"), ProducerIdAndEpoch(1, 6)) is not left
    assert pool.take(ORDERS, ProducerIdAndEpoch(1, 6)) is left


def test_a_discarded_id_never_comes_again() -> None:
    pool = TransactionalIdPool()
    own_id = pool.take(ORDERS, ProducerIdAndEpoch(1, 5))
    pool.discard(own_id)
    assert pool.take(ORDERS, ProducerIdAndEpoch(1, 6)).name.endswith(".1")


def test_the_number_of_slots_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_IDS_PER_SINK", 3)
    pool = TransactionalIdPool()
    ids = {used(pool, ProducerIdAndEpoch(1, 5)).name for _ in range(3)}
    with pytest.raises(ExactlyOnceError, match=r"3 transactions of this Python worker wait .* fewer tasks"):
        pool.take(ORDERS, ProducerIdAndEpoch(1, 5))
    assert used(pool, ProducerIdAndEpoch(1, 5), SinkKey("other", "here:9092")).name not in ids
    again = {used(pool, ProducerIdAndEpoch(1, 6)).name for _ in range(3)}
    assert again == ids
    # What another producer id of the control id has left is never free again, so it does not count.
    fresh = {used(pool, ProducerIdAndEpoch(2, 0)).name for _ in range(3)}
    assert not fresh & ids


FORK = """
import os
from spark_producer.datasource.write.worker.transactional_ids import SinkKey, TransactionalIdPool
from spark_producer.common.cluster import ProducerIdAndEpoch
pool, sink = TransactionalIdPool(), SinkKey("orders", "here:9092")
own_id = pool.take(sink, ProducerIdAndEpoch(1, 5))
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
    assert pool.take(sink, ProducerIdAndEpoch(1, 9)) is own_id
print(pool.take(sink, ProducerIdAndEpoch(1, 9)).name, flush=True)
"""


def test_a_forked_process_has_another_name() -> None:
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=60, check=True)
    child, parent = done.stdout.split()
    assert child != parent
    assert child.endswith(".0")
