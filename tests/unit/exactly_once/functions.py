"""Functions of `foreachBatch`, and the runs of their query, on a broker of the tests."""

from __future__ import annotations

from collections.abc import Callable

from spark_producer.exactly_once import driver
from spark_producer.exactly_once.protocol.batch_admission import Refuse, Skip, admit
from spark_producer.exactly_once.protocol.task_messages import ForeachBatchOrigin, InlineRows, Skipped, TaskOutcome
from tests.support.filled_tasks import batch
from tests.unit.exactly_once.lossy_world import SINK, ZERO, World


def in_foreach_batch(
    world: World, number: int, origin: ForeachBatchOrigin, row: str, before_commit: Callable[[], object] | None = None
) -> None:
    """A write, as its tasks and the driver make it; `before_commit` happens between the two."""
    world.handle = driver.begin(world.sink)
    admission = admit(world.handle.last, SINK, "", number, origin)
    if isinstance(admission, Refuse):
        raise ValueError(admission.reason)
    encoded = batch(*ZERO, row)
    reported: TaskOutcome = InlineRows(world.handle, "", number, (encoded,), 1, origin)
    if isinstance(admission, Skip):
        reported = Skipped(world.handle, "", number, 1, origin)
    if before_commit is not None:
        before_commit()
    driver.commit(world.sink, [reported], number)


def life(world: World, run: str, micro_batch: int, *numbers: int) -> None:
    """Run a micro-batch, until it is killed."""
    for number in numbers:
        in_foreach_batch(world, number, ForeachBatchOrigin("q1", run, micro_batch), f"{micro_batch}.{number}")
