"""The interface of an index of locations: `LocationIndex`, and the rows that go in and come out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from spark_producer.broker.storage.tiered.interfaces import Location
from spark_producer.errors import PyProducerError


class IndexDamaged(PyProducerError):
    """Rows that were on the disk cannot be read. The index can be rebuilt from the entry logs."""


class IndexRow(NamedTuple):
    """What is stored of a batch.

    header: its 61 bytes, with the base offset that it has in the log.
    position: the bytes of the log's batches before it. Only differences of positions mean anything; it may be negative.
    file_id, place: the entry log that has it, and the byte at which its entry begins.
    """

    header: bytes
    position: int
    file_id: int
    file_position: int


class IndexedBatch(NamedTuple):
    """What is known of a batch without reading it: see `write_cache.Placed`."""

    base_offset: int
    end_offset: int
    max_timestamp: int
    size: int
    position: int


class LocationIndex(Protocol):
    """The batches of all logs in one ledger directory. Any thread may call; one at a time adds.

    The batches of a log follow each other without gaps.
    """

    def add(self, rows: Mapping[int, Sequence[IndexRow]]) -> None:
        """Put batches behind those that each log has, by id of the log. They are on the disk when this returns, and only then
        found.

        Raises:
            OSError: the disk refused. Nothing was added, and the same may be added again.
        """

    def move(self, locations: Mapping[int, Sequence[Location]]) -> None:
        """Note that batches now lie elsewhere, as `add` does. Those that the index no longer has are passed over."""

    def replace(self, log_id: int, rows: Sequence[IndexRow]) -> None:
        """Put rows in the place of all batches of a log that end where the last of them does, or before. It is on the disk when
        this returns: after a crash either all of the old or all of the new rows are there.

        Raises:
            OSError: the disk refused; nothing has changed, as far as one can tell.
        """

    def file_bytes(self, log_id: int) -> dict[int, int]:
        """Return how many bytes of each entry log the batches of a log take, with the headers of their entries."""

    @property
    def durable_bytes(self) -> int:
        """How many bytes of its file are on the disk for certain, 0 for an index that finds that out by itself."""

    @property
    def row_count(self) -> int:
        """The number of batches in the index."""

    @property
    def memory_bytes(self) -> int:
        """The bytes of memory that it takes, estimated."""

    def find(self, log_id: int, offset: int) -> Location | None:
        """Return the location of the batch that holds `offset`, None if there is none."""

    def indexed(self, log_id: int, offset: int) -> IndexedBatch | None:
        """Return what is known of the batch that holds `offset`, None if there is none."""

    def last(self, log_id: int) -> IndexedBatch | None:
        """Return what is known of the last batch of a log, None if there is none."""

    def first_at_or_after_position(self, log_id: int, position: int) -> IndexedBatch | None:
        """Return the first batch that begins at `position` or behind it."""

    def first_at_or_after(self, log_id: int, timestamp: int) -> IndexedBatch | None:
        """Return the first batch whose largest timestamp is `timestamp` or later."""

    def latest_timestamp(self, log_id: int) -> int | None:
        """Return the largest timestamp of a log, None if it has no batch here."""

    def rows(self, log_id: int) -> Iterator[IndexRow]:
        """Yield the rows of a log, in order.

        Raises:
            IndexDamaged: they cannot be read any more.
            OSError: the disk refused.
        """

    def log_ids(self) -> list[int]:
        """Return the ids of the logs that have batches here."""

    def file_ids(self, log_id: int) -> set[int]:
        """Return the entry logs in which the batches of a log lie."""

    def file_ends(self) -> dict[int, int]:
        """Return where the last entry of each entry log ends that the index has. What lies behind it is left of a flush that was
        cut short, and nobody may read it: its offsets may have been given to other batches since."""

    def delete_before(self, log_id: int, offset: int) -> None:
        """Forget the batches of a log that end at `offset` or before. They come back when the index is opened again."""

    def delete_log(self, log_id: int) -> None:
        """Forget a log. It comes back when the index is opened again."""

    def compact(self, note: Callable[[int], None]) -> None:
        """Give back what deleted batches take of the disk, if it is worth while. The thread that adds calls this.

        Args:
            note: puts the catalog on the disk, with these bytes of the index as `durable_bytes`.

        Raises:
            OSError: the disk refused.
        """

    def close(self) -> None:
        """Close the index."""
