"""Tracks which batches have failed, and to which threads each failure has been reported.

All failures of batches are recorded here.

A failure belongs to the threads that have rows in the batch. Their `send_batch` raises it until their next flush, which raises
it once more and acknowledges it for them. No other thread's flush does. There is one exception: a thread that has sent nothing
since its last flush (the main thread of a pool of workers) flushes for the others. The failures that were not reported to them
are reported to it once, and from then on their `send_batch` works again. Failures of rows that were sent by
callbacks, or by threads that have ended, are reported to the thread that flushes next.

Memory is bounded: only the first and the last failure of each thread are kept.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from spark_producer.common.escape import escaping_logger

_log = escaping_logger(__name__)

SAME_FOR_ALL: Mapping[ThreadFailures, Exception] = MappingProxyType({})
"""The default of `record`: the error is the same for all owners."""


class BatchFailure:
    """A failed batch.

    `number` counts failures from 1; `reported` is true once a call or the futures have reported it to an owner.
    """

    __slots__ = ("_by_owner", "error", "number", "owners", "reported")

    def __init__(
        self,
        number: int,
        error: Exception,
        owners: frozenset[ThreadFailures],
        reported: bool,
        by_owner: Mapping[ThreadFailures, Exception] = SAME_FOR_ALL,
    ) -> None:
        self.number = number
        self.error = error
        self.owners = owners
        self.reported = reported
        self._by_owner = by_owner

    def for_thread(self, owner: ThreadFailures) -> Exception:
        """Return the error for the thread of `owner`, which may name the numbers of that thread's rows."""
        return self._by_owner.get(owner, self.error)


class ThreadFailures:
    """The failures of one thread that its own flushes have not reported yet."""

    __slots__ = ("first", "last_seen", "latest", "sent", "thread_ended")

    def __init__(self) -> None:
        self.first: BatchFailure | None = None
        self.latest: BatchFailure | None = None
        self.sent = False
        """whether rows of the thread were queued since its last flush"""
        self.last_seen = 0
        """the number of the last failure of other threads that was reported to the thread"""
        self.thread_ended = False

    def add(self, failure: BatchFailure) -> None:
        """Record that a batch with rows of the thread has failed."""
        self.first = self.first or failure
        self.latest = failure

    def after(self, number: int) -> list[BatchFailure]:
        """Return the kept failures whose number is higher than `number`."""
        return [kept for kept in (self.first, self.latest) if kept is not None and kept.number > number]

    def acknowledge(self, number: int) -> None:
        """Forget the failures up to `number`."""
        remaining = self.after(number)
        self.first, self.latest = (remaining[0], remaining[-1]) if remaining else (None, None)


class _ThreadRef:
    """A thread's reference to its failures. It is collected when the thread ends, however the thread was created."""

    __slots__ = ("__weakref__", "thread")

    def __init__(self, thread: ThreadFailures) -> None:
        self.thread = thread


