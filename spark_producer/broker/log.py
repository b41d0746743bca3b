"""The log of one partition: segment files in one directory, offsets without gaps.

Owns: assigning offsets, rolling segments, recovery after any kind of death, reading by offset and by timestamp.
Must not know: producers, topics, requests; whether a batch may be appended is decided before it comes here.

Durability, honestly: an append is a `pwrite` into the page cache. It survives `kill -9` of the process at any moment; it
survives a loss of power only once the operating system has written it, or with `sync_each_append`. Files are opened for each
use, so a process without descriptors left can write nothing; and an error by which the system could not write back what was
appended long before may be known to nobody when `close` syncs.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from spark_producer.broker import codes
from spark_producer.broker.disk import storage_errors, sync_directory
from spark_producer.broker.segment import NO_TIMESTAMP, Segment
from spark_producer.errors import BrokerError
from spark_producer.record.batch_v2 import BatchHeader, assign_base_offset

LEADER_EPOCH: Final = 0
"""The one leader never changes."""

_ASSIGNED_BYTES: Final = 16
"""Base offset, length and leader epoch: all that a broker changes in a batch lies in these bytes."""

logger = logging.getLogger(__name__)


class TimestampOffset(NamedTuple):
    """An offset and the timestamp (epoch milliseconds) that it was found by."""

    timestamp: int
    offset: int


def _ignore(_: BatchHeader) -> None:
    """The visitor of a log that is opened for its records alone."""


class PartitionLog:
    """Batches appended to and read from the segment files in `directory`. Used by one thread at a time."""

    def __init__(
        self,
        directory: Path,
        *,
        segment_bytes: int,
        sync_each_append: bool = False,
        sync_on_close: bool = True,
        visit: Callable[[BatchHeader], None] = _ignore,
    ) -> None:
        """Open the log, creating or recovering it; `visit` gets the header of each batch found, in order."""
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._sync_each_append = sync_each_append
        self._sync_on_close = sync_on_close
        directory.mkdir(parents=True, exist_ok=True)
        self._segments = self._recover(visit)
        self._bases = [segment.base_offset for segment in self._segments]
        self._active.create()
        self._first_unsynced = len(self._segments) - 1
        if sync_each_append:
            sync_directory(directory)

    @property
    def _active(self) -> Segment:
        return self._segments[-1]

    @property
    def start_offset(self) -> int:
        """The first offset that the log holds."""
        return self._segments[0].base_offset

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets; the high watermark too, with one replica."""
        return self._active.next_offset

    def _recover(self, visit: Callable[[BatchHeader], None]) -> list[Segment]:
        """Read all segments back. Damage ends the log: what comes after it cannot have consecutive offsets."""
        bases = Segment.base_offsets(self._directory) or [0]
        segments: list[Segment] = []
        for number, base in enumerate(bases):
            segment = Segment(self._directory, base)
            if segments and base != segments[-1].next_offset:
                self._set_aside(bases[number:], f"offset {segments[-1].next_offset} is missing before it")
                break
            segments.append(segment)
            if not segment.path.exists():
                continue
            # Only the last segment was being written when the broker died.
            damage = segment.recover(visit, verify_crc=base == bases[-1])
            if damage is not None:
                lost = segment.path.stat().st_size - segment.size
                segment.truncate()
                logger.warning(
                    "%s: cut off %d bytes after offset %d: %s", segment.path, lost, segment.next_offset - 1, damage
                )
                self._set_aside(bases[number + 1 :], "the segment before it is damaged")
                break
        return segments

    def _set_aside(self, bases: list[int], why: str) -> None:
        for base in bases:
            path = Segment(self._directory, base).path
            path.rename(path.with_suffix(".log.damaged"))
            logger.error("%s: set aside as %s.damaged: %s", path, path.name, why)

    def append(self, batch: memoryview, header: BatchHeader) -> int:
        """Append `batch` with the next offsets in its header, and return its base offset.

        Args:
            batch: one whole V2 batch as received; it is not changed.
            header: its header.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR, the disk refused the batch, or to sync it.
        """
        base_offset = self.end_offset
        head = memoryview(bytearray(batch[:_ASSIGNED_BYTES]))
        assign_base_offset(head, base_offset, LEADER_EPOCH)
        with storage_errors(self._directory):
            if self._active.size and self._active.size + len(batch) > self._segment_bytes:
                self._roll()
            self._active.append((head, batch[_ASSIGNED_BYTES:]), header._replace(base_offset=base_offset))
            if self._sync_each_append:
                self._active.sync()
        return base_offset

    def _roll(self) -> None:
        following = Segment(self._directory, self.end_offset)
        try:
            following.create()
            if self._sync_each_append:
                sync_directory(self._directory)
        except OSError:
            following.path.unlink(missing_ok=True)  # the log goes on without it: a recovery must not find it in between
            raise
        if self._sync_each_append:
            self._first_unsynced = len(self._segments)
        self._segments.append(following)
        self._bases.append(following.base_offset)

    def _segment_of(self, offset: int) -> Segment:
        return self._segments[max(bisect_right(self._bases, offset) - 1, 0)]

    def check_offset(self, offset: int) -> None:
        """Raise OFFSET_OUT_OF_RANGE unless `offset` is in the log or right behind it."""
        if not self.start_offset <= offset <= self.end_offset:
            raise BrokerError(
                f"offset {offset} is outside {self.start_offset} to {self.end_offset} of {self._directory.name}",
                code=codes.OFFSET_OUT_OF_RANGE,
            )

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool = True) -> bytes:
        """Whole batches from the one that holds `offset` on, up to `max_bytes` and not beyond its segment.

        Nothing at the end of the log. With `at_least_one` the first batch comes however large it is (KIP-74).

        Raises:
            BrokerError: OFFSET_OUT_OF_RANGE or KAFKA_STORAGE_ERROR.
        """
        self.check_offset(offset)
        segment = self._segment_of(offset)
        with storage_errors(self._directory):
            return segment.read(segment.locate(offset), max_bytes, at_least_one=at_least_one)

    def available(self, offset: int, at_most: int) -> int:
        """Bytes that wait from `offset` on, counted no further than `at_most`: what a waiting Fetch asks, cheaply."""
        if offset >= self.end_offset:
            return 0
        first = max(bisect_right(self._bases, offset) - 1, 0)
        with storage_errors(self._directory):
            waiting = self._segments[first].size - self._segments[first].locate(offset)
        for segment in self._segments[first + 1 :]:
            if waiting >= at_most:
                break
            waiting += segment.size
        return min(waiting, at_most)

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """Base offset of the first *batch* whose largest timestamp is `timestamp` or later, None if there is none.

        Kafka answers with the very record; a batch is as near as headers tell, and it never skips a record.
        """
        with storage_errors(self._directory):
            found = (segment.first_at_or_after(timestamp) for segment in self._segments)
            header = next((header for header in found if header is not None), None)
        return None if header is None else TimestampOffset(header.max_timestamp, header.base_offset)

    def latest_timestamp(self) -> TimestampOffset | None:
        """The largest timestamp in the log with the last offset of its batch (ListOffsets -3), None if it has none."""
        newest = max(self._segments, key=lambda segment: segment.max_timestamp)
        if newest.max_timestamp == NO_TIMESTAMP:
            return None
        with storage_errors(self._directory):
            header = newest.first_at_or_after(newest.max_timestamp)
        return None if header is None else TimestampOffset(header.max_timestamp, header.last_offset)

    def close(self, *, discard: bool = False) -> None:
        """Put what was written in this life on the disk, unless that is not wanted.

        Raises:
            OSError: the disk refused.
        """
        if self._sync_on_close and not discard:
            for segment in self._segments[self._first_unsynced :]:
                segment.sync()
