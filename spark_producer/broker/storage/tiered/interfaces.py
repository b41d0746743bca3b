"""The interfaces between the read path and the tiers with entries: the write cache, the location index, and the entry logs.

An entry is one record batch. It is looked up by the id of its log and *any* offset in it, because the base offsets of batches are
not dense: the only candidate is the entry with the largest base offset up to that offset, and its end offset decides.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple, Protocol

from spark_producer.errors import PyProducerError


class ReadLimits(NamedTuple):
    """The limits of a read: entries before the offset `end`, at most `max_bytes`; with `at_least_one` the first may be larger."""

    end: int
    max_bytes: int
    at_least_one: bool = False

    def allows(self, size: int, taken: int) -> bool:
        """Return whether an entry of `size` bytes may follow others of `taken` bytes together."""
        return taken + size <= self.max_bytes or (self.at_least_one and not taken)


class ReadResult(NamedTuple):
    """Consecutive entries of a log, up to `end_offset` (exclusive), copied one after another to `data`.

    entries: their number; 0 if the first one exceeds the limits.
    is_flushing: whether they are in the half of the write cache that is being flushed.
    """

    entries: int
    end_offset: int
    data: bytes
    is_flushing: bool = False


class WriteCacheReader(Protocol):
    """The write cache, as the read path sees it."""

    def read(self, log_id: int, offset: int, limits: ReadLimits) -> ReadResult | None:
        """Return entries of one half from the one that holds `offset` on, within `limits`; None if neither half has that entry.

        The active half is searched before the one that is being flushed. The bytes are a copy, made while the half could neither
        be swapped nor cleared. A half is cleared only after its entries are in the index: so an entry that is not found here is
        in the index, if that is searched afterwards.
        """


class Location(NamedTuple):
    """The location of an entry.

    position: byte in the file at which the header of the entry begins.
    size: size of its batch in bytes.
    """

    base_offset: int
    end_offset: int
    file_id: int
    position: int
    size: int


class LocationReader(Protocol):
    """The location index, as the read path sees it."""

    def find(self, log_id: int, offset: int) -> Location | None:
        """Return the location of the entry that holds `offset`, None if no entry does."""


class StoredEntry(NamedTuple):
    """An entry in a scan of an entry log. `next_position`: byte of the file at which the next entry begins."""

    log_id: int
    batch: bytes | memoryview
    next_position: int


class EntryRun(NamedTuple):
    """A run: consecutive entries of one log.

    bases: the base offset of each.
    end_offset: the offset after the last one.
    batches: the bytes of each, which may be views of a buffer that is reused.
    """

    bases: list[int]
    end_offset: int
    batches: list[memoryview]


class EntryConsumer(Protocol):
    """Takes entries from the bytes of an entry log: see `read_ahead.ReadAhead`."""

    @property
    def is_done(self) -> bool:
        """Whether it takes no more entries."""

    def take(self, view: memoryview, at: int = 0) -> tuple[EntryRun | None, int]:
        """See `ReadAhead.take`."""

    def on_damage(self) -> None:
        """See `ReadAhead.on_damage`."""


class EntryMissing(PyProducerError):
    """The entry is not at its location: the file was deleted after a compaction, or has another entry there."""


class EntryLogReader(Protocol):
    """The entry logs, as the read path sees them. The checksums of returned entries were checked."""

    def runs(self, location: Location, consumer: EntryConsumer) -> Generator[EntryRun, None, None]:
        """Yield the entries of a file that `consumer` takes, from a location to the last entry that was flushed: one run for each
        read of the file.

        Raises:
            EntryMissing: the file is gone.
            CorruptRecord: there is no entry at the location.
            OSError: the disk refused.
        """

    def is_cached(self, location: Location) -> bool | None:
        """Return whether the entry is in the page cache of the operating system; None if that is unknown."""
