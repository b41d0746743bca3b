"""Reading offset ranges of the embedded broker: exactly the rows of the range, in order, with the columns asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from spark_producer.admin import BlockingClient
from spark_producer.admin.partition_offsets import find_topics
from spark_producer.admin.topics import delete_topic
from spark_producer.broker import LocalBroker
from spark_producer.broker.requests import cluster
from spark_producer.common.cluster import TopicPartition
from spark_producer.consumer import fetcher
from spark_producer.consumer.offset_range import OffsetRange
from spark_producer.consumer.read_ranges import read_ranges
from spark_producer.consumer.settings import FetchSettings
from spark_producer.errors import DataLoss
from spark_producer.network import ConnectionSettings, parse_bootstrap_servers
from spark_producer.producer import Producer
from spark_producer.protocol import API_VERSIONS, FETCH
from spark_producer.protocol.messages import NO_UUID, ApiVersion, ApiVersionsRequest

ROWS = 1000


@pytest.fixture(autouse=True)
def _gone_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The only broker knows its topics at once; others may lag for seconds."""
    monkeypatch.setattr(fetcher, "GONE_AFTER_S", 0.3)


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    """A broker with the topic `t` of two partitions, with `ROWS` records in each, in many batches."""
    with LocalBroker() as broker:
        broker.create_topic("t", 2)
        with Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.size": "2000"}) as producer:
            for row in range(ROWS):
                for partition in (0, 1):
                    producer.send("t", f"{partition}-{row}".encode(), key=b"k", partition=partition)
        yield broker


def settings_of(broker: LocalBroker, **changes: object) -> FetchSettings:
    connection = ConnectionSettings(tuple(parse_bootstrap_servers(broker.bootstrap_servers)))
    return FetchSettings(connection, **changes)  # type: ignore[arg-type]


def values(broker: LocalBroker, ranges: Sequence[OffsetRange], **changes: object) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {each.topic_partition.partition: [] for each in ranges}
    for (_, partition), batch in read_ranges(settings_of(broker, **changes), ranges):
        found[partition] += batch.column("value").to_pylist()
    return found


@pytest.mark.parametrize(("start", "end"), [(0, ROWS), (0, 1), (ROWS - 1, ROWS), (123, 456), (500, 501), (7, 7)])
@pytest.mark.parametrize("partition_bytes", [1, 5000, 1 << 20])
def test_a_range_has_its_rows_once_and_in_order(
    broker: LocalBroker, start: int, end: int, partition_bytes: int
) -> None:
    ranges = [OffsetRange(TopicPartition("t", 0), start, end), OffsetRange(TopicPartition("t", 1), 0, 10)]
    found = values(broker, ranges, partition_bytes=partition_bytes)
    assert found == {0: [b"0-%d" % row for row in range(start, end)], 1: [b"1-%d" % row for row in range(10)]}


@pytest.mark.covers("RD11")
def test_records_that_are_larger_than_those_of_the_read_before_are_read(broker: LocalBroker) -> None:
    """The first request of a task has the bytes that the last response left, and is answered with one batch at least."""
    sizes = [10] * 5 + [300_000] * 5 + [10] * 5 + [900_000] * 5
    broker.create_topic("growing", 2)
    with Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.size": "1", "linger.ms": "0"}) as producer:
        for size in sizes:
            for partition in (0, 1):
                producer.send("growing", bytes(size), partition=partition)
    for start in range(0, len(sizes), 5):
        ranges = [OffsetRange(TopicPartition("growing", each), start, start + 5) for each in (0, 1)]
        found = values(broker, ranges)
        assert [[len(value) for value in found[each]] for each in (0, 1)] == [sizes[start : start + 5]] * 2


