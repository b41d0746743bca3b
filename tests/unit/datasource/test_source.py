"""The checks of the data source on the driver, called as Spark's planner calls them; no JVM."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from spark_producer.admin import BlockingClient
from spark_producer.broker import LocalBroker
from spark_producer.common import wait_warning
from spark_producer.config import producer_config
from spark_producer.datasource import PyProducerDataSource
from spark_producer.datasource.write.driver import cluster_check
from spark_producer.errors import BrokersUnreachable, ConfigError, SchemaError, TopicNotFound
from spark_producer.network import ConnectionSettings
from tests.fakes.login_scripts import REFUSALS, Refusal
from tests.fakes.scripted_server import ScriptedServer
from tests.unit.schemas.played_registry import Played

pytestmark = pytest.mark.usefixtures("free_pauses")

VALUE = StructType([StructField("value", StringType())])


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with LocalBroker(auto_create_topics=False) as made:
        made.create_topic("known")
        yield made


def source_to(servers: str, topic: str = "known", *, timeout: float = 20, **options: str) -> PyProducerDataSource:
    """`timeout`: seconds that brokers are waited for."""
    given = {"kafka.bootstrap.servers": servers, "topic": topic, "kafka.max.block.ms": str(int(1000 * timeout))}
    return PyProducerDataSource(given | options)


def source_with(options: Mapping[str, str]) -> PyProducerDataSource:
    return PyProducerDataSource({"kafka.bootstrap.servers": "localhost:1", "topic": "known", **options})


def test_a_batch_write_asks_the_brokers_each_time(broker: LocalBroker) -> None:
    """Spark reuses the planner process: what was there at the first write may be gone at the second."""
    servers = broker.bootstrap_servers
    assert source_to(servers).writer(VALUE, False).settings.sink.topic == "known"
    with pytest.raises(TopicNotFound, match="'unknown'"):
        source_to(servers, "unknown", timeout=1).writer(VALUE, False)
    broker.close()
    with pytest.raises(BrokersUnreachable, match=servers):
        source_to(servers, timeout=0.2).writer(VALUE, False)


def test_a_stream_with_new_credentials_is_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings with secrets have no hash; they are compared."""
    checked: list[str] = []
    monkeypatch.setattr(cluster_check, "_checked", [])
    monkeypatch.setattr(
        cluster_check, "check_cluster", lambda config, topic, **_: checked.append(config.sasl_password.reveal())
    )
    login = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": "u"}
    for password in ("old", "old", "new", "old", "new"):
        source_with(login | {"kafka.sasl.password": password}).streamWriter(VALUE, False)
    assert checked == ["old", "new"]
    monkeypatch.setattr(cluster_check, "CHECK_SECONDS", 0.0)
    source_with(login | {"kafka.sasl.password": "new"}).streamWriter(VALUE, False)
    assert checked == ["old", "new", "new"]
    assert len(cluster_check._checked) == 1, "what does not hold any more is forgotten"


def test_a_long_wait_for_a_topic_is_reported_once(
    broker: LocalBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait_warning, "WARN_AFTER_S", 0.0)
    config = producer_config({"bootstrap.servers": broker.bootstrap_servers, "max.block.ms": 1000})
    with pytest.raises(TopicNotFound, match=r"still after 1 s \(kafka.max.block.ms\)"):
        cluster_check.check_cluster(config, "typo")
    reported = [record.getMessage() for record in caplog.records]
    assert len(reported) == 1
    assert reported[0].startswith("still waiting for ")
    assert reported[0].endswith("at most 1 s (kafka.max.block.ms)")


def test_a_topic_that_no_broker_knows_ends_the_check_early_and_the_one_that_was_meant_is_named(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a time of the user's own it is waited for as long."""
    monkeypatch.setattr(cluster_check, "UNKNOWN_TOPIC_GRACE", 0.5)
    broker.create_topic("flights")
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "flihgts"}
    with pytest.raises(TopicNotFound) as raised:
        PyProducerDataSource(given).writer(VALUE, False)
    assert str(raised.value) == (
        "UNKNOWN_TOPIC_OR_PARTITION (3) for topic 'flihgts'. What to do: correct the name (did you mean 'flights'?), or create "
        "the topic."
    )
    with pytest.raises(TopicNotFound, match=r"for topic 'nothing-like-it', still after 0.5 s\."):
        PyProducerDataSource(given | {"topic": "nothing-like-it"}).writer(VALUE, False)
    with pytest.raises(TopicNotFound, match=r"still after 1 s \(kafka.max.block.ms\)"):
        source_to(broker.bootstrap_servers, "nothing-like-it", timeout=1).writer(VALUE, False)


