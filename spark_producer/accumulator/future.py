"""What callers of `send` wait for: where a record ended up.

Owns: the futures of single records, their callbacks and the order of these. Must not know: how a result became known.

As with Kafka's ProduceRequestResult, what became of a batch is kept once, and the futures of its records look there. A
`concurrent.futures.Future` has a lock and a condition of its own, and telling it costs as much again: 2.3 µs together, more
than to encode a record of 100 bytes (measured). Here one that nobody waits for is a place in a list.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import Any, NamedTuple, NoReturn, TypeAlias

from spark_producer.errors import RecordsRefused

_log = logging.getLogger(__name__)


class RecordMetadata(NamedTuple):
    """Topic, partition, offset (-1 if the broker did not say) and timestamp (milliseconds) of a written record."""

    topic: str
    partition: int
    offset: int
    timestamp: int


Callback: TypeAlias = Callable[[RecordMetadata, Exception | None], None]
"""Called on the I/O thread before the record's future is done; with offset and timestamp -1 and the error if it failed."""


class BatchResult:
    """What becomes of the single records of a batch.

    Task threads add futures under the lock of the batch's queue, the I/O thread ends or splits it. `lock` guards `done` and
    `watched`, and is held for moments: nothing is called, and no other lock taken, under it.
    """

    __slots__ = (
        "_base_offset",
        "_log_append_time",
        "_place",
        "_refused",
        "done",
        "error",
        "futures",
        "lock",
        "watched",
    )

    def __init__(self, place: tuple[str, int]) -> None:
        self._place = place
        self.lock = threading.Lock()
        self.done = False
        self.error: Exception | None = None
        self.futures: list[RecordFuture] = []
        """in the order of their records, until the end"""
        self.watched: list[RecordFuture] = []
        """those that somebody waits for, or has given a callback"""
        self._refused: dict[int, Exception] = {}
        """what each record is told, if the broker complained about single ones"""
        self._base_offset = self._log_append_time = -1

    def add(self, offset_delta: int, timestamp: int, callback: Callback | None) -> RecordFuture:
        """The future of one more record, at this index of the batch."""
        future = RecordFuture(self, offset_delta, timestamp, callback)
        self.futures.append(future)
        return future

    def complete(self, base_offset: int, log_append_time: int) -> None:
        """The batch was acknowledged: first the callbacks, in the order of the records, then the futures."""
        self._base_offset, self._log_append_time = base_offset, log_append_time
        for future in self.futures:
            if future.callback is not None:
                _call(future.callback, self.metadata_of(future), None)
        self._end()

    def fail(self, error: Exception) -> None:
        """As `complete`. Records that the broker named get its complaint, the others of their batch learn who is to blame."""
        self.error = error
        if isinstance(error, RecordsRefused):
            self._refused = {future.offset_delta: _own_error(error, future.offset_delta) for future in self.futures}
        for future in self.futures:
            if future.callback is not None:
                _call(future.callback, RecordMetadata(*self._place, -1, -1), self.error_of(future))
        self._end()

    def split(self, records: int) -> BatchResult:
        """Keep the futures of the first `records` records of the batch; those behind them have the result returned."""
        tail = BatchResult(self._place)
        with self.lock:
            tail.futures = [future for future in self.futures if future.offset_delta >= records]
            self.futures = [future for future in self.futures if future.offset_delta < records]
            # Before they move: from then on others add to the list of the tail, and nothing may be laid over theirs.
            tail.watched = [future for future in self.watched if future.offset_delta >= records]
            self.watched = [future for future in self.watched if future.offset_delta < records]
            for future in tail.futures:
                future.move_to(tail, records)
        return tail

    def metadata_of(self, future: RecordFuture) -> RecordMetadata:
        """Where a record went, of a batch that was acknowledged."""
        offset = self._base_offset + future.offset_delta if self._base_offset >= 0 else -1
        topic, partition = self._place
        return RecordMetadata(
            topic, partition, offset, future.timestamp if self._log_append_time < 0 else self._log_append_time
        )

    def error_of(self, future: RecordFuture) -> Exception | None:
        """Why a record was not written; None if it was."""
        return self._refused.get(future.offset_delta, self.error)

    def _end(self) -> None:
        with self.lock:
            self.done = True
            watched, self.watched = self.watched, []
        self.futures = []
        for future in watched:
            settle(future.wake)
        for future in watched:
            settle(future.run_callbacks)


class _Watch:
    """What a future needs once somebody waits for it, or gives it a callback."""

    __slots__ = ("callbacks", "condition", "told", "waiters")

    def __init__(self, told: bool) -> None:
        self.told = told
        """changes under `condition`, as who waits for several futures relies on; the batch is done a moment before"""
        self.condition = threading.Condition()
        self.waiters: list[Any] = []
        self.callbacks: list[Callable[[Future[RecordMetadata]], object]] = []


