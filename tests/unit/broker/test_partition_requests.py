"""CreatePartitions, DeleteRecords, DescribeLogDirs and AlterConfigs: the checks and the codes are those of Kafka."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_producer.broker import BrokerSettings
from spark_producer.broker.context import Context
from spark_producer.broker.settings import STORAGE_ENGINES
from spark_producer.broker.topic_store import TopicStore
from spark_producer.common.error_codes import Code
from spark_producer.protocol import (
    ALTER_CONFIGS,
    CREATE_PARTITIONS,
    DELETE_RECORDS,
    DESCRIBE_CONFIGS,
    DESCRIBE_LOG_DIRS,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    messages,
)
from tests.fakes.small_tiers import PromptTiers
from tests.unit.broker.batches import make_batch, make_record, sealed
from tests.unit.broker.handler_calls import ask, context_of

NODE = BrokerSettings().node_id


def opened(path: Path, engine: str) -> TopicStore:
    settings = BrokerSettings(storage_engine=engine, max_partitions=50)
    store = TopicStore(path, settings, PromptTiers) if engine == "tiered" else TopicStore(path, settings)
    store.watch(lambda _topic, _index: None, lambda: None)
    return store


@pytest.fixture(params=STORAGE_ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def context(tmp_path: Path, engine: str) -> Iterator[Context]:
    store = opened(tmp_path, engine)
    store.create("t", 2)
    yield context_of(store, BrokerSettings(max_partitions=50))
    store.close()


def grown(
    context: Context,
    count: int,
    *,
    name: str = "t",
    assignments: list[tuple[int, ...]] | None = None,
    only: bool = False,
) -> int:
    given = None if assignments is None else tuple(map(messages.CreatePartitionsAssignment, assignments))
    topics = (messages.CreatePartitionsTopic(name, count, given),)
    (result,) = ask(context, CREATE_PARTITIONS, messages.CreatePartitionsRequest(topics, validate_only=only)).results
    assert bool(result.error_message) is bool(result.error_code)
    return int(result.error_code)


def partition_count(context: Context) -> int:
    request = messages.MetadataRequest((messages.MetadataRequestTopic(name="t"),))
    return len(ask(context, METADATA, request).topics[0].partitions)


def test_a_topic_gets_more_partitions_which_are_there_after_a_restart(
    context: Context, tmp_path: Path, engine: str
) -> None:
    for number in range(2):
        context.topics.partition("t", number).append(make_batch(number + 1))
    assert grown(context, 5, assignments=[(NODE,)] * 3) == Code.NONE
    assert partition_count(context) == 5
    assert context.topics.partition("t", 4).append(make_batch(3)) == 0
    context.topics.close()
    store = opened(tmp_path, engine)
    assert [store.partition("t", index).log.high_watermark for index in range(5)] == [1, 2, 0, 0, 3]
    store.close()


@pytest.mark.parametrize(
    ("count", "assignments", "code"),
    [
        (2, None, Code.INVALID_PARTITIONS),
        (1, None, Code.INVALID_PARTITIONS),
        (-1, None, Code.INVALID_PARTITIONS),
        (10_001, None, Code.INVALID_PARTITIONS),
        (51, None, Code.POLICY_VIOLATION),
        (4, [(NODE,)], Code.INVALID_REPLICA_ASSIGNMENT),
        (3, [(NODE + 1,)], Code.INVALID_REPLICA_ASSIGNMENT),
        (3, [(NODE, NODE)], Code.INVALID_REPLICA_ASSIGNMENT),
        (3, [()], Code.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_partitions_that_cannot_be_made(
    context: Context, count: int, assignments: list[tuple[int, ...]] | None, code: Code
) -> None:
    for only in (True, False):
        assert grown(context, count, assignments=assignments, only=only) == code
    assert partition_count(context) == 2


def test_a_check_alone_makes_nothing_and_an_unknown_topic_is_named(context: Context) -> None:
    assert grown(context, 5, only=True) == Code.NONE
    assert partition_count(context) == 2
    assert grown(context, 5, name="nosuch") == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_that_is_named_twice_is_refused_once(context: Context) -> None:
    topics = (messages.CreatePartitionsTopic("t", 3), messages.CreatePartitionsTopic("t", 4))
    (result,) = ask(context, CREATE_PARTITIONS, messages.CreatePartitionsRequest(topics)).results
    assert result.error_code == Code.INVALID_REQUEST
    assert partition_count(context) == 2


def deleted(context: Context, offset: int, *, topic: str = "t", index: int = 0) -> tuple[int, int]:
    wanted = (messages.DeleteRecordsTopic(topic, (messages.DeleteRecordsPartition(index, offset),)),)
    (response,) = ask(context, DELETE_RECORDS, messages.DeleteRecordsRequest(wanted)).topics
    (result,) = response.partitions
    return int(result.error_code), int(result.low_watermark)


def earliest(context: Context, timestamp: int = -2) -> tuple[int, int]:
    wanted = (messages.ListOffsetsTopic("t", (messages.ListOffsetsPartition(0, timestamp=timestamp),)),)
    (response,) = ask(context, LIST_OFFSETS, messages.ListOffsetsRequest(topics=wanted)).topics
    assert response.partitions[0].error_code == Code.NONE
    return int(response.partitions[0].offset), int(response.partitions[0].timestamp)


@pytest.mark.parametrize("offset", [1, 3, 4, 5, 7, 8])
def test_records_are_deleted_up_to_any_offset_and_stay_so(
    context: Context, tmp_path: Path, engine: str, offset: int
) -> None:
    partition = context.topics.partition("t", 0)
    for number in range(3):
        partition.append(make_batch(3, timestamp=number))
    assert deleted(context, offset) == (Code.NONE, offset)
    assert deleted(context, offset - 1) == (Code.NONE, offset), "nothing comes back"
    assert earliest(context) == (offset, -1)
    assert earliest(context, timestamp=0)[0] == offset
    assert earliest(context, timestamp=-3)[0] >= offset
    context.topics.close()
    store = opened(tmp_path, engine)
    log = store.partition("t", 0).log
    assert (log.start_offset, log.high_watermark) == (offset, 9)
    assert len(log.read(offset, 10_000)) == 100 * (3 - offset // 3)
    assert earliest(context_of(store, BrokerSettings()), timestamp=0)[0] == offset
    assert store.partition("t", 0).append(make_batch(1)) == 9
    store.close()


def test_minus_one_is_the_high_watermark(context: Context, tmp_path: Path, engine: str) -> None:
    context.topics.partition("t", 0).append(make_batch(7))
    assert deleted(context, -1) == (Code.NONE, 7)
    assert deleted(context, -1) == (Code.NONE, 7)
    assert earliest(context, timestamp=0)[0] == -1, "there is no record"
    context.topics.close()
    store = opened(tmp_path, engine)
    assert (store.partition("t", 0).log.start_offset, store.partition("t", 0).append(make_batch(1))) == (7, 7)
    store.close()


@pytest.mark.parametrize("offset", [8, -2, 10**15])
def test_an_offset_beyond_the_end_is_out_of_range(context: Context, offset: int) -> None:
    context.topics.partition("t", 0).append(make_batch(7))
    assert deleted(context, offset) == (Code.OFFSET_OUT_OF_RANGE, -1)
    assert earliest(context) == (0, -1)


def test_records_are_deleted_neither_of_unknown_partitions_nor_of_compacted_topics(context: Context) -> None:
    assert deleted(context, 0, topic="nosuch") == (Code.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert deleted(context, 0, index=7) == (Code.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert altered(context, {"cleanup.policy": "compact"}) == Code.NONE
    assert deleted(context, -1) == (Code.POLICY_VIOLATION, -1)
    assert altered(context, {"cleanup.policy": "compact,delete"}) == Code.NONE
    assert deleted(context, -1) == (Code.NONE, 0)


def test_the_directory_its_disk_and_the_sizes_of_partitions_are_described(context: Context) -> None:
    context.topics.partition("t", 1).append(make_batch(size=1000))
    (result,) = ask(context, DESCRIBE_LOG_DIRS, messages.DescribeLogDirsRequest(None)).results
    assert (result.error_code, result.log_dir) == (Code.NONE, str(context.topics.directory.path))
    assert result.total_bytes == shutil.disk_usage(context.topics.directory.path).total
    assert 0 < result.usable_bytes < result.total_bytes
    (topic,) = result.topics
    assert topic.name == "t"
    assert [each[:4] for each in topic.partitions] == [(0, 0, 0, False), (1, 1000, 0, False)]
    for wanted in (messages.DescribableLogDirTopic("nosuch", (0,)), messages.DescribableLogDirTopic("t", (9,))):
        (result,) = ask(context, DESCRIBE_LOG_DIRS, messages.DescribeLogDirsRequest((wanted,))).results
        assert result.topics == ()
    wanted = messages.DescribableLogDirTopic("t", (1, 1))
    (result,) = ask(context, DESCRIBE_LOG_DIRS, messages.DescribeLogDirsRequest((wanted,))).results
    assert [each.partition_index for each in result.topics[0].partitions] == [1]


def altered(context: Context, configs: dict[str, str | None], *, name: str = "t", only: bool = False) -> int:
    entries = tuple(messages.ReplacedConfig(*each) for each in configs.items())
    resources = (messages.ReplacedConfigsResource(2, name, entries),)
    (result,) = ask(context, ALTER_CONFIGS, messages.AlterConfigsRequest(resources, only)).responses
    assert bool(result.error_message) is bool(result.error_code)
    return int(result.error_code)


def own_settings(context: Context) -> dict[str, str | None]:
    resources = (messages.DescribeConfigsResource(2, "t", None),)
    (result,) = ask(context, DESCRIBE_CONFIGS, messages.DescribeConfigsRequest(resources)).results
    return {each.name: each.value for each in result.configs if each.config_source == 1}


def test_the_first_way_to_alter_replaces_all_settings(context: Context) -> None:
    assert altered(context, {"retention.ms": "5", "max.message.bytes": "900"}) == Code.NONE
    assert altered(context, {"retention.ms": "7"}) == Code.NONE
    assert own_settings(context) == {"retention.ms": "7"}
    assert altered(context, {"retention.ms": "9"}, only=True) == Code.NONE
    assert own_settings(context) == {"retention.ms": "7"}
    assert altered(context, {}) == Code.NONE
    assert own_settings(context) == {}


@pytest.mark.parametrize(
    ("configs", "code"),
    [
        ({"nonsense": "1"}, Code.INVALID_CONFIG),
        ({"retention.ms": None}, Code.INVALID_REQUEST),
        ({"cleanup.policy": "shred"}, Code.INVALID_CONFIG),
        ({"cleanup.policy": ""}, Code.INVALID_CONFIG),
        ({"cleanup.policy": "compact,compact"}, Code.INVALID_CONFIG),
        ({"min.cleanable.dirty.ratio": "1.5"}, Code.INVALID_CONFIG),
        ({"min.cleanable.dirty.ratio": "nan"}, Code.INVALID_CONFIG),
        ({"delete.retention.ms": "-1"}, Code.INVALID_CONFIG),
        ({"max.compaction.lag.ms": "0"}, Code.INVALID_CONFIG),
    ],
)
def test_settings_that_cannot_be_given(context: Context, configs: dict[str, str | None], code: Code) -> None:
    assert altered(context, configs) == code
    assert own_settings(context) == {}


def test_a_resource_that_is_unknown_or_named_twice_is_refused(context: Context) -> None:
    assert altered(context, {}, name="nosuch") == Code.UNKNOWN_TOPIC_OR_PARTITION
    twice = (messages.ReplacedConfigsResource(2, "t"),) * 2
    results = ask(context, ALTER_CONFIGS, messages.AlterConfigsRequest(twice)).responses
    assert [each.error_code for each in results] == [Code.INVALID_REQUEST] * 2


def test_a_compacted_topic_refuses_records_without_a_key_by_number(context: Context) -> None:
    assert altered(context, {"cleanup.policy": "compact"}) == Code.NONE
    without = b"\x0e\0\0\x02\x01\x02v\0"
    batch = sealed(make_record(0, b"k", b"v") + without, 2)
    data = messages.ProduceTopic("t", partition_data=(messages.ProducePartition(0, batch),))
    request = messages.ProduceRequest(acks=-1, topic_data=(data,))
    result = ask(context, PRODUCE, request).responses[0].partition_responses[0]
    assert (result.error_code, [each.batch_index for each in result.record_errors]) == (Code.INVALID_RECORD, [1])
    assert "have no key" in str(result.error_message)
    good = messages.ProduceTopic(
        "t", partition_data=(messages.ProducePartition(0, sealed(make_record(0, b"", b"v"), 1)),)
    )
    (response,) = ask(context, PRODUCE, messages.ProduceRequest(acks=-1, topic_data=(good,))).responses
    assert response.partition_responses[0].error_code == Code.NONE, "an empty key is one"
