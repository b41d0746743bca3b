"""The checks of calls to a producer, of timeouts and of the calling thread, and the reason for a full pool."""

from __future__ import annotations

from spark_producer.errors import BufferExhausted, PyProducerError


def check_timeout(seconds: float | None, call: str = "close") -> None:
    """Check the timeout of a call: 0 or more seconds, or None for the delivery timeout.

    Raises:
        PyProducerError: `seconds` is negative or NaN.
    """
    if seconds is not None and not seconds >= 0:
        default = ", or none to wait for all batches" if call == "close" else ""
        raise PyProducerError(f"{call}() got the timeout {seconds}. Give 0 seconds or more{default}")


def check_may_flush(on_io_thread: bool) -> None:
    """Check that a flush is not called on the I/O thread, where callbacks run: it would wait for itself.

    Raises:
        PyProducerError: the caller is on the I/O thread.
    """
    if on_io_thread:
        raise PyProducerError(
            "flush() was called by a callback, on the thread that it would wait for. Call it on another thread"
        )


def with_connection_reason(error: BufferExhausted, reason: PyProducerError | None) -> BufferExhausted:
    """Return `error` with the last connection error, if there is one: it is the usual reason for a full pool."""
    return BufferExhausted(f"{error}, or no broker answers. Last error: {str(reason).rstrip('.')}") if reason else error
