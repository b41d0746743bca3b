"""Task threads wait for topics: their requests, how often, and the response that ends a wait. Against a scripted cluster."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable

import pyarrow as pa
import pytest

from spark_producer import Producer
from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import BrokerError, ConnectionFailed, TopicNotFound
from spark_producer.network.metadata_wait import DELETED_TOPIC_GRACE
from spark_producer.producer import parts_of
from tests.fakes.accumulator_fakes import Runner
from tests.fakes.fake_clock import FakeClock
from tests.fakes.hurry import RunningClock
from tests.fakes.scripted_cluster import ScriptedCluster
from tests.support.waiting import wait_until

Start = Callable[..., Producer]
MANY = 2_000


def rows_for(*topics: str) -> pa.RecordBatch:
    return pa.record_batch({"topic": list(topics), "value": [b"x"] * len(topics)})


def send_to_new_topics(cluster: ScriptedCluster, producer: Producer, count: int) -> None:
    cluster.topics = {f"topic{number}": 1 for number in range(count)}
    for name in cluster.topics:
        producer.send(name, "x")
    producer.flush()


def refresh(producer: Producer, cluster: ScriptedCluster) -> None:
    """All topics in use are asked for once more."""
    asked = cluster.questions
    parts_of(producer).metadata.request_update()
    parts_of(producer).client.wakeup()
    cluster.wait_for(lambda: cluster.questions > asked, "a refresh")


@pytest.mark.parametrize("code", [3, 29], ids=["unknown", "not authorised"])
def test_one_bad_answer_for_a_known_topic_does_not_outlive_its_reason(
    cluster: ScriptedCluster, start: Start, code: int
) -> None:
    """The topic is there again, or the right was granted: the next write asks, and does not believe the old answer."""
    producer = start()
    producer.send("t", "x").result(20)
    cluster.topic_codes = lambda _: code
    refresh(producer, cluster)
    wait_until(lambda: "t" not in parts_of(producer).metadata.cluster.topics, "the answer is taken in")
    cluster.topic_codes = lambda _: 0
    assert producer.send("t", "y").result(20).offset == 1


def test_a_topic_that_was_deleted_is_waited_for_for_seconds_and_one_that_never_was_for_as_long_as_asked(
    cluster: ScriptedCluster, start: Start
) -> None:
    clock = RunningClock()
    producer = start(clock=clock, max_block_ms=3_600_000)
    producer.send("t", "x").result(20)
    cluster.topic_codes = lambda _: 3
    refresh(producer, cluster)
    wait_until(lambda: "t" not in parts_of(producer).metadata.cluster.topics, "the answer is taken in")
    asked = cluster.questions
    former, never = Runner(lambda: producer.send("t", "y")), Runner(lambda: producer.send("never", "y"))
    cluster.wait_for(lambda: cluster.questions > asked + 4, "both are asked for")
    clock.skip(DELETED_TOPIC_GRACE + 1)
    with pytest.raises(TopicNotFound, match="for topic 't', still after 5 s"):
        former.result()
    cluster.topic_codes = lambda _: 0
    cluster.topics["never"] = 1
    assert never.result().result(20).offset == 0


def test_a_right_that_was_granted_after_a_refusal_counts(cluster: ScriptedCluster, start: Start) -> None:
    producer = start()
    cluster.topic_codes = lambda _: 29
    for _ in range(2):
        with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
            producer.send("t", "x")
    assert cluster.questions == 2, "each use asks"
    cluster.topic_codes = lambda _: 0
    assert producer.send("t", "y").result(20).offset == 0


def test_the_answer_to_an_older_question_does_not_say_that_a_partition_is_missing(
    cluster: ScriptedCluster, start: Start
) -> None:
    """A refresh of before the topic grew is answered while a row for a new partition waits."""
    producer = start()
    producer.send("t", "x").result(20)
    cluster.hold_metadata()
    parts_of(producer).metadata.request_update()
    parts_of(producer).client.wakeup()
    cluster.wait_for(lambda: cluster.held_metadata is not None, "the refresh is under way")
    asked, woken = cluster.questions, cluster.wakeups
    sending = Runner(lambda: producer.send("t", "y", partition=4))
    cluster.wait_for(lambda: cluster.wakeups > woken, "the row has asked for its partition")
    cluster.release_metadata()
    cluster.topics["t"] = 5
    assert sending.result().result(20).partition == 4
    assert cluster.questions == asked + 1, "one question more"


def test_the_end_of_one_wait_does_not_end_another(cluster: ScriptedCluster, start: Start) -> None:
    cluster.topic_codes = lambda _: 3
    producer = start(max_block_ms=30_000)
    patient = Runner(lambda: producer.send("t", "x"))
    cluster.wait_for(lambda: cluster.questions > 0, "the topic is asked for")
    columns = {"t": -1}
    with pytest.raises(TopicNotFound):
        parts_of(producer).topics.find(columns, deadline=0.0 + parts_of(producer).meter.clock() + 0.02)
    cluster.topic_codes = lambda _: 0
    assert patient.result().result(20).offset == 0


@pytest.mark.covers("KP6")
def test_an_unknown_topic_is_waited_for_as_long_as_max_block_ms_says(cluster: ScriptedCluster, start: Start) -> None:
    """Java waits so, too."""
    cluster.topic_codes = lambda _: 3
    clock = FakeClock()
    begin = clock.now
    producer = start(clock=clock, max_block_ms=60_000)
    sending = Runner(lambda: producer.send_batch(rows_for("t")))
    for seconds in (0, 30, 59):
        clock.now, asked = begin + seconds, cluster.questions

        def asked_again(asked: int = asked) -> bool:
            clock.advance(0.001 if cluster.questions else 0.0)
            cluster.wake()
            return cluster.questions > asked + 1

        wait_until(asked_again, f"it is asked for again after {seconds} s")
        assert not sending.done.is_set()
    assert clock.now < begin + 60
    clock.now = begin + 60
    cluster.wake()
    with pytest.raises(TopicNotFound, match="still after 60 s"):
        sending.result()


def test_a_missing_topic_that_rows_can_do_without_is_waited_for_once(cluster: ScriptedCluster, start: Start) -> None:
    """The next task of a process asks again, but does not wait; callers that need the topic wait for it as usual."""
    absent = {"gone"}
    cluster.topics = {"t": 1}
    cluster.topic_codes = lambda name: 3 if name in absent else 0
    clock = FakeClock()
    topics = parts_of(start(clock=clock, max_block_ms=60_000)).topics

    def look() -> dict[str, BrokerError]:
        refused: dict[str, BrokerError] = {}
        assert topics.find({"t": -1, "gone": -1}, refused=refused) == [] or not refused
        return refused

    def soon(holds: Callable[[], bool]) -> None:
        def look() -> bool:
            clock.advance(0.001 if cluster.questions else 0.0)
            cluster.wake()
            return holds()

        wait_until(look, "it is asked for")

    first = Runner(look)
    soon(lambda: cluster.questions > 2)
    assert not first.done.is_set()
    clock.advance(60.0)
    cluster.wake()
    assert isinstance(first.result()["gone"], TopicNotFound)
    asked, begin = cluster.questions, clock.now
    second = Runner(look)
    soon(second.done.is_set)
    assert isinstance(second.result()["gone"], TopicNotFound)
    assert cluster.questions == asked + 1
    assert clock.now < begin + 60
    patient = Runner(lambda: topics.find({"gone": -1}))
    soon(lambda: cluster.questions > asked + 2)
    assert not patient.done.is_set()
    absent.clear()
    cluster.topics["gone"] = 1
    soon(patient.done.is_set)
    assert len(patient.result()) == 1
    assert look() == {}


def test_a_topic_that_came_with_too_few_partitions_is_missing_no_more(cluster: ScriptedCluster, start: Start) -> None:
    """A partition that is added later is waited for, as brokers learn of it one after the other."""
    cluster.topics, codes = {"t": 1}, {"t": 3}
    cluster.topic_codes = lambda name: codes.get(name, 0)
    clock = FakeClock()
    topics = parts_of(start(clock=clock, max_block_ms=60_000)).topics

    def found(partition: int) -> Runner:
        return Runner(lambda: len(topics.find({"t": partition}, refused={})))

    def seconds_until(holds: Callable[[], bool], what: str, step: float = 0.001) -> float:
        def look() -> bool:
            clock.advance(step if cluster.questions else 0.0)
            cluster.wake()
            return holds()

        begin = clock.now
        wait_until(look, what)
        return clock.now - begin

    first = found(3)
    assert seconds_until(first.done.is_set, "the wait is over", 1.0) >= 60
    assert first.result() == 0
    codes.clear()
    second = found(3)
    seconds_until(second.done.is_set, "the topic is there")
    assert second.result() == 1, "there is no such partition"
    third = found(3)
    assert seconds_until(third.done.is_set, "the partition is waited for", 0.1) >= 2
    assert third.result() == 1


def test_a_long_wait_says_now_and_then_how_many_topics_are_left(
    cluster: ScriptedCluster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """A cluster takes half a minute to make a thousand topics, in which nothing else is heard of the write."""
    cluster.topics = {"a": 1, "b": 1, "c": 1}
    cluster.topic_codes = lambda name: 0 if name == "a" else 5
    clock = FakeClock()
    begin = clock.now
    producer = start(clock=clock, max_block_ms=60_000)
    sending = Runner(lambda: producer.send_batch(rows_for("a", "b", "c")))

    looked_at = clock.calls

    def reported(count: int) -> Callable[[], bool]:
        def look() -> bool:
            nonlocal looked_at
            if (
                cluster.questions and clock.calls > looked_at + 4
            ):  # both threads have seen the time, however slow they are
                clock.advance(0.05)
                looked_at = clock.calls
            cluster.wake()
            return len(caplog.records) == count

        return look

    wait_until(reported(1), "the first word", pause=0.001)
    wait_until(reported(2), "another one", pause=0.001)
    assert clock.now < begin + 16
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith(
        "still waiting for 2 of 3 topics, among them 'b' (the brokers return LEADER_NOT_AVAILABLE) after 5 s"
    )
    assert first.endswith("at most 60 s (kafka.max.block.ms)")
    again = re.search(r"after (\d+) s, ", second)
    assert again is not None, second
    assert 10 <= int(again[1]) < 16, "twice as long, or what went by until the thread looked"
    cluster.topic_codes = lambda _: 0
    wait_until(lambda: reported(2)() and sending.done.is_set(), "the topics are there")
    sending.result()


def test_all_new_topics_of_a_batch_are_asked_for_at_once(cluster: ScriptedCluster, start: Start) -> None:
    names = [f"topic{number}" for number in range(MANY)]
    cluster.topics = dict.fromkeys(names, 1)
    producer = start()
    producer.send_batch(rows_for(*names))
    producer.flush()
    assert cluster.questions == 1
    assert cluster.described == MANY
    assert len(cluster.log) == MANY


def test_only_what_is_not_settled_is_asked_for_again(cluster: ScriptedCluster, start: Start) -> None:
    names = [f"topic{number}" for number in range(MANY)]
    cluster.topics = dict.fromkeys(names, 1)
    cluster.topic_codes = lambda name: 5 if name == names[7] and cluster.questions < 4 else 0
    producer = start()
    producer.send_batch(rows_for(*names))
    assert cluster.described == MANY + 3
    producer.send_batch(rows_for("topic1", "topic7"))
    assert cluster.described == MANY + 3


def test_a_new_topic_is_asked_for_alone(cluster: ScriptedCluster, start: Start) -> None:
    send_to_new_topics(cluster, start(), 100)
    assert (cluster.questions, cluster.described) == (100, 100)


def test_snapshots_of_the_cluster_do_not_outlive_their_use(cluster: ScriptedCluster, start: Start) -> None:
    """A thousand sends to distinct topics left a thousand of them, each with all topics of its time: 98 MB."""
    producer = start()
    send_to_new_topics(cluster, producer, 300)
    gc.collect()
    kinds = [type(found).__name__ for found in gc.get_objects()]
    assert kinds.count("Cluster") < 20


def test_queues_of_forgotten_topics_go_and_their_sequences_stay(cluster: ScriptedCluster, start: Start) -> None:
    clock = FakeClock()
    cluster.topics = {"t": 1, "u": 1}
    producer = start(clock=clock, metadata_max_idle_ms=5000)
    for name in ("t", "u"):
        for _ in range(3):
            producer.send(name, "x").result(20)
    clock.advance(6)
    parts_of(producer).metadata.request_update()
    parts_of(producer).client.wakeup()
    wait_until(lambda: not parts_of(producer).accumulator.incomplete.queues, "the queues are given up")
    assert producer.send("t", "y").result(20).offset == 3
    assert cluster.sequences[TopicPartition("t", 0)] == [0, 1, 2, 3], "a broker takes no other"


def test_silent_brokers_are_logged_once_in_a_while_while_a_thread_waits_for_a_topic(
    cluster: ScriptedCluster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    clock = RunningClock()
    cluster.reachable = False
    cluster.last_error = ConnectionFailed("cannot connect to broker:9092: Connection refused.")
    producer = start(clock=clock, max_block_ms=3_600_000, max_sleep=0.01)
    sending = Runner(lambda: producer.send("t", "x"))
    wait_until(lambda: parts_of(producer).topics.last_error is not None, "an attempt has failed")
    clock.skip(6)
    wait_until(lambda: len(caplog.records) > 0, "it is logged")
    assert re.fullmatch(
        r"no broker has answered about topic 't' for \d+ s \(last error: cannot connect to broker:9092: Connection refused\): "
        r"still waiting, at most 3600 s \(kafka.max.block.ms\)",
        caplog.records[0].getMessage(),
    )
    clock.skip(1)
    cluster.wake(reachable=True)
    assert sending.result().result(20).offset == 0
    assert len(caplog.records) == 1
