"""Reads in sessions with odd settings: the rows of Spark's own source, whatever the session is set to."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_producer import Producer
from tests.conftest import Broker
from tests.spark.frames import FORMAT, session_settings
from tests.spark.read_sources import HEADERS, SPARKS, add_sparks_source, batch, run, stream
from tests.support.kafka_cluster import KafkaCluster

MOMENTS = [
    0,
    1_710_053_999_999,  # the last millisecond before the hour that New York does not have in 2024
    1_710_054_000_000,
    1_730_611_800_000,  # within the hour that it has twice
    1_730_615_400_000,
    504_901_800_000,  # 1985, the last half hour of Kathmandu's older offset
    4_102_444_800_000,
]
"""Times of records around changes of the time zones, in milliseconds."""

SETTINGS: list[dict[str, str]] = [
    {},
    {"spark.sql.execution.arrow.useLargeVarTypes": "true"},
    {"spark.sql.session.timeZone": "America/New_York"},
    {"spark.sql.session.timeZone": "Asia/Kathmandu"},
    {"spark.sql.timestampType": "TIMESTAMP_NTZ", "spark.sql.session.timeZone": "America/New_York"},
    {"spark.sql.caseSensitive": "true"},
    {"spark.sql.execution.arrow.maxRecordsPerBatch": "1"},
    {"spark.sql.execution.arrow.maxRecordsPerBatch": "2000000000"},
    {"spark.sql.ansi.enabled": "false"},
    {"spark.sql.ansi.enabled": "true"},
    {"spark.sql.python.filterPushdown.enabled": "true", "spark.sql.session.timeZone": "America/New_York"},
    {"spark.sql.execution.pythonUDF.arrow.enabled": "true", "spark.sql.execution.arrow.pyspark.enabled": "true"},
    {"spark.sql.optimizer.collapseProjectAlwaysInline": "true", "spark.sql.codegen.wholeStage": "false"},
]


def nightly(cases: list[dict[str, str]]) -> list[Any]:
    return [pytest.param(case, marks=pytest.mark.nightly) for case in cases]


@pytest.fixture(scope="module", autouse=True)
def _sparks_source(spark: SparkSession) -> None:
    add_sparks_source(spark)


@pytest.fixture(scope="module")
def records(kafka_4: KafkaCluster) -> str:
    """A topic with every kind of record at each of the moments."""
    topic = "records-of-odd-sessions"
    # one of the records is of a time to come
    kafka_4.create_topic(topic, 3, config={"message.timestamp.after.max.ms": str(2**63 - 1)})
    with Producer({"bootstrap.servers": kafka_4.bootstrap_servers}) as producer:
        for number in range(300):
            producer.send(
                topic,
                value=None if number % 7 == 0 else b"\xff%d" % number,
                key=None if number % 5 == 0 else b"%d" % number,
                headers=[("h", b"%d" % number), ("h", None), ("H", b"")][: number % 4],
                partition=number % 3,
                timestamp_ms=MOMENTS[number % len(MOMENTS)],
            )
        producer.flush()
    return topic


def texts(frame: DataFrame) -> list[str]:
    """Rows as Spark and as Python show them: also the text of timestamps, which is that of the session's time zone."""
    shown = frame.selectExpr("*", "string(timestamp) as shown", "hour(timestamp) as hour")
    return sorted(repr(row) for row in shown.collect())


@pytest.mark.covers("RD3")
@pytest.mark.parametrize(
    "settings",
    [*SETTINGS[:5], SETTINGS[6], *nightly(SETTINGS[5:6] + SETTINGS[7:])],
    ids=lambda given: ",".join(f"{k[10:]}={v}" for k, v in given.items()) or "none",
)
def test_batches_in_odd_sessions(spark: SparkSession, kafka_4: Broker, records: str, settings: dict[str, str]) -> None:
    with session_settings(spark, settings):
        ours, sparks = (batch(spark, kafka_4, records, HEADERS, source=each) for each in (FORMAT, SPARKS))
        assert ours.schema == sparks.schema
        assert texts(ours) == texts(sparks)
        condition = "timestamp >= '2024-03-10 03:00:00' and timestamp < '2024-11-03 01:45:00'"
        assert texts(ours.where(condition)) == texts(sparks.where(condition))
        assert len(texts(ours.where(condition))) > 10
        assert ours.toArrow().schema == sparks.toArrow().schema
        joined = ours.join(sparks, ["partition", "offset"])
        assert joined.count() == 300


@pytest.mark.covers("RD3")
@pytest.mark.parametrize("settings", [SETTINGS[2], *nightly(SETTINGS[1:2] + SETTINGS[3:6])])
def test_streams_in_odd_sessions(
    spark: SparkSession, kafka_4: Broker, records: str, settings: dict[str, str], tmp_path: Any
) -> None:
    found = {}
    with session_settings(spark, settings):
        for source in (FORMAT, SPARKS):
            frame = stream(spark, kafka_4, records, HEADERS | {"startingOffsets": "earliest"}, source=source)
            writer = frame.writeStream.format("parquet").option("path", str(tmp_path / source))
            run(writer.option("checkpointLocation", str(tmp_path / f"checkpoint-{source}")))
            found[source] = texts(spark.read.parquet(str(tmp_path / source)))
    assert found[FORMAT] == found[SPARKS]
    assert len(found[FORMAT]) == 300
