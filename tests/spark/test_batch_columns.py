"""Batch writes: every column and type of the contract arrives as it was, read back by clients that we did not write."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.conftest import Broker
from tests.spark.frames import RECORD_COLUMNS, assert_same_rows, read_back, session_settings, write
from tests.support.read_back import Client, read_topic
from tests.support.read_spark import READ_BACK_SCHEMA

MORNING = datetime(2013, 1, 1, 5, 17, 0, 123_000, tzinfo=UTC)
HEADERS_TYPE = "array<struct<key: string, value: binary>>"
SCHEMA = f"topic string, partition int, timestamp timestamp, key binary, value binary, headers {HEADERS_TYPE}"
LARGE_TYPES = "spark.sql.execution.arrow.useLargeVarTypes"


def records(topic: str, other: str) -> list[tuple[Any, ...]]:
    """Return one row for each special case of nulls, empty values, headers and routing."""
    return [
        (topic, 0, MORNING, b"key", b"value", [("trace", b"1"), ("trace", b"2")]),
        (topic, 1, MORNING + timedelta(days=2), b"key", b"value", [("null", None), ("", b"")]),
        (topic, 1, MORNING - timedelta(days=2), None, b"null key", []),
        (topic, 1, MORNING, b"", b"empty key", []),
        (topic, 0, MORNING, b"null value", None, [("only", b"header")]),
        (topic, 0, MORNING, b"empty value", b"", []),
        (topic, 0, MORNING, None, None, []),
        (topic, 0, MORNING, b"", b"", []),
        (other, 2, MORNING, bytes(range(256)), b"\x00" * 5_000, [("größe", b"5 kB")]),
    ]


@pytest.mark.parametrize(
    ("large", "client"), [(False, "kafka-python"), (True, "confluent")], ids=["small", "large-offsets"]
)
def test_every_column_arrives(spark: SparkSession, broker: Broker, topic: str, large: bool, client: Client) -> None:
    other = f"{topic}-other"
    broker.create_topic(topic, 2)
    broker.create_topic(other, 3)
    wanted = spark.createDataFrame(records(topic, other), SCHEMA)
    with session_settings(spark, {"spark.sql.execution.arrow.useLargeVarTypes": str(large).lower()}):
        write(wanted, broker, None)
    found = read_back(spark, broker, topic, client=client).union(read_back(spark, broker, other, client=client))
    assert_same_rows(found.select(RECORD_COLUMNS), wanted)


@pytest.mark.parametrize(
    "large", [pytest.param(False, id="small"), pytest.param(True, id="large-offsets", marks=pytest.mark.nightly)]
)
def test_strings_are_their_utf_8_bytes(spark: SparkSession, broker: Broker, topic: str, large: bool) -> None:
    broker.create_topic(topic, 4)
    texts = ["", "plain", "zwölf Boxkämpfer", "\x00", "🛫 EWR"]
    rows = [(text, None if number == 1 else f"k{text}") for number, text in enumerate(texts)]
    frame = spark.createDataFrame([*rows, (None, "null value")], "value string, key string").coalesce(1)
    types = list(itertools.product(["string", "binary"], repeat=2))
    with session_settings(spark, {LARGE_TYPES: str(large).lower()}):
        for partition, (value, key) in enumerate(types):
            typed = frame.select(
                F.col("value").cast(value), F.col("key").cast(key), F.lit(partition).alias("partition")
            )
            write(typed, broker, topic)
    found = read_back(spark, broker, topic, expected=4 * len(texts) + 4)
    for partition in range(len(types)):
        assert_same_rows(
            found.where(F.col("partition") == partition).select("value", "key"),
            frame.select(F.col("value").cast("binary"), F.col("key").cast("binary")),
        )


HEADERS: list[tuple[str, list[Any]]] = [
    (HEADERS_TYPE, [[("a", b"1"), ("a", None)], [], None, [("b", b"")]]),
    ("array<struct<value: binary, key: string>>", [[(b"1", "a"), (None, "a")], [], None, [(b"", "b")]]),
    ("array<struct<key: string, value: string>>", [[("a", "1"), ("a", None)], [], None, [("b", "")]]),
    ("map<string, binary>", [{"a": b"1", "c": None}, {}, None, {"b": b""}]),
    ("map<string, string>", [{"a": "1", "c": None}, {}, None, {"b": ""}]),
]


@pytest.mark.parametrize(
    "large", [pytest.param(False, id="small"), pytest.param(True, id="large-offsets", marks=pytest.mark.nightly)]
)
def test_headers_of_every_type(spark: SparkSession, broker: Broker, topic: str, large: bool) -> None:
    broker.create_topic(topic, len(HEADERS))
    with session_settings(spark, {LARGE_TYPES: str(large).lower()}):
        for partition, (column_type, headers) in enumerate(HEADERS):
            rows = [(str(number), partition, given) for number, given in enumerate(headers)]
            schema = f"value string, partition int, headers {column_type}"
            write(spark.createDataFrame(rows, schema).coalesce(1), broker, topic)
    found = {(row.partition, row.value): row.headers for row in read_topic(broker.bootstrap_servers, topic)}
    for partition, (column_type, _) in enumerate(HEADERS):
        second = ("c", None) if column_type.startswith("map") else ("a", None)
        wanted = [[("a", b"1"), second], [], [], [("b", b"")]]
        assert [found[partition, str(number).encode()] for number in range(4)] == wanted, column_type
    assert len(found) == 4 * len(HEADERS)


def test_headers_can_be_left_out(spark: SparkSession, broker: Broker, topic: str) -> None:
    broker.create_topic(topic, 1)
    frame = spark.createDataFrame(
        [("v", [("a", b"1")])], "value string, headers array<struct<key: string, value: binary>>"
    )
    write(frame, broker, topic, {"includeHeaders": "false"})
    write(frame, broker, topic, {"includeHeaders": "true"})
    assert [row.headers for row in read_topic(broker.bootstrap_servers, topic, expected=2)] == [[], [("a", b"1")]]


def test_timestamps_of_both_types(spark: SparkSession, broker: Broker, topic: str) -> None:
    broker.create_topic(topic, 1)
    moments = [0, 1, 1_356_998_400_000, 1_384_000_000_123, 1_700_000_000_001]
    longs = spark.createDataFrame([(str(moment), moment) for moment in moments], "value string, timestamp long")
    write(longs, broker, topic)
    # Microseconds are cut, not rounded.
    exact = F.timestamp_millis("timestamp") + F.expr("INTERVAL 0.000999 SECOND")
    write(longs.select("value", exact.alias("timestamp")), broker, topic)
    for session_zone in ("America/New_York", "Asia/Kathmandu"):
        with session_settings(spark, {"spark.sql.session.timeZone": session_zone}):
            write(longs.select("value", F.timestamp_millis("timestamp").alias("timestamp")), broker, topic)
    rows = read_topic(broker.bootstrap_servers, topic, expected=4 * len(moments))
    assert [int(row.value or b"") for row in rows] == [row.timestamp_ms for row in rows]


def test_without_timestamps_the_time_of_writing_counts(spark: SparkSession, broker: Broker, topic: str) -> None:
    broker.create_topic(topic, 1)
    before = datetime.now(UTC)
    write(spark.range(5).selectExpr("string(id) as value"), broker, topic)
    found = read_back(spark, broker, topic, expected=5)
    between = F.col("timestamp").between(F.lit(before - timedelta(milliseconds=1)), F.lit(datetime.now(UTC)))
    assert found.where(~between).count() == 0


def test_the_option_wins_over_the_topic_column(spark: SparkSession, broker: Broker, topic: str) -> None:
    broker.create_topic(topic, 1)
    frame = spark.createDataFrame([("a", "no-such-topic"), ("b", None)], "value string, topic string")
    write(frame, broker, topic)
    assert sorted(row.value or b"" for row in read_topic(broker.bootstrap_servers, topic)) == [b"a", b"b"]


def test_partition_column_and_its_nulls(spark: SparkSession, broker: Broker, topic: str) -> None:
    """A null leaves the choice to the producer: the key decides."""
    broker.create_topic(topic, 5)
    frame = spark.range(200).selectExpr(
        "string(id) as value", "string(id % 10) as key", "if(id % 2 = 0, int(id % 5), null) as partition"
    )
    write(frame, broker, topic)
    found = read_back(spark, broker, topic, expected=200).selectExpr("int(string(value)) as id", "partition", "key")
    chosen = found.where("id % 2 = 0")
    assert chosen.where("partition != id % 5").count() == 0
    left_open = found.where("id % 2 = 1").groupBy("key").agg(F.countDistinct("partition").alias("partitions"))
    assert [row.partitions for row in left_open.collect()] == [1] * 5


def empty(spark: SparkSession) -> DataFrame:
    """A DataFrame without rows."""
    return spark.createDataFrame([], READ_BACK_SCHEMA).drop("offset")


def test_empty_dataframes_and_empty_partitions(spark: SparkSession, broker: Broker, topic: str) -> None:
    broker.create_topic(topic, 2)
    write(empty(spark), broker, topic)
    write(spark.range(100).where("id < 0").selectExpr("string(id) as value"), broker, topic)
    assert read_topic(broker.bootstrap_servers, topic, expected=0) == []
    frame = spark.range(0, 8, 1, 8).where("id % 4 = 1").selectExpr("string(id) as value")
    assert frame.rdd.getNumPartitions() == 8
    write(frame, broker, topic)
    assert sorted(row.value or b"" for row in read_topic(broker.bootstrap_servers, topic)) == [b"1", b"5"]