@pytest.mark.covers("COM3")
def test_a_dead_letter_topic_that_is_not_there_is_an_error_before_any_task(broker: LocalBroker) -> None:
    """Holds whether or not brokers create topics automatically."""
    config = producer_config({"bootstrap.servers": broker.bootstrap_servers, "max.block.ms": 1000})
    with pytest.raises(TopicNotFound) as raised:
        cluster_check.check_cluster(config, None, dead_letters="no-dead")
    assert str(raised.value) == (
        "UNKNOWN_TOPIC_OR_PARTITION (3) for dead-letter topic 'no-dead' (option deadLetterTopic). What to do: correct its name, "
        "or create it: writes do not create dead-letter topics."
    )
    broker.create_topic("flights.dead")
    broker.create_topic("flights")
    with pytest.raises(TopicNotFound, match=r"correct its name \(did you mean 'flights\.dead'\?\), or create it"):
        cluster_check.check_cluster(config, None, dead_letters="flights.daed")


@pytest.mark.covers("COM8")
def test_each_write_with_dead_letters_has_a_name_of_its_own(broker: LocalBroker) -> None:
    """The id travels with the writer, so it is equal in all tasks; a write without dead letters needs none."""
    broker.create_topic("known.dead")
    source = source_to(broker.bootstrap_servers, deadLetterTopic="known.dead")
    writers = [source.writer(VALUE, False), source.writer(VALUE, False), source.streamWriter(VALUE, False)]
    names = [pickle.loads(pickle.dumps(writer)).settings.write_id for writer in writers]
    assert names == [writer.settings.write_id for writer in writers]
    assert len(set(names)) == 3
    assert all(names)
    assert source_to(broker.bootstrap_servers).writer(VALUE, False).settings.write_id == ""


def test_the_error_of_a_wait_for_a_topic_says_what_helps(broker: LocalBroker) -> None:
    """A minute is long for a name that is misspelt, and brokers that make topics by themselves say the same at first."""

    def reported(_: float, subject: str) -> None:
        if subject.startswith("topic"):
            raise InterruptedError(subject)

    settings = ConnectionSettings.from_config(producer_config({"bootstrap.servers": broker.bootstrap_servers}))
    said = r"topic 'typo' \(the brokers answer UNKNOWN_TOPIC_OR_PARTITION: create the topic, or correct its name\)"
    with BlockingClient(settings, on_wait=reported) as client, pytest.raises(InterruptedError, match=said):
        client.wait_for_topic("typo", create=True)


def test_a_stream_remembers_for_a_while(broker: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    servers = broker.bootstrap_servers
    source_to(servers).streamWriter(VALUE, False)
    broker.close()
    assert source_to(servers).streamWriter(VALUE, True).settings.sink.topic == "known"
    monkeypatch.setattr(cluster_check, "CHECK_SECONDS", 0.0)  # Spark creates the source: no clock can be given to it
    with pytest.raises(BrokersUnreachable, match=servers):
        source_to(servers, timeout=0.2).streamWriter(VALUE, False)


def test_the_check_of_a_stream_says_nothing_for_one_that_connects_in_another_way(broker: LocalBroker) -> None:
    servers = broker.bootstrap_servers
    source_to(servers).streamWriter(VALUE, False)
    broker.close()
    others: list[dict[str, str]] = [{"kafka.client.id": "another"}, {"kafka.request.timeout.ms": "20000"}]
    for options in others:
        with pytest.raises(BrokersUnreachable, match=servers):
            source_to(servers, timeout=0.2, **options).streamWriter(VALUE, False)
    with pytest.raises(BrokersUnreachable, match=servers):
        source_to(servers, "another", timeout=0.2).streamWriter(VALUE, False)
    batching: dict[str, str] = {"kafka.linger.ms": "7"}
    assert source_to(servers, timeout=0.2, **batching).streamWriter(VALUE, False).settings.sink.topic == "known"


@pytest.mark.covers("SEC20–SEC25")
@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS.keys())
def test_the_error_of_a_broker_is_raised_by_the_writer_at_once(refusal: Refusal) -> None:
    with ScriptedServer(refusal.script) as server:
        options = {f"kafka.{name}": value for name, value in refusal.options.items()}
        made = source_to(f"127.0.0.1:{server.port}", timeout=600, **options)
        for writer in (made.writer, made.streamWriter):
            with pytest.raises(refusal.error) as caught:
                writer(VALUE, False)
            for text in (*refusal.texts, f"127.0.0.1:{server.port}"):
                assert text in str(caught.value)


def test_two_columns_of_one_name_are_refused() -> None:
    twice = StructType([StructField("value", StringType()), StructField("value", StringType())])
    with pytest.raises(SchemaError, match="two columns have the same name"):
        source_to("localhost:1").writer(twice, False)


