"""Read-ahead: a reader of an entry soon needs the entries after it, which a flush has written next to it.

The rule is that of BookKeeper's SingleDirectoryDbLedgerStorage.fillReadAheadCache. Base offsets are not dense like its entry ids,
so an entry follows another one if it begins at the offset at which the other ends. A file is read in pieces, and all entries of a
piece are taken in one call: with a call for each entry, small entries would cost more than their bytes.
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
"""Maximum number of entries per read-ahead: `dbStorage_readAheadCacheBatchSize` in Pulsar's configuration (100 in the code)."""

UNLIMITED: Final = -1

_HEAD: Final = Struct(">IIQqi4xb6xi")
"""Size, checksum and log of an entry; base offset, length, magic and last offset delta of its batch."""
_ENTRY_HEADER_BYTES: Final = ENTRY_HEADER.size
_MIN_LENGTH: Final = HEADER_SIZE - LOG_OVERHEAD
"""Minimum length field of a batch, in bytes."""


class Stop(Enum):
    """Why a read-ahead ended."""

    COUNT = "count"
    BYTES = "bytes"
    OTHER_LOG = "other_log"
    GAP = "gap"
    END = "end"


class ReadAheadLimits(NamedTuple):
    """The limits of one read-ahead. The entry that reaches a limit of bytes may exceed it.

    max_entries: maximum number of entries.
    cache_bytes: half of the read cache, so that a read-ahead does not evict its own entries.
    max_bytes: `dbStorage_readAheadCacheBatchBytesSize`; -1 for no further limit.
    """

    max_entries: int
    cache_bytes: int
    max_bytes: int = UNLIMITED


class _RejectedEntry(NamedTuple):
    """An entry that is not taken. `is_batch`: whether its header is that of a record batch."""

    log_id: int
    is_batch: bool
    crc: int
    batch: memoryview


class ReadAhead:
    """Takes the requested entry, at `base_offset` of the log `log_id`, and the entries after it by the rule above (an
    `interfaces.EntryConsumer`).

    entries, bytes: number and size of the entries taken after the requested one; `entries` is -1 before the requested entry.
    stop: the reason for which no more entries are taken; None while they are taken.
    """

    def __init__(self, limits: ReadAheadLimits, log_id: int, base_offset: int) -> None:
        self._max_entries = limits.max_entries
        self._max_bytes = min(limits.cache_bytes, limits.max_bytes) if limits.max_bytes > 0 else limits.cache_bytes
        self._log_id = log_id
        self._next_offset = base_offset
        self._seed = checksum(log_id, b"")  # start value for the checksum of each of its entries
        self.entries = -1
        self.bytes = 0
        self.stop: Stop | None = None

    @property
    def is_done(self) -> bool:
        """Whether no more entries are taken."""
        return self.stop is not None

    def on_damage(self) -> None:
        """Record that the file ends, or is damaged, at the next entry. A read of that entry itself raises.

        Raises:
            CorruptRecord: the next entry is the requested one.
        """
        self.stop = Stop.END
        if self.entries < 0:
            raise CorruptRecord("there is no entry, or a damaged one")

    def take(self, view: memoryview, at: int = 0) -> tuple[EntryRun | None, int]:
        """Take the whole entries in `view` from byte `at` on. Return them, or None if there are none, and the position of the
        next entry.

        Raises:
            CorruptRecord: the requested entry is damaged.
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
            if end > whole:  # the next read has the rest of it
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
        """Record why an entry is not taken."""
        if not entry.is_batch or crc32c(entry.batch, checksum(entry.log_id, b"")) != entry.crc:
            self.on_damage()
        else:
            self.stop = Stop.OTHER_LOG if entry.log_id != self._log_id else Stop.GAP

    def _note(self, entries: int, size: int, next_offset: int) -> None:
        """Count the entries taken."""
        self.entries += entries
        self.bytes += size
        self._next_offset = next_offset
        if self.entries >= self._max_entries:
            self.stop = Stop.COUNT
        elif self.bytes >= self._max_bytes:
            self.stop = Stop.BYTES
