"""Each API as a step from a request tuple to a response tuple, without sockets."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from spark_producer.broker import BrokerSettings, TopicSettings
from spark_producer.broker.context import Context, HandlerResult, partition_key
from spark_producer.broker.log.validation import DecompressionBudget
from spark_producer.broker.requests import fetch, produce
from spark_producer.broker.requests.handlers import HANDLERS
from spark_producer.broker.requests.list_offsets import MAX_TIMESTAMP
from spark_producer.broker.storage.engines import open_storage
from spark_producer.broker.topic_store import TopicStore
from spark_producer.common.error_codes import Code
from spark_producer.common.offsets import EARLIEST, LATEST
from spark_producer.protocol import (
    API_VERSIONS,
    APIS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    FETCH,
    FETCH_BY_ID,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    PRODUCE_BY_ID,
    messages,
)
from spark_producer.record.codecs import Codec
from tests.fakes.small_tiers import PromptTiers
from tests.unit.broker.batches import make_batch
from tests.unit.broker.handler_calls import ask, context_of, handled

NODE = 1


@pytest.fixture(params=[open_storage, PromptTiers], ids=["segments", "tiered"])
def context(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Context]:
    settings = BrokerSettings(default_partitions=2, topic=TopicSettings(max_message_bytes=5000), node_id=NODE)
    store = TopicStore(tmp_path, settings, request.param)
    store.create("t", 2)
    yield context_of(store, settings)
    store.close()


def produce_request(*data: tuple[str, int, memoryview | None], acks: int = -1) -> messages.ProduceRequest:
    topics = tuple(
        messages.ProduceTopic(topic, partition_data=(messages.ProducePartition(index, records),))
        for topic, index, records in data
    )
    return messages.ProduceRequest(acks=acks, topic_data=topics)


def fetch_request(*data: tuple[str, int, int], epoch: int = -1, **fields: Any) -> messages.FetchRequest:
    topics = tuple(
        messages.FetchTopic(
            topic, partitions=(messages.FetchPartition(index, epoch, offset, partition_max_bytes=10_000),)
        )
        for topic, index, offset in data
    )
    return messages.FetchRequest(topics=topics, **fields)


def produced(context: Context, *data: tuple[str, int, memoryview | None], acks: int = -1) -> list[tuple[int, int]]:
    body = ask(context, PRODUCE, produce_request(*data, acks=acks))
    return [(result.error_code, result.base_offset) for topic in body.responses for result in topic.partition_responses]


def fetched(context: Context, *data: tuple[str, int, int], **fields: Any) -> list[messages.FetchPartitionResponse]:
    body = ask(context, FETCH, fetch_request(*data, **fields))
    return [partition for topic in body.responses for partition in topic.partitions]


def read_size(result: messages.FetchPartitionResponse) -> int:
    """The bytes of records in a result, which are still those of the log, since it was not encoded."""
    assert isinstance(result.records, bytes)
    return len(result.records)


def offset_of(context: Context, timestamp: int, index: int = 0, epoch: int = -1) -> tuple[int, int, int]:
    wanted = messages.ListOffsetsTopic("t", (messages.ListOffsetsPartition(index, epoch, timestamp),))
    body = ask(context, LIST_OFFSETS, messages.ListOffsetsRequest(topics=(wanted,)))
    result = body.topics[0].partitions[0]
    return result.error_code, result.offset, result.timestamp


def test_every_api_of_the_protocol_has_a_handler() -> None:
    assert set(HANDLERS) == set(APIS)


def test_api_versions_lists_every_api_with_its_range(context: Context) -> None:
    body = ask(context, API_VERSIONS, messages.ApiVersionsRequest())
    ranges = {entry.api_key: (entry.min_version, entry.max_version) for entry in body.api_keys}
    assert ranges.pop(PRODUCE.key) == (0, PRODUCE_BY_ID.max_version), "librdkafka needs 0 there (KAFKA-18659)"
    assert ranges == {api.key: (api.min_version, api.max_version) for api in APIS.values() if api.key != PRODUCE.key}


# Produce


def test_each_partition_has_its_own_result(context: Context) -> None:
    request = produce_request(
        ("t", 0, make_batch(3)), ("t", 1, make_batch()[:70]), ("t", 2, make_batch()), ("u", 0, make_batch())
    )
    response = handled(context, PRODUCE, request)
    assert response.body is not None
    results = [topic.partition_responses[0] for topic in response.body.responses]
    assert [(result.error_code, result.base_offset) for result in results] == [
        (Code.NONE, 0),
        (Code.INVALID_RECORD, -1),
        (Code.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (Code.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]
    assert [bool(result.error_message) for result in results] == [False, True, True, True]
    assert response.changed == (partition_key("t", 0),)


def test_what_a_request_unpacks_to_is_bounded(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    # The handler makes a new one for each request, which alone takes half a gigabyte.
    monkeypatch.setattr(produce, "DecompressionBudget", partial(DecompressionBudget, request_limit=1000))
    packed, plain = make_batch(size=800, attributes=Codec.ZSTD), make_batch(size=800)
    context.topics.create("u", 4)
    batches = (packed, packed, packed, plain)
    answered = produced(context, *(("u", index, batch) for index, batch in enumerate(batches)))
    assert answered == [(0, 0), (0, 0), (Code.REQUEST_TIMED_OUT, -1), (0, 0)]
    assert produced(context, ("u", 2, packed)) == [(0, 0)], "the next request has as much"


@pytest.mark.parametrize("acks", [-1, 1])
def test_offsets_go_on_from_request_to_request(context: Context, acks: int) -> None:
    assert produced(context, ("t", 0, make_batch(3)), acks=acks) == [(0, 0)]
    assert produced(context, ("t", 0, make_batch(1)), ("t", 1, make_batch(1)), acks=acks) == [(0, 3), (0, 0)]


def test_illegal_acks_are_refused(context: Context) -> None:
    assert produced(context, ("t", 0, make_batch()), acks=2) == [(Code.INVALID_REQUIRED_ACKS, -1)]


def test_acks_0_has_no_answer_and_an_error_closes_the_connection(context: Context) -> None:
    good = handled(context, PRODUCE, produce_request(("t", 0, make_batch(2)), acks=0))
    assert good == HandlerResult(None, (partition_key("t", 0),))
    assert context.topics.partition("t", 0).log.high_watermark == 2
    assert handled(context, PRODUCE, produce_request(("u", 0, make_batch()), acks=0)) == HandlerResult(None, close=True)


def test_the_limit_of_the_topic_is_applied(context: Context) -> None:
    assert produced(context, ("t", 0, make_batch(size=5001))) == [(Code.MESSAGE_TOO_LARGE, -1)]


# InitProducerId


def test_producer_ids_are_new_whatever_the_client_had(context: Context) -> None:
    bodies = [
        ask(context, INIT_PRODUCER_ID, messages.InitProducerIdRequest(producer_id=before, producer_epoch=epoch))
        for before, epoch in ((-1, -1), (0, 0), (0, 5))
    ]
    assert [(body.error_code, body.producer_epoch) for body in bodies] == [(0, 0)] * 3
    assert len({body.producer_id for body in bodies}) == 3


# Fetch and ListOffsets


def test_fetch_returns_what_was_produced_with_its_watermarks(context: Context) -> None:
    produced(context, ("t", 0, make_batch(3)))
    produced(context, ("t", 0, make_batch(2)))
    (result,) = fetched(context, ("t", 0, 0))
    assert (result.error_code, result.high_watermark, result.last_stable_offset, result.log_start_offset) == (
        0,
        5,
        5,
        0,
    )
    assert read_size(result) == 200
    assert result.aborted_transactions is None
    assert fetched(context, ("t", 0, 0), isolation_level=1)[0].aborted_transactions == ()


def test_fetch_at_the_end_is_empty_and_beyond_it_out_of_range(context: Context) -> None:
    produced(context, ("t", 0, make_batch(3)))
    found = [*fetched(context, ("t", 0, 3)), *fetched(context, ("t", 0, 4), ("u", 0, 0))]
    assert [(result.error_code, result.records) for result in found] == [
        (Code.NONE, b""),
        (Code.OFFSET_OUT_OF_RANGE, b""),
        (Code.UNKNOWN_TOPIC_OR_PARTITION, b""),
    ]


def test_max_bytes_binds_all_but_the_first_batch(context: Context) -> None:
    for index in (0, 1):
        for _ in range(2):
            produced(context, ("t", index, make_batch(size=1000)))
    both = (("t", 0, 0), ("t", 1, 0))
    assert [read_size(result) for result in fetched(context, *both, max_bytes=1)] == [1000, 0]
    assert [read_size(result) for result in fetched(context, *both, max_bytes=3500)] == [2000, 1000]
    assert [read_size(result) for result in fetched(context, ("t", 0, 2), ("t", 1, 0), max_bytes=1)] == [0, 1000]


def test_a_newer_leader_epoch_is_unknown(context: Context) -> None:
    assert fetched(context, ("t", 0, 0), epoch=1)[0].error_code == Code.UNKNOWN_LEADER_EPOCH
    assert fetched(context, ("t", 0, 0), epoch=0)[0].error_code == Code.NONE


def test_there_are_no_fetch_sessions(context: Context) -> None:
    assert ask(context, FETCH, fetch_request(("t", 0, 0), session_epoch=0)).session_id == 0
    assert (
        ask(context, FETCH, fetch_request(session_id=5, session_epoch=1)).error_code == Code.FETCH_SESSION_ID_NOT_FOUND
    )


def test_a_fetch_waits_only_for_data_that_may_come(context: Context) -> None:
    def waits(*data: tuple[str, int, int], **fields: Any) -> bool:
        return fetch.must_wait(context, fetch_request(*data, **fields))

    produced(context, ("t", 0, make_batch(1, size=500)))
    assert waits(("t", 0, 1), min_bytes=1)
    assert waits(("t", 0, 0), ("t", 1, 0), min_bytes=501)
    assert not waits(("t", 0, 0), ("t", 1, 0), min_bytes=500)
    assert not waits(("t", 0, 1), min_bytes=0)
    assert not waits(("t", 0, 2), min_bytes=1), "out of range: say so at once"
    assert not waits(("u", 0, 0), min_bytes=1)
    assert not waits(min_bytes=1), "nothing asked"
    assert not waits(("t", 0, 1), min_bytes=1, session_id=3)


def test_offsets_by_name_and_by_timestamp(context: Context) -> None:
    assert offset_of(context, MAX_TIMESTAMP) == (0, -1, -1)
    for timestamp in (100, 300, 200):
        produced(context, ("t", 0, make_batch(10, timestamp=timestamp)))
    assert offset_of(context, LATEST) == (0, 30, -1)
    assert offset_of(context, EARLIEST) == (0, 0, -1)
    assert offset_of(context, MAX_TIMESTAMP) == (0, 10, 300)
    assert offset_of(context, 150) == (0, 10, 300)
    assert offset_of(context, 301) == (0, -1, -1)
    assert offset_of(context, -9)[0] == Code.UNSUPPORTED_VERSION
    assert offset_of(context, LATEST, index=7)[0] == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert offset_of(context, LATEST, epoch=3)[0] == Code.UNKNOWN_LEADER_EPOCH


# Metadata, CreateTopics, DeleteTopics


def described(context: Context, *names: str | None, **fields: Any) -> dict[str | None, tuple[int, int]]:
    wanted = tuple(messages.MetadataRequestTopic(name=name) for name in names)
    body = ask(context, METADATA, messages.MetadataRequest(wanted, **fields))
    return {topic.name: (topic.error_code, len(topic.partitions)) for topic in body.topics}


def test_metadata_names_the_broker_by_its_advertised_address(context: Context) -> None:
    body = ask(context, METADATA, messages.MetadataRequest(None))
    assert body.brokers == (messages.MetadataResponseBroker(NODE, "broker.test", 9999),)
    assert body.controller_id == NODE
    assert body.cluster_id == context.topics.directory.cluster_id
    (topic,) = body.topics
    assert [(part.partition_index, part.leader_id, part.leader_epoch) for part in topic.partitions] == [
        (0, NODE, 0),
        (1, NODE, 0),
    ]


def test_metadata_of_none_of_some_and_of_unknown_topics(context: Context) -> None:
    assert described(context) == {}
    assert described(context, "t", "u", allow_auto_topic_creation=False) == {
        "t": (0, 2),
        "u": (Code.UNKNOWN_TOPIC_OR_PARTITION, 0),
    }


def test_metadata_creates_topics_if_both_sides_want_it(context: Context) -> None:
    assert described(context, "new", "bad name") == {"new": (0, 2), "bad name": (Code.INVALID_TOPIC_EXCEPTION, 0)}
    strict = context._replace(settings=BrokerSettings(auto_create_topics=False))
    assert described(strict, "other") == {"other": (Code.UNKNOWN_TOPIC_OR_PARTITION, 0)}


def test_metadata_by_topic_id(context: Context) -> None:
    topic = context.topics.get("t")
    assert topic is not None
    wanted = tuple(messages.MetadataRequestTopic(topic_id, None) for topic_id in (topic.topic_id, b"\7" * 16))
    body = ask(context, METADATA, messages.MetadataRequest(wanted))
    assert [(found.error_code, found.name) for found in body.topics] == [(0, "t"), (Code.UNKNOWN_TOPIC_ID, None)]


def created(
    context: Context, *topics: messages.CreatableTopic, validate_only: bool = False
) -> list[messages.CreatableTopicResult]:
    request = messages.CreateTopicsRequest(topics, validate_only=validate_only)
    return list(ask(context, CREATE_TOPICS, request).topics)


def test_create_topics_makes_them_as_asked(context: Context) -> None:
    config = messages.CreatableTopicConfig("max.message.bytes", "77")
    placed = (messages.CreatableReplicaAssignment(1, (NODE,)), messages.CreatableReplicaAssignment(0, (NODE,)))
    results = created(
        context,
        messages.CreatableTopic("a", 3, 1, configs=(config,)),
        messages.CreatableTopic("b"),
        messages.CreatableTopic("c", assignments=placed),
    )
    assert [(result.name, result.error_code, result.num_partitions) for result in results] == [
        ("a", 0, 3),
        ("b", 0, 2),
        ("c", 0, 2),
    ]
    for result in results:
        topic = context.topics.get(result.name)
        assert topic is not None
        assert (topic.topic_id, len(topic.partitions)) == (result.topic_id, result.num_partitions)
    described = {entry.name: (entry.value, entry.config_source) for entry in results[0].configs or ()}
    assert described["max.message.bytes"] == ("77", 1)
    assert described["segment.bytes"][1] == 5


BAD_TOPICS = {
    "exists": (messages.CreatableTopic("t", 1, 1), Code.TOPIC_ALREADY_EXISTS),
    "name": (messages.CreatableTopic("no/slash", 1, 1), Code.INVALID_TOPIC_EXCEPTION),
    "no partitions": (messages.CreatableTopic("n", 0, 1), Code.INVALID_PARTITIONS),
    "replicas": (messages.CreatableTopic("n", 1, 3), Code.INVALID_REPLICATION_FACTOR),
    "config": (
        messages.CreatableTopic("n", 1, 1, configs=(messages.CreatableTopicConfig("nonsense", "1"),)),
        Code.INVALID_CONFIG,
    ),
    "both": (
        messages.CreatableTopic("n", 1, assignments=(messages.CreatableReplicaAssignment(0, (NODE,)),)),
        Code.INVALID_REQUEST,
    ),
    "other broker": (
        messages.CreatableTopic("n", assignments=(messages.CreatableReplicaAssignment(0, (9,)),)),
        Code.INVALID_REPLICA_ASSIGNMENT,
    ),
}


@pytest.mark.parametrize("case", BAD_TOPICS)
def test_what_create_topics_refuses(context: Context, case: str) -> None:
    wanted, code = BAD_TOPICS[case]
    for validate_only in (True, False):
        (result,) = created(context, wanted, validate_only=validate_only)
        assert result.error_code == code
        assert result.error_message
    assert context.topics.get("n") is None


def test_a_topic_twice_in_a_request_is_refused_once_as_by_kafka(context: Context) -> None:
    results = created(context, *[messages.CreatableTopic("n", 1, 1)] * 2, messages.CreatableTopic("m", 1, 1))
    assert [(result.name, result.error_code) for result in results] == [("n", Code.INVALID_REQUEST), ("m", 0)]
    assert context.topics.get("n") is None


def test_validate_only_makes_nothing(context: Context) -> None:
    (result,) = created(context, messages.CreatableTopic("n", 3, 1), validate_only=True)
    assert (result.error_code, result.num_partitions) == (0, 3)
    assert context.topics.get("n") is None


def test_delete_topics(context: Context) -> None:
    response = handled(context, DELETE_TOPICS, messages.DeleteTopicsRequest(("t", "u")))
    assert response.body is not None
    assert [result.error_code for result in response.body.responses] == [0, Code.UNKNOWN_TOPIC_OR_PARTITION]
    assert response.changed == (partition_key("t", 0), partition_key("t", 1)), "delayed Fetches must be checked"
    assert context.topics.get("t") is None


def by_id(topic_id: bytes, **fields: Any) -> messages.FetchRequest:
    wanted = (messages.FetchPartition(0, partition_max_bytes=10_000),)
    return messages.FetchRequest(topics=(messages.FetchTopic(topic_id=topic_id, partitions=wanted),), **fields)


def test_a_topic_is_fetched_by_its_id_and_not_after_it_was_created_again(context: Context) -> None:
    topic = context.topics.get("t")
    assert topic is not None
    produced(context, ("t", 0, make_batch(3)))
    [found] = ask(context, FETCH_BY_ID, by_id(topic.topic_id)).responses
    assert (found.topic, found.topic_id, found.partitions[0].error_code) == ("", topic.topic_id, Code.NONE)
    assert read_size(found.partitions[0])
    waiting = fetch.DelayedFetch(context, by_id(topic.topic_id, max_wait_ms=1000, min_bytes=1_000_000))
    assert not waiting.is_ready()
    ask(context, DELETE_TOPICS, messages.DeleteTopicsRequest(("t",)))
    context.topics.create("t", 2)
    assert waiting.is_ready(), "it has an error to report"
    for response in (waiting.response(10_000), ask(context, FETCH_BY_ID, by_id(topic.topic_id))):
        [refused] = response.responses
        assert (refused.topic_id, refused.partitions[0].error_code) == (topic.topic_id, Code.UNKNOWN_TOPIC_ID)