class FailureTracker:
    """The failures of all threads that use a producer. Any thread may call. `lock` (None: a new one) is never held for long."""

    def __init__(self, lock: threading.Lock | None = None) -> None:
        self.count = 0
        """the number of failures so far. It never decreases, so comparing two values shows whether a batch failed in between."""
        self._lock = lock or threading.Lock()
        self._reported = 0
        """the number of the last failure that was reported to a thread that flushed for others"""
        self._unowned = ThreadFailures()
        """the failures of callbacks and of ended threads, which are reported to the thread that flushes next"""
        self._threads: list[tuple[weakref.ref[_ThreadRef], ThreadFailures]] = []
        self._own = threading.local()

    def mine(self) -> ThreadFailures:
        """Return the failures of the calling thread."""
        try:
            ref: _ThreadRef = self._own.ref
        except AttributeError:
            ref = self._own.ref = _ThreadRef(ThreadFailures())
            with self._lock:
                self._disown_ended_threads()
                self._threads.append((weakref.ref(ref), ref.thread))
        return ref.thread

    def disown(self) -> None:
        """Make the failures of the calling thread unowned from now on: it runs callbacks, and cannot flush."""
        self._own.ref = _ThreadRef(self._unowned)

    def record(
        self,
        error: Exception,
        owners: Iterable[ThreadFailures],
        reported: bool = False,
        by_owner: Mapping[ThreadFailures, Exception] = SAME_FOR_ALL,
    ) -> None:
        """Record that a batch with rows of `owners` has failed. `reported` says that a future reports it for every row.

        `by_owner` has the same error for single owners, with the numbers of their own rows.
        """
        with self._lock:
            self.count += 1
            recipients = frozenset(self._unowned if owner.thread_ended else owner for owner in owners) or frozenset(
                (self._unowned,)
            )
            failure = BatchFailure(self.count, error, recipients, reported, by_owner)
            for thread in recipients:
                thread.add(failure)

    # --- reports of failures ----------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise the calling thread's first failure since its last flush, unless it was reported to a thread that flushes for
        others.
        """
        thread = self.mine()
        if thread.first is not None:
            for failure in thread.after(self._reported):
                failure.reported = True
                raise failure.for_thread(thread)

    def raise_unreported(self) -> None:
        """End a flush: raise the first failure that is not reported to the calling thread yet, and acknowledge it after that."""
        thread = self.mine()
        with self._lock:
            self._disown_ended_threads()
            now = self.count
            own = thread.sent or thread.first is not None
            found = _earliest([thread.first, self._unowned.first, *([] if own else self._others(thread))])
        try:
            if found is not None:
                raise found.for_thread(thread)
        except Exception:  # an interrupt acknowledges nothing
            self._acknowledge(thread, own, found, now)
            raise
        self._acknowledge(thread, own, found, now)

    def _acknowledge(self, thread: ThreadFailures, own: bool, recipients: BatchFailure | None, now: int) -> None:
        """Record that a thread has flushed, for itself or for others, when there were `now` failures."""
        with self._lock:
            thread.sent = False
            for reporter in (thread, self._unowned):
                if recipients is not None and recipients is reporter.first:
                    reporter.acknowledge(now)
            if not own:
                thread.last_seen = now
                self._reported = max(self._reported, now)

    def acknowledge_mine(self) -> Exception | None:
        """Acknowledge the calling thread's failures, and the unowned ones, and return the first. Other threads keep theirs."""
        thread = self.mine()
        with self._lock:
            self._disown_ended_threads()
            found = _earliest([thread.first, self._unowned.first])
            thread.sent = False
            for reporter in (thread, self._unowned):
                reporter.acknowledge(self.count)
        return None if found is None else found.for_thread(thread)

    def raise_remaining(self) -> None:
        """Raise the first failure that no flush has reported, and discard the others, because the producer closes."""
        with self._lock:
            self._disown_ended_threads()
            found = _earliest(self._unreported())
            self._forget(self.count)
        if found is not None:
            raise found.error

    def discard(self) -> None:
        """Discard all failures: the caller has aborted their transaction."""
        with self._lock:
            for _, thread in self._threads:
                thread.acknowledge(self.count)
            self._forget(self.count)

    def first_unreported(self) -> Exception | None:
        """Return the first failure that no flush has reported."""
        with self._lock:
            found = _earliest(self._unreported())
        return None if found is None else found.error

    def log_unreported(self) -> None:
        """Log the first failure that no flush, other call or future has reported, because the producer is closed."""
        with self._lock:
            found = _earliest(failure for failure in self._unreported() if not failure.reported)
            self._forget(self.count)
        if found is not None:
            _log.warning("a producer was closed before a flush raised the error of a batch: %s", found.error)

    def _others(self, mine: ThreadFailures) -> Iterator[BatchFailure]:
        """Yield the failures of other threads that were reported neither to them nor to this thread."""
        for _, thread in self._threads:
            for failure in thread.after(mine.last_seen):
                if mine not in failure.owners:
                    yield failure

    def _unreported(self) -> Iterator[BatchFailure]:
        yield from self._unowned.after(0)
        for _, thread in self._threads:
            yield from thread.after(self._reported)

    def _forget(self, number: int) -> None:
        self._reported = max(self._reported, number)
        self._unowned.acknowledge(number)

    def _disown_ended_threads(self) -> None:
        """Make the unreported failures of ended threads unowned. The caller holds the lock."""
        for ref, thread in self._threads:
            if ref() is None:
                thread.thread_ended = True
                for failure in thread.after(self._reported):
                    self._unowned.add(failure)
        self._threads = [known for known in self._threads if not known[1].thread_ended]


def _earliest(failures: Iterable[BatchFailure | None]) -> BatchFailure | None:
    return min(
        (failure for failure in failures if failure is not None), key=lambda failure: failure.number, default=None
    )
