"""Compressed batches of the producer, on every broker, read by clients that we did not write."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from spark_producer import Producer
from spark_producer.errors import BrokerError
from tests.conftest import Broker
from tests.support.kafka_cluster import KafkaCluster
from tests.support.read_back import Client, read_topic

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ROWS = 20_000
FIRST_TIMESTAMP = 1_700_000_000_000


def table(rows: int = ROWS) -> pa.Table:
    """Keys, nulls, headers and times that go up and down; values that pack to about a fifth."""
    numbers = range(rows)
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    return pa.table(
        {
            "key": pa.array([None if n % 7 == 0 else b"key-%d" % (n % 500) for n in numbers], pa.binary()),
            "value": pa.array(
                [None if n % 11 == 0 else b'{"order":%d,"state":"paid","by":"card"}' % n for n in numbers]
            ),
            "headers": pa.array(
                [[{"key": "trace", "value": b"%d" % n}] if n % 5 == 0 else [] for n in numbers], pa.list_(header)
            ),
            "partition": pa.array([n % 3 for n in numbers], pa.int32()),
            "timestamp": pa.array([FIRST_TIMESTAMP + n * 7919 % 1000 for n in numbers], pa.int64()),
        }
    )


def producer_for(broker: Broker, codec: str, **options: object) -> Producer:
    given = {"bootstrap.servers": broker.bootstrap_servers, "compression.type": codec, "batch.size": 16384}
    return Producer(given | options)


@pytest.mark.parametrize("client", [pytest.param("kafka-python", marks=pytest.mark.nightly), "confluent"])
@pytest.mark.parametrize("codec", CODECS)
def test_foreign_clients_read_every_codec(broker: Broker, topic: str, codec: str, client: Client) -> None:
    broker.create_topic(topic, 3)
    written = table()
    with producer_for(broker, codec) as producer:
        sent = producer.send_table(written, topic=topic)
        producer.flush()
        assert sent.result(0).records == ROWS
    rows = read_topic(broker.bootstrap_servers, topic, client=client, expected=ROWS)
    wanted: list[list[tuple[object, ...]]] = [[], [], []]
    for row in written.to_pylist():
        headers = [(entry["key"], entry["value"]) for entry in row["headers"]]
        wanted[row["partition"]].append((row["key"], row["value"], row["timestamp"], headers))
    found = [(row.key, row.value, row.timestamp_ms, row.headers) for row in rows]
    assert found == [row for partition in wanted for row in partition]


@pytest.mark.kafka
@pytest.mark.parametrize("codec", CODECS)
def test_the_broker_finds_every_batch_sound_and_compressed(kafka_4: KafkaCluster, topic: str, codec: str) -> None:
    kafka_4.create_topic(topic, 3)
    with producer_for(kafka_4, codec, **{"batch.size": 4096}) as producer:
        producer.send_table(table(), topic=topic)
    batches = [line for line in kafka_4.dump_log(1, topic, 1).splitlines() if line.startswith("baseOffset:")]
    assert len(batches) > 5
    assert all("isvalid: true" in line for line in batches)
    codecs = [match.group(1).lower() for line in batches if (match := re.search(r"compresscodec: (\w+)", line))]
    assert set(codecs[:-1]) == {codec}, "the last batch may be too small to get smaller"


@pytest.mark.covers("RA19")
@pytest.mark.kafka
def test_a_batch_that_is_too_large_for_the_topic_is_cut_and_written_once(kafka_4: KafkaCluster, topic: str) -> None:
    """The topic takes 4 KiB compressed; the batches begin with 64 KiB, of which LZ4 leaves about a quarter."""
    kafka_4.create_topic(topic, 1, config={"max.message.bytes": "4096"})
    values = [b'{"order":%d,"state":"paid","by":"card"}' % (n * 7919) for n in range(10_000)]
    with producer_for(kafka_4, "lz4", **{"batch.size": 65536}) as producer:
        sent = producer.send_table(pa.table({"value": pa.array(values, pa.binary())}), topic=topic)
        producer.flush()
        assert sent.result(0).records == len(values)
    rows = read_topic(kafka_4.bootstrap_servers, topic, expected=len(values))
    assert [row.value for row in rows] == values
    batches = [line for line in kafka_4.dump_log(1, topic, 0).splitlines() if line.startswith("baseOffset:")]
    assert len(batches) > 10
    assert all("compresscodec: lz4" in line.lower() for line in batches)


@pytest.mark.kafka
def test_a_topic_without_space_for_one_record_says_so(kafka_4: KafkaCluster, topic: str) -> None:
    kafka_4.create_topic(topic, 1, config={"max.message.bytes": "100"})
    with producer_for(kafka_4, "zstd") as producer:
        producer.send(topic, bytes(range(256)))
        with pytest.raises(BrokerError, match="MESSAGE_TOO_LARGE"):
            producer.flush()
