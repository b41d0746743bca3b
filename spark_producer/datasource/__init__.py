"""The data source that Spark sees: the only package that knows pyspark.

Owns: the checks of schema and options on the driver, the write of a task, the commit on the driver.
Must not know: anything about Kafka that `Producer` and the blocking client do not offer.

`source` has the class that Spark instantiates, and `write` the writers that it returns. There are no readers; a reading half
would be a package `read` beside `write`.
"""

import sys

try:
    from spark_producer.datasource.source import PyProducerDataSource
except ImportError as error:
    if (error.name or "").partition(".")[0] != "pyspark":
        raise
    raise ImportError(
        f'format("pyproducer") needs PySpark 4.0 or newer, and this Python ({sys.executable}) has none that works ({error}): '
        "run with the Python of your platform's Spark, or pip install 'pyproducer[spark]'. spark_producer.Producer, the "
        "embedded broker and the command line need no Spark",
        name=error.name,
    ) from error

__all__ = ["PyProducerDataSource"]
