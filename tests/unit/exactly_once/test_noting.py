"""A run that finds a number done, and whose note of that fails: the next run goes on, and no row is lost or doubled.

The failure matrix does not play `foreachBatch`. What each answer leads to is in `test_bound_query`, and the models search all
orders of functions with several numbers.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_producer.common import failpoints
from spark_producer.errors import ExactlyOnceError
from spark_producer.exactly_once import driver
from spark_producer.exactly_once.cluster.control_write import ControlWrite
from spark_producer.exactly_once.names import control_id
from spark_producer.exactly_once.protocol.task_messages import ForeachBatchOrigin
from tests.support.filled_tasks import Died
from tests.unit.exactly_once.functions import in_foreach_batch, life
from tests.unit.exactly_once.lossy_world import CONTROL, SINK, World
from tests.unit.exactly_once.test_expired import expire

SECOND_RUN = ForeachBatchOrigin("q1", "r2", 0)


def goes_on(world: World) -> None:
    """After a failed second run."""
    assert world.rows() == ["0.0", "0.1"]
    life(world, "r3", 0, 0, 1, 2)
    life(world, "r3", 1, 3)
    assert world.rows() == ["0.0", "0.1", "0.2", "1.3"]
    with pytest.raises(ValueError, match="txnVersion 3 was written before in this run"):
        life(world, "r3", 1, 3)


@pytest.mark.parametrize("position", ["control.produced", "control.ended", "commit.noting"])
def test_a_driver_that_is_killed_in_its_note(world: World, position: str, monkeypatch: pytest.MonkeyPatch) -> None:
    life(world, "r1", 0, 0, 1)
    life(world, "r2", 0, 0)

    def dies(name: str) -> None:
        if name == position:
            raise Died

    with monkeypatch.context() as patch:
        patch.setattr(ControlWrite, "_abort", lambda _: None)  # the dead end nothing
        patch.setattr(failpoints, "_installed", dies)
        with pytest.raises(Died):
            life(world, "r2", 0, 1)
    goes_on(world)


def overtaken(world: World) -> None:
    """Another driver begins."""
    driver.begin(world.sink._replace(timeout=world.sink.timeout + 1))


def forgotten(world: World) -> None:
    expire(world.broker, control_id(SINK))


@pytest.mark.parametrize(("happens", "kind"), [(overtaken, "FENCED"), (forgotten, "EXPIRED")])
def test_a_note_that_is_fenced_off(world: World, happens: Callable[[World], None], kind: str) -> None:
    life(world, "r1", 0, 0, 1)
    with pytest.raises(ExactlyOnceError, match="its batch was committed before") as caught:
        in_foreach_batch(world, 1, SECOND_RUN, "0.1", lambda: happens(world))
    assert caught.value.kind == kind
    goes_on(world)


def test_a_note_whose_marker_is_lost_is_mended(world: World) -> None:
    life(world, "r1", 0, 0, 1)
    with pytest.raises(ExactlyOnceError, match="lost the markers") as caught:
        in_foreach_batch(world, 1, SECOND_RUN, "0.1", lambda: world.lose(control_id(SINK), CONTROL))
    assert caught.value.kind == "HUNG"
    world.lossy.clear()
    driver.close_all()
    world.mend()
    goes_on(world)
