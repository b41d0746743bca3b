"""The test bench itself: rows read back from Kafka become a DataFrame that chispa can compare."""

from __future__ import annotations

from datetime import UTC, datetime

from chispa import assert_df_equality
from pyspark.sql import SparkSession

from tests.support.read_back import Row
from tests.support.read_spark import READ_BACK_SCHEMA, as_dataframe


def test_rows_become_the_sinks_columns(spark: SparkSession) -> None:
    moment = datetime(2013, 1, 1, 5, 17, 0, 123000, tzinfo=UTC)
    rows = [
        Row("flights", 0, 0, int(moment.timestamp() * 1000), b"UA", b"\x00\xff", [("trace", b"1"), ("trace", None)]),
        Row("flights", 1, 7, int(moment.timestamp() * 1000), None, None, []),
    ]
    expected = [
        ("flights", 0, 0, moment, b"UA", b"\x00\xff", [("trace", b"1"), ("trace", None)]),
        ("flights", 1, 7, moment, None, None, []),
    ]
    assert_df_equality(as_dataframe(spark, rows), spark.createDataFrame(expected, READ_BACK_SCHEMA))
    assert as_dataframe(spark, []).count() == 0
