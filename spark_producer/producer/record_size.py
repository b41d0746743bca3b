"""The limit on the size of a record: `max.request.size` and `buffer.memory`."""

from __future__ import annotations

from spark_producer.config import ProducerConfig
from spark_producer.kernel import record_sizes
from spark_producer.record.batch_v2 import HEADER_SIZE
from spark_producer.record.columns import CheckedColumns
from spark_producer.record.rejected import NONE_REJECTED, RejectedRows, RowContext, RowErrorKind, errors_at


def max_record_bytes(config: ProducerConfig) -> int:
    """Return the maximum bytes of a record: alone in its batch, it must fit into a request and into the pool."""
    return min(config.max_request_size, config.buffer_memory) - HEADER_SIZE


def too_large(columns: CheckedColumns, config: ProducerConfig) -> RejectedRows:
    """Return the rows that are too large for a request or for the pool, the largest one first."""
    limit = max_record_bytes(config)
    if columns.records.largest <= limit:
        return NONE_REJECTED

    def message(at: RowContext) -> str:
        return (
            f"a record of {at.found} bytes ({at.location}) exceeds kafka.max.request.size "
            f"({config.max_request_size}) or kafka.buffer.memory ({config.buffer_memory}). Raise it, and the "
            "topic's max.message.bytes, or make the row smaller"
        )

    sizes = record_sizes(columns.records)
    fault = errors_at(sizes > limit, RowErrorKind.SIZE, message, sizes, first=int(sizes.argmax()))
    return RejectedRows.among(columns, [fault])
