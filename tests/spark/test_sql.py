"""SQL and tables: a table `USING pyproducer` is a name for the sink; where to write is said with each INSERT."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tests.conftest import Broker
from tests.spark.frames import FORMAT, assert_same_rows, read_back, sink_options, write
from tests.support.read_back import read_topic

SECONDS = 120


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A table of the sink, in a database of its own."""
    place: Path = tmp_path_factory.mktemp("warehouse")
    spark.sql(f"CREATE DATABASE pyproducer_tests LOCATION '{place}'")
    spark.sql(f"CREATE TABLE pyproducer_tests.kafka (key STRING, value BINARY) USING {FORMAT}")
    yield "pyproducer_tests.kafka"
    spark.sql("DROP DATABASE pyproducer_tests CASCADE")


def with_clause(broker: Broker, topic: str) -> str:
    pairs = ", ".join(f"'{name}' = '{value}'" for name, value in sink_options(broker, topic).items())
    return f"WITH ({pairs})"


def test_insert_into_with_options(spark: SparkSession, broker: Broker, topic: str, table: str) -> None:
    broker.create_topic(topic, 2)
    spark.sql(f"INSERT INTO {table} {with_clause(broker, topic)} VALUES ('k1', X'01'), (NULL, NULL)")
    spark.sql(f"INSERT INTO {table} {with_clause(broker, topic)} (value) SELECT X'02'")
    wanted = spark.createDataFrame([(b"k1", b"\x01"), (None, None), (None, b"\x02")], "key binary, value binary")
    assert_same_rows(read_back(spark, broker, topic).select("key", "value"), wanted)


def test_write_to_a_table(spark: SparkSession, broker: Broker, topic: str, table: str) -> None:
    broker.create_topic(topic, 2)
    frame = spark.createDataFrame([("k1", b"v1"), ("k2", None)], "key string, value binary")
    frame.writeTo(table).options(**sink_options(broker, topic)).append()
    wanted = frame.selectExpr("binary(key) as key", "value")
    assert_same_rows(read_back(spark, broker, topic).select("key", "value"), wanted)


def test_tables_can_be_written_from_any_thread(
    spark: SparkSession, embedded_broker: Broker, topic: str, table: str
) -> None:
    """A table works where save() cannot: there Spark finds no Python data source of any name."""
    embedded_broker.create_topic(topic, 1)
    frame = spark.createDataFrame([("k1", b"v1")], "key string, value binary")
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(Py4JJavaError, match="DATA_SOURCE_NOT_FOUND"):
            pool.submit(write, frame, embedded_broker, topic).result(SECONDS)
        pool.submit(frame.writeTo(table).options(**sink_options(embedded_broker, topic)).append).result(SECONDS)
        pool.submit(
            spark.sql, f"INSERT INTO {table} {with_clause(embedded_broker, topic)} VALUES ('k2', X'02')"
        ).result(SECONDS)
    assert [row.key for row in read_topic(embedded_broker.bootstrap_servers, topic)] == [b"k1", b"k2"]


def test_insert_without_options_says_what_is_missing(spark: SparkSession, table: str) -> None:
    with pytest.raises(AnalysisException, match=r"kafka\.bootstrap\.servers is not set"):
        spark.sql(f"INSERT INTO {table} VALUES ('k', X'01')")


def test_insert_overwrite_is_refused(spark: SparkSession, table: str) -> None:
    with pytest.raises(AnalysisException, match="a topic cannot be overwritten"):
        spark.sql(f"INSERT OVERWRITE {table} VALUES ('k', X'01')")


def test_select_with_options(spark: SparkSession, broker: Broker, topic: str) -> None:
    """A table whose columns are binary can be written and read."""
    broker.create_topic(topic, 2)
    spark.sql(f"CREATE TABLE pyproducer_tests.both (key BINARY, value BINARY) USING {FORMAT}")
    spark.sql(f"INSERT INTO pyproducer_tests.both {with_clause(broker, topic)} VALUES (X'31', X'01'), (NULL, NULL)")
    clause = f"WITH ('kafka.bootstrap.servers' = '{broker.bootstrap_servers}', 'subscribe' = '{topic}')"
    found = spark.sql(f"SELECT value, key FROM pyproducer_tests.both {clause}")
    assert_same_rows(found, spark.createDataFrame([(b"\x01", b"1"), (None, None)], "value binary, key binary"))


@pytest.mark.parametrize("kind", ["table", "load"])
def test_reading_without_options_says_what_is_missing(spark: SparkSession, table: str, kind: str) -> None:
    with pytest.raises(AnalysisException, match=r"kafka\.bootstrap\.servers is not set"):
        (spark.table(table) if kind == "table" else spark.read.format(FORMAT).load()).collect()


@pytest.mark.parametrize("options", ["", "OPTIONS ('kafka.bootstrap.servers' 'localhost:1', 'subscribe' 'events')"])
def test_a_table_without_columns_says_how_to_read(spark: SparkSession, options: str) -> None:
    """Spark would hand its OPTIONS to no read; to Python it gives them among properties of the table."""
    with pytest.raises(AnalysisException, match=r"without columns failed: .* Use CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE without_columns USING {FORMAT} {options}")


@pytest.mark.parametrize("columns", ["", "(value BINARY)"])
def test_a_view_keeps_its_options(spark: SparkSession, broker: Broker, topic: str, table: str, columns: str) -> None:
    broker.create_topic(topic, 2)
    spark.sql(f"INSERT INTO {table} {with_clause(broker, topic)} VALUES ('k', X'01'), (NULL, NULL)")
    options = f"OPTIONS ('kafka.bootstrap.servers' '{broker.bootstrap_servers}', 'subscribe' '{topic}')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW kept {columns} USING {FORMAT} {options}")
    assert_same_rows(spark.sql("SELECT value FROM kept"), spark.createDataFrame([(b"\x01",), (None,)], "value binary"))
