"""Offsets by time: the embedded broker and Kafka give librdkafka the same ones."""

from __future__ import annotations

from typing import Final

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from spark_producer.broker import LocalBroker
from tests.conftest import Broker
from tests.interop.broker_records import SECONDS

FIRST: Final = 1_700_000_000_000
STEP: Final = 1_000
RECORDS: Final = 100
ASKED: Final = (0, FIRST, FIRST + 1, FIRST + 50 * STEP, FIRST + (RECORDS - 1) * STEP, FIRST + (RECORDS - 1) * STEP + 1)


def reported(servers: str, topic: str, codec: str) -> list[int]:
    """Write one batch whose times rise and fall, and what is said of each time, and of the largest (-3)."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 1_000, "compression.type": codec})
    for number in range(RECORDS):
        producer.produce(topic, b"value", partition=0, timestamp=FIRST + number * STEP)
    producer.produce(topic, b"late", partition=0, timestamp=FIRST + 7)
    assert producer.flush(SECONDS) == 0
    admin = AdminClient({"bootstrap.servers": servers})
    largest: OffsetSpec = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]  # without types in confluent-kafka
    specs = [*(OffsetSpec.for_timestamp(time) for time in ASKED), largest]
    place = TopicPartition(topic, 0)
    return [admin.list_offsets({place: spec}, request_timeout=SECONDS)[place].result(SECONDS).offset for spec in specs]


@pytest.mark.kafka
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_time_leads_to_the_record_as_in_kafka(local: LocalBroker, kafka_4: Broker, topic: str, codec: str) -> None:
    kafka_4.create_topic(topic, 1)
    local.create_topic(topic)
    ours = reported(local.bootstrap_servers, topic, codec)
    assert ours == reported(kafka_4.bootstrap_servers, topic, codec)
    assert ours == [0, 0, 1, 50, RECORDS - 1, -1, RECORDS - 1]
