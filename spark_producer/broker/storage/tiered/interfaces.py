"""What the read path asks of the parts that keep entries: the write cache, the index of locations, and the entry logs.

An entry is one record batch. It is looked up by its log's id and *any* offset in it, because the base offsets of batches are not
dense: the entry with the largest base offset up to that one is the only candidate, and its end offset decides.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple, Protocol

from spark_producer.errors import PyProducerError


class ReadLimits(NamedTuple):
    """What a reader takes of the entries that follow each other: those before the offset `end`, `max_bytes` bytes at most; with
    `at_least_one` the first of them however large it is."""

    end: int
    max_bytes: int
    at_least_one: bool = False

    def allows(self, size: int, taken: int) -> bool:
        """Return whether an entry of `size` bytes is taken too, after others of `taken` bytes together."""
        return taken + size <= self.max_bytes or (self.at_least_one and not taken)


class ReadResult(NamedTuple):
    """Entries of a log that follow each other up to before `end_offset`, copied one behind the other into `data`.

    There are no `entries` if the first one takes more room than there is. `is_flushing`: whether they are in the half of the
    write cache that is being flushed.
    """

    entries: int
    end_offset: int
    data: bytes
    is_flushing: bool = False


class WriteCacheReader(Protocol):
    """The two halves of the write cache, as the read path sees them."""

    def read(self, log_id: int, offset: int, limits: ReadLimits) -> ReadResult | None:
        """Return entries from the one that holds `offset` on, as many as one half has of those wanted, or fewer: from the active
        half or else from the one being flushed. Return None if neither has that entry.

        The bytes are a copy, made while the half could neither be swapped nor cleared. A half is cleared only after the index
        knows its entries: so an entry that is not found here is found there, if the index is asked afterwards.
        """


class Location(NamedTuple):
    """Where an entry lies.

    position: the byte in the file at which the entry begins, with its size and checksum.
    size: the bytes of its batch.
    """

    base_offset: int
    end_offset: int
    file_id: int
    position: int
    size: int


class LocationReader(Protocol):
    """The index of locations, as the read path sees it."""

    def find(self, log_id: int, offset: int) -> Location | None:
        """Return the location of the entry that holds `offset`, None if no entry does."""


class StoredEntry(NamedTuple):
    """An entry as a scan of an entry log finds it. `next_position` is where the next one begins in the same file."""

    log_id: int
    batch: bytes | memoryview
    next_position: int


class EntryRun(NamedTuple):
    """Entries of one log that follow each other.

    bases: the base offset of each.
    end_offset: the offset behind the last one.
    batches: the bytes of each, which may be views of a buffer that is used again.
    """

    bases: list[int]
    end_offset: int
    batches: list[memoryview]


class EntryConsumer(Protocol):
    """Who takes entries of what is read of an entry log: see `read_ahead.ReadAhead`."""

    @property
    def is_done(self) -> bool:
        """Whether nothing more is taken."""

    def take(self, view: memoryview, at: int = 0) -> tuple[EntryRun | None, int]:
        """See `ReadAhead.take`."""

    def on_damage(self) -> None:
        """See `ReadAhead.on_damage`."""


class EntryMissing(PyProducerError):
    """There is no such entry at a location, since its file was deleted after a compaction, or there is another one."""


class EntryLogReader(Protocol):
    """The entry logs, as the read path sees them. What it returns was checked against the checksum of the entry."""

    def runs(self, location: Location, consumer: EntryConsumer) -> Generator[EntryRun, None, None]:
        """Yield the entries of a file that `consumer` takes, from a location to the last entry that was flushed: one run for each
        read of the file.

        Raises:
            EntryMissing: the file is gone.
            CorruptRecord: there is no entry at the location.
            OSError: the disk refused.
        """

    def is_cached(self, location: Location) -> bool | None:
        """Return whether the operating system has the entry in its page cache; None if it cannot tell."""
