"""Read-ahead: who wants an entry of an entry log will soon want those behind it, which a flush has put beside each other.

The rule is that of BookKeeper's SingleDirectoryDbLedgerStorage.fillReadAheadCache. Base offsets here are not dense as its entry
ids are, so an entry follows another if it begins at the offset at which the other ends. What is read of a file comes in pieces,
and of each piece all entries are taken at once: with a call for each entry, small ones would cost more than their bytes.
"""

from __future__ import annotations

from enum import Enum
from struct import Struct
from typing import Final, NamedTuple

from spark_producer.broker.storage.tiered.entry_log_format import ENTRY_HEADER, checksum
from spark_producer.broker.storage.tiered.interfaces import EntryRun
from spark_producer.errors import CorruptRecord
from spark_producer.record.batch_v2 import HEADER_SIZE, LOG_OVERHEAD, MAGIC
from spark_producer.record.checksum import crc32c

MAX_ENTRIES: Final = 1000
"""The most entries read ahead at a time: `dbStorage_readAheadCacheBatchSize`, as Pulsar configures it (100 in the code)."""

UNLIMITED: Final = -1

_HEAD: Final = Struct(">IIQqi4xb6xi")
"""Size, checksum and log of an entry; base offset, length, magic and last offset delta of its batch."""
_ENTRY_HEADER_BYTES: Final = ENTRY_HEADER.size
_MIN_LENGTH: Final = HEADER_SIZE - LOG_OVERHEAD
"""The least length that a batch may claim."""


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


class _RejectedEntry(NamedTuple):
    """An entry that is not taken. `is_batch`: whether it looks like a record batch."""

    log_id: int
    is_batch: bool
    crc: int
    batch: memoryview


class ReadAhead:
    """Takes the entry of the log `log_id` that begins at `base_offset`, which is wanted, and then those behind it, as far as the
    rule goes (a `sources.EntryConsumer`).

    entries, bytes: what was taken behind the wanted entry; -1 entries as long as that one was not.
    stop: why nothing more is taken, None while something is.
    """

    def __init__(self, limits: ReadAheadLimits, log_id: int, base_offset: int) -> None:
        self._max_entries = limits.max_entries
        self._max_bytes = min(limits.cache_bytes, limits.max_bytes) if limits.max_bytes > 0 else limits.cache_bytes
        self._log_id = log_id
        self._next_offset = base_offset
        self._seed = checksum(log_id, b"")  # with which the checksum of each of its entries begins
        self.entries = -1
        self.bytes = 0
        self.stop: Stop | None = None

    @property
    def is_done(self) -> bool:
        """Whether nothing more is taken."""
        return self.stop is not None

    def on_damage(self) -> None:
        """Note that the file ends, or is damaged, where the next entry should be. Whoever wants that entry itself will be told.

        Raises:
            CorruptRecord: it is the one that is wanted.
        """
        self.stop = Stop.END
        if self.entries < 0:
            raise CorruptRecord("there is no entry, or a damaged one")

    def take(self, view: memoryview, at: int = 0) -> tuple[EntryRun | None, int]:
        """Take what is whole of the entries in `view` from byte `at` on. Return it, if it is anything, and where the next entry
        begins.

        Raises:
            CorruptRecord: the entry that is wanted is damaged.
        """
        bases: list[int] = []
        batches: list[memoryview] = []
        unpack, log_id, seed, expected, done = _HEAD.unpack_from, self._log_id, self._seed, self._next_offset, 0
        is_wanted, whole = self.entries < 0, len(view)
        refused: _RejectedEntry | None = None
        most, enough = self._max_entries - self.entries, 1 if is_wanted else self._max_bytes - self.bytes
        while len(bases) < most and done < enough and at + _HEAD.size <= whole:
            size, crc, found, base, length, magic, delta = unpack(view, at)
            end = at + _ENTRY_HEADER_BYTES + size
            if end > whole:  # the rest of it comes with the next read
                break
            batch = view[at + _ENTRY_HEADER_BYTES : end]
            is_batch = magic == MAGIC and length >= _MIN_LENGTH and size >= HEADER_SIZE
            if found != log_id or base != expected or not is_batch or crc32c(batch, seed) != crc:
                refused = _RejectedEntry(found, is_batch, crc, batch)
                break
            if is_wanted and not bases:
                enough = self._max_bytes + size
            bases.append(base)
            batches.append(batch)
            done, at, expected = done + size, end, base + delta + 1
        if bases:
            self._note(len(bases), done - len(batches[0]) if is_wanted else done, expected)
        if refused is not None:
            self._end_before(refused)
        return (EntryRun(bases, expected, batches) if bases else None), at

    def _end_before(self, entry: _RejectedEntry) -> None:
        """Note why an entry is not taken."""
        if not entry.is_batch or crc32c(entry.batch, checksum(entry.log_id, b"")) != entry.crc:
            self.on_damage()
        else:
            self.stop = Stop.OTHER_LOG if entry.log_id != self._log_id else Stop.GAP

    def _note(self, entries: int, size: int, next_offset: int) -> None:
        """Count what was taken."""
        self.entries += entries
        self.bytes += size
        self._next_offset = next_offset
        if self.entries >= self._max_entries:
            self.stop = Stop.COUNT
        elif self.bytes >= self._max_bytes:
            self.stop = Stop.BYTES
