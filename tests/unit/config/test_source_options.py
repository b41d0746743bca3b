"""The options of a read: their values and defaults."""

from __future__ import annotations

import logging
import pickle
import re
from pathlib import Path

import pytest

from spark_producer.common.cluster import TopicPartition
from spark_producer.common.secret import Secret
from spark_producer.config import (
    CONSUMER_FIELDS,
    KAFKA_FIELDS,
    SOURCE_FIELDS,
    ConnectionOptions,
    parse_options,
)
from spark_producer.config.docs_table import option_rows, read_rows, shared_names
from spark_producer.config.durations import duration_ms
from spark_producer.config.offset_limits import (
    EarliestOffsets,
    GlobalTimestamp,
    LatestOffsets,
    PartitionTimestamps,
    SpecificOffsets,
    ending_limit,
    starting_limit,
)
from spark_producer.config.profiles import PROFILES
from spark_producer.config.source_parsing import parse_source_options
from spark_producer.config.source_rules import check_batch, check_stream
from spark_producer.config.subscription import Assign, Subscribe, SubscribePattern, subscription
from spark_producer.config.unsupported import UNSUPPORTED
from spark_producer.errors import ConfigError
from spark_producer.network import ConnectionSettings
from tests.unit.config.options import SERVERS, refused
from tests.unit.config.source_texts import DURATIONS

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


def test_offsets_and_times_of_partitions() -> None:
    options = {"startingOffsets": ' {"orders":{"1":-2,"0":23},"b":{"0":0}} ', "endingOffsets": "LATEST"}
    source = parse_source_options(TOPIC | options)[1]
    tps = {TopicPartition("orders", 1): -2, TopicPartition("orders", 0): 23, TopicPartition("b", 0): 0}
    assert starting_limit(source, streaming=False) == SpecificOffsets(tps)
    assert ending_limit(source) == LatestOffsets()
    latest = parse_source_options(TOPIC | {"startingOffsets": '{"orders":{"0":-1}}'})[1]
    assert starting_limit(latest, streaming=True) == SpecificOffsets({TopicPartition("orders", 0): -1})


@pytest.mark.parametrize(("text", "ms"), DURATIONS)
def test_durations_are_those_of_spark(text: str, ms: int) -> None:
    assert duration_ms("maxTriggerDelay", text) == ms
    assert parse_source_options(TOPIC | {"maxTriggerDelay": text})[1].max_trigger_delay == text.strip()


def test_what_depends_on_other_options_does_not_contradict_them() -> None:
    options = {
        "kafka.request.timeout.ms": "300",
        "kafka.fetch.min.bytes": "60000000",
        "kafka.reconnect.backoff.ms": "7",
    }
    config = parse_source_options(TOPIC | options)[0]
    assert (config.fetch_max_wait_ms, config.fetch_max_bytes, config.reconnect_backoff_max_ms) == (299, 60000000, 7)
    config = parse_source_options(TOPIC | {"kafka.request.timeout.ms": "90000"})[0]
    assert config.default_api_timeout_ms == 90000


def test_decoding_has_its_options() -> None:
    options = {
        "keyFormat": "AVRO",
        "mode": "permissive",
        "schema.registry.url": "http://r:1",
        "basic.auth.user.info": "u:p",
    }
    _, source, registry = parse_source_options(TOPIC | options | {"keyReaderSchema": "key.avsc"})
    assert (source.key_format, source.value_format, source.mode) == ("avro", "raw", "PERMISSIVE")
    assert (source.key_reader_schema, registry.schema_registry_url) == ("key.avsc", "http://r:1")
    assert registry.basic_auth_user_info == Secret("u:p")


def test_a_login_is_that_of_writes() -> None:
    login = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.username": "app",
        "kafka.sasl.password": "${env:KAFKA_PASSWORD}",
        "secretsAllow": "env:KAFKA_*",
    }
    read, write = parse_source_options(TOPIC | login)[0], parse_options(SERVERS | login)[0]
    assert ConnectionSettings.from_config(read).security == ConnectionSettings.from_config(write).security
    assert pickle.loads(pickle.dumps(read)) == read


@pytest.fixture
def shared_file(tmp_path: Path) -> str:
    """One file for writes and reads."""
    file = tmp_path / "cluster.properties"
    lines = (
        "bootstrap.servers=b:1",
        "client.id=app",
        "linger.ms=5",
        "fetch.min.bytes=9",
        "group.id=g",
        "metadata.max.age.ms=7000",
    )
    file.write_text("\n".join(lines))
    return str(file)


