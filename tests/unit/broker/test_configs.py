"""Reading and changing the settings of topics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_producer.broker import BrokerSettings, TopicSettings
from spark_producer.broker.context import Context
from spark_producer.broker.memory.plan import plan_memory
from spark_producer.broker.settings import with_memory
from spark_producer.broker.topic_store import TopicStore
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError
from spark_producer.protocol import (
    CREATE_TOPICS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_GROUPS,
    messages,
)
from tests.unit.broker.batches import make_batch
from tests.unit.broker.handler_calls import ask, context_of

SETTINGS = BrokerSettings(topic=TopicSettings(max_message_bytes=9000))
WITH_TIERS = replace(SETTINGS, storage_engine="tiered")
OWN, DEFAULT = 1, 5
SET, DELETE, APPEND = 0, 1, 2


def with_topic(path: Path, settings: BrokerSettings) -> Iterator[Context]:
    store = TopicStore(path, settings)
    store.create("t", 2, {"max.message.bytes": "5000"})
    yield context_of(store, settings)
    store.close()


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Context]:
    yield from with_topic(tmp_path, SETTINGS)


@pytest.fixture
def tiered(tmp_path: Path) -> Iterator[Context]:
    yield from with_topic(tmp_path, WITH_TIERS)


def described(context: Context, *keys: str, **fields: Any) -> dict[str, messages.DescribeConfigsResourceResult]:
    wanted = (messages.DescribeConfigsResource(2, "t", keys or None),)
    (result,) = ask(context, DESCRIBE_CONFIGS, messages.DescribeConfigsRequest(wanted, **fields)).results
    assert (result.error_code, result.resource_type, result.resource_name) == (Code.NONE, 2, "t")
    return {config.name: config for config in result.configs}


def altered(context: Context, *changes: tuple[str, int, str | None], name: str = "t", **fields: Any) -> int:
    configs = tuple(messages.AlterableConfig(*change) for change in changes)
    resources = (messages.AlterConfigsResource(fields.pop("resource_type", 2), name, configs),)
    request = messages.IncrementalAlterConfigsRequest(resources, **fields)
    (result,) = ask(context, INCREMENTAL_ALTER_CONFIGS, request).responses
    assert result.resource_name == name
    assert bool(result.error_message) is bool(result.error_code)
    return int(result.error_code)


def test_every_setting_has_its_value_and_its_source(context: Context) -> None:
    found = described(context)
    own, default = found["max.message.bytes"], found["segment.bytes"]
    assert (own.value, own.config_source) == ("5000", OWN)
    assert (default.value, default.config_source) == (str(TopicSettings().segment_bytes), DEFAULT)
    assert found["cleanup.policy"].value == "delete"
    assert all(not config.read_only and not config.is_sensitive and config.config_type for config in found.values())
    assert own.synonyms == ()


def test_synonyms_are_the_values_in_the_order_in_which_they_count(context: Context) -> None:
    (config,) = described(context, "max.message.bytes", include_synonyms=True).values()
    assert [(synonym.value, synonym.source) for synonym in config.synonyms] == [("5000", OWN), ("9000", DEFAULT)]


def test_only_the_settings_asked_for(context: Context) -> None:
    assert set(described(context, "segment.bytes", "nonsense")) == {"segment.bytes"}


OTHERS = {
    "unknown topic": (2, "u", Code.UNKNOWN_TOPIC_OR_PARTITION),
    "this broker": (4, "1", Code.NONE),
    "another broker": (4, "7", Code.INVALID_REQUEST),
    "metrics": (16, "t", Code.INVALID_REQUEST),
}


@pytest.mark.parametrize(("kind", "name", "code"), OTHERS.values(), ids=OTHERS.keys())
def test_what_else_can_be_described(context: Context, kind: int, name: str, code: int) -> None:
    wanted = (messages.DescribeConfigsResource(kind, name, None),)
    (result,) = ask(context, DESCRIBE_CONFIGS, messages.DescribeConfigsRequest(wanted)).results
    assert (result.error_code, result.configs) == (code, ())


def test_a_setting_counts_from_the_next_append_on(context: Context) -> None:
    partition = context.topics.partition("t", 1)
    partition.append(make_batch(size=4000))
    assert altered(context, ("max.message.bytes", SET, "3000"), ("segment.bytes", SET, "20000000")) == Code.NONE
    with pytest.raises(BrokerError, match=r"max\.message\.bytes \(3000\)"):
        partition.append(make_batch(size=4000))


def test_a_setting_is_there_after_a_restart(tmp_path: Path) -> None:
    store = TopicStore(tmp_path, SETTINGS)
    store.create("t", 1, {"max.message.bytes": "5000"})
    context = context_of(store, SETTINGS)
    assert altered(context, ("max.message.bytes", SET, "3000"), ("segment.bytes", SET, "20000000")) == Code.NONE
    store.close()
    again = TopicStore(tmp_path, SETTINGS)
    settings, given = again.settings_of("t")
    again.close()
    assert (settings.max_message_bytes, settings.segment_bytes) == (3000, 20_000_000)
    assert given == {"max.message.bytes": "3000", "segment.bytes": "20000000"}


def test_a_deleted_setting_is_the_default_again(context: Context) -> None:
    assert altered(context, ("max.message.bytes", DELETE, None), ("segment.bytes", DELETE, None)) == Code.NONE
    context.topics.partition("t", 0).append(make_batch(size=8000))
    assert described(context)["max.message.bytes"].config_source == DEFAULT


def test_batches_that_the_memory_does_not_hold_cannot_be_promised(tiered: Context) -> None:
    context = tiered
    most = SETTINGS.memory.half
    for size in (most, most + 1):
        config = messages.CreatableTopicConfig("max.message.bytes", str(size))
        request = messages.CreateTopicsRequest((messages.CreatableTopic("u", 1, 1, (), (config,)),))
        (made,) = ask(context, CREATE_TOPICS, request).topics
        changes = (
            messages.AlterConfigsResource(2, "t", (messages.AlterableConfig("max.message.bytes", SET, str(size)),)),
        )
        (changed,) = ask(context, INCREMENTAL_ALTER_CONFIGS, messages.IncrementalAlterConfigsRequest(changes)).responses
        if size == most:
            assert (made.error_code, changed.error_code) == (Code.NONE, Code.NONE)
            context.topics.delete("u")
        else:
            assert (made.error_code, changed.error_code) == (Code.INVALID_CONFIG, Code.INVALID_CONFIG)
            assert made.error_message == changed.error_message
            assert str(made.error_message).startswith(
                "Invalid value 8388609 for configuration max.message.bytes: Value must be no more than 8388608, half of"
            )
    assert context.topics.get("u") is None
    assert context.topics.settings_of("t")[1] == {"max.message.bytes": str(most)}
    assert altered(context, ("segment.bytes", SET, "30000000")) == Code.NONE


def test_a_topic_that_was_promised_more_than_there_is_memory_for_now_is_opened(tmp_path: Path) -> None:
    roomy = with_memory(WITH_TIERS, plan_memory(storage=256 * 1024 * 1024))
    store = TopicStore(tmp_path, roomy)
    store.create("t", 1, {"max.message.bytes": "9000000"})
    store.close()
    again = TopicStore(tmp_path, WITH_TIERS)
    assert altered(context_of(again, WITH_TIERS), ("segment.bytes", SET, "30000000")) == Code.NONE
    assert again.settings_of("t")[0].max_message_bytes == 9_000_000
    again.partition("t", 0).append(make_batch())
    again.close()


BAD_CHANGES: dict[str, tuple[list[tuple[str, int, str | None]], Code]] = {
    "unknown setting": ([("nonsense", SET, "1")], Code.INVALID_CONFIG),
    "no number": ([("segment.bytes", SET, "many")], Code.INVALID_CONFIG),
    "half of it good": ([("segment.bytes", SET, "30000000"), ("max.message.bytes", SET, "-1")], Code.INVALID_CONFIG),
    "no value": ([("segment.bytes", SET, None)], Code.INVALID_REQUEST),
    "append": ([("segment.bytes", APPEND, "30000000")], Code.INVALID_CONFIG),
    "twice": ([("segment.bytes", SET, "30000000")] * 2, Code.INVALID_REQUEST),
}


@pytest.mark.parametrize("case", BAD_CHANGES)
def test_what_cannot_be_changed_changes_nothing(context: Context, case: str) -> None:
    changes, code = BAD_CHANGES[case]
    assert altered(context, *changes) == code
    assert context.topics.settings_of("t")[1] == {"max.message.bytes": "5000"}


def test_other_resources_have_no_settings(context: Context) -> None:
    assert altered(context, ("segment.bytes", SET, "30000000"), name="u") == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert altered(context, ("segment.bytes", SET, "30000000"), name="1", resource_type=4) == Code.INVALID_REQUEST


def test_validate_only_changes_nothing(context: Context) -> None:
    assert altered(context, ("segment.bytes", SET, "30000000"), validate_only=True) == Code.NONE
    assert altered(context, ("segment.bytes", SET, "x"), validate_only=True) == Code.INVALID_CONFIG
    assert context.topics.settings_of("t")[1] == {"max.message.bytes": "5000"}


def test_there_are_no_groups(context: Context) -> None:
    assert ask(context, LIST_GROUPS, messages.ListGroupsRequest(("Stable",))) == messages.ListGroupsResponse()
