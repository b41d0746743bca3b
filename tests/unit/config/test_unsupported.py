"""The errors of options that `Producer` does not support."""

from __future__ import annotations

import pytest

from spark_producer.config import KAFKA_FIELDS, SINK_FIELDS, parse_sink_options, producer_config, unsupported
from spark_producer.errors import ConfigError


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (
            "kafka.bootstrap.servers",
            "unknown option 'kafka.bootstrap.servers': Producer takes names without the prefix `kafka.`. "
            "Write 'bootstrap.servers'",
        ),
        ("Kafka.Linger.ms", "without the prefix `kafka.`. Write 'linger.ms'"),
        ("bathc.size", "unknown option 'bathc.size'. Did you mean 'batch.size'?"),
        ("kafka.bathc.size", "unknown option 'kafka.bathc.size'. Did you mean 'batch.size'?"),
        ("topic", "unknown option 'topic'. `pyproducer options`"),
        ("acks.all", "unknown option 'acks.all'"),
        ("ssl.provider", "option 'ssl.provider' is not supported: Java's TLS"),
        ("sasl.kerberos.kinit.cmd", "is not supported: no command is run"),
        ("kafka.key.serializer", "option 'kafka.key.serializer' is not supported: keys and values are"),
    ],
)
def test_the_producer_speaks_of_options_without_a_prefix(option: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        producer_config({"bootstrap.servers": "broker:9092", option: "1"})
    assert said in str(raised.value)
    assert "kafka.kafka" not in str(raised.value)


def test_a_prefix_that_is_there_twice_is_seen_as_one() -> None:
    with pytest.raises(ConfigError, match=r"without the prefix `kafka\.`\. Write 'linger\.ms'"):
        producer_config({"bootstrap.servers": "broker:9092", "kafka.kafka.linger.ms": "1"})


@pytest.mark.parametrize(
    "name", [*unsupported.SOURCE_OPTIONS, *unsupported.CHECKPOINT_OPTIONS, "txnAppId", "badRecordsPath", *SINK_FIELDS]
)
def test_a_name_is_shown_as_people_write_it(name: str) -> None:
    """Spark hands over every name in lower case."""
    value = None if name in SINK_FIELDS else "1"
    with pytest.raises(ConfigError) as raised:
        parse_sink_options({"kafka.bootstrap.servers": "broker:9092", name.lower(): value})
    assert name in str(raised.value)


@pytest.mark.parametrize("name", unsupported.LIBRDKAFKA)
def test_names_of_librdkafka_lead_to_ours(name: str) -> None:
    ours = unsupported.LIBRDKAFKA[name]
    assert ours in KAFKA_FIELDS
    for given in (name, f"kafka.{name}"):
        with pytest.raises(ConfigError, match=rf"it is librdkafka's name\. Did you mean 'kafka\.{ours}'"):
            parse_sink_options({"kafka.bootstrap.servers": "broker:9092", given: "1"})
    with pytest.raises(ConfigError, match=f"it is librdkafka's name. Did you mean '{ours}'"):
        producer_config({"bootstrap.servers": "broker:9092", name: "1"})


def test_names_of_kafka_connect_lead_to_ours() -> None:
    for name in ("errors.tolerance", "errors.deadletterqueue.topic.name"):
        with pytest.raises(ConfigError, match=r"it is Kafka Connect's name\. Did you mean 'deadLetterTopic'"):
            parse_sink_options({"kafka.bootstrap.servers": "broker:9092", name: "all"})