def test_a_file_serves_reads_and_writes(shared_file: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    read, source, _ = parse_source_options({"subscribe": "a", "profile": shared_file})
    assert (read.client_id, read.fetch_min_bytes, read.group_id, source.profile) == ("app", 9, "g", shared_file)
    write, _ = parse_options({"profile": shared_file})
    assert (write.client_id, write.linger_ms, write.metadata_max_age_ms) == ("app", 5, 7000)
    said = [record.getMessage().rpartition(" has ")[2] for record in caplog.records]
    assert said == [
        "options of writes, which are left out: linger.ms, metadata.max.age.ms",
        "options of reads, which are left out: fetch.min.bytes, group.id",
    ]


def test_given_options_override_a_file(shared_file: str) -> None:
    read, _, _ = parse_source_options({"subscribe": "a", "profile": shared_file, "kafka.fetch.min.bytes": "2"})
    assert read.fetch_min_bytes == 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("auto.offset.reset=earliest", "option 'kafka.auto.offset.reset' is not supported: set startingOffsets"),
        ("fetch.min.byte=1", "Did you mean 'kafka.fetch.min.bytes'?"),
        ("isolation.level=none", "kafka.isolation.level must be one of"),
    ],
)
def test_a_file_is_checked_as_options_are(tmp_path: Path, line: str, said: str) -> None:
    file = tmp_path / "x.properties"
    file.write_text(line)
    with pytest.raises(ConfigError, match=re.escape(said)):
        parse_source_options(TOPIC | {"profile": str(file)})


def test_the_profile_of_event_hubs_is_for_reads_too() -> None:
    assert [name for name, found in PROFILES.items() if found.for_reads] == ["event-hubs"]
    config, source, _ = parse_source_options(TOPIC | {"profile": "Event-Hubs"})
    assert (config.connections_max_idle_ms, source.profile) == (180000, "Event-Hubs")


OVERRIDDEN = {
    "startingTimestamp": "1",
    "startingOffsets": "earliest",
    "endingOffsetsByTimestamp": '{"orders":{"0":20}}',
    "endingOffsets": "latest",
}


def test_a_batch_warns_of_what_has_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    limits = {"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "1", "maxTriggerDelay": "1s"}
    check_batch(parse_source_options(TOPIC | OVERRIDDEN | limits)[1])
    no_effect = "{} has no effect in a batch: it is for streams"
    assert [record.getMessage() for record in caplog.records] == [
        *map(no_effect.format, limits),
        "startingTimestamp overrides startingOffsets",
        "endingOffsetsByTimestamp overrides endingOffsets",
    ]


def test_a_usual_batch_and_a_usual_stream_warn_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    source = parse_source_options(TOPIC | {"startingOffsets": '{"orders":{"0":1}}', "groupIdPrefix": "x"})[1]
    check_batch(source)
    check_stream(source, has_read_limits=False)
    assert not caplog.records


def test_a_stream_may_start_at_the_latest_offset() -> None:
    check_stream(
        parse_source_options(TOPIC | {"startingOffsets": "latest", "commitGroup": "g"})[1], has_read_limits=True
    )


def test_what_reads_and_writes_share_has_one_row() -> None:
    """A consumer's option with another text than the producer's is in the table of reads."""
    own = {name for name, _, _ in read_rows()}
    assert own >= set(SOURCE_FIELDS) | {"kafka.client.rack", "kafka.receive.buffer.bytes", "kafka.isolation.level"}
    assert own.isdisjoint(shared_names())
    written = {name for name, _, _ in option_rows()}
    assert written >= set(shared_names())
    for _, default, doc in read_rows():
        assert default
        assert re.match(r"[A-Z`].{15,}[.)]$", doc), f"not a sentence of more than 16 characters: {doc!r}"


def test_what_writes_refuse_as_options_of_consumers_is_what_reads_take() -> None:
    only_reads = {name for name in CONSUMER_FIELDS if name not in KAFKA_FIELDS}
    assert only_reads <= set(UNSUPPORTED)
    for name in only_reads:
        refused(SERVERS | {f"kafka.{name}": "1"}, f"option 'kafka.{name}' is not supported: it belongs to consumers")
