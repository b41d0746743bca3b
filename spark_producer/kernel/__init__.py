"""The loops over rows: they hash keys, group rows by partition, and encode and decode records.

Owns: all code that runs for every row. Must not know: batches, the leaders of partitions, options, threads or time; it works on
bytes and layouts only.

Each loop exists twice, with the same signature and byte-equal results: `portable` (numpy and pyarrow) is always there and
is the reference; `compiled` (Cython, without the GIL) replaces it if it was built. The environment variable
PYPRODUCER_KERNEL=portable|compiled forces one. Callers import the functions from here, never from one of the two.
"""

import functools
import os
from typing import TYPE_CHECKING

from spark_producer.kernel.column_views import BinaryColumn, RecordColumns
from spark_producer.kernel.decode_messages import DecodedMessages, decode_messages, message_starts
from spark_producer.kernel.decoded_v2 import MAX_HEADERS, DecodedV2, Limits, V2Batch, no_header_columns
from spark_producer.kernel.dispatch import VARIABLE, load, warn
from spark_producer.kernel.single_record import BUFFER_FULL, NO_HEADERS, header_block

if TYPE_CHECKING:
    from spark_producer.kernel.avro import encode_avro
    from spark_producer.kernel.avro_decode import decode_avro
    from spark_producer.kernel.decode import decode_v2
    from spark_producer.kernel.murmur2 import murmur2, murmur2_one
    from spark_producer.kernel.portable import (
        ArrangedRows,
        encode_headers,
        encode_v2,
        group_rows,
        largest_record,
        record_sizes,
    )
    from spark_producer.kernel.single_record import SingleRecord
LOADED = load(os.environ.get(VARIABLE, ""))
KERNEL = LOADED.name
"""The name of the kernel that this process uses, portable or compiled."""

if not TYPE_CHECKING:
    globals().update(LOADED.functions)


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
    "DecodedMessages",
    "DecodedV2",
    "Limits",
    "RecordColumns",
    "SingleRecord",
    "V2Batch",
    "decode_avro",
    "decode_messages",
    "decode_v2",
    "encode_avro",
    "encode_headers",
    "encode_v2",
    "group_rows",
    "header_block",
    "largest_record",
    "message_starts",
    "murmur2",
    "murmur2_one",
    "no_header_columns",
    "record_sizes",
    "warn_once",
]
