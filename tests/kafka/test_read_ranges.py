"""Offset ranges read from real Kafka, beside confluent-kafka's consumer."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer as ConfluentProducer

from spark_producer.common.cluster import TopicPartition
from spark_producer.consumer import FetchSettings, OffsetRange, read_ranges
from spark_producer.network import ConnectionSettings, parse_bootstrap_servers

ROWS = 3000


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_rows_of_another_producer_are_read_once_and_in_order(kafka_4: Any, topic: str, codec: str) -> None:
    kafka_4.create_topic(topic, 3)
    producer = ConfluentProducer(
        {"bootstrap.servers": kafka_4.bootstrap_servers, "compression.type": codec, "batch.size": 4000}
    )
    for row in range(ROWS):
        producer.produce(topic, f"{row}", key=f"k{row}", partition=row % 3, headers=[("h", b"%d" % row)])
    assert producer.flush(60) == 0
    settings = FetchSettings(
        ConnectionSettings(tuple(parse_bootstrap_servers(kafka_4.bootstrap_servers))), partition_bytes=9000
    )
    ranges = [OffsetRange(TopicPartition(topic, partition), 100 * partition, 1000) for partition in range(3)]
    found: dict[int, list[dict[str, Any]]] = {0: [], 1: [], 2: []}
    for (_, partition), batch in read_ranges(settings, ranges):
        found[partition] += batch.to_pylist()
    for partition, rows in found.items():
        numbers = range(100 * partition, 1000)
        assert [row["offset"] for row in rows] == list(numbers)
        assert [row["value"] for row in rows] == [b"%d" % (3 * number + partition) for number in numbers]
        assert [row["headers"] for row in rows] == [[{"key": "h", "value": row["value"]}] for row in rows]
        assert {row["timestamp_type"] for row in rows} == {0}
