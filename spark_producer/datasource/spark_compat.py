"""The base class of the streaming writer: PySpark's own since 4.1, and on 4.0 one that gets Arrow batches too.

PySpark 4.0 has no `DataSourceStreamArrowWriter`. Its planner gives Arrow batches instead of rows to each writer, of a batch
or of a stream, that is a `DataSourceArrowWriter` (`pyspark/sql/worker/write_into_data_source.py` of 4.0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import datasource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
elif hasattr(datasource, "DataSourceStreamArrowWriter"):
    DataSourceStreamArrowWriter = datasource.DataSourceStreamArrowWriter
else:

    class DataSourceStreamArrowWriter(datasource.DataSourceStreamWriter, datasource.DataSourceArrowWriter):
        """A streaming writer that gets Arrow batches from PySpark 4.0."""


__all__ = ["DataSourceStreamArrowWriter"]
