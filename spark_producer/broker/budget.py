"""The memory that all connections share: one budget for the bytes of their requests, answers and waiting Fetches.

Owns: who holds how much of it, and who is admitted next.
Must not know: sockets, frames, or what requests mean.

Nobody who holds some waits for more, so nobody waits for ever: a request takes its whole size before it is received, an
answer goes out whatever is held by requests, and a Fetch that may not wait is answered. The shares add up to the limit.

Not in the budget: requests and parts of requests up to 64 KiB, of which each connection holds at most twice that much.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Generic, TypeVar

REQUEST_SHARE: Final = 2
"""A request may have half of the budget; a larger one is refused."""

ANSWER_SHARE: Final = 4
"""No further request is answered while a quarter of the budget waits to be sent."""

FETCH_SHARE: Final = 8
"""No Fetch is, while an eighth waits: consumers that do not read must not keep producers waiting."""

WAITING_SHARE: Final = 8
"""Fetches that wait may hold an eighth; the next one is answered with what there is."""

LARGE_SHARE: Final = 64
"""A request of more than this part of the budget is a large one (4 MiB, as it is set: our producer's are no larger)."""

LARGE_REQUESTS_SHARE: Final = 2
"""Large requests may hold half of the budget together: a few that do not come must not keep all others waiting."""

Owner = TypeVar("Owner")


class Budget(Generic[Owner]):
    """`limit` bytes for all accounts together. Belongs to the server's thread."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.requests = 0
        self.answers = 0
        self.waits = 0
        self._large = 0
        self._answers: dict[Account[Owner], int] = {}
        self._queue: dict[Account[Owner], int] = {}

    @property
    def held(self) -> int:
        """Bytes that all accounts hold."""
        return self.requests + self.answers + self.waits

    @property
    def largest_request(self) -> int:
        """No request may be larger."""
        return self._limit // REQUEST_SHARE

    def may_answer(self, *, fetch: bool) -> bool:
        """Whether the next request, a Fetch or another one, may be answered.

        The largest answer counts for Fetches alone: a batch goes out however large it is, and whoever asks for one and does not
        read it must not silence the broker.
        """
        if fetch:
            return self.answers < self._limit // FETCH_SHARE
        most = self._limit // ANSWER_SHARE
        return self.answers < most or self.answers - max(self._answers.values()) < most

    @property
    def crowded(self) -> bool:
        """Whether somebody waits to be admitted."""
        return bool(self._queue)

    @property
    def largest_fetch(self) -> int:
        """Bytes of records that the next Fetch may be given: half of the room, since others will come."""
        return max(self._limit // FETCH_SHARE - self.answers, 0) // 2

    def next_admitted(self) -> Owner | None:
        """Who is admitted next, if there is room for him now; he has to ask again."""
        first = self._next()
        return None if first is None else first.owner

    def _next(self) -> Account[Owner] | None:
        """The first in the queue, if there is room. While it is more than all large ones may hold, smaller ones pass it."""
        large_must_wait = False
        for account, size in self._queue.items():
            if self._is_large(size):
                large_must_wait = large_must_wait or self._large + size > self._limit // LARGE_REQUESTS_SHARE
                if large_must_wait:
                    continue
            return account if self.held + size <= self._limit else None
        return None

    def _is_large(self, size: int) -> bool:
        return size > self._limit // LARGE_SHARE

    def admit(self, account: Account[Owner], size: int) -> bool:
        """Let `account` have `size` bytes for a request, or note that it wants them: first come, first served."""
        self._queue[account] = size
        if self._next() is not account:
            return False
        self.forget(account)
        self.requests += size
        self._large += size if self._is_large(size) else 0
        return True

    def take_back(self, sizes: Iterable[int]) -> None:
        """Requests of these sizes are done."""
        for size in sizes:
            self.requests -= size
            self._large -= size if self._is_large(size) else 0

    def hold_answer(self, account: Account[Owner], size: int) -> None:
        """`size` bytes wait to be sent for `account`."""
        self.answers += size - self._answers.pop(account, 0)
        if size:
            self._answers[account] = size

    def may_wait(self, size: int) -> bool:
        """Whether a Fetch that takes `size` bytes may wait."""
        return self.waits + size <= self._limit // WAITING_SHARE

    def forget(self, account: Account[Owner]) -> None:
        """`account` wants nothing any more."""
        self._queue.pop(account, None)


class Account(Generic[Owner]):
    """What one connection, the `owner`, holds of the budget."""

    def __init__(self, budget: Budget[Owner], owner: Owner) -> None:
        self._budget = budget
        self.owner = owner
        self._requests: list[int] = []
        self._answer = self._wait = 0

    def admit(self, size: int) -> bool:
        """Take `size` bytes for a request; if that fails, `Budget.next_admitted` will name the owner some time."""
        admitted = self._budget.admit(self, size)
        if admitted:
            self._requests.append(size)
        return admitted

    def request_done(self) -> None:
        """The memory of all requests is given back."""
        self._budget.take_back(self._requests)
        self._requests.clear()

    def hold_answer(self, size: int) -> None:
        """`size` bytes of answers are waiting to be sent."""
        self._budget.hold_answer(self, size)
        self._answer = size

    @property
    def holds(self) -> bool:
        """Whether a request or an answer takes some of the budget."""
        return bool(self._requests or self._answer)

    def hold_wait(self, size: int) -> None:
        """The Fetch that waits takes `size` bytes; 0: none waits."""
        self._budget.waits += size - self._wait
        self._wait = size

    def close(self) -> None:
        """Give everything back."""
        self._budget.forget(self)
        self.request_done()
        self.hold_answer(0)
        self.hold_wait(0)
