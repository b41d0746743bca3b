"""The partitioners inside a producer, against the embedded broker. Ids (tests/ids.md): KP, KY, RA, PT."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_producer import Producer
from spark_producer.broker import LocalBroker
from spark_producer.common.cluster import Node, TopicPartition
from spark_producer.errors import ConfigError, PartitionerError
from spark_producer.sender import KnownTopics, ProducerLoad
from tests.fakes.accumulator_fakes import DEADLINE, OTHER, TP, Runner, accumulator_fakes
from tests.fakes.partitioner_fakes import topic_of
from tests.fakes.sender_fakes import TOPIC, metadata_of, sender_fakes
from tests.support.read_back import read_topic
from tests.support.read_confluent import end_offsets
from tests.support.waiting import wait_until

PARTITIONS = 8


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker(default_partitions=PARTITIONS) as made:
        yield made


def producer_to(broker: LocalBroker, function: Any = None, **options: object) -> Producer:
    given = {name.replace("_", "."): value for name, value in options.items()}
    return Producer({"bootstrap.servers": broker.bootstrap_servers, **given}, partitioner=function)


def by_row(keys: Any, values: Any, topic: str, partition_count: int) -> np.ndarray:
    return np.arange(len(keys)) % partition_count


def written(broker: LocalBroker, topic: str) -> list[tuple[int, bytes | None]]:
    return sorted((row.partition, row.value) for row in read_topic(broker.bootstrap_servers, topic, timeout=20))


@pytest.mark.covers("KP15")
def test_a_function_places_rows_and_single_records(broker: LocalBroker) -> None:
    with producer_to(broker, by_row) as producer:
        producer.send_batch(pa.record_batch({"value": ["a", "b", "c"]}), topic="function")
        assert producer.send("function", "d").exception(DEADLINE) is None
    assert written(broker, "function") == [(0, b"a"), (0, b"d"), (1, b"b"), (2, b"c")]


@pytest.mark.covers("KP15")
def test_a_function_by_name_and_what_it_does_wrong_reaches_the_caller(broker: LocalBroker) -> None:
    with producer_to(broker, partitioner_class=f"{__name__}:by_row") as producer:
        producer.send_batch(pa.record_batch({"value": ["a", "b"]}), topic="named")
    assert written(broker, "named") == [(0, b"a"), (1, b"b")]
    with producer_to(broker, lambda *_: [PARTITIONS]) as producer:
        with pytest.raises(PartitionerError, match=f"returned partition {PARTITIONS}"):
            producer.send("named", "c")
        producer.send("named", "explicit", partition=3).result(DEADLINE)
    assert (3, b"explicit") in written(broker, "named")


def test_a_bad_name_leaves_nothing_open() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'round_robin'"):
        Producer({"bootstrap.servers": "127.0.0.1:1", "partitioner.class": "roundrobin"})


def test_round_robin_end_to_end(broker: LocalBroker) -> None:
    with producer_to(broker, partitioner_class="RoundRobinPartitioner") as producer:
        for _ in range(4):
            producer.send_batch(pa.record_batch({"value": ["v"] * 10, "key": ["k"] * 10}), topic="turns")
    assert Counter(partition for partition, _ in written(broker, "turns")) == dict.fromkeys(range(PARTITIONS), 5)


def test_small_tasks_begin_on_other_partitions(broker: LocalBroker) -> None:
    """A flush ends a task: its rows fit into one batch, and the next task's go elsewhere."""
    with producer_to(broker) as producer:
        for task in range(40):
            producer.send_batch(pa.record_batch({"value": [f"{task}"] * 5}), topic="tasks")
            producer.flush()
    rows = written(broker, "tasks")
    topic_partitions = {value: partition for partition, value in rows}
    assert len(set(rows)) == 40, "one partition for each task"
    assert len(set(topic_partitions.values())) > 4


@pytest.mark.covers("RA26")
def test_what_waits_is_counted_without_idle_partitions() -> None:
    made = accumulator_fakes(linger=0)
    assert made.accumulator.queue_lengths(TP.topic) == {}
    for _ in range(3):
        made.append(b"x" * 900)
    assert made.accumulator.queue_lengths(TP.topic) == {TP.partition: 3}
    first, _, third = (made.take() for _ in range(3))
    assert made.accumulator.queue_lengths(TP.topic) == {}
    made.put_back(third)
    assert made.accumulator.queue_lengths(TP.topic) == {TP.partition: 1}, "what is sent again waits too"
    made.append(b"x" * 900, tp=OTHER)
    made.put_back(first)
    assert made.accumulator.queue_lengths(TP.topic) == {TP.partition: 2, OTHER.partition: 1}


