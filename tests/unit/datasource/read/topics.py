"""Topics for the tests of a read's driver: filled, cut, deleted and created again, on the embedded broker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from spark_producer.admin import BlockingClient
from spark_producer.admin.topics import delete_topic
from spark_producer.broker import LocalBroker
from spark_producer.config.source_parsing import parse_source_options
from spark_producer.consumer.offset_range import OffsetRange
from spark_producer.datasource.read.source_settings import SourceSettings
from spark_producer.network import ConnectionSettings
from spark_producer.producer import Producer
from spark_producer.protocol import CREATE_PARTITIONS, DELETE_RECORDS
from spark_producer.protocol.messages import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

FIRST_TIME = 1_000_000
"""The timestamp of the first record of a partition; each later one is ten milliseconds later."""


@contextmanager
def client_of(broker: LocalBroker) -> Iterator[BlockingClient]:
    host, _, port = broker.bootstrap_servers.partition(":")
    with BlockingClient(ConnectionSettings(((host, int(port)),)), timeout=10) as client:
        yield client


def fill(broker: LocalBroker, topic: str, counts: Mapping[int, int]) -> None:
    """Append some records to each partition."""
    with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        for partition, count in counts.items():
            for number in range(count):
                producer.send(topic, b"%d" % number, partition=partition, timestamp_ms=FIRST_TIME + 10 * number)
        producer.flush()


def cut(broker: LocalBroker, topic: str, partition: int, before: int) -> None:
    """Delete the records before an offset, as retention does."""
    with client_of(broker) as client:
        rows = DeleteRecordsTopic(topic, (DeleteRecordsPartition(partition, before),))
        client.request(DELETE_RECORDS, DeleteRecordsRequest((rows,), 10_000))


def delete(broker: LocalBroker, topic: str) -> None:
    with client_of(broker) as client:
        delete_topic(client, topic)


def grow(broker: LocalBroker, topic: str, partitions: int) -> None:
    """Add partitions to a topic."""
    with client_of(broker) as client:
        client.request(CREATE_PARTITIONS, CreatePartitionsRequest((CreatePartitionsTopic(topic, partitions),), 10_000))


def settings(broker: LocalBroker, **options: str) -> SourceSettings:
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "kafka.retry.backoff.ms": "10"} | options
    config, source, _ = parse_source_options(given)
    return SourceSettings(config, source)


def short(ranges: list[OffsetRange]) -> dict[str, tuple[int, int]]:
    """`{"t-0": (start, end)}`."""
    return {f"{each.topic_partition.topic}-{each.topic_partition.partition}": each[1:] for each in ranges}
