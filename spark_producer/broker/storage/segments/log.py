"""The log of one partition: segment files in one directory, with offsets that have no gaps.

An append is a `pwrite` into the page cache. It survives `kill -9` of the process at any moment, but a power failure only after
the operating system has written it, or with `sync_each_append`. A segment is synced when the next one is created. Files are
opened for each use, so a process that has used up its descriptors cannot write; and if the system failed to write back old
appends, it may not report that error when `close` syncs.

A sync that failed is never retried: the system may drop the pages that it could not write, and report success (fsyncgate). The
log is then read-only, and readable up to the last forced offset, until a restart recovers it and writes the rest again.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from spark_producer.broker.settings import TopicSettings
from spark_producer.broker.storage.base import LEADER_EPOCH, Recovered, TimestampOffset
from spark_producer.broker.storage.disk import (
    PRIVATE_DIRECTORY,
    is_full,
    make_private_directory,
    storage_errors,
    sync_directory,
)
from spark_producer.broker.storage.file_ops import SystemFiles
from spark_producer.broker.storage.segments.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from spark_producer.broker.storage.segments.recovery import recover
from spark_producer.broker.storage.segments.retention import count_expired
from spark_producer.broker.storage.segments.rewriting import SegmentRewriting, finish_rewriting
from spark_producer.broker.storage.segments.segment import Segment
from spark_producer.broker.storage.segments.timestamp_search import first_at_or_after, latest
from spark_producer.broker.storage.space_notice import SpaceNotice
from spark_producer.common.error_codes import Code
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import BrokerError, CorruptRecord
from spark_producer.record.batch_v2 import NO_TIMESTAMP, BatchHeader, assign_base_offset

_ASSIGNED_BYTES: Final = 16
"""Number of bytes at the start of a batch that a broker changes: base offset, length and leader epoch."""

logger = escaping_logger(__name__)


def ignore(_header: BatchHeader, _batch: bytes) -> None:
    """Do nothing: the `visit` of a log that is opened only for its records."""


class SegmentLog:
    """A `Log` of segment files in `directory`. One thread at a time may use it.

    `settings` may be replaced at any time.
    """

    def __init__(
        self,
        directory: Path,
        settings: TopicSettings,
        *,
        sync_each_append: bool = False,
        sync_on_close: bool = True,
        visit: Recovered = ignore,
        skip_damage: bool = False,
        check_directory: Callable[[], None] = lambda: None,
        space: SpaceNotice | None = None,
    ) -> None:
        """Create or recover the log, and call `visit` for each batch in it, in order.

        With `skip_damage` the records from damage on are set aside. `check_directory` raises OSError if the data directory was
        moved. `space` is notified when the disk is full.

        Raises:
            DamagedLog: the log cannot be opened without losing records.
            OSError: the disk refused.
        """
        self.settings = settings
        self._check_directory = check_directory
        self._space = space or SpaceNotice(directory)
        self._directory = directory
        self._sync_each_append = sync_each_append
        self._is_kept = sync_on_close or sync_each_append
        self._failure: str | None = None
        make_private_directory(directory)
        directory.chmod(PRIVATE_DIRECTORY)  # earlier versions were less strict
        finish_rewriting(directory, sync=self._is_kept)
        self._checkpoint = read_checkpoint(directory)
        start = self._checkpoint.log_start_offset if self._checkpoint else 0
        self._boot_id = SystemFiles().boot_id().hex()
        self._written_segment = -1

        def visit_readable(header: BatchHeader, batch: bytes) -> None:
            if header.last_offset >= start:  # the segment that holds the start offset may begin before it
                visit(header, batch)

        self._segments = recover(
            directory, self._checkpoint, visit_readable, boot_id=self._boot_id, skip_damage=skip_damage
        )
        if skip_damage:
            self._checkpoint = read_checkpoint(directory)
        self._bases = [segment.base_offset for segment in self._segments]
        self._start = max(self._bases[0], self._checkpoint.log_start_offset if self._checkpoint else 0)
        self._forced_to = self._checkpoint.recovery_point if self._checkpoint else self.start_offset
        self._active.create()
        self._names_are_forced = False
        if self._is_kept and self._forced_to < self.high_watermark:
            self._active.write_again(self._forced_to)
            if sync_each_append:
                with contextlib.suppress(OSError):  # `_failure` reports it, and the log can be read up to there
                    self._force()

    @property
    def _active(self) -> Segment:
        return self._segments[-1]

    @property
    def start_offset(self) -> int:
        """The log start offset; the segment that holds it may begin before it."""
        return self._start

    @property
    def high_watermark(self) -> int:
        """The offset of the next record; after a failed sync, the offset up to which records are certainly on the disk."""
        return self._active.next_offset if self._failure is None else self._forced_to

    def admit(self, batch: memoryview, header: BatchHeader) -> int:
        """Append `batch` with the next offsets in its header, and return its base offset. The batch is then confirmed.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR, the batch could not be written, or it or an earlier one could not be synced.
        """
        self._check_writable()
        base_offset = self.high_watermark
        head = memoryview(bytearray(batch[:_ASSIGNED_BYTES]))
        assign_base_offset(head, base_offset, LEADER_EPOCH)
        try:
            with storage_errors(self._directory, header.size):
                self._append(header._replace(base_offset=base_offset), (head, batch[_ASSIGNED_BYTES:]))
        except BrokerError as error:
            if is_full(error.__cause__):
                self._space.refused(str(error))
            raise
        self._space.accepted()
        return base_offset

    def _append(self, header: BatchHeader, batch: tuple[memoryview, memoryview]) -> None:
        if self._must_roll(header):
            self._roll()
        self._active.append(batch, header)
        if self._sync_each_append:
            self._force()
        if self._is_kept and self._written_segment != self._active.base_offset:
            self._store_written_segment()

    def _store_written_segment(self) -> None:
        """Store in the checkpoint that the active segment has records, so that its loss is detected.

        If the disk is full, the next append retries: the batch is in the log nevertheless.
        """
        self._written_segment = self._active.base_offset
        try:
            self._store_checkpoint(self.start_offset)
        except OSError as error:
            self._written_segment = -1
            logger.warning(
                "%s: the checkpoint could not be written, so a loss of the file would not be detected: %s",
                self._active.path,
                error,
            )

    def is_written(self, offset: int) -> bool:
        """Return the same as `is_confirmed`."""
        return self.is_confirmed(offset)

    def is_confirmed(self, offset: int) -> bool:
        """Return whether `offset` is in the log, and no sync of it has failed."""
        if offset < self.high_watermark:
            return True
        self._check_writable()
        return False

    def _check_writable(self) -> None:
        with storage_errors(self._directory):
            self._check_directory()
        if self._failure is not None:
            raise BrokerError(self._failure, code=Code.KAFKA_STORAGE_ERROR)

    def _must_roll(self, header: BatchHeader) -> bool:
        """Return whether the next batch needs a new segment, because of its size or its timestamp (Kafka's
        LogSegment.shouldRoll)."""
        active = self._active
        if active.size == 0:
            return False
        if active.size + header.size > self.settings.segment_bytes:
            return True
        known = min(active.first_timestamp, header.max_timestamp) != NO_TIMESTAMP
        return known and header.max_timestamp - active.first_timestamp > self.settings.roll_ms

    def _roll(self) -> None:
        if self._is_kept:
            self._force()
            self._store_checkpoint(self.start_offset)
        following = Segment(self._directory, self.high_watermark)
        try:
            following.create()
        except OSError:
            following.remove()  # the log continues without it, and a recovery must not find it
            raise
        self._names_are_forced = False
        self._segments.append(following)
        self._bases.append(following.base_offset)

    def _force(self) -> None:
        """Force all appended batches to the disk. After a failure the log is read-only.

        Raises:
            OSError: the disk refused.
        """
        try:
            for segment in self._segments[max(bisect_right(self._bases, self._forced_to) - 1, 0) :]:
                segment.sync()
            if not self._names_are_forced:
                sync_directory(self._directory)
        except OSError as error:
            self._failure = (
                f"partition {self._directory.name} is read-only: sync of {self._directory} failed ({error}), so records from "
                f"offset {self._forced_to} on may not be on the disk. Repair the disk, then restart the broker: it recovers the "
                "partition, and idempotent producers can send their batches again without duplicates"
            )
            logger.error("%s", self._failure)
            raise
        self._names_are_forced = True
        self._forced_to = self.high_watermark

    def _store_checkpoint(self, start_offset: int, *, sync: bool = False) -> None:
        fresh = Checkpoint(self._forced_to, start_offset, *self._written())
        if fresh != self._checkpoint:
            write_checkpoint(self._directory, fresh, sync=sync)
            self._checkpoint = fresh

    def _written(self) -> tuple[int, str]:
        """Return the base offset of the newest segment with records, -1 if unknown, and the boot id when it was written."""
        if self._written_segment >= 0:
            return self._written_segment, self._boot_id
        return (-1, "") if self._checkpoint is None else (self._checkpoint.written_segment, self._checkpoint.boot_id)

    def delete_before(self, offset: int) -> None:
        """See `Log.delete_before`. Whole segments are deleted."""
        if offset <= self._start:
            return
        self._check_writable()
        with storage_errors(self._directory):
            if offset == self.high_watermark and self._active.size:
                self._roll()
            if self._is_kept:  # else a power failure could leave a log that ends before its start
                self._force()
            self._move_start(max(bisect_right(self._bases, offset) - 1, 0), offset, must_note=True)

    def _move_start(self, count: int, start_offset: int, *, must_note: bool) -> None:
        """Set the log start offset, and delete the first `count` segments."""
        if (
            must_note or self._is_kept or self._checkpoint is not None
        ):  # an old checkpoint would require the deleted segments
            self._store_checkpoint(start_offset, sync=self._is_kept or not must_note)
        self._start = start_offset
        gone = self._segments[:count]
        del self._segments[:count], self._bases[:count]
        logger.info("%s: deleted %d segments; the log start offset is %d", self._directory.name, count, start_offset)
        for segment in gone:
            segment.remove()

    @property
    def rewritable_end(self) -> int:
        """The base offset of the active segment."""
        return self._bases[-1] if self._failure is None else self._bases[0]

    def rewrite(self, end: int) -> SegmentRewriting:
        """See `Log.rewrite`."""
        self._check_writable()
        return SegmentRewriting(
            *(self._directory, end, self.settings.segment_bytes),
            sync=self._is_kept,
            finished=self._rewritten,
            check_directory=self._check_directory,
        )

    def _rewritten(self, end: int, fresh: list[Segment], failure: OSError | None) -> None:
        """Use these segments for all before `end`. After a failure it is unknown which of them are in place."""
        if failure is not None:
            self._failure = (
                f"partition {self._directory.name} is read-only: its compacted segments could not be renamed ({failure}). Repair "
                "the disk, then restart the broker, which completes the compaction"
            )
            logger.error("%s", self._failure)
        count = self._bases.index(end)
        self._segments[:count] = fresh
        self._bases[:count] = [segment.base_offset for segment in fresh]

    def delete_old(self, now_ms: int) -> None:
        """Delete the segments that the retention settings allow to delete at the time `now_ms`.

        If all records of the active segment have expired, it is deleted too, after a new one was created.
        """
        if self._failure is not None:
            return
        with storage_errors(self._directory):
            self._check_directory()
            count = count_expired(self._segments, self.settings, now_ms)
            if count == 0:
                return
            if count == len(self._segments):
                self._roll()
            self._move_start(count, self._bases[count], must_note=False)

    def _segment_of(self, offset: int) -> Segment:
        return self._segments[max(bisect_right(self._bases, offset) - 1, 0)]

    def check_offset(self, offset: int) -> None:
        """Raise OFFSET_OUT_OF_RANGE unless `offset` is in the log or its end; raise KAFKA_STORAGE_ERROR if it is after the last
        forced offset and a sync has failed."""
        if self._failure is not None and self._forced_to < offset <= self._active.next_offset:
            raise BrokerError(self._failure, code=Code.KAFKA_STORAGE_ERROR)
        if not self.start_offset <= offset <= self.high_watermark:
            raise BrokerError(
                f"offset {offset} is outside {self.start_offset} to {self.high_watermark} of {self._directory.name}",
                code=Code.OFFSET_OUT_OF_RANGE,
            )

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool = True, up_to: int | None = None) -> bytes:
        """Return whole batches of one segment from the one that holds `offset` on, at most `max_bytes`."""
        self.check_offset(offset)
        segment = self._segment_of(offset)
        with _read_errors(self._directory):
            self._check_directory()
            position = segment.locate(offset)
            left = segment.locate(self._end(up_to)) - position
            if left <= 0:
                return b""
            return segment.read(position, min(max_bytes, left), at_least_one=at_least_one)

    def offset_upper_bound(self, offset: int, size: int) -> int:
        """See `Log.offset_upper_bound`."""
        segment = self._segment_of(offset)
        with _read_errors(self._directory):
            return segment.offset_upper_bound(segment.locate(offset) + size)

    def _end(self, up_to: int | None) -> int:
        return self.high_watermark if up_to is None else min(up_to, self.high_watermark)

    def available(self, offset: int, at_most: int, *, up_to: int | None = None) -> int:
        """See `Log.available`."""
        end = self._end(up_to)
        if offset >= end or at_most <= 0:
            return 0
        first = max(bisect_right(self._bases, offset) - 1, 0)
        waiting = 0
        with _read_errors(self._directory):
            for segment in self._segments[first:]:
                if waiting >= at_most or segment.base_offset >= end:
                    break
                waiting += segment.locate(end) - (segment.locate(offset) if segment is self._segments[first] else 0)
        return min(waiting, at_most)

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """See `Log.offset_for_timestamp`."""
        with _read_errors(self._directory):
            header = first_at_or_after(self._segments, self._start, timestamp)
        return self._if_readable(header and TimestampOffset(header.max_timestamp, max(header.base_offset, self._start)))

    def latest_timestamp(self) -> TimestampOffset | None:
        """See `Log.latest_timestamp`."""
        with _read_errors(self._directory):
            header = latest(self._segments, self._start)
        return self._if_readable(header and TimestampOffset(header.max_timestamp, header.last_offset))

    def _if_readable(self, found: TimestampOffset | None) -> TimestampOffset | None:
        return found if found is not None and found.offset < self.high_watermark else None

    def close(self, *, discard: bool = False) -> None:
        """Close the log. All appended batches are forced to the disk, unless the settings or `discard` exclude that, or the log
        has failed.

        Raises:
            OSError: the disk refused.
        """
        if self._is_kept and not discard and self._failure is None:
            self._check_directory()
            if self._forced_to < self.high_watermark:
                self._force()
            if self._forced_to > 0:
                self._store_checkpoint(self.start_offset)


@contextlib.contextmanager
def _read_errors(directory: Path) -> Iterator[None]:
    """Raise KAFKA_STORAGE_ERROR for every read error inside the `with` block.

    StopIteration is raised by a segment that has become shorter since it was opened: it ends before a header in its index.
    """
    try:
        with storage_errors(directory):
            yield
    except (CorruptRecord, StopIteration) as error:
        raise BrokerError(f"log {directory} cannot be read: {error!r}", code=Code.KAFKA_STORAGE_ERROR) from error
