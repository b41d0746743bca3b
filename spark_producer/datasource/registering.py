"""The registration of the data source with a session, where Spark has found it already and in threads of a program's own."""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

ALREADY_THERE = "DATA_SOURCE_ALREADY_EXISTS"
"""Spark 4.0's answer where it has found an installed data source of that name; later ones take the new class instead."""


def register_once(spark: SparkSession, source: type[DataSource]) -> None:
    """Register `source`; nothing changes where this Spark does not replace a source that it has found."""
    try:
        spark.dataSource.register(source)
    except PySparkException as error:
        if error.getCondition() != ALREADY_THERE:
            raise


def make_active(spark: SparkSession) -> None:
    """Make this the session of the calling thread: Spark looks for Python data sources there (`DataSource.lookupDataSource`), and
    a thread that a program has started has none."""
    spark.createDataFrame([], "value string")  # no public method does only that