class RecordFuture(Future[RecordMetadata]):
    """The future of a single record: it cannot be cancelled, and only the producer ends it.

    `_state`, `_condition`, `_waiters`, `_done_callbacks`, `_result` and `_exception` are what the functions of
    `concurrent.futures` look at: here they are looked up, or made, when somebody asks.
    """

    __slots__ = ("_batch", "_watch", "callback", "offset_delta", "timestamp")

    def __init__(self, batch: BatchResult, offset_delta: int, timestamp: int, callback: Callback | None) -> None:
        # The base's own fields are all replaced: it would make a condition, which is what this class is there to save.
        self._batch = batch
        self._watch: _Watch | None = None
        self.offset_delta = offset_delta
        self.timestamp = timestamp
        self.callback = callback

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """As of any future: where the record went.

        Raises:
            Why it was not written. TimeoutError: nothing is known after `timeout` seconds.
        """
        error = self.exception(timeout)
        if error is None:
            return self._batch.metadata_of(self)
        try:
            raise error
        finally:
            del self, error  # as the base does: else traceback and error would hold each other

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """As of any future: why the record was not written; None if it was."""
        if not self._batch.done:
            condition = self._condition
            with condition:
                if not self._batch.done:
                    condition.wait(timeout)
            if not self._batch.done:
                raise TimeoutError
        return self._batch.error_of(self)

    def done(self) -> bool:
        """Whether the record was acknowledged or has failed."""
        return self._batch.done

    def running(self) -> bool:
        """Whether it is still on its way."""
        return not self._batch.done

    def cancelled(self) -> bool:
        """Never."""
        return False

    def cancel(self) -> bool:
        """It is on its way: what was sent cannot be taken back."""
        return False

    def set_result(self, result: RecordMetadata) -> NoReturn:  # noqa: ARG002 - the base's signature
        """Refused: the producer alone knows."""
        raise InvalidStateError(f"only its producer ends the future of a record: {self!r}")

    def set_exception(self, exception: BaseException | None) -> NoReturn:  # noqa: ARG002 - as well
        """Refused: the producer alone knows."""
        raise InvalidStateError(f"only its producer ends the future of a record: {self!r}")

    # --- of the batch's result --------------------------------------------------------------------------------------

    def move_to(self, batch: BatchResult, records: int) -> None:
        """Its batch was cut: it is in the second half now, which begins `records` records later."""
        self._batch = batch
        self.offset_delta -= records

    def wake(self) -> None:
        """Wake who waits for it."""
        watch = self._watched()
        with watch.condition:
            watch.told = True
            failed = self._batch.error is not None
            for waiter in watch.waiters:
                (waiter.add_exception if failed else waiter.add_result)(self)
            watch.condition.notify_all()

    def run_callbacks(self) -> None:
        """Those that raise are logged by the base."""
        self._invoke_callbacks()  # type: ignore[attr-defined]  # of the base, and not in its stubs

    def _watched(self) -> _Watch:
        """What waits need; from the first call on the batch's end tells this future, if it had not come before."""
        while self._watch is None:
            batch = self._batch
            with batch.lock:
                if self._watch is None and self._batch is batch:  # else another thread was faster, or the batch was cut
                    self._watch = _Watch(batch.done)
                    if not batch.done:
                        batch.watched.append(self)
        return self._watch

    # --- what `concurrent.futures` looks at -------------------------------------------------------------------------

    @property
    def _state(self) -> str:  # type: ignore[override]
        watch = self._watch
        return "FINISHED" if (self._batch.done if watch is None else watch.told) else "RUNNING"

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        return self._watched().condition

    @property
    def _waiters(self) -> list[Any]:  # type: ignore[override]
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
    """What the record at `index` of a refused batch is told (KIP-467)."""
    said = error.records.get(index)
    if said is None:
        text = f"the record was not written because other records of its batch were refused: {error}"
    else:
        text = f"the broker refused the record: {said}. {error}"
    return RecordsRefused(text, **error.__dict__)


def _call(callback: Callback, found: RecordMetadata, error: Exception | None) -> None:
    try:
        callback(found, error)
    except BaseException:  # a sys.exit() in it would end the I/O thread, and nobody else would learn of his records
        _log.exception("a callback failed; the record of topic %r is not affected", found.topic)


def settle(tell: Callable[[], None]) -> None:
    """Make a future done. It logs the exceptions of its own callbacks, but for those that end threads."""
    try:
        tell()
    except BaseException:
        _log.exception("a callback of a future failed; what it was told of is not affected")
