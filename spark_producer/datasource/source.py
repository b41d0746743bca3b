"""The data source of `format("pyproducer")`: its name, and the readers and writers that Spark gets from it.

Spark makes it in every process of a query, and each process reads or writes: so each half is imported when it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import StructType

from spark_producer.datasource.error_boundary import hide_internal_traceback
from spark_producer.datasource.task_format import StampedTask

if TYPE_CHECKING:
    from spark_producer.datasource.read.readers import BatchReader
    from spark_producer.datasource.write.writers import BatchWriter, StreamWriter


class PyProducerDataSource(StampedTask, DataSource):
    """The data source of `format("pyproducer")`, which reads DataFrames from Kafka and writes them to it.

    It has a stamp since Spark pickles it for the tasks of a read, before the reader.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "pyproducer"

    @hide_internal_traceback
    def schema(self) -> StructType:
        """Return the columns of a read for which the user gave no schema.

        Raises:
            ConfigError: an option is wrong.
        """
        from spark_producer.datasource.read.planning import default_schema
        from spark_producer.datasource.spark_compat import schema_to_return

        return schema_to_return(default_schema(self.options))

    @hide_internal_traceback
    def reader(self, schema: StructType) -> BatchReader:
        """Return the reader of a batch. It asks the cluster when Spark plans the tasks.

        Raises:
            ConfigError, SchemaError: an option or a column is wrong.
        """
        from spark_producer.datasource.read.planning import batch_reader
        from spark_producer.datasource.spark_compat import spark_schema

        reader = batch_reader(self.options, spark_schema(schema))
        reader.schema = schema  # that of Sail has the name of its time zone
        return reader

    @hide_internal_traceback
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a stream. It asks the cluster for offsets later, and then raises the errors of `reader`."""
        from spark_producer.datasource.read.planning import stream_reader

        return stream_reader(self.options, schema)

    @hide_internal_traceback
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return the writer of a batch write.

        Raises:
            ConfigError, SchemaError: an option or a column is wrong. BrokersUnreachable, TopicNotFound: the cluster does not
            answer, or does not have the topic. RegistryError: the Schema Registry does not answer, or refuses.
        """
        from spark_producer.datasource.spark_compat import spark_schema
        from spark_producer.datasource.write.planning import batch_writer

        return batch_writer(self.options, spark_schema(schema), overwrite=overwrite)

    @hide_internal_traceback
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: ARG002, N802 - Spark's signature
        """Return the writer of a stream. In complete mode (`overwrite`) every micro-batch appends the whole result again.

        Raises: as `writer`.
        """
        from spark_producer.datasource.write.planning import stream_writer

        return stream_writer(self.options, schema)
