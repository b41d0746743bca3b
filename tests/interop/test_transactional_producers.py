"""Transactions of ours, librdkafka's and kafka-python's producers on one broker, real ones and the embedded one at both levels.

Readers of librdkafka and kafka-python with read_committed must see what was committed, in the order in which it was written.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing

import confluent_kafka
import pytest

from spark_producer import errors
from spark_producer.broker import BrokerSettings, LocalBroker
from tests.conftest import Broker
from tests.interop.broker_records import CLIENTS
from tests.interop.transacting import MAKES, SECONDS, Confluent, Make, Ours, Writer, writer
from tests.support.kafka_cluster import KafkaCluster
from tests.support.read_back import Client, read_topic

EMBEDDED = ["embedded, level 2", "embedded, level 0"]
KAFKA = [pytest.param("kafka_39", marks=pytest.mark.kafka), pytest.param("kafka_4", marks=pytest.mark.kafka)]


PAIRS: list[tuple[Make, Make]] = [
    ("ours", "confluent"),
    ("ours", "kafka-python"),
    ("confluent", "ours"),
    ("confluent", "confluent"),
    ("kafka-python", "ours"),
]


@pytest.fixture(scope="module")
def levels() -> Iterator[dict[str, LocalBroker]]:
    """The embedded broker with each level of transactions."""
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(
                LocalBroker(settings=BrokerSettings(transaction_version=int(name[-1]), transaction_scan_s=0.1))
            )
            for name in EMBEDDED
        }


@pytest.fixture(params=[*EMBEDDED, *KAFKA])
def any_broker(request: pytest.FixtureRequest) -> Broker:
    return chosen(request)


@pytest.fixture(params=EMBEDDED)
def embedded(request: pytest.FixtureRequest) -> Broker:
    return chosen(request)


def chosen(request: pytest.FixtureRequest) -> Broker:
    if request.param in EMBEDDED:
        levels: dict[str, LocalBroker] = request.getfixturevalue("levels")
        return levels[request.param]
    found: Broker = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def writers(any_broker: Broker) -> Iterator[dict[Make, Writer]]:
    """One of every make, each with an id of its own, initialized."""
    with ExitStack() as stack:
        made = {make: opened(stack, make, any_broker) for make in MAKES}
        for each in made.values():
            each.init()
        yield made


def opened(
    stack: ExitStack, make: Make, broker: Broker, transactional_id: str = "", timeout_ms: int = 60_000
) -> Writer:
    name = transactional_id or f"{make}-{uuid.uuid4().hex[:8]}"
    return stack.enter_context(closing(writer(make, broker.bootstrap_servers, name, timeout_ms)))


def committed(broker: Broker, topic: str, client: Client) -> list[tuple[int, bytes | None]]:
    rows = read_topic(broker.bootstrap_servers, topic, client=client, isolation="read_committed")
    return [(row.partition, row.value) for row in rows]


def test_interleaved_transactions_of_all_makes_are_read_as_they_ended(
    writers: dict[Make, Writer], any_broker: Broker, topic: str
) -> None:
    """Three rounds. In each all three write by turns into the same two partitions, and one of them aborts."""
    any_broker.create_topic(topic, 2)
    expected: list[tuple[int, bytes | None]] = []
    for number, loser in enumerate(MAKES):
        for each in writers.values():
            each.begin()
        for turn in range(2):
            for make, each in writers.items():
                for partition in (0, 1):
                    value = f"{number} {turn} {make}".encode()
                    each.write(topic, partition, value)
                    if make != loser:
                        expected.append((partition, value))
        for make, each in writers.items():
            if make == loser:
                each.abort()
            else:
                each.commit()
    in_order = sorted(expected, key=lambda row: row[0])
    for client in CLIENTS:
        assert committed(any_broker, topic, client) == in_order


@pytest.mark.parametrize("make", ["ours", "confluent"])
def test_a_transaction_hides_what_is_after_it_until_it_ends(
    any_broker: Broker, writers: dict[Make, Writer], topic: str, make: Make
) -> None:
    any_broker.create_topic(topic, 1)
    opener = writers[make]
    opener.begin()
    opener.write(topic, 0, b"first")
    others = [each for name, each in writers.items() if name != make]
    for each in others:
        each.begin()
        each.write(topic, 0, b"after")
        each.commit()
    assert [committed(any_broker, topic, client) for client in CLIENTS] == [[], []]
    opener.abort()
    following = [(0, b"after")] * len(others)
    assert [committed(any_broker, topic, client) for client in CLIENTS] == [following, following]


@pytest.mark.parametrize(("owner", "thief"), PAIRS)
def test_the_newer_producer_of_an_id_fences_the_older_one(
    any_broker: Broker, topic: str, owner: Make, thief: Make
) -> None:
    any_broker.create_topic(topic, 1)
    name = f"stolen-{uuid.uuid4().hex[:8]}"
    with ExitStack() as stack:
        old, new = (opened(stack, make, any_broker, name) for make in (owner, thief))
        old.init()
        old.begin()
        old.write(topic, 0, b"old")
        new.init()
        with pytest.raises(Exception, match=FENCED[owner]):
            old.commit()
        new.begin()
        new.write(topic, 0, b"new")
        new.commit()
    assert committed(any_broker, topic, "confluent") == [(0, b"new")]


FENCED: dict[Make, str] = {
    "ours": "took over|fenced",
    "confluent": "fenced|_FENCED",
    "kafka-python": "[Ff]enced|InvalidProducerEpoch",
}


@pytest.mark.parametrize("make", ["ours", "kafka-python"])
def test_a_transaction_that_takes_too_long_is_aborted_and_cannot_be_committed(
    embedded: LocalBroker, topic: str, make: Make
) -> None:
    embedded.create_topic(topic, 1)
    with ExitStack() as stack:
        slow = opened(stack, make, embedded, timeout_ms=1000)
        slow.init()
        slow.begin()
        slow.write(topic, 0, b"slow")
        # A row after it becomes visible once the broker has aborted it.
        other = opened(stack, "confluent", embedded)
        other.init()
        other.begin()
        other.write(topic, 0, b"other")
        other.commit()
        assert seen_at_last(embedded, topic, 1) == [b"other"]
        with pytest.raises(Exception, match=f"{FENCED[make]}|TXN_STATE|state"):
            slow.commit()
    assert committed(embedded, topic, "confluent") == [(0, b"other")]


def seen_at_last(broker: LocalBroker, topic: str, count: int) -> list[bytes | None]:
    """The first rows that a reader of committed rows gets, which waits for them."""
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "waits", "isolation.level": "read_committed"}
    consumer = confluent_kafka.Consumer(settings)
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
        return [message.value() for message in consumer.consume(count, SECONDS)]
    finally:
        consumer.close()


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("make", ["ours", "confluent"])
def test_offsets_of_a_group_are_committed_with_the_transaction(
    any_broker: Broker, topic: str, make: Make, commit: bool
) -> None:
    any_broker.create_topic(topic, 2)
    group = f"group-{uuid.uuid4().hex[:8]}"
    consumer = confluent_kafka.Consumer({"bootstrap.servers": any_broker.bootstrap_servers, "group.id": group})
    places = [confluent_kafka.TopicPartition(topic, number, 10 + number) for number in (0, 1)]
    with ExitStack() as stack:
        stack.callback(consumer.close)
        each = opened(stack, make, any_broker)
        each.init()
        each.begin()
        each.write(topic, 0, b"row")
        if isinstance(each, Confluent):
            each.producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), SECONDS)
        else:
            assert isinstance(each, Ours)
            each.producer.send_offsets_to_transaction({(topic, 0): 10, (topic, 1): 11}, group)
        if commit:
            each.commit()
        else:
            each.abort()
        found = [place.offset for place in consumer.committed(places, SECONDS)]
    assert found == ([10, 11] if commit else [confluent_kafka.OFFSET_INVALID] * 2)


def test_kafkas_own_tool_judges_our_transactional_batches(kafka_4: KafkaCluster, topic: str) -> None:
    kafka_4.create_topic(topic, 1)
    with closing(Ours(kafka_4.bootstrap_servers, topic, 60_000)) as each:
        each.init()
        for commit in (True, False):
            each.begin()
            each.write(topic, 0, b"row 1")
            each.write(topic, 0, b"row 2")
            if commit:
                each.commit()
            else:
                each.abort()
        with pytest.raises(errors.IllegalState):
            each.commit()
    lines = kafka_4.dump_log(1, topic, 0).splitlines()
    batches = [line for line in lines if line.startswith("baseOffset:")]
    assert len(batches) == 6
    assert all("isTransactional: true" in line and "isvalid: true" in line for line in batches)
    assert [line.partition("endTxnMarker: ")[2].split()[0] for line in lines if "endTxnMarker" in line] == [
        "COMMIT",
        "ABORT",
    ]
    assert ["isControl: true" in line for line in batches] == [False, False, True] * 2
