"""The open and the aborted transactions of one partition (the last stable offset of Kafka's ProducerStateManager, and its
TransactionIndex)."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Collection
from typing import Final, NamedTuple

MAX_OPEN_TRANSACTIONS: Final = 5_000
"""Maximum number of open transactions in one partition; a batch that would open another is refused until one ends. It limits the
memory of clients that begin transactions and never end them to a few megabytes, until the coordinator aborts them."""


class AbortedTxn(NamedTuple):
    """An aborted transaction: the batches of a producer from `first_offset` to its marker at `last_offset`.

    last_stable_offset: all transactions that end after this one begin at this offset or later.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The open and the aborted transactions of one partition.

    An aborted transaction takes 32 bytes of memory for as long as the log has its marker. A marker with a batch takes more than
    four times as much of the disk.
    """

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        """Producer id → first offset, in the order of these offsets, in which the transactions began."""
        self._ending: deque[tuple[int, int]] = deque()
        """The first offset and the marker offset of transactions whose marker may not be confirmed yet, in the order of
        markers."""
        # The fields of `AbortedTxn`, in the order of markers. `last_offset` and `last_stable_offset` never fall.
        self._producers = array("q")
        self._firsts = array("q")
        self._lasts = array("q")
        self._stables = array("q")

    def first_offset(self, producer_id: int, default: int) -> int:
        """Return the first offset of this producer's open transaction, or `default` if it has none."""
        return self._open.get(producer_id, default)

    def is_full(self, high_watermark: int) -> bool:
        """Return whether no further transaction can be opened. Those whose marker is not confirmed count as open."""
        if len(self._open) + len(self._ending) < MAX_OPEN_TRANSACTIONS:
            return False
        self.settle(high_watermark)
        return len(self._open) + len(self._ending) >= MAX_OPEN_TRANSACTIONS

    def begin(self, producer_id: int, first_offset: int) -> None:
        """Add a transaction that begins with the batch at `first_offset`. The producer has no open one."""
        self._open[producer_id] = first_offset

    def end(self, producer_id: int, marker_offset: int, *, commits: bool) -> None:
        """Apply the marker at `marker_offset`, which ends the open transaction of the producer, if there is one."""
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None:
            return
        self._ending.append((first_offset, marker_offset))
        if not commits:
            self._producers.append(producer_id)
            self._firsts.append(first_offset)
            self._lasts.append(marker_offset)
            self._stables.append(next(iter(self._open.values()), marker_offset + 1))

    def first_unstable(self, high_watermark: int) -> int | None:
        """Return the first offset of the earliest transaction that is open or whose marker is not confirmed (it is not before
        `high_watermark`); None if there is no such transaction."""
        self.settle(high_watermark)
        earliest = next(iter(self._open.values()), None)
        if not self._ending:
            return earliest
        unconfirmed = min(first_offset for first_offset, _ in self._ending)
        return unconfirmed if earliest is None else min(earliest, unconfirmed)

    def settle(self, high_watermark: int) -> None:
        """Forget the ended transactions whose markers are before `high_watermark`, and so confirmed."""
        while self._ending and self._ending[0][1] < high_watermark:
            self._ending.popleft()

    def has_aborted(self, first: int) -> bool:
        """Return whether any aborted transaction has its marker at offset `first` or later."""
        return bool(self._lasts) and self._lasts[-1] >= first

    def aborted(self, first: int, last: int) -> list[AbortedTxn]:
        """Return the aborted transactions that overlap the offsets from `first` to `last`, in the order of their markers."""
        found = []
        for number in range(bisect_left(self._lasts, first), len(self._lasts)):
            if self._firsts[number] <= last:
                found.append(
                    AbortedTxn(
                        self._producers[number], self._firsts[number], self._lasts[number], self._stables[number]
                    )
                )
            if self._stables[number] > last:
                break
        return found

    def forget_before(self, offset: int) -> None:
        """Forget the aborted transactions whose marker is before `offset`, the new start of the log."""
        gone = bisect_left(self._lasts, offset)
        for column in (self._producers, self._firsts, self._lasts, self._stables):
            del column[:gone]

    def forget_ended_at(self, markers: Collection[int]) -> None:
        """Forget the aborted transactions with these markers, which are removed with all of their records: otherwise later
        records of the same producer would count as aborted."""
        gone = set(markers)
        kept = [number for number, last in enumerate(self._lasts) if last not in gone]
        for name in ("_producers", "_firsts", "_lasts", "_stables"):
            column = getattr(self, name)
            setattr(self, name, array("q", (column[number] for number in kept)))
