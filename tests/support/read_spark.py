"""The records of a topic, as a DataFrame of the sink's columns.

Owns: the schema of what is read back.
Must not know: the package under test.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tests.support.read_back import Row


def as_dataframe(spark: SparkSession, rows: Sequence[Row]) -> DataFrame:
    """The rows with the sink's columns and types, for comparison with what was written."""
    columns = {
        "topic": pa.array([row.topic for row in rows], pa.string()),
        "partition": pa.array([row.partition for row in rows], pa.int32()),
        "offset": pa.array([row.offset for row in rows], pa.int64()),
        "timestamp": pa.array([row.timestamp_ms * 1000 for row in rows], pa.timestamp("us", tz="UTC")),
        "key": pa.array([row.key for row in rows], pa.binary()),
        "value": pa.array([row.value for row in rows], pa.binary()),
        "headers": pa.array(
            [[{"key": key, "value": value} for key, value in row.headers] for row in rows],
            pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        ),
    }
    return spark.createDataFrame(pa.table(columns), schema=READ_BACK_SCHEMA)


READ_BACK_SCHEMA = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField(
            "headers", ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
        ),
    ]
)
