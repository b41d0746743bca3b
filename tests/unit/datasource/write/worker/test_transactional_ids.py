"""Which transactional id of a worker a task gets, and when an id may be used again."""

from __future__ import annotations

import subprocess
import sys

import pytest

from spark_producer.datasource.write.worker import transactional_ids as module
from spark_producer.datasource.write.worker.transactional_ids import Sink, TransactionalId, TransactionalIdPool
from spark_producer.errors import ExactlyOnceError
from spark_producer.exactly_once.protocol.commands import Fencing

ORDERS = Sink("orders", "here:9092")


def used(slots: TransactionalIdPool, fencing: Fencing, sink: Sink = ORDERS) -> TransactionalId:
    """A slot that a task of this fencing has left a transaction in."""
    slot = slots.take(sink, fencing)
    slot.fencing = fencing
    return slot


def test_a_slot_without_a_transaction_is_used_again() -> None:
    slots = TransactionalIdPool()
    assert slots.take(ORDERS, Fencing(1, 5)) is slots.take(ORDERS, Fencing(1, 5))


@pytest.mark.parametrize(
    ("later", "free"),
    [
        (Fencing(1, 6), True),
        (Fencing(1, 7), True),
        (Fencing(1, 5), False),  # another task of the same batch
        (Fencing(1, 4), False),  # a task that a newer driver has overtaken
        (Fencing(2, 0), False),  # the control id has got another producer id: which is the newer one is not known
        (Fencing(2, 6), False),
        (Fencing(0, 6), False),
    ],
)
def test_a_transaction_blocks_its_slot_until_the_control_id_has_a_newer_epoch(later: Fencing, free: bool) -> None:
    """Two runs of one application share workers, and tokens would not say which run is the newer one."""
    slots = TransactionalIdPool()
    left = used(slots, Fencing(1, 5))
    again = slots.take(ORDERS, later)
    assert (again is left) == free
    assert (again.transactional_id == left.transactional_id) == free


def test_the_last_used_slot_is_used_first() -> None:
    """A worker keeps the producers of four: each batch begins with those of the last."""
    slots = TransactionalIdPool()
    first = [used(slots, Fencing(1, 5)) for _ in range(6)]
    second = [used(slots, Fencing(1, 6)) for _ in range(6)]
    assert second == first[::-1]
    assert [used(slots, Fencing(1, 7)) for _ in range(6)] == first


def test_sinks_have_slots_of_their_own() -> None:
    slots = TransactionalIdPool()
    one, two = (slots.take(Sink(name, "here:9092"), Fencing(1, 5)) for name in ("orders", "orders.eu"))
    assert one.transactional_id == f"pyproducer.orders.{slots.worker}.0"
    assert two.transactional_id == f"pyproducer.orders.eu.{slots.worker}.1"


def test_a_sink_of_the_same_name_on_another_cluster_has_slots_of_its_own() -> None:
    """The epochs of two clusters cannot be compared, although producer ids may be equal by chance."""
    slots = TransactionalIdPool()
    left = used(slots, Fencing(1, 5))
    assert slots.take(Sink("orders", "there:9092"), Fencing(1, 6)) is not left
    assert slots.take(ORDERS, Fencing(1, 6)) is left


def test_a_discarded_id_never_comes_again() -> None:
    slots = TransactionalIdPool()
    slot = slots.take(ORDERS, Fencing(1, 5))
    slots.discard(slot)
    assert slots.take(ORDERS, Fencing(1, 6)).transactional_id.endswith(".1")


def test_the_number_of_slots_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 3)
    slots = TransactionalIdPool()
    ids = {used(slots, Fencing(1, 5)).transactional_id for _ in range(3)}
    with pytest.raises(ExactlyOnceError, match=r"3 transactions of this Python worker wait .* fewer tasks"):
        slots.take(ORDERS, Fencing(1, 5))
    assert used(slots, Fencing(1, 5), Sink("other", "here:9092")).transactional_id not in ids
    again = {used(slots, Fencing(1, 6)).transactional_id for _ in range(3)}
    assert again == ids
    # What another producer id of the control id has left is never free again, so it does not count.
    fresh = {used(slots, Fencing(2, 0)).transactional_id for _ in range(3)}
    assert not fresh & ids


FORK = """
import os
from spark_producer.datasource.write.worker.transactional_ids import Sink, TransactionalIdPool
from spark_producer.exactly_once.protocol.commands import Fencing
slots, sink = TransactionalIdPool(), Sink("orders", "here:9092")
slot = slots.take(sink, Fencing(1, 5))
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
    assert slots.take(sink, Fencing(1, 9)) is slot
print(slots.take(sink, Fencing(1, 9)).transactional_id, flush=True)
"""


def test_a_forked_process_has_another_name() -> None:
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=60, check=True)
    child, parent = done.stdout.split()
    assert child != parent
    assert child.endswith(".0")
