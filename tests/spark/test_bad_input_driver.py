"""Errors that are found before a row is read: one clear error on the driver, and no task runs."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tests.conftest import STRICT_BROKERS, Broker
from tests.spark.frames import FORMAT, short_message, sink_options, write
from tests.support.ports import free_ports


class Watched:
    """A DataFrame whose rows create a file when a task computes one of them."""

    def __init__(self, spark: SparkSession, trace: Path) -> None:
        self._trace = trace
        name = str(trace)

        def touch(value: int) -> tuple[str]:
            Path(name).touch()
            return (str(value),)

        self.frame = spark.createDataFrame(spark.sparkContext.parallelize(range(2)).map(touch), "value string")

    @property
    def computed(self) -> bool:
        """Return whether any task has run."""
        return self._trace.exists()


@pytest.fixture
def watched(spark: SparkSession, tmp_path: Path) -> Watched:
    return Watched(spark, tmp_path / "a-task-has-run")


def refusal(frame: DataFrame, options: dict[str, str], mode: str = "append") -> str:
    with pytest.raises(AnalysisException) as caught:
        frame.write.format(FORMAT).options(**options).mode(mode).save()
    return short_message(str(caught.value))


def test_the_watch_sees_tasks(watched: Watched, embedded_broker: Broker, topic: str) -> None:
    embedded_broker.create_topic(topic, 1)
    assert not watched.computed
    write(watched.frame, embedded_broker, topic)
    assert watched.computed


OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"topic": None}, "no topic is given. Set .option(\"topic\", …), or add a string column 'topic'"),
    ({"kafka.bootstrap.servers": None}, 'kafka.bootstrap.servers is not set. Add .option("kafka.bootstrap.servers"'),
    (
        {"kafka.partitioner.class": "rond_robin"},
        "unknown kafka.partitioner.class 'rond_robin'. Did you mean 'round_robin'",
    ),
    ({"kafka.partitioner.class": "no_such_module:f"}, "ModuleNotFoundError: No module named 'no_such_module'"),
    ({"kafka.bootstrap.servers": " "}, "kafka.bootstrap.servers is empty"),
    ({"kafka.bootstrap.servers": "localhost"}, "bad entry 'localhost' in 'localhost': expected host:port"),
    ({"kafka.batchsize": "1"}, "unknown option 'kafka.batchsize'. Did you mean 'kafka.batch.size'?"),
    ({"batch.size": "1"}, "Did you mean 'kafka.batch.size'?"),
    ({"topics": "x"}, "unknown option 'topics'. Did you mean 'topic'?"),
    (
        {"kafka.key.serializer": "x"},
        "option 'kafka.key.serializer' is not supported: keys and values are string or binary",
    ),
    ({"kafka.batch.size": "many"}, "kafka.batch.size must be a whole number, not 'many'"),
    ({"kafka.acks": "2"}, "kafka.acks must be one of all, -1, 1, 0, not '2'"),
    ({"path": "/topics/x"}, 'take no path. Name the topic with .option("topic", …)'),
]


OF_UNIT_TESTS = (
    "unknown kafka.partitioner.class",
    "kafka.bootstrap.servers is empty",
    "bad entry",
    "Did you mean 'kafka.batch.size'?",
    "option 'kafka.key.serializer'",
    "kafka.batch.size must be",
    "kafka.acks must be",
)
"""Beginnings of errors that the tests of config, network and partitioner check, too."""


def twin_of_unit_test(message: str) -> bool:
    return message.startswith(OF_UNIT_TESTS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(given, message, id=str(given)[1:-1], marks=[pytest.mark.nightly] * twin_of_unit_test(message))
        for given, message in OPTIONS
    ],
)
def test_bad_options(
    watched: Watched, embedded_broker: Broker, topic: str, options: dict[str, str | None], message: str
) -> None:
    embedded_broker.create_topic(topic, 1)
    merged: dict[str, Any] = {**sink_options(embedded_broker, topic), **options}
    given = {name: value for name, value in merged.items() if value is not None}
    assert message in refusal(watched.frame, given)
    assert not watched.computed


COLUMNS: list[tuple[list[str], str]] = [
    (["value", "1 as id"], "unknown column 'id'. The columns are value, key, topic, partition, headers, timestamp"),
    (["value", "'k' as keys"], "unknown column 'keys'. Did you mean 'key'?"),
    (["value as Value"], "unknown column 'Value'. Did you mean 'value'?"),
    (["value as key"], "column 'value' is missing: it holds the record's value, string or binary"),
    (["int(value) as value"], "column 'value' has type int; it must be string or binary"),
    (["value", "1.5 as key"], "column 'key' has type decimal(2,1); it must be string or binary"),
    (["value", "1 as topic"], "column 'topic' has type int; it must be string"),
    (["value", "1L as partition"], "column 'partition' has type bigint; it must be int"),
    (
        ["value", "array('a') as headers"],
        "column 'headers' has type array<string>; it must be array<struct<key: string",
    ),
    (
        ["value", "map(1, 'a') as headers"],
        "column 'headers' has type map<int,string>; it must be array<struct<key: string",
    ),
    (["value", "date'2013-01-01' as timestamp"], "column 'timestamp' has type date; it must be timestamp, or bigint"),
    (["value", "timestamp_ntz'2013-01-01 00:00:00' as timestamp"], "has type timestamp_ntz; it must be timestamp, or"),
]


@pytest.mark.parametrize(("columns", "message"), COLUMNS, ids=[columns[-1] for columns, _ in COLUMNS])
def test_bad_columns(watched: Watched, embedded_broker: Broker, topic: str, columns: list[str], message: str) -> None:
    embedded_broker.create_topic(topic, 1)
    frame = watched.frame.selectExpr(*columns)
    assert message in refusal(frame, sink_options(embedded_broker, topic))
    assert not watched.computed


def test_no_columns(spark: SparkSession, embedded_broker: Broker, topic: str) -> None:
    embedded_broker.create_topic(topic, 1)
    frame = spark.createDataFrame([], StructType([]))
    assert "the DataFrame has no columns; it needs at least 'value'" in refusal(
        frame, sink_options(embedded_broker, topic)
    )


def test_overwrite(watched: Watched, embedded_broker: Broker, topic: str) -> None:
    embedded_broker.create_topic(topic, 1)
    message = refusal(watched.frame, sink_options(embedded_broker, topic), mode="overwrite")
    assert "a topic cannot be overwritten" in message
    assert 'Use mode("append")' in message
    assert not watched.computed


@pytest.mark.parametrize("mode", ["error", "ignore"])
def test_spark_refuses_other_modes(watched: Watched, embedded_broker: Broker, topic: str, mode: str) -> None:
    """That is the mode of a plain save() too; Spark's default, so the documentation always says mode("append")."""
    embedded_broker.create_topic(topic, 1)
    assert "UNSUPPORTED_DATA_SOURCE_SAVE_MODE" in refusal(watched.frame, sink_options(embedded_broker, topic), mode)
    assert not watched.computed


