"""Bad options of a read: each is one clear error on the driver that names the option. Ids (tests/ids.md): RD."""

from __future__ import annotations

import dataclasses
import re

import pytest

from spark_producer.common.secret import Secret
from spark_producer.config import (
    CONSUMER_FIELDS,
    KAFKA_FIELDS,
    SINK_FIELDS,
    SOURCE_FIELDS,
    SourceOptions,
)
from spark_producer.config.option import is_secret
from spark_producer.config.registry_table import READ_REGISTRY_FIELDS, REGISTRY_FIELDS
from spark_producer.config.source_parsing import parse_source_options
from spark_producer.config.source_rules import check_batch, check_stream
from spark_producer.config.unsupported import CHECKPOINT_OPTIONS
from spark_producer.config.unsupported_reads import UNSUPPORTED_OF_SPARK, UNSUPPORTED_READS
from spark_producer.errors import ConfigError
from tests.unit.config.options import SERVERS

TOPIC = SERVERS | {"subscribe": "orders"}
AVRO = {"valueFormat": "avro", "schema.registry.url": "http://registry:8081"}
OFFSETS = '{"orders":{"0":1}}'


def refused(options: dict[str, str], *parts: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_source_options(options)
    for part in parts:
        assert part in str(raised.value)


BAD_VALUES = [
    ("subscribe", "", "subscribe names no topic"),
    ("subscribe", " , ", "subscribe names no topic"),
    ("subscribe", "a b", "subscribe names 'a b', which is not a topic name"),
    ("subscribe", "orders-*", "For a pattern of names set subscribePattern"),
    ("subscribe", "..", "is not a topic name"),
    ("subscribe", "a" * 250, "is not a topic name"),
    ("subscribePattern", " ", "subscribePattern is empty"),
    ("subscribePattern", "*", "subscribePattern is not a regular expression"),
    ("assign", "", "assign is wrong: it is not JSON"),
    ("assign", "orders", "assign is wrong: it is not JSON"),
    ("assign", "[0]", "assign is wrong: it is not an object, but [0]"),
    ("assign", "{}", "assign is wrong: it names no topic"),
    ("assign", '{"orders":[]}', "assign is wrong: it names no partition of topic 'orders'"),
    ("assign", '{"orders":0}', "assign is wrong: topic 'orders' has no list of partitions, but 0"),
    ("assign", '{"orders":{"0":1}}', "assign is wrong: topic 'orders' has no list of partitions"),
    ("assign", '{"orders":[-1]}', "a partition of topic 'orders' is -1, not between 0 and 2147483647"),
    ("assign", '{"orders":[2147483648]}', "not between 0 and 2147483647"),
    ("assign", '{"orders":[0.0]}', "a partition of topic 'orders' is not a whole number, but 0.0"),
    ("assign", '{"orders":["0"]}', 'is not a whole number, but "0"'),
    ("assign", '{"orders":[true]}', "is not a whole number, but true"),
    ("assign", '{"orders":[0,0]}', "assign is wrong: topic 'orders', partition 0 is there twice"),
    ("assign", '{"orders":[0],"orders":[1]}', "assign is wrong: 'orders' is there twice"),
    ("assign", '{"a b":[0]}', "assign names 'a b', which is not a topic name"),
    ("startingOffsets", "", "startingOffsets is wrong: it is not JSON"),
    ("startingOffsets", "first", "startingOffsets is wrong: it is not JSON"),
    ("startingOffsets", "23", "startingOffsets is wrong: it is not an object, but 23"),
    ("startingOffsets", "null", "startingOffsets is wrong: it is not an object, but null"),
    ("startingOffsets", "{}", "startingOffsets is wrong: it names no topic"),
    ("startingOffsets", '{"orders":{}}', "startingOffsets is wrong: it names no partition of topic 'orders'"),
    ("startingOffsets", '{"orders@JmAXcWyQQfCHBKDWt5TzrA":{}}', "startingOffsets is wrong: it names no topic"),
    ("startingOffsets", '{"orders@JmAX":{"0":1}}', "startingOffsets names 'orders@JmAX', which is not a topic name"),
    ("assign", '{"orders":[0],"orders@JmAX":{}}', "assign names 'orders@JmAX', which is not a topic name"),
    ("startingOffsets", '{"orders":[0]}', "topic 'orders' has no object with its partitions, but [0]"),
    ("startingOffsets", '{"orders":{"a":1}}', "topic 'orders' has 'a' where the number of a partition must be"),
    ("startingOffsets", '{"orders":{"-1":1}}', "topic 'orders' has '-1' where the number of a partition must be"),
    ("startingOffsets", '{"orders":{"2147483648":1}}', "not between 0 and 2147483647"),
    (
        "startingOffsets",
        '{"orders":{"0":-3}}',
        "startingOffsets is wrong: the number of topic 'orders', partition 0 is -3",
    ),
    ("startingOffsets", '{"orders":{"0":1.5}}', "is not a whole number, but 1.5"),
    ("startingOffsets", '{"orders":{"0":1e3}}', "is not a whole number, but 1000.0"),
    ("startingOffsets", '{"orders":{"0":"1"}}', 'is not a whole number, but "1"'),
    ("startingOffsets", '{"orders":{"0":true}}', "is not a whole number, but true"),
    ("startingOffsets", '{"orders":{"0":null}}', "is not a whole number, but null"),
    ("startingOffsets", '{"orders":{"0":NaN}}', "is not a whole number, but NaN"),
    ("startingOffsets", '{"orders":{"0":9223372036854775808}}', "not between -2 and 9223372036854775807"),
    ("startingOffsets", '{"orders":{"0":1,"0":2}}', "'0' is there twice"),
    ("startingOffsets", '{"orders":{"0":1,"00":2}}', "topic 'orders', partition 0 is there twice"),
    ("startingOffsets", f"{OFFSETS} x", "startingOffsets is wrong: it is not JSON (Extra data)"),
    ("startingOffsets", "[" * 100_000, "startingOffsets is wrong: it is not JSON"),
    ("startingOffsets", '{"orders":{"0":' + "1" * 5_000 + "}}", "startingOffsets is wrong"),
    ("startingOffsets", '{"":{"0":1}}', "startingOffsets names '', which is not a topic name"),
    ("startingTimestamp", "yesterday", "not 'yesterday': it counts milliseconds since 1970, such as 17"),
    ("startingTimestamp", "-3", "startingTimestamp must lie between -2 and"),
    ("startingTimestamp", "1.5", "startingTimestamp must be a whole number"),
    ("startingOffsetsByTimestamp", "latest", "startingOffsetsByTimestamp is wrong: it is not JSON"),
    ("startingOffsetsByTimestamp", '{"orders":{"0":-3}}', "is -3, not between -2 and"),
    ("startingOffsetsByTimestampStrategy", "earliest", "must be one of error, latest, not 'earliest'"),
    ("endingOffsets", "end", "endingOffsets is wrong: it is not JSON"),
    ("endingOffsets", '{"orders":{"0":-3}}', "endingOffsets is wrong: the number of topic 'orders', partition 0 is -3"),
    ("endingTimestamp", "", "endingTimestamp must be a whole number, not ''"),
    ("endingOffsetsByTimestamp", "[]", "endingOffsetsByTimestamp is wrong: it is not an object, but []"),
    ("failOnDataLoss", "no", "failOnDataLoss must be true or false, not 'no'"),
    ("maxOffsetsPerTrigger", "0", "maxOffsetsPerTrigger must lie between 1 and"),
    ("maxOffsetsPerTrigger", "1k", "maxOffsetsPerTrigger must be a whole number, not '1k'"),
    ("minOffsetsPerTrigger", "-1", "minOffsetsPerTrigger must lie between 0 and"),
    ("maxTriggerDelay", "", "maxTriggerDelay must be a duration, not ''"),
    ("maxTriggerDelay", "15 m", "maxTriggerDelay must be a duration, not '15 m'"),
    ("maxTriggerDelay", "-1s", "maxTriggerDelay must be a duration, not '-1s'"),
    ("maxTriggerDelay", "1.5m", "maxTriggerDelay must be a duration, not '1.5m'"),
    ("maxTriggerDelay", "1 week", "maxTriggerDelay must be a duration, not '1 week'"),
    ("maxTriggerDelay", "9223372036854775807d", "maxTriggerDelay is too long"),
    ("minPartitions", "0", "minPartitions must lie between 1 and"),
    ("minPartitions", "many", "minPartitions must be a whole number, not 'many'"),
    ("maxRecordsPerPartition", "0", "maxRecordsPerPartition must lie between 1 and"),
    ("minRecordsPerPartition", "0", "minRecordsPerPartition must lie between 1 and"),
    ("includeHeaders", "yes", "includeHeaders must be true or false, not 'yes'"),
    ("commitGroup", " ", "commitGroup is empty"),
    ("valueFormat", "json", "valueFormat must be one of raw, avro, protobuf, json-schema, not 'json'"),
    ("keyFormat", "avr", "Did you mean 'avro'?"),
    ("mode", "DROPMALFORMED", "mode must be one of FAILFAST, PERMISSIVE, not 'DROPMALFORMED'"),
    ("profile", "fast", "unknown profile 'fast'"),
    ("profile", "latency", "the profile 'latency' is for writes"),
    ("profile", "Throughput", "the profile 'throughput' is for writes"),
    ("kafka.bootstrap.servers", " ", "kafka.bootstrap.servers is empty"),
    ("kafka.isolation.level", "committed", "must be one of read_uncommitted, read_committed, not 'committed'"),
    ("kafka.fetch.min.bytes", "1 MB", "kafka.fetch.min.bytes must be a whole number, not '1 MB': it counts bytes"),
    ("kafka.fetch.max.bytes", "0", "kafka.fetch.max.bytes must lie between 1 and"),
    ("kafka.fetch.max.wait.ms", "-1", "kafka.fetch.max.wait.ms must lie between 0 and"),
    ("kafka.max.partition.fetch.bytes", "4294967296", "kafka.max.partition.fetch.bytes must lie between 1 and"),
    ("kafka.check.crcs", "1", "kafka.check.crcs must be true or false, not '1'"),
    ("kafka.default.api.timeout.ms", "0", "kafka.default.api.timeout.ms must lie between 1 and"),
    ("kafka.request.timeout.ms", "soon", "kafka.request.timeout.ms must be a whole number, not 'soon'"),
    ("kafka.security.protocol", "TLS", "kafka.security.protocol must be one of PLAINTEXT, SSL, "),
    ("kafka.client.id", "${env:NAME}", "kafka.client.id has a reference (${…:…}), but is not a secret option"),
]


@pytest.mark.covers("RD2")
@pytest.mark.parametrize(("name", "value", "said"), BAD_VALUES)
def test_a_bad_value_is_one_error_that_names_the_option(name: str, value: str, said: str) -> None:
    subscription = {} if name in ("subscribePattern", "assign") else {"subscribe": "orders"}
    refused(SERVERS | subscription | {name.lower(): value}, name, said)


def test_every_option_has_a_bad_value_above_or_takes_any_text() -> None:
    """Texts without a form of their own: other rules are about these."""
    any_text = {"groupIdPrefix", "valueReaderSchema", "keyReaderSchema", "valueMessage", "keyMessage"}
    any_text |= {"valueReaderSchemaReferences", "keyReaderSchemaReferences"}
    assert {name for name, _, _ in BAD_VALUES} & set(SOURCE_FIELDS) == set(SOURCE_FIELDS) - any_text


CONTRADICTIONS: list[tuple[dict[str, str], str]] = [
    ({"subscribe": "a", "assign": '{"a":[0]}'}, "subscribe and assign contradict each other"),
    (
        {"subscribe": "a", "subscribePattern": "a", "assign": "x"},
        "subscribe and subscribePattern and assign contradict",
    ),
    ({"subscribe": "a", "minOffsetsPerTrigger": "2", "maxOffsetsPerTrigger": "1"}, "minOffsetsPerTrigger (2) exceeds"),
    (
        {"subscribe": "a", "minRecordsPerPartition": "2", "maxRecordsPerPartition": "1"},
        "minRecordsPerPartition (2) exceeds",
    ),
    (
        {"subscribe": "a", "minRecordsPerPartition": "2", "minPartitions": "1"},
        "minPartitions and minRecordsPerPartition",
    ),
    (
        {"subscribe": "a", "kafka.group.id": "x", "commitGroup": "y"},
        "commitGroup (y) and kafka.group.id (x) name different",
    ),
    (
        {"subscribe": "a", "kafka.request.timeout.ms": "400", "kafka.fetch.max.wait.ms": "400"},
        "must be less than kafka.request",
    ),
    (
        {"subscribe": "a", "kafka.fetch.min.bytes": "9", "kafka.fetch.max.bytes": "8"},
        "kafka.fetch.min.bytes (9) exceeds",
    ),
    (
        {"subscribe": "a", "kafka.default.api.timeout.ms": "29999"},
        "kafka.default.api.timeout.ms (29999) must be at least",
    ),
    ({"subscribe": "a", "kafka.ssl.truststore.location": "x.pem"}, "Set kafka.security.protocol to SSL"),
    (
        {"subscribe": "a", "valueReaderSchema": "{}"},
        "valueReaderSchema is for Avro, Protobuf and JSON Schema. Set valueFormat,",
    ),
    (
        {"subscribe": "a", "keyReaderSchema": "{}"} | AVRO,
        "keyReaderSchema is for Avro, Protobuf and JSON Schema. Set keyFormat,",
    ),
    ({"subscribe": "a", "valueReaderSchema": ""} | AVRO, "valueReaderSchema is empty"),
    (
        {"subscribe": "a", "keyReaderSchemaReferences": "[]"} | AVRO,
        "keyReaderSchemaReferences is for keyReaderSchema: ",
    ),
    ({"subscribe": "a", "valueMessage": "M"} | AVRO, "valueMessage is for Protobuf. Set valueFormat to protobuf"),
    ({"subscribe": "a", "valueMessage": ""} | AVRO | {"valueFormat": "protobuf"}, "valueMessage is empty"),
    (
        {"subscribe": "a", "keyFormat": "protobuf"},
        'Protobuf needs a Schema Registry. Set .option("schema.registry.url"',
    ),
    ({"subscribe": "a", "mode": "permissive"}, "mode has no effect: no column is decoded"),
    ({"subscribe": "a", "schema.registry.url": "http://r"}, "schema.registry.url has no effect: no column is decoded"),
    ({"subscribe": "a", "basic.auth.user.info": "u:p"}, "basic.auth.user.info has no effect"),
    ({"subscribe": "a", "keyFormat": "avro"}, 'Avro needs a Schema Registry. Set .option("schema.registry.url"'),
    ({"subscribe": "a", "valueFormat": "avro", "schema.registry.url": "registry:8081"}, "must be http://host:port"),
    ({"subscribe": "a", "bearer.auth.token": "t", "basic.auth.user.info": "u:p"} | AVRO, "contradict each other"),
    ({}, "the read has no topics: one of subscribe, subscribePattern and assign must be set"),
]


@pytest.mark.covers("RD2")
@pytest.mark.parametrize(("options", "said"), CONTRADICTIONS)
def test_contradictions_are_one_error(options: dict[str, str], said: str) -> None:
    refused(SERVERS | options, said)


def test_servers_must_be_set() -> None:
    refused({"subscribe": "a"}, 'kafka.bootstrap.servers is not set. Add .option("kafka.bootstrap.servers"')


BATCHES: list[tuple[dict[str, str], str]] = [
    ({"startingOffsets": "latest"}, "startingOffsets cannot be latest: a batch that starts there has no records"),
    (
        {"startingOffsets": '{"orders":{"0":1,"1":-1}}'},
        "startingOffsets cannot be -1 (latest) for topic 'orders', partition 1",
    ),
    ({"endingOffsets": "Earliest"}, "endingOffsets cannot be earliest: a batch that ends there has no records"),
    ({"endingOffsets": '{"orders":{"0":-2}}'}, "endingOffsets cannot be -2 (earliest) for topic 'orders', partition 0"),
    ({"startingOffsets": '{"orders":{"0":5}}', "endingOffsets": '{"orders":{"0":4}}'}, "startingOffsets (5) is after"),
    (
        {"startingOffsets": OFFSETS, "endingOffsets": '{"orders":{"1":4}}'},
        "only one of them names topic 'orders', partition 0",
    ),
    ({"startingTimestamp": "5", "endingTimestamp": "4"}, "startingTimestamp (5) is after endingTimestamp (4)"),
    (
        {"startingOffsetsByTimestamp": '{"orders":{"0":5}}', "endingOffsetsByTimestamp": '{"orders":{"0":4}}'},
        "startingOffsetsByTimestamp (5) is after endingOffsetsByTimestamp (4) for topic 'orders', partition 0",
    ),
    ({"commitGroup": "g"}, "commitGroup is for streams"),
]


@pytest.mark.covers("RD2")
@pytest.mark.parametrize(("options", "said"), BATCHES)
def test_a_batch_without_records_by_its_options_is_an_error(options: dict[str, str], said: str) -> None:
    _, source, _ = parse_source_options(TOPIC | options)
    with pytest.raises(ConfigError) as raised:
        check_batch(source)
    assert said in str(raised.value)


@pytest.mark.covers("RD2")
@pytest.mark.parametrize(
    ("name", "value"), [("endingOffsets", "latest"), ("endingTimestamp", "1"), ("endingOffsetsByTimestamp", OFFSETS)]
)
def test_a_stream_has_no_end(name: str, value: str) -> None:
    _, source, _ = parse_source_options(TOPIC | {name: value})
    with pytest.raises(ConfigError, match=f"{name} is for batches: a stream has no end"):
        check_stream(source, has_read_limits=True)


@pytest.mark.covers("RD2")
@pytest.mark.parametrize(
    ("name", "value"), [("maxOffsetsPerTrigger", "1"), ("minOffsetsPerTrigger", "1"), ("maxTriggerDelay", "1s")]
)
def test_limits_need_a_spark_that_passes_them_on(name: str, value: str) -> None:
    _, source, _ = parse_source_options(TOPIC | {name: value})
    check_stream(source, has_read_limits=True)
    with pytest.raises(ConfigError, match=rf"{name} needs Spark 4\.2 or newer"):
        check_stream(source, has_read_limits=False)


NAMES_OF_OTHERS = [
    ("kafka.isolation.levl", "unknown option 'kafka.isolation.levl'. Did you mean 'kafka.isolation.level'?"),
    ("isolation.level", "options of Kafka have the prefix `kafka.`. Did you mean 'kafka.isolation.level'?"),
    ("kafka.kafka.isolation.level", "the prefix `kafka.` is repeated. Write 'kafka.isolation.level'"),
    ("startingoffset", "Did you mean 'startingOffsets'?"),
    ("schema.registry.ulr", "Did you mean 'schema.registry.url'?"),
    ("nonsense", "unknown option 'nonsense'. `pyproducer options` lists them all."),
    ("path", 'load() takes no path. Name the topics with .option("subscribe"'),
    ("topic", "option 'topic' is for writes: a read has 'subscribe'. Write that"),
    ("topics", "unknown option 'topics': a read has 'subscribe'"),
    ("checkpointlocation", "option 'checkpointLocation' is not supported: it is an option of writeStream"),
    ("kafka.fetch.message.max.bytes", "it is librdkafka's name. Did you mean 'kafka.max.partition.fetch.bytes'?"),
    ("kafka.metadata.broker.list", "it is librdkafka's name. Did you mean 'kafka.bootstrap.servers'?"),
    ("kafka.sasl.kerberos.kinit.cmd", "is not supported: no command is run"),
]


@pytest.mark.covers("RD2")
@pytest.mark.parametrize(("name", "said"), NAMES_OF_OTHERS)
def test_a_name_that_reads_do_not_have(name: str, said: str) -> None:
    refused(TOPIC | {name: "1"}, said)


@pytest.mark.covers("RD2")
@pytest.mark.parametrize("name", UNSUPPORTED_READS)
def test_an_option_of_consumers_without_meaning_here_has_its_reason(name: str) -> None:
    refused(TOPIC | {f"kafka.{name}": "1"}, f"option 'kafka.{name}' is not supported: {UNSUPPORTED_READS[name]}")


@pytest.mark.covers("RD2")
@pytest.mark.parametrize("name", UNSUPPORTED_OF_SPARK)
def test_an_option_of_sparks_source_without_meaning_here_has_its_reason(name: str) -> None:
    refused(TOPIC | {name.lower(): "1"}, f"option {name!r} is not supported: {UNSUPPORTED_OF_SPARK[name]}")


WRITES = [
    *(name for name in SINK_FIELDS if name not in SOURCE_FIELDS and name != "topic"),
    *(name for name in REGISTRY_FIELDS if name not in READ_REGISTRY_FIELDS),
    *(f"kafka.{name}" for name in KAFKA_FIELDS if name not in CONSUMER_FIELDS and name not in UNSUPPORTED_READS),
]


@pytest.mark.covers("RD2")
@pytest.mark.parametrize("name", WRITES)
def test_an_option_of_writes_is_refused_as_one(name: str) -> None:
    refused(TOPIC | {name.lower(): "1"}, f"option {name!r} is not supported: it is for writes. Leave it out of reads")


@pytest.mark.parametrize("name", CHECKPOINT_OPTIONS)
def test_an_option_of_the_checkpoint_belongs_to_the_write(name: str) -> None:
    refused(TOPIC | {name.lower(): "true"}, f"option {name!r} is not supported: it is an option of writeStream")


@pytest.mark.parametrize(
    "name", [*SOURCE_FIELDS, *(f"kafka.{name}" for name in ("isolation.level", "group.id", "ssl.key.password"))]
)
def test_none_is_not_the_text_none(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(name)} is None"):
        parse_source_options({**TOPIC, name.lower(): None})


SECRETS = [f"kafka.{name}" for name, field in CONSUMER_FIELDS.items() if is_secret(field)]
SECRETS += [name for name, field in READ_REGISTRY_FIELDS.items() if is_secret(field)]


@pytest.mark.covers("RD2")
@pytest.mark.parametrize("name", [*SECRETS, "kafka.sasl.pasword", "basic.auth.user.inf"])
def test_no_error_shows_a_secret(name: str) -> None:
    """Whatever else is wrong, under a misspelt name too."""
    with pytest.raises(ConfigError) as raised:
        parse_source_options(TOPIC | {name: "s3cret-text", "startingOffsets": "x"})
    assert "s3cret-text" not in str(raised.value)
    frame = raised.tb
    while frame is not None:
        assert "s3cret-text" not in repr(frame.tb_frame.f_locals) or frame.tb_frame.f_code.co_name.startswith("test_")
        frame = frame.tb_next  # type: ignore[assignment]


def test_a_secret_is_no_value_of_a_plain_option() -> None:
    with pytest.raises(ConfigError, match="subscribe is not a secret option, but has a Secret"):
        parse_source_options({**SERVERS, "subscribe": Secret("orders")})


def test_long_values_are_shown_in_part() -> None:
    with pytest.raises(ConfigError) as raised:
        parse_source_options(TOPIC | {"startingOffsets": "[" + "1," * 5_000 + "1]"})
    assert len(str(raised.value)) < 300


def test_options_travel_and_compare_by_value() -> None:
    _, source, _ = parse_source_options(TOPIC)
    assert source == SourceOptions(subscribe="orders")
    with pytest.raises(dataclasses.FrozenInstanceError):
        source.subscribe = "x"  # type: ignore[misc]
