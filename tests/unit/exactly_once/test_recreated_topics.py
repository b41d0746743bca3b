"""A topic that is deleted and created again while the driver commits rows: none of them is lost unnoticed."""

from __future__ import annotations

from typing import Any

import pytest

from spark_producer.errors import ExactlyOnceError
from spark_producer.exactly_once.cluster import coordinator_state, end_transactions
from spark_producer.exactly_once.cluster.broker_requests import TransactionAdmin
from spark_producer.exactly_once.cluster.control_write import MAX_WAIT_OF_CHECK_S
from spark_producer.exactly_once.cluster.early_requests import MAX_AGE_S
from spark_producer.exactly_once.cluster.inline_produce import InlineProduce
from tests.support.filled_tasks import batch
from tests.unit.exactly_once.lossy_world import ONE, ZERO, World


def write(world: World, *rows: str) -> None:
    """Write batch 1 as Spark does, again if it fails, and find all of its rows."""
    batches = [batch(*ZERO, row) for row in rows]
    try:
        world.commit(1, *batches)
    except ExactlyOnceError as error:
        if not error.again:
            raise
        world.run_again(1, *batches)
    assert world.rows() == list(rows)


@pytest.mark.parametrize("rows_before", [False, True])
def test_rows_in_the_old_log_and_in_the_new_one_are_not_committed(
    world: World, rows_before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `EXPLICIT` the new log takes any first sequence, and the transaction begins there at the lowest offset of the rows."""
    world.commit(0, batch(*(ZERO if rows_before else ONE), "before"))
    world.run_again(0)
    send, rounds = InlineProduce._send_round, iter(range(2))

    def recreate_first(self: InlineProduce, deadline: float) -> Any:
        if next(rounds, None) == 1:
            world.recreate_topic()
        return send(self, deadline)

    monkeypatch.setattr(InlineProduce, "_send_round", recreate_first)
    write(world, *(f"row {number}" for number in range(7)))


def test_rows_that_are_lost_while_a_broker_lists_transactions_late_are_missed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `IMPLICIT` the rows are there by then, and the leader has answered the check that follows them."""
    world.commit(0, batch(*ONE, "before"))
    world.run_again(0)
    listed = coordinator_state.open_tasks

    def late(brokers: TransactionAdmin, *given: Any, **more: Any) -> Any:
        monkeypatch.setattr(coordinator_state, "open_tasks", listed)
        found = listed(brokers, *given, **more)
        brokers.client.pause(2 * MAX_WAIT_OF_CHECK_S)
        world.recreate_topic()
        brokers.client.pause(2 * MAX_WAIT_OF_CHECK_S)
        return found

    monkeypatch.setattr(coordinator_state, "open_tasks", late)
    write(world, "row")


def test_rows_of_tasks_that_are_lost_in_a_slow_commit_are_reported(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new log has the marker, and not the rows that the vote has seen."""
    end_tasks = end_transactions.end_tasks

    def end_late(brokers: TransactionAdmin, *given: Any) -> Any:
        brokers.client.pause(MAX_AGE_S * 1.1)
        world.recreate_topic()
        return end_tasks(brokers, *given)

    monkeypatch.setattr(end_transactions, "end_tasks", end_late)
    with pytest.raises(ExactlyOnceError) as caught:
        world.commit(0, world.fill(0, (0, "row")))
    assert caught.value.kind == "PARTIAL"
