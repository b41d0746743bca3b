"""The memory that all connections share: one budget for the bytes of their requests, answers and waiting Fetches.

Owns: who holds how much of it, and who is admitted next.
Must not know: sockets, frames, or what requests mean.

Nobody who holds some waits for more, so nobody waits for ever: a request takes its whole size before it is received, an
answer goes out whatever is held by requests, and a Fetch that may not wait is answered. The shares add up to the limit.

Not in the budget: requests and parts of requests up to 64 KiB, of which each connection holds at most twice that much.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

REQUEST_SHARE: Final = 2
"""A request may have half of the budget; a larger one is refused."""

ANSWER_SHARE: Final = 4
"""No further request is answered while a quarter of the budget waits to be sent."""

FETCH_SHARE: Final = 8
"""No Fetch is, while an eighth waits: consumers that do not read must not keep producers waiting."""

WAITING_SHARE: Final = 8
"""Fetches that wait may hold an eighth; the next one is answered with what there is."""

Owner = TypeVar("Owner")


class Budget(Generic[Owner]):
    """`limit` bytes for all accounts together. Belongs to the server's thread."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.requests = 0
        self.answers = 0
        self.waits = 0
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
        """Whether the next request, a Fetch or another one, may be answered."""
        return self.answers < self._limit // (FETCH_SHARE if fetch else ANSWER_SHARE)

    @property
    def largest_fetch(self) -> int:
        """Bytes of records that the next Fetch may be given: half of the room, since others will come."""
        return max(self._limit // FETCH_SHARE - self.answers, 0) // 2

    def next_admitted(self) -> Owner | None:
        """Who waits longest to be admitted, if there is room for him now; he has to ask again."""
        if not self._queue:
            return None
        first, size = next(iter(self._queue.items()))
        return first.owner if self.held + size <= self._limit else None

    def admit(self, account: Account[Owner], size: int) -> bool:
        """Let `account` have `size` bytes for a request, or note that it wants them: first come, first served."""
        first = next(iter(self._queue), account)
        if first is not account or self.held + size > self._limit:
            self._queue[account] = size
            return False
        self.forget(account)
        self.requests += size
        return True

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
        self._request = self._answer = self._wait = 0

    def admit(self, size: int) -> bool:
        """Take `size` bytes for a request; if that fails, `Budget.next_admitted` will name the owner some time."""
        admitted = self._budget.admit(self, size)
        if admitted:
            self._request += size
        return admitted

    def request_done(self) -> None:
        """The memory of all requests is given back."""
        self._budget.requests -= self._request
        self._request = 0

    def hold_answer(self, size: int) -> None:
        """`size` bytes of answers are waiting to be sent."""
        self._budget.answers += size - self._answer
        self._answer = size

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