@pytest.fixture
def silent() -> Iterator[int]:
    """Yield a port that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_unreachable_brokers(watched: Watched, topic: str, silent: int) -> None:
    closed = free_ports(2)
    addresses = [*(f"127.0.0.1:{port}" for port in (*closed, silent)), "no-such-host.invalid:9092"]
    options = {"kafka.bootstrap.servers": ",".join(addresses), "topic": topic, "kafka.max.block.ms": "700"}
    message = refusal(watched.frame, options)
    assert "no broker could be reached within 0.7 s" in message
    for address in addresses:
        assert address in message
    assert "Connection refused" in message
    assert (
        "check the bootstrap servers (kafka.bootstrap.servers, --bootstrap-servers), that the brokers run, and firewalls"
        in message
    )
    assert not watched.computed


@pytest.mark.parametrize("broker_fixture", STRICT_BROKERS)
def test_missing_topic(request: pytest.FixtureRequest, watched: Watched, topic: str, broker_fixture: str) -> None:
    broker: Broker = request.getfixturevalue(broker_fixture)
    options = {**sink_options(broker, topic), "kafka.max.block.ms": "500"}
    message = refusal(watched.frame, options)
    assert f"UNKNOWN_TOPIC_OR_PARTITION (3) for topic '{topic}'" in message
    assert "create the topic, or correct its name" in message
    assert not watched.computed


def test_illegal_topic_name(watched: Watched, broker: Broker) -> None:
    message = refusal(watched.frame, {**sink_options(broker, "no topic!"), "kafka.max.block.ms": "500"})
    assert "INVALID_TOPIC_EXCEPTION (17) for topic 'no topic!'" in message
    assert not watched.computed


def test_secrets_stay_out_of_messages(watched: Watched, embedded_broker: Broker, topic: str) -> None:
    """Neither those of options that are wrong together, nor those of names that are misspelt."""
    options = {
        **sink_options(embedded_broker, topic),
        "kafka.sasl.jaas.config": 'org.example.LoginModule required password="hunter2";',
    }
    message = refusal(watched.frame, options)
    assert (
        "kafka.sasl.jaas.config is set, but PLAINTEXT does not use it. Set kafka.security.protocol to SASL_SSL"
        in message
    )
    assert "hunter2" not in message
    options = {**sink_options(embedded_broker, topic), "kafka.ssl.key.passwort": "hunter2"}
    message = refusal(watched.frame, options)
    assert "unknown option 'kafka.ssl.key.passwort'. Did you mean 'kafka.ssl.key.password'?" in message
    assert "hunter2" not in message
