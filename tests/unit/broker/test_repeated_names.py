"""A repeated name in one request has Kafka's result, and a small request has no huge response."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from spark_producer.broker import BrokerSettings
from spark_producer.broker.context import Context
from spark_producer.broker.log_quoting import MAX_QUOTED_LENGTH, quoted
from spark_producer.broker.requests.fetch import must_wait
from spark_producer.broker.topic_store import TopicStore
from spark_producer.common.error_codes import Code
from spark_producer.protocol import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    FETCH,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    Api,
    ResponseBody,
    encode_response,
    messages,
)
from tests.fakes.memory_storage import MemoryStorage
from tests.unit.broker.batches import make_batch
from tests.unit.broker.handler_calls import ask, context_of

LONG = "x" * 32_767


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Context]:
    settings = BrokerSettings(auto_create_topics=False)
    store = TopicStore(tmp_path, settings)
    store.create("t", 2)
    yield context_of(store, settings)
    store.close()


def size_of_response(api: Api[Any, ResponseBody], body: ResponseBody) -> int:
    return sum(len(buffer) for buffer in encode_response(api, api.max_version, 1, body))


def test_of_a_partition_named_twice_produce_takes_the_last(context: Context) -> None:
    first, last = make_batch(1, size=100), make_batch(2, size=200)
    data = [
        messages.ProduceTopic("t", partition_data=(messages.ProducePartition(0, batch),)) for batch in (first, last)
    ]
    response = ask(context, PRODUCE, messages.ProduceRequest(topic_data=tuple(data)))
    results = [partition for topic in response.responses for partition in topic.partition_responses]
    assert [(result.index, result.error_code, result.base_offset) for result in results] == [(0, 0, 0)]
    assert context.topics.partition("t", 0).log.high_watermark == 2


def test_of_a_partition_named_twice_fetch_reads_the_last(context: Context) -> None:
    context.topics.partition("t", 0).append(make_batch(1))
    wanted = tuple(messages.FetchPartition(0, fetch_offset=offset, partition_max_bytes=1000) for offset in (0, 1))
    response = ask(context, FETCH, messages.FetchRequest(topics=(messages.FetchTopic("t", partitions=wanted),)))
    (partition,) = response.responses[0].partitions
    assert (partition.error_code, partition.records) == (Code.NONE, b"")


def test_of_a_partition_named_twice_a_fetch_that_waits_counts_the_last(tmp_path: Path) -> None:
    asked: list[int] = []
    store = TopicStore(tmp_path, BrokerSettings(), partial(MemoryStorage, on_available=asked.append))
    store.create("t", 1)
    context = context_of(store, BrokerSettings())
    store.partition("t", 0).append(make_batch())
    named = tuple(messages.FetchPartition(0, partition_max_bytes=10 + number) for number in range(1000))
    request = messages.FetchRequest(min_bytes=1000, topics=(messages.FetchTopic("t", partitions=named),))
    assert must_wait(context, request), "a repeated name does not add up"
    assert asked == [1009]
    store.close()


def test_list_offsets_refuses_a_partition_named_twice(context: Context) -> None:
    wanted = tuple(messages.ListOffsetsPartition(index, timestamp=-1) for index in (0, 1, 0))
    response = ask(context, LIST_OFFSETS, messages.ListOffsetsRequest(topics=(messages.ListOffsetsTopic("t", wanted),)))
    assert [(result.partition_index, result.error_code) for result in response.topics[0].partitions] == [
        (0, Code.INVALID_REQUEST),
        (1, Code.NONE),
        (0, Code.INVALID_REQUEST),
    ]


def test_delete_topics_refuses_a_topic_named_twice_once(context: Context) -> None:
    context.topics.create("u", 1)
    response = ask(context, DELETE_TOPICS, messages.DeleteTopicsRequest(("t", "u", "t")))
    assert {result.name: result.error_code for result in response.responses} == {"t": Code.INVALID_REQUEST, "u": 0}
    assert len(response.responses) == 2
    assert [topic.name for topic in context.topics] == ["t"]


def test_metadata_describes_a_topic_named_twice_once(context: Context) -> None:
    wanted = tuple(messages.MetadataRequestTopic(name=name) for name in ("t", "t", "u", "u"))
    assert [topic.name for topic in ask(context, METADATA, messages.MetadataRequest(wanted)).topics] == ["t", "u"]


def test_metadata_describes_a_topic_named_with_many_ids_once(context: Context) -> None:
    wanted = tuple(messages.MetadataRequestTopic(bytes([number]) * 16, "t") for number in range(100))
    (topic,) = ask(context, METADATA, messages.MetadataRequest(wanted)).topics
    assert (topic.name, len(topic.partitions)) == ("t", 2)


def test_metadata_describes_a_topic_asked_for_by_its_id_twice_once(context: Context) -> None:
    known = context.topics.get("t")
    assert known is not None
    wanted = (messages.MetadataRequestTopic(known.topic_id, None),) * 3
    assert [topic.name for topic in ask(context, METADATA, messages.MetadataRequest(wanted)).topics] == ["t"]


def test_describe_configs_describes_a_topic_named_twice_once(context: Context) -> None:
    wanted = (messages.DescribeConfigsResource(2, "t", None),) * 3
    assert len(ask(context, DESCRIBE_CONFIGS, messages.DescribeConfigsRequest(wanted)).results) == 1


def test_incremental_alter_configs_refuses_a_topic_named_twice(context: Context) -> None:
    wanted = (messages.AlterConfigsResource(2, "t", (messages.AlterableConfig("max.message.bytes", 0, "77"),)),) * 2
    response = ask(context, INCREMENTAL_ALTER_CONFIGS, messages.IncrementalAlterConfigsRequest(wanted))
    assert [result.error_code for result in response.responses] == [Code.INVALID_REQUEST] * 2
    assert context.topics.settings_of("t")[1] == {}


def test_an_answer_does_not_repeat_a_long_name_for_each_partition(context: Context) -> None:
    data = (
        messages.ProduceTopic(LONG, partition_data=tuple(messages.ProducePartition(index) for index in range(4000))),
    )
    response = ask(context, PRODUCE, messages.ProduceRequest(topic_data=data))
    codes_found = {result.error_code for result in response.responses[0].partition_responses}
    assert codes_found == {Code.INVALID_TOPIC_EXCEPTION}
    assert size_of_response(PRODUCE, response) < 1_500_000, "it was 130 MB"


def test_every_text_quotes_a_hundred_characters_at_most(context: Context) -> None:
    config = messages.CreatableTopicConfig(LONG, LONG)
    number = messages.CreatableTopicConfig("segment.bytes", LONG)
    topics = tuple(messages.CreatableTopic(name, 1, 1, configs=configs) for name, configs in (
        (LONG, ()), ("a", (config,)), ("b", (number,)),
    ))  # fmt: skip
    texts = [
        result.error_message for result in ask(context, CREATE_TOPICS, messages.CreateTopicsRequest(topics)).topics
    ]
    deleted = ask(context, DELETE_TOPICS, messages.DeleteTopicsRequest((LONG,)))
    texts += [result.error_message for result in deleted.responses]
    for kind in (2, 4):
        wanted = messages.DescribeConfigsRequest((messages.DescribeConfigsResource(kind, LONG, None),))
        texts += [result.error_message for result in ask(context, DESCRIBE_CONFIGS, wanted).results]
    for operation, value in ((0, "1"), (0, None), (2, "1")):
        changes = (messages.AlterConfigsResource(2, "t", (messages.AlterableConfig(LONG, operation, value),)),)
        altered = ask(context, INCREMENTAL_ALTER_CONFIGS, messages.IncrementalAlterConfigsRequest(changes))
        texts += [result.error_message for result in altered.responses]
    assert len(texts) == 9
    for text in texts:
        assert text is not None
        assert "x" * (MAX_QUOTED_LENGTH + 1) not in text
        assert len(text) < 700


def test_what_is_short_is_quoted_whole() -> None:
    assert quoted("short") == "'short'"
    assert quoted(None) == "None"
    assert quoted("y" * 101) == f"'{'y' * 100}'… (101 characters)"
