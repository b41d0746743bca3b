"""The embedded broker takes Produce by topic id (KIP-516), and never writes to another topic of the same name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_producer.broker.context import Context
from spark_producer.broker.settings import BrokerSettings
from spark_producer.broker.topic_store import TopicStore
from spark_producer.common.error_codes import Code
from spark_producer.protocol import PRODUCE_BY_ID, messages
from tests.unit.broker.batches import make_batch
from tests.unit.broker.handler_calls import context_of, handled

NEWEST = 13


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TopicStore]:
    made = TopicStore(tmp_path, BrokerSettings())
    made.create("t", 1)
    yield made
    made.close()


@pytest.fixture
def context(store: TopicStore) -> Context:
    return context_of(store, BrokerSettings())


def id_of(store: TopicStore) -> bytes:
    topic = store.get("t")
    assert topic is not None
    return topic.topic_id


def by_id(*topic_ids: bytes, acks: int = 1) -> messages.ProduceRequest:
    topics = (messages.ProduceTopic("", each, (messages.ProducePartition(0, make_batch(2)),)) for each in topic_ids)
    return messages.ProduceRequest(acks=acks, timeout_ms=1000, topic_data=tuple(topics))


def results(context: Context, request: messages.ProduceRequest) -> list[tuple[str, bytes, int, int]]:
    body = handled(context, PRODUCE_BY_ID, request, NEWEST).body
    assert body is not None
    return [
        (topic.name, topic.topic_id, row.error_code, row.base_offset)
        for topic in body.responses
        for row in topic.partition_responses
    ]


def test_a_batch_is_written_to_the_topic_with_the_id(context: Context, store: TopicStore) -> None:
    own = id_of(store)
    assert results(context, by_id(own)) == [("", own, Code.NONE, 0)]
    assert results(context, by_id(own)) == [("", own, Code.NONE, 2)]


def test_the_id_of_a_deleted_topic_is_refused_though_its_name_exists(context: Context, store: TopicStore) -> None:
    former = id_of(store)
    store.delete("t")
    store.create("t", 1)
    own = id_of(store)
    answers = results(context, by_id(former, own))
    assert set(answers) == {("", former, Code.UNKNOWN_TOPIC_ID, -1), ("", own, Code.NONE, 0)}


def test_without_a_response_an_unknown_id_closes_the_connection(context: Context, store: TopicStore) -> None:
    assert handled(context, PRODUCE_BY_ID, by_id(bytes(16), acks=0), NEWEST).close
    assert not handled(context, PRODUCE_BY_ID, by_id(id_of(store), acks=0), NEWEST).close
