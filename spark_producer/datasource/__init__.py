"""The data source that Spark sees: the only package that knows pyspark.

Owns: what runs in Spark's processes, on the driver and in the tasks of a query.
Must not know: anything about Kafka that `Producer`, `consumer` and the blocking client do not offer.

`source` has the class that Spark instantiates, `read` the readers that it returns, and `write` the writers. A process imports one
of the two halves.
"""

import sys

try:
    from pyspark.sql.datasource import DataSourceArrowWriter  # noqa: F401 - since 4.0

    from spark_producer.datasource.source import PyProducerDataSource
except ImportError as error:
    if (error.name or "").partition(".")[0] != "pyspark":
        raise
    raise ImportError(
        f'format("pyproducer") needs PySpark 4.0 or newer, and this Python ({sys.executable}) has none that works ({error}). '
        "Run with the Python of your platform's Spark, or pip install 'pyproducer[spark]'. spark_producer.Producer, the "
        "embedded broker and the command line need no Spark",
        name=error.name,
    ) from error

__all__ = ["PyProducerDataSource"]
