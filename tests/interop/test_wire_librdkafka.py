"""Our client against librdkafka's mock broker: another implementation, with quirks of its own (ApiVersions)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer

from spark_producer.admin import BlockingClient
from spark_producer.cli.connection_args import connection_settings
from spark_producer.protocol import FETCH, INIT_PRODUCER_ID, LIST_OFFSETS, PRODUCE, decoded_records, messages
from spark_producer.record import batch_v2

DEADLINE = 20.0

# One record, key null and value b"hello": length, attributes, timestamp delta, offset delta, key, value, headers.
RECORD = bytes((2 * 11, 0, 0, 0, 1, 2 * 5)) + b"hello" + b"\0"


@pytest.fixture(scope="module")
def mock_brokers() -> Iterator[str]:
    """Bootstrap servers of a mock cluster, which lives as long as the producer that owns it."""
    owner = Producer({"bootstrap.servers": "ignored", "test.mock.num.brokers": 3})
    brokers = owner.list_topics(timeout=DEADLINE).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    owner.flush(0)


@pytest.fixture
def client(mock_brokers: str) -> Iterator[BlockingClient]:
    with BlockingClient(connection_settings(mock_brokers, {"kafka.client.id": "test"}), timeout=DEADLINE) as client:
        yield client


def one_record_batch() -> bytes:
    batch = bytearray(batch_v2.HEADER_SIZE) + RECORD
    batch_v2.write_header(memoryview(batch), records_count=1, base_timestamp=1, max_timestamp=1)
    return bytes(batch)


def test_what_we_produce_is_read_by_librdkafka_and_fetched_by_us(client: BlockingClient, mock_brokers: str) -> None:
    client.metadata(["wire"], allow_auto_topic_creation=True)
    leader = client.wait_for_topic("wire", partition=1)[1]
    partition = messages.ProducePartition(1, one_record_batch())
    body = messages.ProduceRequest(None, -1, 10_000, (messages.ProduceTopic("wire", partition_data=(partition,)),))
    offsets = []
    for _ in range(3):
        (topic,) = client.request(PRODUCE, body, node=leader).responses
        (answer,) = topic.partition_responses
        assert (topic.name, answer.index, answer.error_code) == ("wire", 1, 0)
        offsets.append(answer.base_offset)
    assert offsets == [0, 1, 2]

    consumer = Consumer({"bootstrap.servers": mock_brokers, "group.id": "test", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe(["wire"])
        found = consumer.consume(3, timeout=DEADLINE)
        assert [(message.partition(), message.offset(), message.value()) for message in found] == [
            (1, offset, b"hello") for offset in offsets
        ]
    finally:
        consumer.close()

    for offset in offsets:  # one at a time: the mock answers with one batch, whatever max_bytes is
        wanted = messages.FetchPartition(1, fetch_offset=offset, partition_max_bytes=1 << 20)
        fetch = messages.FetchRequest(max_wait_ms=1000, topics=(messages.FetchTopic("wire", partitions=(wanted,)),))
        (fetched,) = client.request(FETCH, fetch, node=leader).responses[0].partitions
        assert (fetched.error_code, fetched.high_watermark) == (0, 3)
        ((header, batch),) = batch_v2.batches(decoded_records(fetched.records) or b"")
        assert (header.base_offset, header.records_count, bytes(batch[batch_v2.HEADER_SIZE :])) == (offset, 1, RECORD)


def test_offsets_and_producer_ids(client: BlockingClient) -> None:
    client.metadata(["wire"], allow_auto_topic_creation=True)
    leader = client.wait_for_topic("wire", partition=0)[0]
    partition = messages.ListOffsetsPartition(0, timestamp=-1)
    body = messages.ListOffsetsRequest(topics=(messages.ListOffsetsTopic("wire", (partition,)),))
    (answer,) = client.request(LIST_OFFSETS, body, node=leader).topics[0].partitions
    assert (answer.error_code, answer.offset) == (0, 0)

    first, second = (client.request(INIT_PRODUCER_ID, messages.InitProducerIdRequest()) for _ in range(2))
    assert (first.error_code, first.producer_epoch) == (0, 0)
    assert first.producer_id != second.producer_id
