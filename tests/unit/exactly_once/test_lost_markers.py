"""Transactions that have lost their marker in a partition, and what a commit and people make of it, on the embedded broker (R8).

The next task of a worker's slot has the same id and producer. The outcome of its transaction says nothing about the previous one.
"""

from __future__ import annotations

from contextlib import suppress

import pytest

from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import ExactlyOnceError, KafkaTimeout
from spark_producer.exactly_once import driver
from spark_producer.exactly_once.cluster.coordinator_state import COMPLETE_COMMIT, describe
from spark_producer.exactly_once.cluster.end_transactions import end_tasks
from spark_producer.exactly_once.names import control_id
from spark_producer.protocol import INIT_PRODUCER_ID
from spark_producer.protocol.messages import InitProducerIdRequest
from tests.support.filled_tasks import Tasks, batch
from tests.unit.exactly_once.lossy_world import CONTROL, OTHER_TOPIC, SINK, TIMEOUT_MS, ZERO, World


def test_the_commit_of_the_next_task_of_a_slot_is_not_that_of_the_one_before(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """The slot writes elsewhere and commits; so its coordinator says "committed" of it. The dead rows were written again."""
    dead = world.abort_with_a_lost_marker("a")
    elsewhere, again = world.fill(0, (1, "b")), world.fill(1, (0, "a"))
    assert elsewhere.producer_id == dead.producer_id
    world.commit_in_vain(elsewhere, again)
    assert world.txn("describe", SINK) == 0
    assert f"rows-0 lacks the marker of producer {dead.producer_id}'s transaction, which was aborted" in (
        capsys.readouterr().out
    )
    assert world.txn("repair", SINK, "--yes") == 0
    assert world.txn("resolve", SINK, "--yes") == 0
    assert world.rows() == ["a", "b"]


@pytest.mark.parametrize("has_rows", [False, True], ids=["no row yet", "with a row elsewhere"])
def test_the_next_task_of_a_slot_has_begun(world: World, has_rows: bool) -> None:
    dead = world.abort_with_a_lost_marker("a")
    if has_rows:
        world.fill(0, (1, "of a loser"))
    else:
        world.take_over(dead)
    world.commit_in_vain(world.fill(1, (0, "a")))
    assert world.txn("repair", SINK, "--yes") == 0
    assert world.txn("resolve", SINK, "--yes") == 0
    assert world.rows() == ["a"]


def test_a_batch_that_is_done_names_no_partitions_so_people_name_its_topic(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commit itself aborts the loser of a speculation, when all is done; then the marker is lost."""
    winner, loser = world.fill(1, (0, "a")), world.fill(0, (0, "a"))
    world.lose(loser)
    world.commit(0, winner)
    world.lossy.clear()
    assert world.txn("repair", SINK, "--yes") == 0
    assert "in the partitions of its last batch; --topic looks at others" in capsys.readouterr().out
    assert world.txn("describe", SINK, "--topic", "rows") == 0
    reported = capsys.readouterr().out
    assert "readers of rows-0 are blocked at offset 1; the log ends at 3" in reported
    assert f"next: stop the query, then: pyproducer txn repair {SINK} --topic rows" in reported
    assert world.txn("repair", SINK, "--topic", "rows", "--yes") == 0
    capsys.readouterr()
    assert world.txn("repair", SINK, "--topic", "rows", "--yes") == 0
    assert "in the partitions of its last batch and of rows" in capsys.readouterr().out
    assert world.txn("repair", SINK, "--topic", "nowhere", "--yes") == 1
    assert "topic 'nowhere'" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("more", ["nothing", "rows that are left to the driver", "a stranger who has taken its id"])
def test_transactions_of_a_record_that_lost_its_own_marker_do_not_count_as_dead_tasks(world: World, more: str) -> None:
    """The task's transaction was committed, as decided, and is open in one partition; its coordinator says that it is over."""
    task = world.fill(0, (0, "a"), (1, "b"))
    world.lose(task)
    world.lose(control_id(SINK), CONTROL)
    with_inline = more == "rows that are left to the driver"
    world.commit_in_vain(task, *([batch(*ZERO, "c")] if with_inline else []))
    if more == "a stranger who has taken its id":
        world.take_over(task)
    world.mend("--topic", "rows")
    assert world.rows() == ["a", "b", "c"][: 2 + with_inline]


def test_a_decision_is_carried_out_though_a_dead_task_hides_its_rows(world: World) -> None:
    world.abort_with_a_lost_marker("a")
    task = world.fill(1, (0, "a"))
    world.lose(control_id(SINK), CONTROL)
    world.commit_in_vain(task)
    world.mend("--topic", "rows")
    assert world.rows() == ["a"]


def test_another_control_topic_does_not_name_what_was_committed(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """It looks like a dead task's transaction; but its coordinator has committed it."""
    driver.begin(world.sink._replace(name="else", control_topic=OTHER_TOPIC))
    task = world.fill(0, (0, "a"), (1, "b"))
    world.lose(task)
    world.commit_in_vain(task)
    world.fill(1, (1, "of a loser"))
    assert world.txn("repair", SINK, "--topic", "rows", "--control-topic", OTHER_TOPIC, "--yes") == 1
    reported = capsys.readouterr()
    assert "whose outcome is unknown" in reported.out
    assert f"no record in {OTHER_TOPIC} names them (is that its control topic?)" in reported.err
    world.mend()
    assert world.rows() == ["a", "b"]


def test_a_decision_that_has_committed_a_task_is_not_dropped(world: World) -> None:
    """No row of it is visible, since the task's only marker is lost as well. Its batch was run again, and seen twice."""
    task = world.fill(0, (0, "a"))
    world.lose(task)
    world.lose(control_id(SINK), CONTROL)
    world.commit_in_vain(task)
    with pytest.raises(ExactlyOnceError, match="lost the markers"):
        driver.begin(world.sink)  # the coordinator forgets how the decision ended
    world.mend()
    world.handle = driver.begin(world.sink)
    assert world.handle.last is not None
    assert world.handle.last.last_done == 0
    assert world.rows() == ["a"]


def test_readers_of_a_mixed_write_may_be_blocked_after_its_tasks_rows(world: World) -> None:
    """The inline rows are after those of a task, and of a dead one."""
    task, dead = world.fill(1, (0, "a")), world.fill(0, (0, "dead"))
    world.lose(dead)
    end_tasks(world.tasks.brokers, [dead], commit=False, deadline=world.tasks.client.deadline())
    world.commit_in_vain(task, batch(*ZERO, "b"))
    world.mend()
    assert world.rows() == ["a", "b"]


def test_what_is_decided_is_carried_out_before_people_are_called(world: World) -> None:
    """A dead task holds readers of a mixed write. Its driver dies after the commit point; the named transaction may time out."""
    world.abort_with_a_lost_marker("dead")
    task = world.fill(1, (0, "a"))

    world.die_after_the_commit_point(0, task, batch(*ZERO, "b"))
    with suppress(ExactlyOnceError):
        driver.begin(world.sink)
    states = describe(world.tasks.brokers, [task.transactional_id], world.tasks.client.deadline())
    state = states[task.transactional_id]
    assert state is not None
    assert state.transaction_state == COMPLETE_COMMIT
    world.mend()
    assert world.rows() == ["a", "b"]


def test_people_do_not_wait_for_each_transaction_of_a_batch(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Each was awaited for seconds, because of a dead task in another of its partitions."""
    dead = world.fill(0, (1, "b"))
    world.lose(dead, TopicPartition("rows", 1))
    world.handle = driver.begin(world.sink)
    tasks = [world.fill(slot, (0, f"a{slot}"), (1, f"b{slot}")) for slot in range(1, 11)]
    for task in tasks:
        world.lose(task)
    world.commit_in_vain(*tasks)
    caplog.clear()
    assert world.txn("repair", SINK, "--yes") == 0
    assert "it could not be checked whether a dead task left it" not in caplog.text
    assert world.txn("resolve", SINK, "--yes") == 0
    assert world.rows() == sorted(f"{letter}{slot}" for slot in range(1, 11) for letter in "ab")


def test_the_abort_of_a_later_transaction_of_an_id_is_not_that_of_what_was_committed(world: World) -> None:
    """A stranger takes the id of a committed task, and his transaction is aborted by the next one who takes it."""
    first, second = world.fill(0, (0, "a")), world.fill(1, (1, "b"))
    world.lose(first)
    world.commit_in_vain(first, second)
    strange = world.fill(0, (1, "strange")).transactional_id
    body = InitProducerIdRequest(strange, TIMEOUT_MS)
    with suppress(KafkaTimeout):  # the first answer is "later", while the abort is under way
        soon = world.tasks.client.clock() + 0.0001
        world.tasks.brokers.request_coordinators(INIT_PRODUCER_ID, {strange: body}, soon, resend=False)
    world.mend()
    assert world.rows() == ["a", "b"]


def write_as_a_stranger(world: World) -> None:
    """A row in each partition, where those of the sink were in a topic of the same name."""
    stranger = Tasks(world.broker.bootstrap_servers, "stranger", "1" * 32)
    one = stranger.fill(
        0, world.handle.transaction_version, {("rows", partition): ["strange"] for partition in range(2)}
    )
    end_tasks(stranger.brokers, [one], commit=True, deadline=stranger.client.deadline())
    stranger.close()


@pytest.mark.parametrize("has_others", [False, True], ids=["empty", "with rows of a stranger"])
def test_a_recreated_topic_does_not_show_a_decision(world: World, has_others: bool) -> None:
    """No batch was decided, and yet it was not run again."""
    world.die_before_the_commit(0, world.fill(0, (0, "a")))
    world.lose(control_id(SINK), CONTROL)
    world.begin_in_vain()
    world.recreate_topic()
    if has_others:
        write_as_a_stranger(world)
    world.mend()
    world.run_again(0, (0, "a"))
    assert world.rows() == ["a"] + ["strange"] * (2 * has_others)


@pytest.mark.parametrize("has_others", [False, True], ids=["empty", "with rows of a stranger"])
def test_rows_that_a_topic_lost_after_the_commit_point_are_reported(world: World, has_others: bool) -> None:
    """The coordinator commits, and writes its marker into the topic that has the name now."""
    task, other = world.fill(0, (0, "a")), world.fill(2, (1, "b"))

    world.die_after_the_commit_point(0, task, other)
    world.recreate_topic()
    if has_others:
        write_as_a_stranger(world)
    with pytest.raises(ExactlyOnceError, match="the other rows are visible"):
        driver.begin(world.sink)


def test_hanging_rows_are_found_without_any_record(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """The first write of a sink dies, and there is no record yet."""
    dead = world.fill(0, (0, "a"))
    world.lose(dead)
    world.take_over(dead)
    world.lossy.clear()
    assert world.txn("describe", SINK, "--topic", "rows") == 0
    assert "lost: rows-0" in capsys.readouterr().out
    assert world.txn("repair", SINK, "--topic", "rows", "--yes") == 1, "the control topic may be the wrong one"
    assert "--assume" in capsys.readouterr().err
    assert world.txn("repair", SINK, "--topic", "rows", "--assume", "aborted", "--yes") == 0
