"""The options of a read: their values and defaults."""

from __future__ import annotations

from spark_producer.common.cluster import TopicPartition
from spark_producer.config import ConnectionOptions, parse_source_options
from spark_producer.config.offset_limits import (
    EarliestOffsets,
    GlobalTimestamp,
    LatestOffsets,
    PartitionTimestamps,
    SpecificOffsets,
    ending_limit,
    starting_limit,
)
from spark_producer.config.subscription import Assign, Subscribe, SubscribePattern, subscription
from spark_producer.network import ConnectionSettings
from tests.unit.config.options import SERVERS

TOPIC = SERVERS | {"subscribe": "orders"}


def test_the_least_options_are_servers_and_topics() -> None:
    config, source, registry = parse_source_options(TOPIC)
    assert isinstance(config, ConnectionOptions)
    assert ConnectionSettings.from_config(config).bootstrap == (("broker", 9092),)
    assert subscription(source) == Subscribe(("orders",))
    assert not source.include_headers
    assert not registry.schema_registry_url


def test_names_in_any_case_are_options() -> None:
    config, source, _ = parse_source_options(
        TOPIC | {"KAFKA.ISOLATION.level": "read_committed", "includeheaders": "TRUE"}
    )
    assert config.isolation_level == "read_committed"
    assert source.include_headers


def test_the_three_kinds_of_subscription() -> None:
    named = {"subscribe": " a, b,,a", "subscribePattern": " a.* ", "assign": '{"b":[2,0],"a":[0]}'}
    found = [subscription(parse_source_options(SERVERS | {name: value})[1]) for name, value in named.items()]
    tps = TopicPartition("b", 2), TopicPartition("b", 0), TopicPartition("a", 0)
    assert found == [Subscribe(("a", "b")), SubscribePattern("a.*"), Assign(tps)]


def test_where_a_read_starts_and_ends_by_default() -> None:
    _, source, _ = parse_source_options(TOPIC)
    assert starting_limit(source, streaming=False) == EarliestOffsets()
    assert starting_limit(source, streaming=True) == LatestOffsets()
    assert ending_limit(source) == LatestOffsets()


def test_a_time_overrides_times_of_partitions_and_these_override_offsets() -> None:
    options = {"startingOffsets": '{"orders":{"0":1}}', "endingOffsets": '{"orders":{"0":-1}}'}
    tp = TopicPartition("orders", 0)
    found = []
    for more in (
        {},
        {"startingOffsetsByTimestamp": '{"orders":{"0":10}}', "endingOffsetsByTimestamp": '{"orders":{"0":20}}'},
        {"startingTimestamp": "100", "endingTimestamp": "200"},
    ):
        options |= more
        source = parse_source_options(TOPIC | options)[1]
        found.append((starting_limit(source, streaming=False), ending_limit(source)))
    assert found == [
        (SpecificOffsets({tp: 1}), SpecificOffsets({tp: -1})),
        (PartitionTimestamps({tp: 10}), PartitionTimestamps({tp: 20})),
        (GlobalTimestamp(100), GlobalTimestamp(200)),
    ]
