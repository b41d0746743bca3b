"""Keys go where librdkafka puts them, under each of its partitioners' names."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, Message, Producer

from spark_producer.broker import LocalBroker
from spark_producer.config import producer_config
from spark_producer.kernel.column_views import BinaryColumn
from spark_producer.partitioner import TopicPartitions, make_partitioner
from spark_producer.partitioner.key_hash import LIBRDKAFKA
from spark_producer.record.columns import read_columns

KEYS, PARTITIONS, SECONDS = 3_000, 97, 60


def keys() -> list[bytes | None]:
    """Keys of 0 to 90 bytes of either sign, and null."""
    chance = random.Random(7)
    return [None, b"", b"key", *(chance.randbytes(chance.randrange(91)) for _ in range(KEYS))]


@pytest.fixture(scope="module")
def local() -> Iterator[LocalBroker]:
    with LocalBroker() as broker:
        broker.create_topic("t", PARTITIONS)
        yield broker


def chosen_by_librdkafka(local: LocalBroker, name: str) -> list[int | None]:
    """The partition of each key, in their order."""
    found: dict[int, int | None] = {}

    def keep(number: int) -> Callable[[KafkaError | None, Message[bytes, bytes]], None]:
        def delivered(error: KafkaError | None, message: Message[bytes, bytes]) -> None:
            assert error is None
            found[number] = message.partition()

        return delivered

    producer = Producer({"bootstrap.servers": local.bootstrap_servers, "partitioner": name})
    for number, key in enumerate(keys()):
        producer.produce("t", value=b"v", key=key, on_delivery=keep(number))
    assert producer.flush(SECONDS) == 0
    return [found[number] for number in range(len(keys()))]


@pytest.mark.parametrize("name", LIBRDKAFKA)
def test_every_key_goes_where_librdkafka_puts_it(local: LocalBroker, name: str) -> None:
    array = pa.array(keys(), pa.binary())
    columns = read_columns(pa.record_batch({"value": array, "key": array}), topic="t", now_ms=0).or_raise()
    config = producer_config({"bootstrap.servers": "h:1", "partitioner.class": name})
    topic = TopicPartitions("t", PARTITIONS, tuple(range(PARTITIONS)))
    ours = make_partitioner(config).assign(columns, [topic]).slots.tolist()
    keyed = LIBRDKAFKA[name].keyed(BinaryColumn(array))
    placed = range(len(array)) if keyed is None else keyed.nonzero()[0].tolist()
    theirs = chosen_by_librdkafka(local, name)
    assert [ours[row] for row in placed] == [theirs[row] for row in placed]
    assert len(placed) > KEYS - 100


@pytest.mark.parametrize("name", ["consistent", "murmur2", "fnv1a"])
def test_without_random_a_column_of_nulls_goes_to_one_partition_too(local: LocalBroker, name: str) -> None:
    nulls = pa.nulls(10, pa.binary())
    columns = read_columns(pa.record_batch({"value": nulls, "key": nulls}), topic="t", now_ms=0).or_raise()
    config = producer_config({"bootstrap.servers": "h:1", "partitioner.class": name})
    topic = TopicPartitions("t", PARTITIONS, tuple(range(PARTITIONS)))
    ours = make_partitioner(config).assign(columns, [topic]).slots.tolist()
    assert ours == [chosen_by_librdkafka(local, name)[0]] * 10
