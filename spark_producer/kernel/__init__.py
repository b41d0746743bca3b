"""The hot loops over columns: hash keys, group rows by partition, encode V2 records.

Owns: everything that touches every row. Bytes and layouts only: it must not know batches, partitions' leaders,
options, threads or time.

`portable` (numpy and pyarrow) is always there and is the reference. A compiled twin with the same signatures takes its
place where the wheel brings one; callers import the functions from here and never from a twin.
"""

from spark_producer.kernel.columns import BinaryColumn, RecordColumns
from spark_producer.kernel.murmur2 import murmur2
from spark_producer.kernel.portable import (
    RECORD_OVERHEAD,
    ArrangedRows,
    encode_headers,
    encode_v2,
    group_rows,
    record_sizes,
)

__all__ = [
    "RECORD_OVERHEAD",
    "ArrangedRows",
    "BinaryColumn",
    "RecordColumns",
    "encode_headers",
    "encode_v2",
    "group_rows",
    "murmur2",
    "record_sizes",
]
