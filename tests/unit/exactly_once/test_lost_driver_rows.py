"""Rows that were left to the driver, whose transaction has lost its marker: in their partition, in the control topic, or in both.

All transactions of the control id have the same producer, so only their epochs distinguish them.
"""

from __future__ import annotations

import pytest

from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import ExactlyOnceError
from spark_producer.exactly_once import driver
from spark_producer.exactly_once.cluster import fencing
from spark_producer.exactly_once.cluster.coordinator_state import COMPLETE_ABORT, COMPLETE_COMMIT, describe
from spark_producer.exactly_once.cluster.end_transactions import end_tasks
from spark_producer.exactly_once.names import control_id
from spark_producer.exactly_once.protocol.control_record import TaskTransaction
from tests.support.filled_tasks import Tasks, batch
from tests.support.waiting import wait_until
from tests.unit.exactly_once.lossy_world import CONTROL, ONE, OTHER_TOPIC, SINK, ZERO, World


def state_of(world: World, transactional_id: str) -> str:
    """Return the state at its coordinator."""
    row = describe(world.tasks.brokers, [transactional_id], world.tasks.client.deadline())[transactional_id]
    assert row is not None
    return row.transaction_state


@pytest.mark.parametrize("lost", [(ZERO,), (ZERO, CONTROL)], ids=["rows", "rows and record"])
def test_inline_rows_of_a_dead_driver_are_not_those_of_the_last_record(
    world: World, lost: tuple[TopicPartition, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """The last batch has rows in the same partition. A repair took the dead ones for its own, and they were seen twice."""
    world.commit(0, batch(*ZERO, "a"))
    world.handle = driver.begin(world.sink)
    world.die_before_the_commit(1, batch(*ZERO, "b"))
    for each in lost:
        world.lose(control_id(SINK), each)
    world.begin_in_vain()  # the fence aborts it
    world.mend()
    assert "was committed" not in capsys.readouterr().out
    assert world.rows() == ["a"]
    world.run_again(1, batch(*ZERO, "b"))
    assert world.rows() == ["a", "b"]


def test_an_earlier_commit_in_a_partition_does_not_say_that_a_decision_was_made(world: World) -> None:
    """Batch 1 never came to a partition without a leader; its driver died before the commit point. The batch was lost."""
    world.commit(0, batch(*ZERO, "a"), batch(*ONE, "b"))
    world.handle = driver.begin(world.sink)
    world.die_before_the_commit(1, batch(*ZERO, "c"), batch(*ONE, "d"), without=ONE)
    world.lose(control_id(SINK), CONTROL)
    world.lose(control_id(SINK), ONE)
    world.begin_in_vain()
    world.mend()
    world.run_again(1, batch(*ZERO, "c"), batch(*ONE, "d"))
    assert world.rows() == ["a", "b", "c", "d"]


def test_one_partition_that_shows_the_abort_is_enough(world: World) -> None:
    """The rows never came to the other one, which knows nothing. That could not be repaired."""
    world.die_before_the_commit(0, batch(*ZERO, "c"), batch(*ONE, "d"), without=ONE)
    world.lose(control_id(SINK), CONTROL)
    world.lose(control_id(SINK), ONE)
    world.begin_in_vain()
    world.mend()
    world.run_again(0, batch(*ZERO, "c"), batch(*ONE, "d"))
    assert world.rows() == ["c", "d"]


def test_inline_rows_of_a_dead_driver_without_a_record_are_reported_by_the_next_write(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """A task writes after them, and its rows would be invisible."""
    world.commit(0, batch(*ONE, "a"))
    world.handle = driver.begin(world.sink)
    world.die_before_the_commit(1, batch(*ZERO, "b"))
    world.lose(control_id(SINK), ZERO)
    world.handle = driver.begin(world.sink)
    with pytest.raises(ExactlyOnceError, match="rows-0 lost the markers"):
        world.commit(1, world.fill(0, (0, "b")))
    world.lossy.clear()
    capsys.readouterr()
    assert world.txn("repair", SINK, "--topic", "rows", "--yes") == 0
    assert "which was aborted" in capsys.readouterr().out
    world.run_again(1, (0, "b"))
    assert world.rows() == ["a", "b"]


def test_the_next_rows_there_end_those_of_a_dead_driver(world: World) -> None:
    world.die_before_the_commit(0, batch(*ZERO, "b"))
    world.lose(control_id(SINK), ZERO)
    world.handle = driver.begin(world.sink)
    world.lossy.clear()
    with pytest.raises(ExactlyOnceError, match="an older transaction"):
        world.commit(0, batch(*ZERO, "b"))
    world.run_again(0, batch(*ZERO, "b"))
    assert world.rows() == ["b"]


@pytest.mark.slow
@pytest.mark.parametrize("lost", [CONTROL, ZERO], ids=["record", "rows"])
def test_people_may_mend_what_timed_out_before_the_next_driver_comes(
    world: World, monkeypatch: pytest.MonkeyPatch, lost: TopicPartition
) -> None:
    world.commit(0, batch(*ZERO, "a"))
    monkeypatch.setattr(fencing, "CONTROL_TIMEOUT_MS", 1000)
    world.handle = driver.begin(world.sink)
    world.die_before_the_commit(1, batch(*ZERO, "b"), world.fill(0, (1, "c")))
    world.lose(control_id(SINK), lost)
    wait_until(lambda: state_of(world, control_id(SINK)) == COMPLETE_ABORT, "the transaction to time out")
    world.lossy.clear()
    world.mend()
    assert world.rows() == ["a"]
    world.run_again(1, batch(*ZERO, "b"), (1, "c"))
    assert world.rows() == ["a", "b", "c"]


def test_a_marker_after_a_foreign_open_transaction_is_found(world: World) -> None:
    """Readers stand before it, and do not see the rows yet. They are committed all the same."""
    stranger = Tasks(world.broker.bootstrap_servers, "stranger", "1" * 32)
    held = stranger.fill(0, world.handle.transaction_version, {ZERO: ["stranger"]})
    world.lose(control_id(SINK), CONTROL)
    world.commit_in_vain(batch(*ZERO, "a"))
    world.begin_in_vain()  # the coordinator forgets how it ended
    world.mend()
    world.handle = driver.begin(world.sink)
    assert world.handle.last is not None
    assert world.handle.last.last_done == 0
    end_tasks(stranger.brokers, [held], commit=False, deadline=stranger.client.deadline())
    stranger.close()
    assert world.rows() == ["a"]


@pytest.mark.parametrize("who", ["the next driver", "the same driver"])
def test_a_decision_whose_own_rows_hang_is_carried_out_before_people_are_called(world: World, who: str) -> None:
    """The control record can be read, so its tasks are committed: while people are called they would time out."""
    task = world.fill(1, (1, "a"))
    world.lose(control_id(SINK), ZERO)
    if who == "the next driver":
        world.die_after_the_commit_point(0, task, batch(*ZERO, "b"))
    with pytest.raises(ExactlyOnceError, match="rows-0 lost the markers"):
        driver.begin(world.sink) if who == "the next driver" else world.commit(0, task, batch(*ZERO, "b"))
    world.lossy.clear()
    assert state_of(world, task.transactional_id) == COMPLETE_COMMIT
    world.mend()
    assert world.rows() == ["a", "b"]


@pytest.mark.parametrize("flag", ["--accept-row-count-mismatch", "--accept-partial"])
def test_a_record_of_txn_resolve_that_loses_its_marker_is_valid(
    world: World, capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    first, second = world.fill(0, (0, "a")), world.fill(1, (1, "b"))
    world.die_after_the_commit_point(0, first, second)
    if flag == "--accept-partial":
        world.take_over(first)
        with pytest.raises(ExactlyOnceError, match="the other rows are visible"):
            driver.begin(world.sink)
    else:
        driver.begin(world.sink)
    world.lose(control_id(SINK), CONTROL)
    capsys.readouterr()
    assert world.txn("resolve", SINK, flag, "--yes") == 1
    assert "__pyproducer_commits-0 lost the markers" in capsys.readouterr().err
    world.lossy.clear()
    world.mend()
    world.handle = driver.begin(world.sink)
    assert world.handle.last is not None
    assert world.handle.last.last_done == 0
    assert world.rows() == (["b"] if flag == "--accept-partial" else ["a", "b"])


def test_a_stranger_in_the_control_topic_changes_nothing(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    stranger = Tasks(world.broker.bootstrap_servers, "stranger", "1" * 32)
    one: TaskTransaction = stranger.fill(0, world.handle.transaction_version, {CONTROL: ["strange"]})
    end_tasks(stranger.brokers, [one], commit=True, deadline=stranger.client.deadline())
    stranger.close()
    world.commit(0, world.fill(0, (0, "a")))
    assert world.txn("list") == 0
    assert f"{SINK}" in capsys.readouterr().out
    assert world.rows() == ["a"]


@pytest.mark.parametrize("has_moved", [False, True], ids=["another's topic", "its topic of old"])
def test_a_person_who_forgets_the_control_topic_aborts_nothing(
    world: World, capsys: pytest.CaptureFixture[str], has_moved: bool
) -> None:
    """No record there names the rows, and the coordinator has forgotten that they were committed. They were aborted, and lost."""
    if has_moved:
        world.commit(0, batch(*ONE, "z"))
    driver.begin(world.sink._replace(name="else"))  # it has the default topic
    world.sink = world.sink._replace(control_topic=OTHER_TOPIC)
    if has_moved:
        assert world.txn("resolve", SINK, "--control-topic", OTHER_TOPIC, "--accept-no-record", "--yes") == 0
    world.handle = driver.begin(world.sink)
    world.lose(control_id(SINK), ZERO)
    with pytest.raises(ExactlyOnceError, match="rows-0 lost the markers"):
        world.commit(1, batch(*ZERO, "a"))
    world.begin_in_vain()
    capsys.readouterr()
    assert world.txn("repair", SINK, "--topic", "rows", "--yes") == 1
    reported = capsys.readouterr()
    assert "whose outcome is unknown" in reported.out
    assert "is that its control topic?" in reported.err
    assert world.txn("repair", SINK, "--control-topic", OTHER_TOPIC, "--yes") == 0
    world.run_again(1, batch(*ZERO, "a"))
    assert world.rows() == ["a", "z"][: 1 + has_moved]


@pytest.mark.parametrize("is_new", [True, False], ids=["a new topic", "a recreated topic"])
def test_an_empty_partition_shows_that_nothing_is_visible(world: World, is_new: bool) -> None:
    if not is_new:
        world.commit(0, batch(*ZERO, "z"))
        world.handle = driver.begin(world.sink)
    world.die_before_the_commit(1, batch(*ZERO, "a"), without=ZERO if is_new else None)
    world.lose(control_id(SINK), CONTROL)
    world.lose(control_id(SINK), ZERO)
    world.begin_in_vain()
    if not is_new:
        world.recreate_topic()
    world.mend()
    world.run_again(1, batch(*ZERO, "a"))
    assert world.rows() == ["a"]


@pytest.mark.parametrize("choice", ["committed", "aborted"])
def test_repair_assumes_an_outcome_if_it_is_unknown(
    world: World, capsys: pytest.CaptureFixture[str], choice: str
) -> None:
    """The rows never came to a partition that has others, and does not know the sink's producer."""
    stranger = Tasks(world.broker.bootstrap_servers, "stranger", "1" * 32)
    other = stranger.fill(0, world.handle.transaction_version, {ZERO: ["of another"]})
    end_tasks(stranger.brokers, [other], commit=True, deadline=stranger.client.deadline())
    stranger.close()
    world.die_before_the_commit(0, batch(*ZERO, "a"), without=ZERO)
    world.lose(control_id(SINK), CONTROL)
    world.lose(control_id(SINK), ZERO)
    world.begin_in_vain()
    assert world.txn("repair", SINK, "--yes") == 1
    assert "if they see none at all, `--assume aborted` is" in capsys.readouterr().err
    assert world.txn("repair", SINK, "--yes", "--assume", choice) == 0
    world.run_again(0, batch(*ZERO, "a"))
    assert world.rows() == ["a", "of another"][choice == "committed" :]
