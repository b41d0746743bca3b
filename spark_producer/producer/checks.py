"""What callers ask of the producer, checked before anything of it is done.

Owns: the limits of a record and of a wait, and what is said at its end. Must not know: what is done then.
"""

from __future__ import annotations

from spark_producer.config import ProducerConfig
from spark_producer.errors import BufferExhausted, PyProducerError
from spark_producer.kernel import record_sizes
from spark_producer.record.batch_v2 import HEADER_SIZE
from spark_producer.record.columns import Columns
from spark_producer.record.rejected import NONE_REJECTED, Kind, RejectedRows, Spot, fault_where


def check_timeout(seconds: float | None) -> None:
    """Whether a close can wait so long; None is as long as any batch may take.

    Raises:
        PyProducerError: it is negative, or not a number.
    """
    if seconds is not None and not seconds >= 0:
        raise PyProducerError(
            f"close() waits 0 seconds or more, not {seconds}; without a number it waits for all batches"
        )


def check_may_flush(on_io_thread: bool) -> None:
    """A callback, which runs on the I/O thread, would wait for itself.

    Raises:
        PyProducerError: it is one.
    """
    if on_io_thread:
        raise PyProducerError("flush() was called by a future's callback, on the thread that it would wait for")


def too_large(columns: Columns, config: ProducerConfig) -> RejectedRows:
    """The rows that fit into no request, or not into the pool; the largest one goes first."""
    limit = min(config.max_request_size, config.buffer_memory) - HEADER_SIZE
    if columns.records.largest <= limit:
        return NONE_REJECTED

    def told(at: Spot) -> str:
        return (
            f"a record of {at.found} bytes ({at.place}) exceeds kafka.max.request.size "
            f"({config.max_request_size}) or kafka.buffer.memory ({config.buffer_memory}); raise it, and the "
            "topic's max.message.bytes, or make the row smaller"
        )

    sizes = record_sizes(columns.records)
    fault = fault_where(sizes > limit, Kind.SIZE, told, sizes, first=int(sizes.argmax()))
    return RejectedRows.among(columns, [fault])


def exhausted(error: BufferExhausted, reason: PyProducerError | None) -> BufferExhausted:
    """`error` with why a broker could not be reached, if one could not: mostly a pool stays full because it is gone."""
    return BufferExhausted(f"{error}, or not there. Last error: {str(reason).rstrip('.')}") if reason else error