TO_JSON, CAST = "Write to_json(value) as value", "Write cast(value as string) as value"


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (VALUE, f"struct<value:string>; it must be string or binary. {TO_JSON}"),
        (MapType(StringType(), StringType()), TO_JSON),
        (ArrayType(StringType()), TO_JSON),
        (VariantType(), TO_JSON),
        (IntegerType(), CAST),
        (DecimalType(10, 2), CAST),
        (DateType(), CAST),
        (TimestampType(), CAST),
        (BooleanType(), CAST),
    ],
    ids=str,
)
def test_the_error_for_a_value_of_another_type_says_how_to_cast_it(kind: DataType, said: str) -> None:
    with pytest.raises(SchemaError) as refused:
        source_to("localhost:1").writer(StructType([StructField("value", kind)]), False)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("key", VALUE, '. Write to_json(key) as key, or set .option("keyFormat", "avro")'),
        ("key", LongType(), ". Write cast(key as string) as key"),
        ("topic", IntegerType(), ". Write cast(topic as string) as topic"),
        ("topic", VALUE, "; it must be string"),
        ("partition", LongType(), ". Write cast(partition as int) as partition"),
        ("partition", BinaryType(), "; it must be int"),
        ("timestamp", DateType(), ". Write cast(timestamp as timestamp) as timestamp"),
        ("timestamp", TimestampNTZType(), ". Write cast(timestamp as timestamp) as timestamp"),
        ("timestamp", BooleanType(), "milliseconds since 1970"),
        ("headers", StringType(), "values string or binary"),
    ],
)
def test_the_error_for_other_columns_of_another_type_says_what_to_write(name: str, kind: DataType, said: str) -> None:
    with pytest.raises(SchemaError) as refused:
        source_to("localhost:1").writer(StructType([*VALUE.fields, StructField(name, kind)]), False)
    assert str(refused.value).endswith(said)


def test_a_struct_of_many_fields_does_not_hide_what_to_do() -> None:
    wide = StructType([StructField(f"a_field_with_a_long_name_{number}", StringType()) for number in range(200)])
    with pytest.raises(SchemaError) as refused:
        source_to("localhost:1").writer(StructType([StructField("value", wide)]), False)
    assert len(str(refused.value)) < 250
    assert str(refused.value).endswith(f'{TO_JSON}, or set .option("valueFormat", "avro")')


def test_the_error_of_overwrite_differs_from_what_spark_recommends() -> None:
    with pytest.raises(ConfigError, match=r'Use mode\("append"\).*names Overwrite'):
        source_to("localhost:1").writer(VALUE, True)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("kafka.ssl.truststore.locaton", "Did you mean 'kafka.ssl.truststore.location'?"),
        ("kafka.transaction.timeout.ms", "needs exactlyOnceId"),
        ("kafka.topic", "Did you mean 'topic'?"),
        ("kafka.metric.reporters", "is not supported"),
    ],
)
def test_hints_compare_names_without_their_prefix(option: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        source_with({option: "1"}).writer(VALUE, False)
    assert said in str(refused.value)


@pytest.mark.parametrize("number", ["1_000", "٣٣", "1e3", "", "- 1"])
def test_a_number_is_plain_digits(number: str) -> None:
    with pytest.raises(ConfigError, match="must be a whole number"):
        source_with({"kafka.linger.ms": number}).writer(VALUE, False)


def test_no_password_in_a_message() -> None:
    with pytest.raises(ConfigError) as refused:
        source_to("sasl://user:hunter2@localhost:9092").writer(VALUE, False)
    assert "hunter2" not in str(refused.value)


@pytest.mark.covers("COM13")
def test_what_travels_to_tasks_has_neither_the_registry_nor_its_password(broker: LocalBroker) -> None:
    """The driver asks, so no task has to. One request serves the writers of a minute, of batches and of streams."""
    schema = StructType([StructField("value", StructType([StructField("id", LongType(), False)]), False)])
    options: dict[str, Any] = {"valueFormat": "avro", "basic.auth.user.info": "ann:k4n4rie"}
    with Played() as registry:
        registry.answer = 200, b'{"id": 3}'
        options |= {"schema.registry.url": registry.url}
        made = source_to(broker.bootstrap_servers, **options)
        writers = [made.writer(schema, False), made.streamWriter(schema, False), made.writer(schema, False)]
        assert [path.partition("?")[0] for path, _ in registry.asked] == ["/subjects/known-value/versions"]
    for writer in writers:
        assert writer.settings.formats is not None
        assert writer.settings.formats.value is not None
        assert writer.settings.formats.value.prefix == b"\x00\x00\x00\x00\x03"
        sent = pickle.dumps(writer)
        for text in ("k4n4rie", registry.url, "registry"):
            assert text.encode() not in sent.replace(b"spark_producer.schemas.registry", b"")
