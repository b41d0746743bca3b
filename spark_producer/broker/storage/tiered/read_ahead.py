"""Read-ahead: who wants an entry of an entry log will soon want those behind it, which a flush has put beside each other.

The rule is that of BookKeeper's SingleDirectoryDbLedgerStorage.fillReadAheadCache. Base offsets here are not dense as its entry
ids are, so an entry follows another if it begins at the offset at which the other ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Final, NamedTuple

from spark_producer.broker.storage.tiered.sources import Entry, EntryMissing, StoredEntry
from spark_producer.errors import CorruptRecord
from spark_producer.record.batch_v2 import read_header

MOST_ENTRIES: Final = 1000
"""The most entries read ahead at a time: `dbStorage_readAheadCacheBatchSize`, as Pulsar configures it (100 in the code)."""

UNLIMITED: Final = -1


class Stop(Enum):
    """Why a read-ahead ended."""

    COUNT = "count"
    BYTES = "bytes"
    OTHER_LOG = "other_log"
    GAP = "gap"
    END = "end"


class ReadAheadLimits(NamedTuple):
    """The limits of one read-ahead. A limit of bytes may be exceeded by the entry that reaches it.

    max_entries: so many entries at most.
    cache_bytes: half of the read cache, so that what is read ahead does not drop itself.
    max_bytes: `dbStorage_readAheadCacheBatchBytesSize`; -1 for no further limit.
    """

    max_entries: int
    cache_bytes: int
    max_bytes: int = UNLIMITED


class ReadAhead:
    """Decides, entry by entry, how far one read-ahead of the log `log_id` goes. `next_offset` is the one that it begins at."""

    def __init__(self, limits: ReadAheadLimits, log_id: int, next_offset: int) -> None:
        self._limits = limits
        self._log_id = log_id
        self._next_offset = next_offset
        self.entries = 0
        self.bytes = 0

    def enough(self) -> Stop | None:
        """Return why no further entry is to be read, None if one is."""
        if self.entries >= self._limits.max_entries:
            return Stop.COUNT
        if self.bytes >= self._limits.cache_bytes or 0 < self._limits.max_bytes <= self.bytes:
            return Stop.BYTES
        return None

    def take(self, stored: StoredEntry) -> Entry | Stop:
        """Return the entry that was read next, or why it does not belong to what is read ahead.

        Raises:
            CorruptRecord: it is no record batch.
        """
        if stored.log_id != self._log_id:
            return Stop.OTHER_LOG
        header = read_header(stored.batch)
        if header.base_offset != self._next_offset:
            return Stop.GAP
        self._next_offset = header.last_offset + 1
        self.entries += 1
        self.bytes += len(stored.batch)
        return Entry(header.base_offset, self._next_offset, stored.batch)


def read_ahead(decision: ReadAhead, entries: Iterator[StoredEntry], put: Callable[[Entry], object]) -> Stop:
    """Put entries until the decision is to stop, or there are no more; return the reason.

    Damage ends it as the end of the file does: whoever wants the damaged entry itself will be told.
    """
    try:
        while (stop := decision.enough()) is None:
            stored = next(entries, None)
            if stored is None:
                return Stop.END
            taken = decision.take(stored)
            if isinstance(taken, Stop):
                return taken
            put(taken)
        return stop
    except (CorruptRecord, EntryMissing, OSError):
        return Stop.END
