"""The futures of single records, which `send` returns, and their callbacks.

As with Kafka's ProduceRequestResult, the outcome of a batch is kept once, and the futures of its records read it there. A
`concurrent.futures.Future` has a lock and a condition of its own, and to set its result costs as much again: 2.3 µs together,
more than it takes to encode a record of 100 bytes (measured). Here a future that no thread waits for is only a list entry.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import NamedTuple, NoReturn, Protocol, TypeAlias

from spark_producer.common.escape import escaping_logger
from spark_producer.errors import RecordsRefused

_log = escaping_logger(__name__)


class RecordMetadata(NamedTuple):
    """The topic, partition, offset (-1 if unknown) and timestamp (milliseconds) of a written record."""

    topic: str
    partition: int
    offset: int
    timestamp: int


Callback: TypeAlias = Callable[[RecordMetadata, Exception | None], None]
"""A function that the I/O thread calls before the record's future is done. If the record failed, offset and timestamp are -1,
and the error is not None."""


class BatchResult:
    """The outcome of the single records of a batch.

    Task threads add futures under the lock of the batch's queue, and the I/O thread completes or splits the result. `lock` guards
    `done` and `watched`. It is never held for long: under it no callback is called, and no other lock is taken.
    """

    __slots__ = (
        "_base_offset",
        "_errors",
        "_log_append_time",
        "_topic_partition",
        "done",
        "error",
        "futures",
        "lock",
        "watched",
    )

    def __init__(self, tp: tuple[str, int]) -> None:
        self._topic_partition = tp
        self.lock = threading.Lock()
        self.done = False
        self.error: Exception | None = None
        self.futures: list[RecordFuture] = []
        """the futures in the order of their records; cleared at completion"""
        self.watched: list[RecordFuture] = []
        """the futures that a thread waits for, or that have a callback"""
        self._errors: dict[int, Exception] = {}
        """the error of each record, if the broker rejected single records"""
        self._base_offset = self._log_append_time = -1

    def add(self, offset_delta: int, timestamp: int, callback: Callback | None) -> RecordFuture:
        """Add and return the future of one more record, whose index in the batch is `offset_delta`."""
        future = RecordFuture(self, offset_delta, timestamp, callback)
        self.futures.append(future)
        return future

    def complete(self, base_offset: int, log_append_time: int) -> None:
        """Complete the result of an acknowledged batch: call the callbacks in the order of the records, then complete the
        futures.
        """
        self._base_offset, self._log_append_time = base_offset, log_append_time
        for future in self.futures:
            if future.callback is not None:
                _call(future.callback, self.metadata_of(future), None)
        self._end()

    def fail(self, error: Exception) -> None:
        """Complete the result of a failed batch, in the order of `complete`.

        Records that the broker named get its message. The error of the other records says
        that those caused the failure.
        """
        self.error = error
        if isinstance(error, RecordsRefused):
            self._errors = {future.offset_delta: _own_error(error, future.offset_delta) for future in self.futures}
        for future in self.futures:
            if future.callback is not None:
                _call(future.callback, RecordMetadata(*self._topic_partition, -1, -1), self.error_of(future))
        self._end()

    def split(self, records: int) -> BatchResult:
        """Keep the futures of the first `records` records of the batch, and return a result with the futures of the others."""
        tail = BatchResult(self._topic_partition)
        with self.lock:
            tail.futures = [future for future in self.futures if future.offset_delta >= records]
            self.futures = [future for future in self.futures if future.offset_delta < records]
            # This comes before the move: from then on other threads add to the tail's list, which must not be replaced.
            tail.watched = [future for future in self.watched if future.offset_delta >= records]
            self.watched = [future for future in self.watched if future.offset_delta < records]
            for future in tail.futures:
                future.move_to(tail, records)
        return tail

    def close_gaps(self, indices: Sequence[int]) -> None:
        """Record that the records at these ascending indices, none of which has a future here, are no longer in the batch."""
        with self.lock:
            for future in self.futures:
                future.offset_delta -= bisect_left(indices, future.offset_delta)

    def metadata_of(self, future: RecordFuture) -> RecordMetadata:
        """Return the metadata of a record of an acknowledged batch."""
        offset = self._base_offset + future.offset_delta if self._base_offset >= 0 else -1
        topic, partition = self._topic_partition
        return RecordMetadata(
            topic, partition, offset, future.timestamp if self._log_append_time < 0 else self._log_append_time
        )

    def error_of(self, future: RecordFuture) -> Exception | None:
        """Return the error of a record; None if it was written."""
        return self._errors.get(future.offset_delta, self.error)

    def _end(self) -> None:
        with self.lock:
            self.done = True
            watched, self.watched = self.watched, []
        self.futures = []
        for future in watched:
            run_logging_errors(future.wake)
        for future in watched:
            run_logging_errors(future.run_callbacks)


class _Waiter(Protocol):
    """The object that `concurrent.futures.wait` and `as_completed` add to a future, to be notified of its completion."""

    def add_result(self, future: Future[RecordMetadata]) -> None:
        """Record that the future has a result."""

    def add_exception(self, future: Future[RecordMetadata]) -> None:
        """Record that the future has an error."""


class _Waiters:
    """The fields that a future needs once a thread waits for it, or gives it a callback."""

    __slots__ = ("callbacks", "condition", "notified", "waiters")

    def __init__(self, notified: bool) -> None:
        self.notified = notified
        """changes under `condition`, which a wait for several futures relies on; the batch is done a moment earlier"""
        self.condition = threading.Condition()
        self.waiters: list[_Waiter] = []
        self.callbacks: list[Callable[[Future[RecordMetadata]], object]] = []


class RecordFuture(Future[RecordMetadata]):
    """The future of a single record: it cannot be cancelled, and only the producer completes it.

    The functions of `concurrent.futures` read `_state`, `_condition`, `_waiters`, `_done_callbacks`, `_result` and
    `_exception`. Here these are properties that look the value up, or create it, on first use.
    """

    __slots__ = ("_batch", "_watch", "callback", "offset_delta", "timestamp")

    def __init__(self, batch: BatchResult, offset_delta: int, timestamp: int, callback: Callback | None) -> None:
        # The base's fields are all replaced and its __init__ is not called: it would create the condition that this class saves.
        self._batch = batch
        self._watch: _Waiters | None = None
        self.offset_delta = offset_delta
        self.timestamp = timestamp
        self.callback = callback

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for the record, and return its metadata.

        Raises:
            The error of the record, if it was not written. TimeoutError: it is not complete after `timeout` seconds.
        """
        error = self.exception(timeout)
        if error is None:
            return self._batch.metadata_of(self)
        try:
            raise error
        finally:
            del self, error  # as the base does, or the traceback and the error would keep each other alive

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the record, and return its error; None if it was written."""
        if not self._batch.done:
            condition = self._condition
            with condition:
                if not self._batch.done:
                    condition.wait(timeout)
            if not self._batch.done:
                raise TimeoutError
        return self._batch.error_of(self)

    def done(self) -> bool:
        """Return whether the record was acknowledged or has failed."""
        return self._batch.done

    def running(self) -> bool:
        """Return whether the record is not complete yet."""
        return not self._batch.done

    def cancelled(self) -> bool:
        """Return False: a record's future cannot be cancelled."""
        return False

    def cancel(self) -> bool:
        """Return False: a record that was sent cannot be withdrawn."""
        return False

    def set_result(self, result: RecordMetadata) -> NoReturn:  # noqa: ARG002 - the base's signature
        """Raise `InvalidStateError`: only the producer completes this future."""
        raise InvalidStateError(
            f"the future of a record was completed by a caller: only its producer completes it: {self!r}"
        )

    def set_exception(self, exception: BaseException | None) -> NoReturn:  # noqa: ARG002 - as well
        """Raise `InvalidStateError`: only the producer completes this future."""
        raise InvalidStateError(
            f"the future of a record was completed by a caller: only its producer completes it: {self!r}"
        )

    # --- called by the batch's result -------------------------------------------------------------------------------

    def move_to(self, batch: BatchResult, records: int) -> None:
        """Move the future to the second half of its batch, which begins `records` records later."""
        self._batch = batch
        self.offset_delta -= records

    def wake(self) -> None:
        """Wake the threads that wait for this future."""
        watch = self._watched()
        with watch.condition:
            watch.notified = True
            failed = self._batch.error is not None
            for waiter in watch.waiters:
                (waiter.add_exception if failed else waiter.add_result)(self)
            watch.condition.notify_all()

    def run_callbacks(self) -> None:
        """Run the future's own callbacks. The base logs those that raise."""
        self._invoke_callbacks()  # type: ignore[attr-defined]  # a method of the base that its stubs lack

    def _watched(self) -> _Waiters:
        """Return the fields for waits. The first call registers this future with the batch's result, unless it is complete."""
        while self._watch is None:
            batch = self._batch
            with batch.lock:
                if self._watch is None and self._batch is batch:  # else another thread was faster, or a split came
                    self._watch = _Waiters(batch.done)
                    if not batch.done:
                        batch.watched.append(self)
        return self._watch

    # --- the fields that `concurrent.futures` reads -----------------------------------------------------------------

    @property
    def _state(self) -> str:  # type: ignore[override]
        watch = self._watch
        return "FINISHED" if (self._batch.done if watch is None else watch.notified) else "RUNNING"

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        return self._watched().condition

    @property
    def _waiters(self) -> list[_Waiter]:  # type: ignore[override]
        return self._watched().waiters

    @property
    def _done_callbacks(self) -> list[Callable[[Future[RecordMetadata]], object]]:
        return self._watched().callbacks

    @property
    def _result(self) -> RecordMetadata | None:  # type: ignore[override]
        return None if self._batch.error is not None else self._batch.metadata_of(self)

    @property
    def _exception(self) -> BaseException | None:  # type: ignore[override]
        return self._batch.error_of(self)


def _own_error(error: RecordsRefused, index: int) -> Exception:
    """Return the error for the record at `index` of a refused batch (KIP-467)."""
    message = error.records.get(index)
    if message is None:
        text = f"the record was not written, because the broker rejected other records of its batch: {error}"
    else:
        text = f"the broker rejected the record: {message}. {error}"
    return RecordsRefused(text, **error.__dict__)


def _call(callback: Callback, found: RecordMetadata, error: Exception | None) -> None:
    try:
        callback(found, error)
    except BaseException:  # a sys.exit() in it would end the I/O thread, and no other record would learn its outcome
        _log.exception("a callback of a record failed; the record of topic %r is not affected", found.topic)


def run_logging_errors(call: Callable[[], None]) -> None:
    """Call `call`, which completes a future. The future logs exceptions of its callbacks; those that would end the thread are
    logged here."""
    try:
        call()
    except BaseException:
        _log.exception("a callback of a future failed; the records are not affected")
