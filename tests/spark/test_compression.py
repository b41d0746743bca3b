"""DataFrames written with every codec arrive as they were; a codec or level that does not exist is refused on the driver."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.conftest import Broker
from tests.spark.frames import assert_same_rows, read_back, write
from tests.support.read_back import Client

ROWS = 30_000


@pytest.mark.parametrize(
    ("codec", "level", "client"),
    [
        ("gzip", 1, "confluent"),
        pytest.param("snappy", None, "kafka-python", marks=pytest.mark.nightly),
        pytest.param("lz4", 12, "confluent", marks=pytest.mark.nightly),
        ("zstd", -5, "kafka-python"),
    ],
)
def test_a_dataframe_arrives_with_every_codec(
    spark: SparkSession, broker: Broker, topic: str, codec: str, level: int | None, client: Client
) -> None:
    broker.create_topic(topic, 3)
    frame = spark.range(ROWS).select(
        F.concat(F.lit("key-"), F.col("id") % 100).cast("binary").alias("key"),
        F.to_json(F.struct("id", (F.col("id") * 7919 % 1000).alias("price"))).cast("binary").alias("value"),
    )
    options = {"kafka.compression.type": codec, "kafka.batch.size": 16384}
    write(frame, broker, topic, options | ({} if level is None else {f"kafka.compression.{codec}.level": level}))
    assert_same_rows(read_back(spark, broker, topic, client=client, expected=ROWS).select("key", "value"), frame)


@pytest.mark.parametrize(
    ("option", "value", "reported"),
    [
        ("kafka.compression.type", "lz5", "one of none, gzip, snappy, lz4, zstd, not 'lz5'. Did you mean 'lz4'?"),
        ("kafka.compression.zstd.level", "23", "kafka.compression.zstd.level must lie between -131072 and 22, not 23"),
        ("kafka.compression.typ", "lz4", "Did you mean 'kafka.compression.type'?"),
    ],
)
def test_a_codec_or_level_that_does_not_exist_is_refused_on_the_driver(
    spark: SparkSession, embedded_broker: Broker, topic: str, option: str, value: str, reported: str
) -> None:
    with pytest.raises(AnalysisException) as caught:
        write(spark.range(1).selectExpr("'v' as value"), embedded_broker, topic, {option: value})
    assert reported in str(caught.value)
