"""What the writer of a stream inherits from: PySpark's own class since 4.1, and on 4.0 one that gets Arrow batches all the same.

PySpark 4.0 has no `DataSourceStreamArrowWriter`. Its planner looks whether a writer, of a batch or of a stream, is a
`DataSourceArrowWriter`, and gives it Arrow batches then instead of rows (`pyspark/sql/worker/write_into_data_source.py` of 4.0).
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
        """A writer of a stream that PySpark 4.0 takes for one of Arrow batches."""


__all__ = ["DataSourceStreamArrowWriter"]
