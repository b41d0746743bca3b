"""What librdkafka encodes, with every codec, is what the reader finds; the embedded broker stores it as it came."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from spark_producer.broker import LocalBroker
from spark_producer.network import BlockingClient, parse_bootstrap_servers
from spark_producer.record.reader import Record
from spark_producer.tail import TopicReader

RECORDS = 3000
SECONDS = 30


@pytest.fixture
def local() -> Iterator[LocalBroker]:
    with LocalBroker() as broker:
        yield broker


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batches_of_librdkafka_come_back(local: LocalBroker, codec: str) -> None:
    local.create_topic("t")
    producer = Producer(
        {"bootstrap.servers": local.bootstrap_servers, "compression.type": codec, "linger.ms": 50, "batch.size": 20_000}
    )
    wanted = []
    for number in range(RECORDS):
        key = None if number % 7 == 0 else b"k%d" % number
        value = None if number % 11 == 0 else b"value " * (number % 60)
        headers = tuple((f"h{place}", b"x" * place if place else None) for place in range(number % 4))
        producer.produce("t", value, key, timestamp=1_700_000_000_000 + number % 100, headers=list(headers))
        wanted.append(Record(number, 1_700_000_000_000 + number % 100, key, value, headers))
    assert producer.flush(SECONDS) == 0
    with BlockingClient(
        parse_bootstrap_servers(local.bootstrap_servers), client_id="reader", timeout=SECONDS
    ) as client:
        reader = TopicReader(client, "t", from_beginning=True)
        found = []
        while reader.positions[0] < RECORDS:
            found += [record for _, record in reader.records()]
    assert found == wanted
