"""The accounts that decide which thread is told of a batch that failed; each thread that uses a producer has its own.

This is the one place where the failure of a batch is recorded.

A failure belongs to the threads whose rows were in the batch. Their `send_batch` raises it until their next flush, which
raises it once more and settles it for them. No other thread's flush takes it from them. There is one exception: a thread that
has sent nothing since its last flush (the main thread of a pool of workers) flushes for the others. It is told once of the
failures that they have not been told of, and from then on their `send_batch` works again. Failures of rows that callbacks sent,
or threads that have ended, are told to the thread that flushes next.

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
"""What `record` takes if a failure is the same for all owners."""


class BatchFailure:
    """A batch that failed. `number` counts failures from 1; `heard` is true once a call or the futures have told an owner."""

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
        """Return the error as the thread of this account is told of it: it may name rows of its own."""
        return self._by_owner.get(owner, self.error)


class ThreadFailures:
    """The failures that one thread has not been told of by a flush of its own."""

    __slots__ = ("first", "latest", "seen", "sent", "thread_ended")

    def __init__(self) -> None:
        self.first: BatchFailure | None = None
        self.latest: BatchFailure | None = None
        self.sent = False
        """whether rows of the thread have been queued since its last flush"""
        self.seen = 0
        """the number of the last failure of other threads that the thread has been told of"""
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
        left = self.after(number)
        self.first, self.latest = (left[0], left[-1]) if left else (None, None)


class _ThreadRef:
    """A thread's reference to its account. It is collected when the thread ends, however the thread was created."""

    __slots__ = ("__weakref__", "account")

    def __init__(self, account: ThreadFailures) -> None:
        self.account = account


class FailureTracker:
    """The accounts of all threads that use a producer. Any thread may call. `lock` (None: a new one) is never held for long."""

    def __init__(self, lock: threading.Lock | None = None) -> None:
        self.count = 0
        """Failures so far. It never goes down, so comparing two values shows whether a batch failed in between."""
        self._lock = lock or threading.Lock()
        self._reported = 0
        """the number of the last failure that a thread was told of that flushed for others"""
        self._unowned = ThreadFailures()
        """The failures of callbacks and of threads that have ended. The thread that flushes next is told of them."""
        self._known: list[tuple[weakref.ref[_ThreadRef], ThreadFailures]] = []
        self._own = threading.local()

    def mine(self) -> ThreadFailures:
        """Return the account of the calling thread."""
        try:
            seat: _ThreadRef = self._own.seat
        except AttributeError:
            seat = self._own.seat = _ThreadRef(ThreadFailures())
            with self._lock:
                self._disown_ended_threads()
                self._known.append((weakref.ref(seat), seat.account))
        return seat.account

    def disown(self) -> None:
        """Let no thread own what the calling thread sends from now on: it runs callbacks, and cannot flush."""
        self._own.seat = _ThreadRef(self._unowned)

    def record(
        self,
        error: Exception,
        owners: Iterable[ThreadFailures],
        reported: bool = False,
        by_owner: Mapping[ThreadFailures, Exception] = SAME_FOR_ALL,
    ) -> None:
        """Record that a batch with rows of `owners` has failed. `heard` says that a future tells of it for every row.

        `own` has the same error for single owners, with the rows that are theirs.
        """
        with self._lock:
            self.count += 1
            told = frozenset(self._unowned if owner.thread_ended else owner for owner in owners) or frozenset(
                (self._unowned,)
            )
            failure = BatchFailure(self.count, error, told, reported, by_owner)
            for account in told:
                account.add(failure)

    # --- telling of failures ----------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise the calling thread's first failure since its last flush, unless a thread that flushes for it has been told."""
        account = self.mine()
        if account.first is not None:
            for failure in account.after(self._reported):
                failure.reported = True
                raise failure.for_thread(account)

    def raise_unreported(self) -> None:
        """End a flush: raise the first failure that the calling thread must be told of, and settle it after that."""
        account = self.mine()
        with self._lock:
            self._disown_ended_threads()
            now = self.count
            own = account.sent or account.first is not None
            found = _earliest([account.first, self._unowned.first, *([] if own else self._others(account))])
        try:
            if found is not None:
                raise found.for_thread(account)
        except Exception:  # an interrupt settles nothing
            self._acknowledge(account, own, found, now)
            raise
        self._acknowledge(account, own, found, now)

    def _acknowledge(self, account: ThreadFailures, own: bool, told: BatchFailure | None, now: int) -> None:
        """Record that the thread of `account` has flushed, for itself or for others, when there were `now` failures."""
        with self._lock:
            account.sent = False
            for teller in (account, self._unowned):
                if told is not None and told is teller.first:
                    teller.acknowledge(now)
            if not own:
                account.seen = now
                self._reported = max(self._reported, now)

    def acknowledge_mine(self) -> Exception | None:
        """Settle the calling thread's failures, and those of none, and return the first. Other threads are told of theirs."""
        account = self.mine()
        with self._lock:
            self._disown_ended_threads()
            found = _earliest([account.first, self._unowned.first])
            account.sent = False
            for teller in (account, self._unowned):
                teller.acknowledge(self.count)
        return None if found is None else found.for_thread(account)

    def raise_remaining(self) -> None:
        """Raise the first failure that no flush has told of, and forget the others, because the producer ends."""
        with self._lock:
            self._disown_ended_threads()
            found = _earliest(self._unreported())
            self._forget(self.count)
        if found is not None:
            raise found.error

    def discard(self) -> None:
        """Forget all failures, because the transaction that they spoilt is aborted, as its caller knows."""
        with self._lock:
            for _, account in self._known:
                account.acknowledge(self.count)
            self._forget(self.count)

    def first_unreported(self) -> Exception | None:
        """Return the first failure that no flush has told of."""
        with self._lock:
            found = _earliest(self._unreported())
        return None if found is None else found.error

    def log_unreported(self) -> None:
        """Log the first failure that no flush, other call or future has told of, because the producer is closed."""
        with self._lock:
            found = _earliest(failure for failure in self._unreported() if not failure.reported)
            self._forget(self.count)
        if found is not None:
            _log.warning("a producer was closed before a flush could raise the error of a batch: %s", found.error)

    def _others(self, mine: ThreadFailures) -> Iterator[BatchFailure]:
        """Yield the failures of other threads that neither they nor the thread of this account have been told of."""
        for _, account in self._known:
            for failure in account.after(mine.seen):
                if mine not in failure.owners:
                    yield failure

    def _unreported(self) -> Iterator[BatchFailure]:
        yield from self._unowned.after(0)
        for _, account in self._known:
            yield from account.after(self._reported)

    def _forget(self, number: int) -> None:
        self._reported = max(self._reported, number)
        self._unowned.acknowledge(number)

    def _disown_ended_threads(self) -> None:
        """Let no thread own the failures that ended threads had not been told of. The caller holds the lock."""
        for seat, account in self._known:
            if seat() is None:
                account.thread_ended = True
                for failure in account.after(self._reported):
                    self._unowned.add(failure)
        self._known = [known for known in self._known if not known[1].thread_ended]


def _earliest(failures: Iterable[BatchFailure | None]) -> BatchFailure | None:
    return min(
        (failure for failure in failures if failure is not None), key=lambda failure: failure.number, default=None
    )
