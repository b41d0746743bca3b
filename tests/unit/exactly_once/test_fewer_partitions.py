"""A topic that is created again with fewer partitions: rows, open transactions and records of those that are gone."""

from __future__ import annotations

import pytest

from spark_producer.errors import ExactlyOnceError, KafkaTimeout, TopicNotFound
from spark_producer.exactly_once import driver
from spark_producer.exactly_once.cluster import log_outcome
from spark_producer.exactly_once.cluster.partition_state import TransactionSpan
from spark_producer.exactly_once.protocol.commands import TransactionOutcome
from tests.fakes.hurry import RunningClock
from tests.support.filled_tasks import SECONDS, batch, prepared
from tests.unit.exactly_once.lossy_world import ONE, SINK, ZERO, World


def make_smaller(world: World, partitions: int = 1) -> None:
    world.broker._call(lambda: world.broker._topics.delete_all(["rows"]))
    if partitions:
        world.broker.create_topic("rows", partitions)


def test_rows_by_the_driver_for_a_partition_that_is_gone_are_refused(world: World) -> None:
    world.handle = driver.begin(world.sink)
    make_smaller(world)
    with pytest.raises(TopicNotFound, match="rows for rows-1 were not written, because the partition no longer exists"):
        world.commit(0, batch(*ONE, "b"))
    world.run_again(0, batch(*ZERO, "b"))
    assert world.rows() == ["b"]


def test_rows_by_the_driver_for_a_topic_that_is_gone_are_refused(world: World) -> None:
    make_smaller(world, 0)
    with pytest.raises(TopicNotFound, match="because the topic does not exist"):
        world.commit(0, batch(*ONE, "b"))


def test_a_sink_whose_last_rows_went_there_goes_on(world: World) -> None:
    """The record of the last batch names the partition."""
    world.commit(0, batch(*ZERO, "a"), batch(*ONE, "b"))
    driver.close_all()
    make_smaller(world)
    world.run_again(0, batch(*ZERO, "a"))
    world.run_again(1, batch(*ZERO, "c"))
    assert world.txn("describe", SINK) == 0
    assert world.txn("resolve", SINK, "--yes") == 0
    assert world.rows() == ["c"]


def test_a_transaction_of_a_task_is_not_committed(world: World) -> None:
    left = world.fill(0, (0, "a"), (1, "b"))
    make_smaller(world)
    with pytest.raises(ExactlyOnceError, match="its rows are no longer in rows-1") as caught:
        world.commit(0, left)
    assert caught.value.again
    driver.abort(world.sink, [prepared(world.handle, 0, left)], 0)
    world.run_again(0, (0, "b"))
    assert world.rows() == ["b"]


def test_a_transaction_that_a_dead_driver_has_left_is_aborted(world: World) -> None:
    world.fill(0, (0, "a"), (1, "b"))
    driver.close_all()
    make_smaller(world)
    world.run_again(0, (0, "b"))
    assert world.rows() == ["b"]


def test_missing_rows_of_a_decided_write_are_reported(world: World) -> None:
    left = world.fill(0, (1, "b"))
    world.die_after_the_commit_point(0, left)
    driver.close_all()
    make_smaller(world)
    with pytest.raises(ExactlyOnceError) as caught:
        driver.begin(world.sink)
    assert caught.value.kind == "PARTIAL"
    driver.close_all()
    assert world.txn("resolve", SINK, "--accept-partial", "--yes") == 0
    world.run_again(1, (0, "c"))
    assert world.rows() == ["c"]


def test_only_a_topic_that_exists_shows_that_rows_are_gone(world: World) -> None:
    """A deleted topic is unknown, as before."""
    deadline = world.tasks.client.deadline()
    for partitions, outcome in ((1, TransactionOutcome.MIXED), (0, TransactionOutcome.UNKNOWN)):
        make_smaller(world, partitions)
        span = TransactionSpan(1, *ONE, 0, 0)
        world.tasks.brokers.forget_leaders([ONE])
        assert log_outcome.outcomes_by_span(world.tasks.brokers, [span], deadline) == {span: outcome}


def test_a_partition_without_a_leader_is_waited_for_as_before(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers name the topic, so it exists."""
    asked, clock = world.tasks.brokers, RunningClock()
    metadata, answers = asked.client.metadata, iter(range(3))

    def without_leader(*given: object, **more: object) -> object:
        answer = metadata(*given, **more)  # type: ignore[arg-type]
        if next(answers, None) is None:
            clock.skip(SECONDS)
        rows = [
            topic._replace(partitions=tuple(row._replace(leader_id=-1) for row in topic.partitions))
            for topic in answer.topics
        ]
        return answer._replace(topics=tuple(rows))

    monkeypatch.setattr(asked.client, "clock", clock)
    monkeypatch.setattr(asked.client, "metadata", without_leader)
    with pytest.raises(KafkaTimeout, match="a live leader of rows-1: start its broker"):
        asked.leaders([ONE], clock() + SECONDS)
    assert next(answers, None) is None
    assert asked.leaderless([ONE], clock() + SECONDS) == [ONE]


def test_a_lagging_broker_does_not_decide_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first answers know one partition less, as after CreatePartitions."""
    asked = world.tasks.brokers
    metadata, answers = asked.client.metadata, iter(range(3))

    def lagging(*given: object, **more: object) -> object:
        answer = metadata(*given, **more)  # type: ignore[arg-type]
        if next(answers, None) is None:
            return answer
        return answer._replace(topics=tuple(topic._replace(partitions=topic.partitions[:1]) for topic in answer.topics))

    monkeypatch.setattr(asked.client, "metadata", lagging)
    assert set(asked.leaders([ONE], asked.client.clock() + 10)) == {ONE}
