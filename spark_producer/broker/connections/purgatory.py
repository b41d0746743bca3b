"""The purgatory: requests whose response is delayed, such as a Fetch until enough bytes are there (Kafka's
DelayedOperationPurgatory).

The time is passed in; nothing here reads a clock.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Hashable, Iterable
from typing import Final, Generic, NamedTuple, TypeVar

_MAX_STALE_DEADLINES: Final = 100
"""Maximum number of stale deadlines in the heap: it is not rebuilt at each removal."""

Waiter = TypeVar("Waiter", bound=Hashable)


class _WaitEntry(NamedTuple):
    ticket: int
    keys: tuple[Hashable, ...]


class Purgatory(Generic[Waiter]):
    """Waiters, each with the keys that it waits for and a deadline in seconds. A waiter is in it once at most."""

    def __init__(self) -> None:
        self._by_key: dict[Hashable, set[Waiter]] = {}
        self._waits: dict[Waiter, _WaitEntry] = {}
        self._by_ticket: dict[int, Waiter] = {}
        self._deadlines: list[tuple[float, int]] = []
        self._counter = itertools.count()

    def __len__(self) -> int:
        return len(self._waits)

    def add(self, waiter: Waiter, keys: Iterable[Hashable], deadline: float) -> None:
        """Add `waiter`, which waits for any of `keys` until `deadline`. A key may be repeated."""
        wait = self._waits[waiter] = _WaitEntry(next(self._counter), tuple(dict.fromkeys(keys)))
        for key in wait.keys:
            self._by_key.setdefault(key, set()).add(waiter)
        self._by_ticket[wait.ticket] = waiter
        heapq.heappush(self._deadlines, (deadline, wait.ticket))

    def remove(self, waiter: Waiter) -> None:
        """Remove `waiter`, if it is in the purgatory."""
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
        """Return all waiters with one of `keys`, in order of arrival; they stay until they are removed."""
        found = {waiter for key in keys for waiter in self._by_key.get(key, ())}
        return sorted(found, key=lambda waiter: self._waits[waiter].ticket)

    def take_expired(self, now: float) -> list[Waiter]:
        """Remove and return the waiters whose deadline has passed."""
        expired = []
        while (deadline := self.next_deadline()) is not None and deadline <= now:
            waiter = self._by_ticket[self._deadlines[0][1]]
            self.remove(waiter)
            expired.append(waiter)
        return expired

    def next_deadline(self) -> float | None:
        """Return the earliest deadline, or None without waiters."""
        while self._deadlines and self._deadlines[0][1] not in self._by_ticket:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def _sweep(self) -> None:
        """Rebuild the heap once stale deadlines outnumber the others.

        Until then they stay in the heap, and are dropped when they reach its top.
        """
        if len(self._deadlines) > 2 * len(self._waits) + _MAX_STALE_DEADLINES:
            self._deadlines = [entry for entry in self._deadlines if entry[1] in self._by_ticket]
            heapq.heapify(self._deadlines)
