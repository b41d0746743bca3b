"""Who is told of a batch that failed: every thread that uses a producer has an account of its own.

Owns: the failures that somebody is still to be told of; it is the one place where the failure of a batch is recorded.
Must not know: batches, or why one failed.

A failure belongs to the threads whose rows were in the batch. Their `send_batch` raises it, up to their next flush, which
raises it once more and settles it for them. Nobody else's flush takes it from them. But a thread that has sent nothing since
its last flush flushes for others (the main thread of a pool of workers): it is told of what they are still to be told of, once,
and from then on their `send_batch` goes on. The rows of callbacks, and of threads that have ended, are those of whoever flushes
next.

Bounded: of each thread the first and the last failure are kept.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Iterable, Iterator

_log = logging.getLogger(__name__)


class Failure:
    """A batch that failed. `number` counts them from 1; `heard`: whether a call or the futures have told an owner."""

    __slots__ = ("error", "heard", "number", "owners")

    def __init__(self, number: int, error: Exception, owners: frozenset[Account], heard: bool) -> None:
        self.number = number
        self.error = error
        self.owners = owners
        self.heard = heard


class Account:
    """Of one thread: what it has not been told of by a flush of its own."""

    __slots__ = ("ended", "first", "latest", "seen", "sent")

    def __init__(self) -> None:
        self.first: Failure | None = None
        self.latest: Failure | None = None
        self.sent = False
        """whether rows of the thread were queued since its last flush"""
        self.seen = 0
        """number of the last failure of others that it has been told of"""
        self.ended = False

    def add(self, failure: Failure) -> None:
        """A batch with rows of the thread has failed."""
        self.first = self.first or failure
        self.latest = failure

    def after(self, number: int) -> list[Failure]:
        """Those behind `number`, as far as they are kept."""
        return [kept for kept in (self.first, self.latest) if kept is not None and kept.number > number]

    def settle(self, number: int) -> None:
        """The failures up to `number` are done with."""
        left = self.after(number)
        self.first, self.latest = (left[0], left[-1]) if left else (None, None)


class _Seat:
    """What a thread holds of its account; it goes with the thread, however that was made."""

    __slots__ = ("__weakref__", "account")

    def __init__(self, account: Account) -> None:
        self.account = account


class Accounts:
    """The accounts of all threads that use a producer. Any thread may call; `lock` (None: one of its own) is held for moments."""

    def __init__(self, lock: threading.Lock | None = None) -> None:
        self.count = 0
        """Failures so far; it never goes down. Who must know whether any batch failed since a moment compares it."""
        self._lock = lock or threading.Lock()
        self._told = 0
        """number of the last failure that somebody was told of who flushed for others"""
        self._unowned = Account()
        """The failures of callbacks and of threads that have ended. They are told to whoever flushes next."""
        self._known: list[tuple[weakref.ref[_Seat], Account]] = []
        self._own = threading.local()

    def mine(self) -> Account:
        """The calling thread's."""
        try:
            seat: _Seat = self._own.seat
        except AttributeError:
            seat = self._own.seat = _Seat(Account())
            with self._lock:
                self._part_with_ended()
                self._known.append((weakref.ref(seat), seat.account))
        return seat.account

    def disown(self) -> None:
        """What the calling thread sends from now on is nobody's: it runs callbacks, and cannot flush."""
        self._own.seat = _Seat(self._unowned)

    def record(self, error: Exception, owners: Iterable[Account], heard: bool = False) -> None:
        """A batch with rows of `owners` has failed. `heard`: futures tell of it, for every row."""
        with self._lock:
            self.count += 1
            told = frozenset(self._unowned if owner.ended else owner for owner in owners) or frozenset((self._unowned,))
            failure = Failure(self.count, error, told, heard)
            for account in told:
                account.add(failure)

    # --- who is told ------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise the first failure of the calling thread since its last flush, unless somebody was told who flushes for it."""
        account = self.mine()
        if account.first is not None:
            for failure in account.after(self._told):
                failure.heard = True
                raise failure.error

    def tell(self) -> None:
        """The end of a flush: raise the first failure that the calling thread is to be told of; only then it is settled."""
        account = self.mine()
        with self._lock:
            self._part_with_ended()
            now = self.count
            own = account.sent or account.first is not None
            found = _earliest([account.first, self._unowned.first, *([] if own else self._others(account))])
        try:
            if found is not None:
                raise found.error
        except Exception:  # an interrupt instead settles nothing
            self._settle(account, own, found, now)
            raise
        self._settle(account, own, found, now)

    def _settle(self, account: Account, own: bool, told: Failure | None, now: int) -> None:
        """The thread of `account` has flushed, for itself or for others, when there were `now` failures."""
        with self._lock:
            account.sent = False
            for teller in (account, self._unowned):
                if told is not None and told is teller.first:
                    teller.settle(now)
            if not own:
                account.seen = now
                self._told = max(self._told, now)

    def tell_rest(self) -> None:
        """The producer ends: raise the first failure that no flush has told of, and forget the others."""
        with self._lock:
            self._part_with_ended()
            found = _earliest(self._untold())
            self._forget(self.count)
        if found is not None:
            raise found.error

    def untold(self) -> Exception | None:
        """The first failure that no flush has told of."""
        with self._lock:
            found = _earliest(self._untold())
        return None if found is None else found.error

    def log_unheard(self) -> None:
        """The producer is closed: log the first failure that neither a flush, nor another call, nor a future has told of."""
        with self._lock:
            found = _earliest(failure for failure in self._untold() if not failure.heard)
            self._forget(self.count)
        if found is not None:
            _log.warning("a producer was closed before a flush told of a batch that had failed: %s", found.error)

    def _others(self, mine: Account) -> Iterator[Failure]:
        """What others are still to be told of, and the thread of this account has not been told of."""
        for _, account in self._known:
            for failure in account.after(mine.seen):
                if mine not in failure.owners:
                    yield failure

    def _untold(self) -> Iterator[Failure]:
        yield from self._unowned.after(0)
        for _, account in self._known:
            yield from account.after(self._told)

    def _forget(self, number: int) -> None:
        self._told = max(self._told, number)
        self._unowned.settle(number)

    def _part_with_ended(self) -> None:
        """What nobody was told of when a thread ended is nobody's from now on. The lock is held."""
        for seat, account in self._known:
            if seat() is None:
                account.ended = True
                for failure in account.after(self._told):
                    self._unowned.add(failure)
        self._known = [known for known in self._known if not known[1].ended]


def _earliest(failures: Iterable[Failure | None]) -> Failure | None:
    return min(
        (failure for failure in failures if failure is not None), key=lambda failure: failure.number, default=None
    )
