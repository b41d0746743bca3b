"""The checks of a producer's arguments: record sizes, timeouts, and the calling thread."""

from __future__ import annotations

from spark_producer.config import ProducerConfig
from spark_producer.errors import BufferExhausted, PyProducerError
from spark_producer.kernel import record_sizes
from spark_producer.record.batch_v2 import HEADER_SIZE
from spark_producer.record.columns import CheckedColumns
from spark_producer.record.rejected import NONE_REJECTED, RejectedRows, RowContext, RowErrorKind, errors_at


def check_timeout(seconds: float | None) -> None:
    """Check the timeout of `close`: 0 or more seconds, or None for the delivery timeout.

    Raises:
        PyProducerError: `seconds` is negative or NaN.
    """
    if seconds is not None and not seconds >= 0:
        raise PyProducerError(
            f"close() got the timeout {seconds}. Give 0 seconds or more, or none to wait for all batches"
        )


def check_may_flush(on_io_thread: bool) -> None:
    """Check that a flush is not called on the I/O thread, where callbacks run: it would wait for itself.

    Raises:
        PyProducerError: the caller is on the I/O thread.
    """
    if on_io_thread:
        raise PyProducerError(
            "flush() was called by a callback, on the thread that it would wait for. Call it on another thread"
        )


def too_large(columns: CheckedColumns, config: ProducerConfig) -> RejectedRows:
    """Return the rows that are too large for a request or for the pool, the largest one first."""
    limit = min(config.max_request_size, config.buffer_memory) - HEADER_SIZE
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


def with_connection_reason(error: BufferExhausted, reason: PyProducerError | None) -> BufferExhausted:
    """Return `error` with the last connection error, if there is one: it is the usual reason for a full pool."""
    return BufferExhausted(f"{error}, or no broker answers. Last error: {str(reason).rstrip('.')}") if reason else error
