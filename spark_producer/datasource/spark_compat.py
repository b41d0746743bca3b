"""What differs between the versions of PySpark, and Sail: base classes, and the schemas that are passed.

PySpark 4.0 has no `DataSourceStreamArrowWriter`. Its planner gives Arrow batches instead of rows to each writer, of a batch
or of a stream, that is a `DataSourceArrowWriter` (`pyspark/sql/worker/write_into_data_source.py` of 4.0).

Sail (0.7) runs a Python data source in its own process, and passes schemas of Arrow instead of Spark's.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource
from pyspark.sql.types import StructType

from spark_producer.datasource.engine import is_sail

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
elif hasattr(datasource, "DataSourceStreamArrowWriter"):
    DataSourceStreamArrowWriter = datasource.DataSourceStreamArrowWriter
else:

    class DataSourceStreamArrowWriter(datasource.DataSourceStreamWriter, datasource.DataSourceArrowWriter):
        """A streaming writer that gets Arrow batches from PySpark 4.0."""


if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )

HAS_READ_LIMITS = hasattr(datasource.DataSourceStreamReader, "getDefaultReadLimit")
"""Whether Spark passes limits to the readers of streams, and fixes the end of the trigger availableNow: since 4.2."""

if not TYPE_CHECKING:
    if HAS_READ_LIMITS:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxRows,
            ReadMinRows,
            SupportsTriggerAvailableNow,
        )
    else:
        ReadAllAvailable = ReadLimit = ReadMaxRows = ReadMinRows = SupportsTriggerAvailableNow = type(
            "Unavailable", (), {}
        )


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that PySpark expects of a reader's RecordBatches; timestamps are in UTC. Sail's is one already.

    PySpark 4.0 to 4.2 have no parameter for the time zone, and always mean UTC.
    """
    passed: Any = schema
    if not isinstance(passed, StructType):
        return passed  # type: ignore[no-any-return]
    from pyspark.sql.pandas.types import to_arrow_schema  # it imports pandas' parts of PySpark

    takes_timezone = "timezone" in inspect.signature(to_arrow_schema).parameters
    convert: Any = to_arrow_schema
    found: pa.Schema = convert(schema, timezone="UTC") if takes_timezone else convert(schema)
    return found


def spark_schema(schema: Any) -> StructType:
    """Return a schema that Spark or Sail has passed as Spark's."""
    if isinstance(schema, StructType):
        return schema
    from pyspark.sql.pandas.types import from_arrow_schema

    found: StructType = from_arrow_schema(schema)
    return found


def schema_to_return(schema: StructType) -> StructType:
    """Return a schema as the running engine takes it from a data source.

    Sail converts Spark's types without a time zone, which fails for timestamps from PySpark 4.2 on. It takes a schema of Arrow.
    """
    if not is_sail():
        return schema
    found: Any = arrow_schema(schema)
    return found  # type: ignore[no-any-return]  # Spark's signature


__all__ = [
    "HAS_READ_LIMITS",
    "DataSourceStreamArrowWriter",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "ReadMinRows",
    "SupportsTriggerAvailableNow",
    "arrow_schema",
    "schema_to_return",
    "spark_schema",
]
