"""Requests that wait: a Fetch is answered when enough bytes have come or its time is up (Kafka's purgatory).

Owns: who waits for which partition, and until when. The clock is passed in.
Must not know: sockets, logs, or how a request is answered.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

Waiter = TypeVar("Waiter", bound=Hashable)


class Delayed(Generic[Waiter]):
    """Waiters, each under some keys and with a deadline in seconds. A waiter waits once at a time."""

    def __init__(self) -> None:
        self._by_key: dict[Hashable, set[Waiter]] = {}
        self._keys: dict[Waiter, tuple[Hashable, ...]] = {}
        self._tickets: dict[Waiter, int] = {}
        self._deadlines: list[tuple[float, int, Waiter]] = []
        self._counter = itertools.count()

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, waiter: Waiter, keys: Iterable[Hashable], deadline: float) -> None:
        """Let `waiter` wait for any of `keys`, until `deadline`."""
        self._keys[waiter] = tuple(keys)
        for key in self._keys[waiter]:
            self._by_key.setdefault(key, set()).add(waiter)
        ticket = self._tickets[waiter] = next(self._counter)
        heapq.heappush(self._deadlines, (deadline, ticket, waiter))

    def remove(self, waiter: Waiter) -> None:
        """Forget `waiter`, if it waits."""
        for key in self._keys.pop(waiter, ()):
            waiting = self._by_key[key]
            waiting.discard(waiter)
            if not waiting:
                del self._by_key[key]
        self._tickets.pop(waiter, None)

    def waiting_for(self, keys: Iterable[Hashable]) -> list[Waiter]:
        """Everyone who waits for one of `keys`; they go on waiting until removed."""
        found = {waiter for key in keys for waiter in self._by_key.get(key, ())}
        return sorted(found, key=self._tickets.__getitem__)

    def take_expired(self, now: float) -> list[Waiter]:
        """Remove and return those whose deadline has come."""
        expired = []
        while self._next() is not None and self._deadlines[0][0] <= now:
            waiter = heapq.heappop(self._deadlines)[2]
            self.remove(waiter)
            expired.append(waiter)
        return expired

    def next_deadline(self) -> float | None:
        """When somebody's time is up next."""
        return self._next()

    def _next(self) -> float | None:
        # Removed waiters stay in the heap until they come to its top.
        while self._deadlines and self._tickets.get(self._deadlines[0][2]) != self._deadlines[0][1]:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None
