"""The memory that all connections share: one budget for the bytes of their requests, responses and delayed requests.

No connection that holds memory waits for more, so there is no deadlock: a request reserves its whole size before it is received,
a response is sent however much the requests hold, and a Fetch for which there is no memory to wait gets its response at once. The
shares add up to the limit.

Requests, or parts of them, of up to 64 KiB are not counted; each connection holds at most twice that much of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Generic, TypeVar

from spark_producer.broker.memory.watermark import Watermark

REQUEST_SHARE: Final = 2
"""Divisor of the budget: a request may take half of it; a larger one is refused."""

RESPONSE_SHARE: Final = 4
"""Divisor of the budget: no request is handled while unsent responses take a quarter of it."""

FETCH_SHARE: Final = 8
"""Divisor of the budget: no Fetch is handled while unsent responses take an eighth of it, so that consumers that do not read
cannot stop producers."""

WAITING_SHARE: Final = 8
"""Divisor of the budget: delayed Fetches may take an eighth of it; after that, the next Fetch gets its response at once."""

UNCONFIRMED_SHARE: Final = 8
"""Divisor of the budget: Produces without a response may take an eighth of it; after that, no more of them are handled."""

LARGE_SHARE: Final = 64
"""Divisor of the budget: a larger request counts as large (4 MiB by default; pyproducer's requests are no larger)."""

LARGE_REQUESTS_SHARE: Final = 2
"""Divisor of the budget: large requests may take half of it together, so that a few that are never complete cannot stop all
others."""

Owner = TypeVar("Owner")


class ConnectionMemory(Generic[Owner]):
    """A budget of `limit` bytes for all connections together. Only the server's thread uses it."""

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
        """The bytes that all connections hold together."""
        return self.requests + self.responses + self.waits + self.unconfirmed.amount

    @property
    def max_request_bytes(self) -> int:
        """Maximum size of a request in bytes."""
        return self._limit // REQUEST_SHARE

    def may_respond(self, *, fetch: bool) -> bool:
        """Return whether the next request can be handled; `fetch` says whether it is a Fetch.

        The largest unsent response counts for Fetches only: a batch is sent whatever its size, and a client that fetches one and
        does not read it must not block the broker.
        """
        if fetch:
            return self.responses < self._limit // FETCH_SHARE
        limit = self._limit // RESPONSE_SHARE
        return self.responses < limit or self.responses - max(self._responses.values()) < limit

    @property
    def is_contended(self) -> bool:
        """Whether a connection waits for memory."""
        return bool(self._queue)

    @property
    def max_fetch_bytes(self) -> int:
        """Maximum bytes of records in the response to the next Fetch: half of the free memory, because others will follow."""
        return max(self._limit // FETCH_SHARE - self.responses, 0) // 2

    def next_admitted(self) -> Owner | None:
        """Return the owner whose request can be admitted next, or None if there is no memory for it. The owner has to ask
        again."""
        first = self._next()
        return None if first is None else first.owner

    def _next(self) -> MemoryHolding[Owner] | None:
        """Return the first holding in the queue, if there is memory for it.

        A large request that would exceed the share of all large requests is overtaken by smaller ones.
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
        """Reserve `size` bytes for a request and return True, or queue `holding` and return False: first come, first served."""
        self._queue[holding] = size
        if self._next() is not holding:
            return False
        self.forget(holding)
        self.requests += size
        self._large += size if self._is_large(size) else 0
        return True

    def release_requests(self, sizes: Iterable[int]) -> None:
        """Release the memory of requests of these sizes."""
        for size in sizes:
            self.requests -= size
            self._large -= size if self._is_large(size) else 0

    def hold_response(self, holding: MemoryHolding[Owner], size: int) -> None:
        """Set the bytes of unsent responses of `holding`."""
        self.responses += size - self._responses.pop(holding, 0)
        if size:
            self._responses[holding] = size

    def may_wait(self, size: int) -> bool:
        """Return whether there is memory for a Fetch of `size` bytes to wait."""
        return self.waits + size <= self._limit // WAITING_SHARE

    def is_queued(self, holding: MemoryHolding[Owner]) -> bool:
        """Return whether `holding` is in the queue."""
        return holding in self._queue

    def forget(self, holding: MemoryHolding[Owner]) -> None:
        """Remove `holding` from the queue."""
        self._queue.pop(holding, None)


class MemoryHolding(Generic[Owner]):
    """The memory that one connection, the `owner`, holds."""

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
        """Whether it waits for memory."""
        return self._budget.is_queued(self)

    def withdraw(self) -> None:
        """Leave the queue."""
        self._budget.forget(self)

    def request_done(self) -> None:
        """Release the memory of all requests."""
        self._budget.release_requests(self._requests)
        self._requests.clear()

    def hold_response(self, size: int) -> None:
        """Set the bytes of unsent responses."""
        self._budget.hold_response(self, size)
        self._response = size

    @property
    def holds(self) -> bool:
        """Whether a request or a response holds memory."""
        return bool(self._requests or self._response)

    def hold_waiting(self, size: int) -> None:
        """Set the bytes of the delayed request; 0 if there is none."""
        self._budget.waits += size - self._wait
        self._wait = size

    def close(self) -> None:
        """Release all memory."""
        self._budget.forget(self)
        self.request_done()
        self.hold_response(0)
        self.hold_waiting(0)
