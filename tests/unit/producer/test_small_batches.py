"""`batch.size` of 0 and other tiny values, as Java's producer takes them: a record that takes more has a batch of its own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pyarrow as pa
import pytest
from kafka.record.memory_records import MemoryRecords

from spark_producer import Producer, ProducerConfig
from spark_producer.accumulator.pool import MIN_BUFFER_BYTES
from spark_producer.accumulator.topic_limits import MIN_LIMIT_BYTES
from spark_producer.admin.client import BlockingClient
from spark_producer.broker import LocalBroker
from spark_producer.cli.connection_args import connection_settings
from spark_producer.config import producer_config
from spark_producer.consumer.topic_reader import TopicReader
from spark_producer.record.codecs import Codec
from tests.fakes.accumulator_fakes import DEADLINE, accumulator_fakes, values_of

COUNT = 120
PARTITIONERS = ["uniform_sticky", "sticky", "sticky_without_keys", "round_robin", "murmur2_random"]


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker(default_partitions=3) as made:
        yield made


def batches_of(broker: LocalBroker, topic: str, records: int) -> list[list[bytes]]:
    """The values of each batch in the log, as kafka-python reads them."""
    found: list[list[bytes]] = []
    with BlockingClient(connection_settings(broker.bootstrap_servers)) as client:
        reader = TopicReader(client, topic, from_beginning=True)
        while sum(map(len, found)) < records:
            fetched = reader.fetch()
            assert fetched, f"only {sum(map(len, found))} records are there"
            for each in fetched:
                read = MemoryRecords(bytes(each.data))
                while (batch := read.next_batch()) is not None:
                    found.append([record.value for record in batch])
    return found


@pytest.mark.parametrize(
    ("size", "codec", "partitioner"), list(product([0, 1, 100], ["none", "gzip"], PARTITIONERS)), ids=str
)
def test_every_record_arrives_and_those_that_do_not_fit_have_batches_of_their_own(
    broker: LocalBroker, topic: str, size: int, codec: str, partitioner: str
) -> None:
    # A record has 7 bytes around key and value, a batch 61.
    values = [b"%03d" % number + b"." * (40 if number % 2 else 0) for number in range(COUNT)]
    keys = [b"k%d" % number if number % 3 else None for number in range(COUNT)]
    options = {"batch.size": size, "compression.type": codec, "partitioner.class": partitioner, "linger.ms": 60_000}
    options |= {"bootstrap.servers": broker.bootstrap_servers, "delivery.timeout.ms": 120_000}
    with Producer(options) as producer:
        rows = pa.record_batch({"value": pa.array(values, pa.binary()), "key": pa.array(keys, pa.binary())})
        producer.send_batch(rows, topic=topic)
    found = batches_of(broker, topic, COUNT)
    assert sorted(value for batch in found for value in batch) == sorted(values)
    if size < 2:
        assert {len(batch) for batch in found} == {1}
    else:
        assert all(len(batch) == 1 for batch in found if max(map(len, batch)) > 40)
        assert max(map(len, found)) <= 5


@pytest.mark.parametrize("size", [0, 100])
def test_a_record_with_a_batch_of_its_own_does_not_linger(broker: LocalBroker, topic: str, size: int) -> None:
    options = {"bootstrap.servers": broker.bootstrap_servers, "batch.size": size, "linger.ms": 60_000}
    with Producer(options | {"delivery.timeout.ms": 120_000}) as producer:
        assert producer.send(topic, b"x" * 100).result(DEADLINE).offset == 0


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_the_slack_of_a_buffer_takes_no_second_record(codec: Codec) -> None:
    """A buffer is made for what its record takes at most, and a tiny one would fit into the rest."""
    fakes = accumulator_fakes(batch_size=0, codec=codec)
    fakes.append(b"a", None, b"b")
    assert [values_of(fakes.take()) for _ in range(3)] == [[b"a"], [None], [b"b"]]
    assert fakes.ready() == []


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("size", [0, 200])
def test_small_batches_take_what_they_cost_from_the_pool_but_grow_no_larger(size: int, codec: Codec) -> None:
    """The object of a batch takes 1 KB, which nothing else accounts for: a full pool of tiny batches would take 7 times more."""
    fakes = accumulator_fakes(batch_size=size, codec=codec, memory=1 << 20)
    fakes.append(*[b"%02d" % number * 20 for number in range(40)])
    waiting = len(fakes.queue().batches)
    assert waiting >= (40 if size == 0 else 10)
    assert fakes.pool.total - fakes.pool.available == waiting * MIN_BUFFER_BYTES
    taken = [fakes.take() for _ in range(waiting - 1)]
    assert max(batch.size for batch in taken) <= max(size, 61 + 60)
    assert size == 0 or max(batch.records_count for batch in taken) > 1


def test_the_limit_of_a_topic_makes_no_batch_larger_than_the_option() -> None:
    fakes = accumulator_fakes(batch_size=200, linger=0)
    fakes.append(b"a" * 40, b"b" * 40)
    refused = fakes.take()
    assert MIN_LIMIT_BYTES > 200 > refused.size
    fakes.split(refused)
    assert fakes.accumulator.full_size("orders") == 200


@pytest.mark.parametrize("size", ["0", "1", "2147483647"])
def test_what_java_takes_is_taken(size: str) -> None:
    config: ProducerConfig = producer_config(
        {"bootstrap.servers": "host:9092", "batch.size": size, "buffer.memory": 1 << 31}
    )
    assert config.batch_size == int(size)
