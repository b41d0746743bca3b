"""Registers the data source with a session, also if Spark has found it already, and from any thread of the program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakSet

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

ALREADY_THERE = "DATA_SOURCE_ALREADY_EXISTS"
"""Spark 4.0's error if it has found an installed data source of that name; later versions replace it."""

MANAGER = "org.apache.spark.sql.execution.datasources.DataSourceManager"
"""Spark's class, and its logger, that warns of each data source that replaces another one."""

followed: WeakSet[SparkSession] = WeakSet()
"""The sessions whose registered source reports to the program; a plain one in its place would end the reports."""


def register_once(spark: SparkSession, source: type[DataSource]) -> None:
    """Register `source`. Spark 4.0 keeps a source of that name that it has found itself; then this does nothing."""
    with _without_warning(spark):
        try:
            spark.dataSource.register(source)
        except PySparkException as error:
            if error.getCondition() != ALREADY_THERE:
                raise


@contextmanager
def _without_warning(spark: SparkSession) -> Iterator[None]:
    """Suppress Spark's warning that the source replaces the installed one, which is the same.

    Only in classic Spark with Log4j 2; elsewhere the warning stays.
    """
    jvm = getattr(spark, "_jvm", None)  # private, and Spark Connect has none
    if jvm is None:
        yield
        return
    try:
        log4j = jvm.org.apache.logging.log4j
        level = log4j.LogManager.getLogger(MANAGER).getLevel()
        log4j.core.config.Configurator.setLevel(MANAGER, log4j.Level.ERROR)
    except Exception:  # py4j is not a dependency, and other loggers of the JVM may fail in other ways
        yield
        return
    try:
        yield
    finally:
        log4j.core.config.Configurator.setLevel(MANAGER, level)


def make_active(spark: SparkSession) -> None:
    """Make this the session of the calling thread: Spark looks for Python data sources there (`DataSource.lookupDataSource`), and
    a thread that a program has started has none."""
    spark.createDataFrame([], "value string")  # no public method does only that