class Untouchable(deque[Any]):
    """A queue that must not be read."""

    def __len__(self) -> int:
        raise AssertionError("this queue was looked at")


@pytest.mark.covers("RA26")
def test_a_topic_is_counted_without_a_look_at_other_topics_or_idle_partitions() -> None:
    """Many partitions of another topic have a batch each; of this topic all had one, and one has a batch again."""
    made = accumulator_fakes(memory=1 << 24, linger=0)
    idle, others = ([TopicPartition(topic, number) for number in range(1, 100)] for topic in (TP.topic, "other"))
    for tp in (*idle, *others):
        made.append(b"x", tp=tp)
    for tp in idle:
        made.complete(made.take(tp))
    made.append(b"x")
    for tp in (*idle, *others):
        made.queue(tp).batches = Untouchable()
    assert made.accumulator.queue_lengths(TP.topic) == {TP.partition: 1}
    assert made.accumulator.queue_lengths("neither") == {}


@pytest.mark.covers("RA26")
def test_an_expired_batch_waits_no_more() -> None:
    made = accumulator_fakes(linger=0)
    made.append(b"x")
    made.clock.advance(DEADLINE * 1000)
    assert len(made.expire()) == 1
    assert made.accumulator.queue_lengths(TP.topic) == {}


@pytest.mark.covers("RA26")
def test_both_halves_of_a_split_batch_wait() -> None:
    made = accumulator_fakes(linger=0)
    made.append(*[b"x" * 100] * 4)
    made.split(made.take())
    assert made.accumulator.queue_lengths(TP.topic) == {TP.partition: 2}


@pytest.mark.covers("RA26")
def test_queues_are_counted_while_others_fill_them() -> None:
    """The queues change while they are counted: neither side waits, and no thread raises for it."""
    made = accumulator_fakes(memory=1 << 24)
    topic_partitions = [TopicPartition("orders", partition) for partition in range(64)]

    def fill() -> None:
        for _ in range(20):
            for tp in topic_partitions:
                made.append(b"x" * 900, tp=tp)

    filling = [Runner(fill) for _ in range(2)]
    while not all(runner.done.is_set() for runner in filling):
        assert all(count > 0 for count in made.accumulator.queue_lengths("orders").values())
    for runner in filling:
        runner.result()
    assert made.accumulator.queue_lengths("orders") == dict.fromkeys(range(64), 40)


@pytest.mark.covers("RA25")
def test_the_free_bytes_of_an_open_batch() -> None:
    made = accumulator_fakes(linger=0)
    assert made.accumulator.free_bytes(*TP) == 0
    made.append(b"x" * 100)
    free_before = made.accumulator.free_bytes(*TP)
    made.append(b"x" * 100)
    assert 100 < free_before - made.accumulator.free_bytes(*TP) < 120
    made.take()
    assert made.accumulator.free_bytes(*TP) == 0


@pytest.mark.covers("RA25")
def test_a_full_batch_is_closed_when_it_is_left() -> None:
    made = accumulator_fakes(linger=60)
    made.accumulator.close_full(TP, 100)
    made.append(*[b"x" * 100] * 7)
    made.accumulator.close_full(TP, 107)
    assert made.ready() == [], "another row fits"
    made.append(b"x" * 100)
    made.accumulator.close_full(TP, 107)
    assert made.ready() == [TP]
    made.accumulator.close_full(TP, 107)
    assert made.take().records_count == 8


