"""The loops over rows: they hash keys, group rows by partition, and encode and decode records.

Owns: all code that runs for every row. Must not know: batches, the leaders of partitions, options, threads or time; it works on
bytes and layouts only.

Each loop exists twice, with the same signature and byte-equal results: `portable` (numpy and pyarrow) is always there and
is the reference; `compiled` (Cython, without the GIL) replaces it if it was built. The environment variable
PYPRODUCER_KERNEL=portable|compiled forces one. Callers import the functions from here, never from one of the two; those that
only reads and columns of Avro and Protobuf use are loaded at their first use.
"""

import functools
import os
from typing import TYPE_CHECKING, Any

from spark_producer.kernel.column_views import BinaryColumn, RecordColumns
from spark_producer.kernel.decoded_v2 import MAX_HEADERS, DecodedV2, Limits, V2Batch, no_header_columns
from spark_producer.kernel.dispatch import ON_DEMAND, VARIABLE, load, warn
from spark_producer.kernel.single_record import BUFFER_FULL, NO_HEADERS, header_block

if TYPE_CHECKING:
    from spark_producer.kernel.avro import encode_avro
    from spark_producer.kernel.avro_decode import decode_avro
    from spark_producer.kernel.decode import decode_v2
    from spark_producer.kernel.portable import (
        ArrangedRows,
        encode_headers,
        encode_v2,
        group_rows,
        largest_record,
        record_sizes,
    )
    from spark_producer.kernel.portable_murmur2 import murmur2, murmur2_one
    from spark_producer.kernel.protobuf_decode import decode_protobuf
    from spark_producer.kernel.protobuf_encode import encode_protobuf
    from spark_producer.kernel.single_record import SingleRecord
LOADED = load(os.environ.get(VARIABLE, ""))
KERNEL = LOADED.name
"""The name of the kernel that this process uses, portable or compiled."""

if not TYPE_CHECKING:
    globals().update(LOADED.functions)

    def __getattr__(name: str) -> Any:
        """Load the functions that only reads and columns of Avro and Protobuf use."""
        if name not in ON_DEMAND.functions:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = load("portable" if LOADED.problem else os.environ.get(VARIABLE, ""), ON_DEMAND)
        warn(found)
        globals().update(found.functions)
        return found.functions[name]


@functools.cache
def warn_once() -> None:
    """Log once per process if the portable kernel is used because the compiled one is missing. Writers call it first."""
    warn(LOADED)


__all__ = [
    "BUFFER_FULL",
    "KERNEL",
    "LOADED",
    "MAX_HEADERS",
    "NO_HEADERS",
    "ArrangedRows",
    "BinaryColumn",
    "DecodedV2",
    "Limits",
    "RecordColumns",
    "SingleRecord",
    "V2Batch",
    "decode_avro",
    "decode_protobuf",
    "decode_v2",
    "encode_avro",
    "encode_headers",
    "encode_protobuf",
    "encode_v2",
    "group_rows",
    "header_block",
    "largest_record",
    "murmur2",
    "murmur2_one",
    "no_header_columns",
    "record_sizes",
    "warn_once",
]
