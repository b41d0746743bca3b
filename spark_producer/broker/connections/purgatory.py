"""Requests that wait, such as a Fetch until enough bytes have come or its time is up (Kafka's purgatory).

The time is passed in; nothing here reads a clock.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Hashable, Iterable
from typing import Final, Generic, NamedTuple, TypeVar

_KEPT_DEADLINES: Final = 100
"""So many deadlines of waiters that have gone may stay in the heap, so that it is not swept at each removal."""

Waiter = TypeVar("Waiter", bound=Hashable)


class _WaitEntry(NamedTuple):
    ticket: int
    keys: tuple[Hashable, ...]


class Purgatory(Generic[Waiter]):
    """Waiters, each with the keys that it waits for and a deadline in seconds. A waiter waits once at a time."""

    def __init__(self) -> None:
        self._by_key: dict[Hashable, set[Waiter]] = {}
        self._waits: dict[Waiter, _WaitEntry] = {}
        self._by_ticket: dict[int, Waiter] = {}
        self._deadlines: list[tuple[float, int]] = []
        self._counter = itertools.count()

    def __len__(self) -> int:
        return len(self._waits)

    def add(self, waiter: Waiter, keys: Iterable[Hashable], deadline: float) -> None:
        """Let `waiter` wait for any of `keys` until `deadline`. A key may be named twice."""
        wait = self._waits[waiter] = _WaitEntry(next(self._counter), tuple(dict.fromkeys(keys)))
        for key in wait.keys:
            self._by_key.setdefault(key, set()).add(waiter)
        self._by_ticket[wait.ticket] = waiter
        heapq.heappush(self._deadlines, (deadline, wait.ticket))

    def remove(self, waiter: Waiter) -> None:
        """Forget `waiter`, if it waits."""
        wait = self._waits.pop(waiter, None)
        if wait is None:
            return
        for key in wait.keys:
            waiting = self._by_key[key]
            waiting.discard(waiter)
            if not waiting:
                del self._by_key[key]
        del self._by_ticket[wait.ticket]
        self._sweep()

    def waiting_for(self, keys: Iterable[Hashable]) -> list[Waiter]:
        """Return all who wait for one of `keys`, in order of arrival; they go on waiting until they are removed."""
        found = {waiter for key in keys for waiter in self._by_key.get(key, ())}
        return sorted(found, key=lambda waiter: self._waits[waiter].ticket)

    def take_expired(self, now: float) -> list[Waiter]:
        """Remove and return the waiters whose deadline has come."""
        expired = []
        while (deadline := self.next_deadline()) is not None and deadline <= now:
            waiter = self._by_ticket[self._deadlines[0][1]]
            self.remove(waiter)
            expired.append(waiter)
        return expired

    def next_deadline(self) -> float | None:
        """Return the earliest deadline of all waiters; None if there are no waiters."""
        while self._deadlines and self._deadlines[0][1] not in self._by_ticket:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def _sweep(self) -> None:
        """Sweep the heap once the deadlines of waiters that have gone outnumber those of the others.

        Until then they stay in the heap, or leave it when they come to its top.
        """
        if len(self._deadlines) > 2 * len(self._waits) + _KEPT_DEADLINES:
            self._deadlines = [entry for entry in self._deadlines if entry[1] in self._by_ticket]
            heapq.heapify(self._deadlines)