def test_only_the_named_columns_are_there_and_in_the_order_of_the_schema(broker: LocalBroker) -> None:
    ranges = [OffsetRange(TopicPartition("t", 0), 10, 900)]
    for columns in ({"value"}, {"timestamp_type", "key", "offset"}, set()):
        batches = [batch for _, batch in read_ranges(settings_of(broker), ranges, frozenset(columns))]
        order = ["offset", "timestamp", "key", "value", "headers", "timestamp_type"]
        assert all(batch.schema.names == [name for name in order if name in columns] for batch in batches)
        assert sum(batch.num_rows for batch in batches) == 890
    assert pa.Table.from_batches(batches).num_rows == 890


@pytest.mark.covers("RD8")
def test_known_leaders_of_a_topic_do_not_hide_that_it_was_made_again(broker: LocalBroker) -> None:
    ranges, ids = [OffsetRange(TopicPartition("t", 0), 0, 10)], {"t": topic_id_of(broker, "t")}
    settings = settings_of(broker)
    for planned in ({}, ids, {"t": NO_UUID}):
        assert sum(batch.num_rows for _, batch in read_ranges(settings, ranges, topic_ids=planned)) == 10
    with pytest.raises(DataLoss, match=r"topic 't', partition 0: .* the topic was deleted and created again"):
        list(read_ranges(settings, ranges, topic_ids={"t": b"p" * 16}))


@pytest.mark.covers("RD8")
@pytest.mark.parametrize("fail", [True, False])
def test_records_of_a_topic_that_was_created_again_are_not_taken_for_those_of_the_earlier_one(
    broker: LocalBroker, fail: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The topic is created again after its id was confirmed; the new one has records at the same offsets."""
    topic = f"again-{fail}"
    fill_new_topic(broker, topic, b"old")
    ranges, ids = [OffsetRange(TopicPartition(topic, 0), 0, ROWS)], {topic: topic_id_of(broker, topic)}
    settings = settings_of(broker, partition_bytes=1, fail_on_data_loss=fail)
    reading = read_ranges(settings, ranges, topic_ids=ids)
    found = next(reading)[1].column("value").to_pylist()
    with BlockingClient(settings.connection, timeout=10) as client:
        delete_topic(client, topic)
    fill_new_topic(broker, topic, b"new")
    expected = "the topic was deleted and created again"
    with pytest.raises(DataLoss, match=expected) if fail else contextlib.nullcontext():
        found += [value for _, batch in reading for value in batch.column("value").to_pylist()]
    assert set(found) == {b"old"}
    assert fail or expected in caplog.text


@pytest.mark.covers("RD8")
def test_brokers_before_3_1_are_asked_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers from 2.8 on have ids of topics, but no Fetch by id."""
    newest = cluster.newest_version
    monkeypatch.setattr(
        cluster, "newest_version", lambda api, level: 12 if api.key == FETCH.key else newest(api, level)
    )
    with LocalBroker() as older:
        fill_new_topic(older, "t", b"value")
        ranges, ids = [OffsetRange(TopicPartition("t", 0), 0, ROWS)], {"t": topic_id_of(older, "t")}
        assert sum(batch.num_rows for _, batch in read_ranges(settings_of(older), ranges, topic_ids=ids)) == ROWS
        [answered] = [each for each in versions_of(older) if each.api_key == FETCH.key]
        assert answered.max_version == 12


def versions_of(broker: LocalBroker) -> tuple[ApiVersion, ...]:
    with BlockingClient(settings_of(broker).connection, timeout=10) as client:
        return client.request(API_VERSIONS, ApiVersionsRequest("test", "1")).api_keys


def fill_new_topic(broker: LocalBroker, topic: str, value: bytes) -> None:
    broker.create_topic(topic, 1)
    with Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.size": "2000"}) as producer:
        for _ in range(ROWS):
            producer.send(topic, value, partition=0)


def topic_id_of(broker: LocalBroker, topic: str) -> bytes:
    with BlockingClient(settings_of(broker).connection, timeout=10) as client:
        return find_topics(client, [topic]).topic_ids[topic]