@pytest.mark.covers("RA25")
def test_full_batches_do_not_linger_when_the_rows_go_elsewhere(broker: LocalBroker) -> None:
    """Only the last visit to each of the partitions may leave a batch open, of 9 rows at most."""
    rows = 1000
    with producer_to(broker, batch_size=1024, linger_ms=600_000, delivery_timeout_ms=900_000) as producer:
        for _ in range(rows // 50):
            producer.send_batch(pa.record_batch({"value": ["x" * 100] * 50}), topic="left")
        servers = broker.bootstrap_servers
        wait_until(lambda: sum(end_offsets(servers, "left").values()) >= rows - 9 * 2, "the full batches are sent")
    assert sum(end_offsets(servers, "left").values()) == rows, "the producer sends the open ones when it is closed"


@pytest.mark.covers("RA26")
def test_a_node_that_takes_nothing_is_stalled_after_the_timeout() -> None:
    made = sender_fakes(availability_timeout=0.1, leaders={TOPIC: (1, 2)})
    load = ProducerLoad(made.fakes.accumulator, made.sender)
    made.network.unready = {2}
    made.batches(b"a", partition=1)
    made.step()
    assert load.statistics(TOPIC) == ({1: 1}, frozenset())
    made.fakes.clock.advance(0.2)
    made.step()
    assert load.statistics(TOPIC).stalled == {2}
    made.network.unready = set()
    assert len(made.produce()) == 1
    assert load.statistics(TOPIC) == ({}, frozenset())


@pytest.mark.covers("PT4")
def test_racks_come_from_the_brokers() -> None:
    made = sender_fakes(ready=False)
    made.metadata.request_topics(TOPIC)
    answer = metadata_of({TOPIC: (1, 2)})
    brokers = tuple(node._replace(rack=rack) for node, rack in zip(answer.brokers, ("a", None), strict=True))
    made.learn(answer._replace(brokers=brokers))
    assert {number: node.rack for number, node in made.metadata.cluster.nodes.items()} == {1: "a", 2: None}
    assert topic_of(2).same_rack == ()


@pytest.mark.covers("PT2")
def test_a_leader_whose_address_is_unknown_is_none_until_it_is_known() -> None:
    made = sender_fakes(ready=False)
    made.metadata.request_topics(TOPIC)
    made.learn(metadata_of({TOPIC: (1, 7)}, nodes=(1,)))
    topics, info = KnownTopics(made.metadata, ""), made.metadata.cluster.topics[TOPIC]
    assert topics.describe(TOPIC, info).available == (0,)
    made.metadata.cluster = made.metadata.cluster._replace(nodes={1: Node("host1", 9092), 7: Node("host7", 9092)})
    assert topics.describe(TOPIC, info).available == (0, 1)


@pytest.mark.covers("PT4")
def test_a_hint_of_a_new_leader_keeps_the_racks() -> None:
    """The cached racks of a topic are computed again when its leaders change, and not before."""
    made = sender_fakes(ready=False)
    made.metadata.request_topics(TOPIC)
    answer = metadata_of({TOPIC: (1, 2)})
    made.learn(answer._replace(brokers=tuple(node._replace(rack=f"r{node.node_id}") for node in answer.brokers)))
    topics = KnownTopics(made.metadata, "r1")
    described = topics.describe(TOPIC, made.metadata.cluster.topics[TOPIC])
    assert (described.leaders, described.same_rack) == ((1, 2), (0,))
    assert topics.describe(TOPIC, made.metadata.cluster.topics[TOPIC]) is described
    made.metadata.apply_leader_hints({TopicPartition(TOPIC, 1): (1, 5)}, {})
    described = topics.describe(TOPIC, made.metadata.cluster.topics[TOPIC])
    assert (described.leaders, described.same_rack) == ((1, 1), (0, 1))


@pytest.mark.covers("PT4")
def test_a_rack_that_changes_or_comes_with_a_hint_counts() -> None:
    made = sender_fakes(ready=False)
    made.metadata.request_topics(TOPIC)
    made.learn(metadata_of({TOPIC: (1, 2)}))
    topics = KnownTopics(made.metadata, "a")
    assert topics.describe(TOPIC, made.metadata.cluster.topics[TOPIC]).same_rack == ()
    cluster = made.metadata.cluster
    made.metadata.cluster = cluster.replace({**cluster.nodes, 1: Node("host1", 9092, "a")})
    assert topics.describe(TOPIC, cluster.topics[TOPIC]).same_rack == (0,)
    made.metadata.apply_leader_hints({TopicPartition(TOPIC, 1): (3, 5)}, {3: Node("host3", 9092, "a")})
    assert topics.describe(TOPIC, made.metadata.cluster.topics[TOPIC]).same_rack == (0, 1)
