"""The interface of a location index: `LocationIndex`, and its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from spark_producer.broker.storage.tiered.interfaces import Location
from spark_producer.errors import PyProducerError


class IndexDamaged(PyProducerError):
    """Forced rows cannot be read. The index can be rebuilt from the entry logs."""


class IndexRow(NamedTuple):
    """The stored row of a batch.

    header: its 61-byte header, with the base offset in the log.
    position: see `CachedBatch.position`; it may be negative.
    file_id, file_position: the entry log with the batch, and the byte at which its entry begins.
    """

    header: bytes
    position: int
    file_id: int
    file_position: int


class IndexedBatch(NamedTuple):
    """The metadata of a batch: see `write_cache_half.CachedBatch`."""

    base_offset: int
    end_offset: int
    max_timestamp: int
    size: int
    position: int


class LocationIndex(Protocol):
    """The batches of all logs in one ledger directory. Any thread may use it; only one at a time may add rows.

    The batches of a log have no gaps.
    """

    def add(self, rows: Mapping[int, Sequence[IndexRow]]) -> None:
        """Append batches to logs, by id of the log. When this returns, they are on the disk and can be found.

        Raises:
            OSError: the disk refused. No row was added, and the same rows may be added again.
        """

    def move(self, locations: Mapping[int, Sequence[Location]]) -> None:
        """Set new locations of batches durably. Batches that are not in the index any more are ignored."""

    def replace(self, log_id: int, rows: Sequence[IndexRow]) -> None:
        """Replace all batches of a log up to the end of the last row, durably and atomically: a crash leaves either the old or
        the new rows.

        Raises:
            OSError: the disk refused; normally the index is unchanged.
        """

    def file_bytes(self, log_id: int) -> dict[int, int]:
        """Return the size of the entries of a log in each entry log, in bytes."""

    @property
    def durable_bytes(self) -> int:
        """The number of bytes of its file that are certainly on the disk, 0 for an index that does not need this number."""

    @property
    def row_count(self) -> int:
        """The number of batches in the index."""

    @property
    def memory_bytes(self) -> int:
        """The estimated memory of the index in bytes."""

    def find(self, log_id: int, offset: int) -> Location | None:
        """Return the location of the batch that holds `offset`, None if there is none."""

    def indexed(self, log_id: int, offset: int) -> IndexedBatch | None:
        """Return the metadata of the batch that holds `offset`, None if there is none."""

    def last(self, log_id: int) -> IndexedBatch | None:
        """Return the metadata of the last batch of a log, None if there is none."""

    def first_at_or_after_position(self, log_id: int, position: int) -> IndexedBatch | None:
        """Return the first batch of a log at or after `position`."""

    def first_at_or_after(self, log_id: int, timestamp: int) -> IndexedBatch | None:
        """Return the first batch whose maximum timestamp is `timestamp` or later."""

    def latest_timestamp(self, log_id: int) -> int | None:
        """Return the maximum timestamp of a log, None if it has no batch here."""

    def rows(self, log_id: int) -> Iterator[IndexRow]:
        """Yield the rows of a log, in order.

        Raises:
            IndexDamaged: the rows cannot be read any more.
            OSError: the disk refused.
        """

    def log_ids(self) -> list[int]:
        """Return the ids of the logs with batches in the index."""

    def file_ids(self, log_id: int) -> set[int]:
        """Return the ids of the entry logs with batches of a log."""

    def file_ends(self) -> dict[int, int]:
        """Return the end of the last indexed entry in each entry log. Later bytes are from an interrupted flush, and must not be
        read: other batches may have got their offsets since."""

    def delete_before(self, log_id: int, offset: int) -> None:
        """Remove the batches of a log that end at `offset` or before, in memory only: an index that is opened again has them."""

    def delete_log(self, log_id: int) -> None:
        """Remove a log, in memory: the next opening of the index has it again."""

    def compact(self, note: Callable[[int], None]) -> None:
        """Free the disk space of deleted batches, if that is worthwhile. Only the thread that adds rows may call this.

        Args:
            note: stores the catalog on the disk, with its argument as `durable_bytes` of the index.

        Raises:
            OSError: the disk refused.
        """

    def close(self) -> None:
        """Close the index."""
