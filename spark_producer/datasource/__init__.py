"""The data source that Spark sees: the only room that knows pyspark.

Owns: schema and option checks on the driver, the write of a task, the commit on the driver.
Must not know: anything of Kafka but through `Producer` and the blocking client.
"""

from spark_producer.datasource.source import PyProducerDataSource

__all__ = ["PyProducerDataSource"]
