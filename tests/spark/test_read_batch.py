"""Batches that are read from Kafka: the same rows as Spark's own source and librdkafka see."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_producer import Producer
from tests.conftest import Broker
from tests.spark.frames import FORMAT
from tests.support.read_back import read_topic


def read(spark: SparkSession, broker: Broker, topic: str, options: Mapping[str, object] | None = None) -> DataFrame:
    """A batch of our source."""
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, **(options or {})}
    return spark.read.format(FORMAT).options(**{name: str(value) for name, value in given.items()}).load()


@pytest.mark.covers("RD1")
def test_what_a_producer_wrote_is_read(spark: SparkSession, embedded_broker: Broker, topic: str) -> None:
    embedded_broker.create_topic(topic, 3)
    with Producer({"bootstrap.servers": embedded_broker.bootstrap_servers}) as producer:
        for number in range(1000):
            headers = [("h", b"1"), ("h", None)] if number % 3 else []
            producer.send(topic, b"v%d" % number, key=b"k%d" % (number % 10), headers=headers)
        producer.flush()
    found = read(spark, embedded_broker, topic, {"includeHeaders": "true"}).orderBy("partition", "offset").collect()
    wanted = read_topic(embedded_broker.bootstrap_servers, topic)
    assert [(row.partition, row.offset, bytes(row.key), bytes(row.value)) for row in found] == [
        (row.partition, row.offset, row.key, row.value)
        for row in sorted(wanted, key=lambda row: (row.partition, row.offset))
    ]
    assert {row.headers is None for row in found} == {True, False}
