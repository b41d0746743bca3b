"""The data source with the portable kernel, in workers of its own."""

from __future__ import annotations

from pyspark.sql import SparkSession

from spark_producer.datasource import PyProducerDataSource
from spark_producer.kernel.dispatch import VARIABLE

PORTABLE = "pyproducer-portable"


class PortableSource(PyProducerDataSource):
    """The data source of `format("pyproducer-portable")`."""

    @classmethod
    def name(cls) -> str:
        return PORTABLE


def register_portable(spark: SparkSession) -> None:
    """Register it so that its workers get the environment variable, since Spark keeps the environment of the registration."""
    environment = spark.sparkContext.environment
    environment[VARIABLE] = "portable"
    try:
        spark.dataSource.register(PortableSource)
    finally:
        del environment[VARIABLE]
