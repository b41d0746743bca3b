"""Creating and deleting many topics: one write of the state file per request, and the limit of partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_producer.broker import BrokerSettings
from spark_producer.broker.context import Context
from spark_producer.broker.requests.topics import MAX_NEW_PARTITIONS
from spark_producer.broker.storage.state_file import StateFile
from spark_producer.broker.topic_store import TopicStore
from spark_producer.common.error_codes import Code
from spark_producer.protocol import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    INCREMENTAL_ALTER_CONFIGS,
    METADATA,
    messages,
)
from tests.fakes.memory_storage import MemoryStorage
from tests.unit.broker.handler_calls import ask, context_of

PARTITIONS_IN_ALL = 50


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Context]:
    settings = BrokerSettings(default_partitions=2, max_partitions=PARTITIONS_IN_ALL)
    store = TopicStore(tmp_path, settings)
    yield context_of(store, settings)
    store.close()


@pytest.fixture
def writes(context: Context, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of topics at each write of the state file. Counted at the write, since the file does not show how often it was
    replaced."""
    real, written = StateFile.store, []

    def store(self: StateFile, state: Any) -> None:
        written.append(len(state.topics))
        real(self, state)

    monkeypatch.setattr(StateFile, "store", store)
    return written


def described(context: Context, *names: str) -> list[int]:
    wanted = tuple(messages.MetadataRequestTopic(name=name) for name in names)
    return [topic.error_code for topic in ask(context, METADATA, messages.MetadataRequest(wanted)).topics]


def names(count: int) -> list[str]:
    return [f"topic-{number}" for number in range(count)]


def test_metadata_makes_many_topics_with_one_write(context: Context, writes: list[int]) -> None:
    assert described(context, *names(20), "bad name") == [Code.NONE] * 20 + [Code.INVALID_TOPIC_EXCEPTION]
    assert writes == [20]
    assert described(context, *names(20)) == [Code.NONE] * 20
    assert writes == [20]


def test_create_and_delete_topics_write_once(context: Context, writes: list[int]) -> None:
    topics = tuple(messages.CreatableTopic(name, 1, 1) for name in names(20))
    assert {
        result.error_code for result in ask(context, CREATE_TOPICS, messages.CreateTopicsRequest(topics)).topics
    } == {0}
    assert writes == [20]
    deleted = ask(context, DELETE_TOPICS, messages.DeleteTopicsRequest((*names(20), "unknown")))
    assert Counter(result.error_code for result in deleted.responses) == {0: 20, Code.UNKNOWN_TOPIC_OR_PARTITION: 1}
    assert writes == [20, 0]


def test_altering_many_topics_writes_once(context: Context, writes: list[int]) -> None:
    described(context, *names(20))
    change = (messages.AlterableConfig("max.message.bytes", 0, "7000"),)
    resources = tuple(messages.AlterConfigsResource(2, name, change) for name in names(20))
    ask(context, INCREMENTAL_ALTER_CONFIGS, messages.IncrementalAlterConfigsRequest(resources))
    assert writes == [20, 20]
    assert {context.topics.settings_of(name)[0].max_message_bytes for name in names(20)} == {7000}


def test_a_state_file_that_cannot_be_written_makes_no_topic(context: Context, tmp_path: Path) -> None:
    described(context, "old")
    in_the_way = tmp_path / "broker.json.new"
    in_the_way.mkdir()
    assert described(context, "old", "new", "bad name") == [
        Code.NONE, Code.KAFKA_STORAGE_ERROR, Code.INVALID_TOPIC_EXCEPTION,
    ]  # fmt: skip
    deleted = ask(context, DELETE_TOPICS, messages.DeleteTopicsRequest(("old",)))
    assert deleted.responses[0].error_code == Code.KAFKA_STORAGE_ERROR
    in_the_way.rmdir()
    assert [topic.name for topic in context.topics] == ["old"]
    assert described(context, "old", "new") == [Code.NONE] * 2


def test_more_partitions_than_the_limit_are_refused(context: Context) -> None:
    assert described(context, *names(25)) == [Code.NONE] * 25
    assert described(context, "one-more") == [Code.POLICY_VIOLATION]
    (result,) = ask(context, CREATE_TOPICS, messages.CreateTopicsRequest((messages.CreatableTopic("n", 1, 1),))).topics
    assert result.error_code == Code.POLICY_VIOLATION
    assert "max_partitions" in (result.error_message or "")
    ask(context, DELETE_TOPICS, messages.DeleteTopicsRequest(("topic-0",)))
    assert described(context, "one-more") == [Code.NONE]


def test_what_one_request_may_not_make_any_more_is_made_by_the_next(tmp_path: Path) -> None:
    tenth = MAX_NEW_PARTITIONS // 10
    settings = BrokerSettings(default_partitions=tenth)
    context = context_of(TopicStore(tmp_path, settings, MemoryStorage), settings)
    assert described(context, *names(12)) == [Code.NONE] * 10 + [Code.LEADER_NOT_AVAILABLE] * 2
    assert described(context, *names(12)) == [Code.NONE] * 12
    topics = tuple(messages.CreatableTopic(f"n-{number}", 5 * tenth, 1) for number in range(3))
    created = ask(context, CREATE_TOPICS, messages.CreateTopicsRequest(topics)).topics
    assert [result.error_code for result in created] == [0, 0, Code.POLICY_VIOLATION]
    context.topics.close()


def test_names_that_collide_in_one_request(context: Context) -> None:
    assert described(context, "a.b", "a_b") == [Code.NONE, Code.INVALID_TOPIC_EXCEPTION]
    topics = tuple(messages.CreatableTopic(name, 1, 1) for name in ("c.d", "c_d"))
    created = ask(context, CREATE_TOPICS, messages.CreateTopicsRequest(topics)).topics
    assert [result.error_code for result in created] == [0, Code.INVALID_TOPIC_EXCEPTION]


def test_two_thousand_topics_fit_into_one_question() -> None:
    assert MAX_NEW_PARTITIONS // 4 >= 2000, "with four partitions each"
    assert BrokerSettings().max_partitions >= 4 * 2000
