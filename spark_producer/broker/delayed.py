"""Requests that wait: a Fetch is answered when enough bytes have come or its time is up (Kafka's purgatory).

Owns: who waits for which partition, and until when. The clock is passed in.
Must not know: sockets, logs, or how a request is answered.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Hashable, Iterable
from typing import Final, Generic, NamedTuple, TypeVar

_KEPT_DEADLINES: Final = 100
"""Deadlines of waiters that are gone, kept beside those of the others: so that they are not swept out each time."""

Waiter = TypeVar("Waiter", bound=Hashable)


class _Wait(NamedTuple):
    ticket: int
    keys: tuple[Hashable, ...]


class Delayed(Generic[Waiter]):
    """Waiters, each under some keys and with a deadline in seconds. A waiter waits once at a time."""

    def __init__(self) -> None:
        self._by_key: dict[Hashable, set[Waiter]] = {}
        self._waits: dict[Waiter, _Wait] = {}
        self._by_ticket: dict[int, Waiter] = {}
        self._deadlines: list[tuple[float, int]] = []
        self._counter = itertools.count()

    def __len__(self) -> int:
        return len(self._waits)

    def add(self, waiter: Waiter, keys: Iterable[Hashable], deadline: float) -> None:
        """Let `waiter` wait for any of `keys`, of which one may be named twice, until `deadline`."""
        wait = self._waits[waiter] = _Wait(next(self._counter), tuple(dict.fromkeys(keys)))
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
        """Everyone who waits for one of `keys`, in order of arrival; they go on waiting until removed."""
        found = {waiter for key in keys for waiter in self._by_key.get(key, ())}
        return sorted(found, key=lambda waiter: self._waits[waiter].ticket)

    def take_expired(self, now: float) -> list[Waiter]:
        """Remove and return those whose deadline has come."""
        expired = []
        while (deadline := self.next_deadline()) is not None and deadline <= now:
            waiter = self._by_ticket[self._deadlines[0][1]]
            self.remove(waiter)
            expired.append(waiter)
        return expired

    def next_deadline(self) -> float | None:
        """When somebody's time is up next."""
        while self._deadlines and self._deadlines[0][1] not in self._by_ticket:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def _sweep(self) -> None:
        """Deadlines of waiters that left stay in the heap until they come to its top, or are as many as the others."""
        if len(self._deadlines) > 2 * len(self._waits) + _KEPT_DEADLINES:
            self._deadlines = [entry for entry in self._deadlines if entry[1] in self._by_ticket]
            heapq.heapify(self._deadlines)
