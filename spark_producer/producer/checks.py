"""What callers ask of the producer, checked before anything of it is done.

Owns: the limits of a record and of a wait, and what is said at its end. Must not know: what is done then.
"""

from __future__ import annotations

from spark_producer.config import ProducerConfig
from spark_producer.errors import BufferExhausted, PyProducerError, RecordTooLarge
from spark_producer.kernel import largest_record
from spark_producer.record.batch_v2 import HEADER_SIZE
from spark_producer.record.columns import Columns


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


def check_sizes(columns: Columns, config: ProducerConfig) -> None:
    """Whether every row fits into a request and into the pool; notes the largest.

    Raises:
        RecordTooLarge: one does not; names it.
    """
    limit = min(config.max_request_size, config.buffer_memory) - HEADER_SIZE
    row, size = largest_record(columns.records)
    columns.records.largest, columns.records.first_row = size, columns.first_row
    if size > limit:
        raise RecordTooLarge(
            f"a record of {size} bytes ({columns.place(row)}) exceeds kafka.max.request.size "
            f"({config.max_request_size}) or kafka.buffer.memory ({config.buffer_memory}); raise it, and the "
            "topic's max.message.bytes, or make the row smaller"
        )


def exhausted(error: BufferExhausted, reason: PyProducerError | None) -> BufferExhausted:
    """`error` with why a broker could not be reached, if one could not: mostly a pool stays full because it is gone."""
    return BufferExhausted(f"{error}, or not there. Last error: {str(reason).rstrip('.')}") if reason else error
