"""The memory that all connections share: one budget for the bytes of their requests, of answers, and of requests that wait.

No connection that holds memory waits for more, so none waits for ever: a request takes its whole size before it is received, an
answer is sent however much the requests hold, and a Fetch that may not wait is answered. The shares add up to the limit.

The budget does not count requests, or parts of requests, of up to 64 KiB; each connection holds at most twice that much of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Generic, TypeVar

from spark_producer.broker.memory.watermark import Watermark

REQUEST_SHARE: Final = 2
"""A request may take half of the budget; a larger one is refused."""

RESPONSE_SHARE: Final = 4
"""No further request is answered while answers that take a quarter of the budget wait to be sent."""

FETCH_SHARE: Final = 8
"""No Fetch is answered while answers that take an eighth of the budget wait to be sent: consumers that do not read must not keep
producers waiting."""

WAITING_SHARE: Final = 8
"""Fetches that wait may hold an eighth of the budget; after that, the next Fetch is answered at once with what there is."""

UNCONFIRMED_SHARE: Final = 8
"""Produces that are not answered may hold an eighth of the budget; after that no more of them are handled."""

LARGE_SHARE: Final = 64
"""A request is large if it takes more than this part of the budget (4 MiB by default; our producer's requests are no larger)."""

LARGE_REQUESTS_SHARE: Final = 2
"""Large requests may hold half of the budget together: a few that never arrive whole must not keep all others waiting."""

Owner = TypeVar("Owner")


class ConnectionMemory(Generic[Owner]):
    """A budget of `limit` bytes for all holdings together. Only the server's thread uses it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.requests = 0
        self.responses = 0
        self.waits = 0
        self.unconfirmed = Watermark(limit // UNCONFIRMED_SHARE)
        self._large = 0
        self._responses: dict[MemoryHolding[Owner], int] = {}
        self._queue: dict[MemoryHolding[Owner], int] = {}

    @property
    def held(self) -> int:
        """The bytes of all holdings together."""
        return self.requests + self.responses + self.waits + self.unconfirmed.amount

    @property
    def max_request_bytes(self) -> int:
        """The size in bytes that no request may exceed."""
        return self._limit // REQUEST_SHARE

    def may_respond(self, *, fetch: bool) -> bool:
        """Return whether the next request may be answered; `fetch` says whether it is a Fetch.

        The largest waiting answer counts for Fetches only: a batch is sent however large it is, and a client that asks for one
        and does not read it must not silence the broker.
        """
        if fetch:
            return self.responses < self._limit // FETCH_SHARE
        most = self._limit // RESPONSE_SHARE
        return self.responses < most or self.responses - max(self._responses.values()) < most

    @property
    def is_contended(self) -> bool:
        """Whether some holding waits to be admitted."""
        return bool(self._queue)

    @property
    def max_fetch_bytes(self) -> int:
        """The bytes of records that the next Fetch may be given: half of the room that is left, because others will follow."""
        return max(self._limit // FETCH_SHARE - self.responses, 0) // 2

    def next_admitted(self) -> Owner | None:
        """Return the owner that is admitted next, or None if there is no room for it now. The owner has to ask again."""
        first = self._next()
        return None if first is None else first.owner

    def _next(self) -> MemoryHolding[Owner] | None:
        """Return the first holding in the queue, if there is room for it.

        A large request that would exceed the share of all large requests is passed by smaller ones.
        """
        large_must_wait = False
        for holding, size in self._queue.items():
            if self._is_large(size):
                large_must_wait = large_must_wait or self._large + size > self._limit // LARGE_REQUESTS_SHARE
                if large_must_wait:
                    continue
            return holding if self.held + size <= self._limit else None
        return None

    def _is_large(self, size: int) -> bool:
        return size > self._limit // LARGE_SHARE

    def admit(self, holding: MemoryHolding[Owner], size: int) -> bool:
        """Give `holding` `size` bytes for a request and return True, or queue it and return False: first come, first served."""
        self._queue[holding] = size
        if self._next() is not holding:
            return False
        self.forget(holding)
        self.requests += size
        self._large += size if self._is_large(size) else 0
        return True

    def release_requests(self, sizes: Iterable[int]) -> None:
        """Take back the memory of requests of these sizes, which are done."""
        for size in sizes:
            self.requests -= size
            self._large -= size if self._is_large(size) else 0

    def hold_response(self, holding: MemoryHolding[Owner], size: int) -> None:
        """Note that `size` bytes of answers wait to be sent to the owner of `holding`."""
        self.responses += size - self._responses.pop(holding, 0)
        if size:
            self._responses[holding] = size

    def may_wait(self, size: int) -> bool:
        """Return whether a Fetch that takes `size` bytes may wait."""
        return self.waits + size <= self._limit // WAITING_SHARE

    def is_queued(self, holding: MemoryHolding[Owner]) -> bool:
        """Return whether `holding` waits to be admitted."""
        return holding in self._queue

    def forget(self, holding: MemoryHolding[Owner]) -> None:
        """Take `holding` out of the queue."""
        self._queue.pop(holding, None)


class MemoryHolding(Generic[Owner]):
    """The part of the budget that one connection, the `owner`, holds."""

    def __init__(self, budget: ConnectionMemory[Owner], owner: Owner) -> None:
        self._budget = budget
        self.owner = owner
        self._requests: list[int] = []
        self._response = self._wait = 0

    def admit(self, size: int) -> bool:
        """Reserve `size` bytes for a request and return True, or wait in the queue of `ConnectionMemory` and return False."""
        admitted = self._budget.admit(self, size)
        if admitted:
            self._requests.append(size)
        return admitted

    @property
    def is_queued(self) -> bool:
        """Whether it has asked for memory and is not admitted yet."""
        return self._budget.is_queued(self)

    def withdraw(self) -> None:
        """Ask no longer."""
        self._budget.forget(self)

    def request_done(self) -> None:
        """Give back the memory of all requests."""
        self._budget.release_requests(self._requests)
        self._requests.clear()

    def hold_response(self, size: int) -> None:
        """Note that `size` bytes of answers wait to be sent."""
        self._budget.hold_response(self, size)
        self._response = size

    @property
    def holds(self) -> bool:
        """Whether a request or an answer holds some of the budget."""
        return bool(self._requests or self._response)

    def hold_waiting(self, size: int) -> None:
        """Note that the waiting request takes `size` bytes; 0 means that none waits."""
        self._budget.waits += size - self._wait
        self._wait = size

    def close(self) -> None:
        """Give back everything."""
        self._budget.forget(self)
        self.request_done()
        self.hold_response(0)
        self.hold_waiting(0)
