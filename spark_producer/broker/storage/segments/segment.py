"""One segment of a partition's log: a file of record batches, and a sparse index of them in memory."""

from __future__ import annotations

import mmap
import os
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from spark_producer.broker.storage.base import LEADER_EPOCH, Recovered
from spark_producer.broker.storage.disk import PRIVATE_FILE, sync_data
from spark_producer.errors import CorruptRecord
from spark_producer.record.batch_v2 import (
    CONTROL_BIT,
    HEADER_SIZE,
    NO_TIMESTAMP,
    BatchHeader,
    batches,
    check_crc,
    read_header,
)
from spark_producer.record.checksum import crc32c

INDEX_INTERVAL: Final = 4096
"""Minimum distance in bytes between the indexed batches (Kafka's `index.interval.bytes`).

Every other batch begins within this distance of an indexed one, so one read finds it.
"""

COPY_BYTES: Final = 1024 * 1024
_EPOCH_AND_MAGIC: Final = re.compile(rb"\x00{4}\x02")
_EPOCH_AT: Final = 12
"""Position of these bytes in every batch of this broker: leader epoch 0, magic 2."""
_LENGTH_AT: Final = 8
_LENGTH_END: Final = 12
_CRC_AT: Final = 17
_CRC_END: Final = 21
"""Positions of the length of a batch, and of its CRC, which covers all following bytes (Kafka's DefaultRecordBatch)."""
SUFFIX: Final = ".log"
_RESTORE: Final = "Another process has changed the file: stop the broker, and restore the file from a backup"


class Segment:
    """The batches from `base_offset` on, in one file with that name (Kafka's layout: Kafka's tools can read it).

    No file stays open. The process of a broker often has other code that watches its sockets with `select` (py4j's callbacks in a
    Spark driver), which is limited to 1,024 descriptors; a thousand partitions must not use them up. This costs some microseconds
    for each append.
    """

    def __init__(self, directory: Path, base_offset: int, suffix: str = SUFFIX) -> None:
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.path = directory / f"{base_offset:020d}{suffix}"
        self.size = 0
        self.max_timestamp = NO_TIMESTAMP
        self.first_timestamp = NO_TIMESTAMP
        self._unchecked = 0  # end of the batches whose CRCs were not checked by `recover`
        self._offsets = array("q")
        self._positions = array("q")
        # Maximum timestamp of all batches before each index entry: it never decreases, so it can be bisected.
        self._earlier_timestamps = array("q")

    @staticmethod
    def base_offsets(directory: Path) -> list[int]:
        """Return the base offsets of the segment files in `directory`, in ascending order."""
        names = [path.stem for path in directory.glob(f"*{SUFFIX}")]
        return sorted(int(name) for name in names if name.isascii() and name.isdigit())

    def create(self) -> None:
        """Create the file if it does not exist."""
        os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE))

    def append(self, batch: Sequence[memoryview], header: BatchHeader) -> None:
        """Append `batch`, given in pieces, to the file; `header` and the pieces have the assigned offsets.

        Raises:
            OSError: the disk refused; nothing of the batch is in the log.
        """
        with self._opened(os.O_WRONLY) as file:
            try:
                _write_all(file, batch, self.size)
            except OSError:
                os.ftruncate(file, self.size)
                raise
        self._take(header)

    def recover(self, visit: Recovered, *, recovery_point: int) -> str | None:
        """Read the file from its start, rebuild the index, and call `visit` for each whole batch.

        CRCs are checked only from offset `recovery_point` on.

        Return None, or a description of the damage that ends the valid batches. `size` is then the end of the valid batches.
        """
        with self._mapped() as view:
            try:
                while self.size < len(view):
                    header = read_header(view, self.size)
                    self._check_recovered(header, len(view))
                    if header.last_offset >= recovery_point:
                        with view[self.size : self.size + header.size] as batch:
                            check_crc(header, batch)
                    else:
                        self._unchecked = self.size + header.size
                    end = self.size + header.size
                    visit(header, bytes(view[self.size : end]) if header.attributes & CONTROL_BIT else b"")
                    self._take(header)
            except CorruptRecord as error:
                return str(error)
        return None

    def later_batch(self) -> tuple[int, int] | None:
        """Return the base offset and the position of the first whole batch of this log after the damage, None if there is none.

        If there is one, the damage is not a torn end, since a batch was written after it.
        """
        with self._mapped() as view:
            for match in _EPOCH_AND_MAGIC.finditer(view, self.size + 1 + _EPOCH_AT):
                position = match.start() - _EPOCH_AT
                if self._is_later_batch(view, position):
                    return read_header(view, position).base_offset, position
        return None

    def has_whole_batch(self) -> bool:
        """Return whether the damaged batch is complete: all of its bytes are there, and its header or its CRC is wrong.

        A process that is killed while it writes leaves the first bytes of a batch, and the file ends there.
        """
        with self._mapped() as view, view[self.size :] as rest:
            if len(rest) < HEADER_SIZE:
                return False
            declared = _LENGTH_END + int.from_bytes(rest[_LENGTH_AT:_LENGTH_END], "big", signed=True)
            if HEADER_SIZE <= declared <= len(rest):
                return True
            return int.from_bytes(rest[_CRC_AT:_CRC_END], "big") == crc32c(rest[_CRC_END:])

    def _is_later_batch(self, view: memoryview, position: int) -> bool:
        try:
            header = read_header(view, position)
            if header.base_offset < self.next_offset or position + header.size > len(view):
                return False
            with view[position : position + header.size] as batch:
                check_crc(header, batch)
        except CorruptRecord:
            return False
        return True

    @contextmanager
    def _mapped(self) -> Iterator[memoryview]:
        """Map the whole file for a `with` block."""
        with self.path.open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                yield memoryview(b"")
                return
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content, memoryview(content) as view:
                yield view

    def _check_recovered(self, header: BatchHeader, length: int) -> None:
        if self.size + header.size > length:
            raise CorruptRecord(
                f"record batch at byte {self.size} has a length of {header.size} bytes, but the file ends before"
            )
        if header.base_offset != self.next_offset or header.last_offset_delta < 0:
            raise CorruptRecord(
                f"record batch at byte {self.size} has base offset {header.base_offset}, expected {self.next_offset}"
            )
        if header.partition_leader_epoch != LEADER_EPOCH:  # the CRC does not cover it
            raise CorruptRecord(
                f"record batch at byte {self.size} has leader epoch {header.partition_leader_epoch}, expected {LEADER_EPOCH}"
            )

    def truncate(self) -> None:
        """Truncate the file after the last valid batch."""
        os.truncate(self.path, self.size)

    def remove(self) -> None:
        """Delete the file if it exists."""
        self.path.unlink(missing_ok=True)

    def write_again(self, offset: int) -> None:
        """Overwrite the batches from `offset` on with themselves, so that the next sync writes them to the disk.

        After a failed sync, the system may consider pages written that are not on the disk: the next sync of these pages then
        succeeds and does nothing (https://wiki.postgresql.org/wiki/Fsync_Errors).
        """
        position = self.locate(offset) if self.size else 0
        with self._opened(os.O_RDWR) as file:
            while position < self.size:
                content = os.pread(file, min(COPY_BYTES, self.size - position), position)
                _write_all(file, [memoryview(content)], position)
                position += len(content)

    def modified_ms(self) -> int:
        """Return the time of the last write to the file, in milliseconds since 1970."""
        return self.path.stat().st_mtime_ns // 1_000_000

    def _take(self, header: BatchHeader) -> None:
        if not self._positions:
            self.first_timestamp = header.max_timestamp
        if not self._positions or self.size - self._positions[-1] >= INDEX_INTERVAL:
            self._offsets.append(header.base_offset)
            self._positions.append(self.size)
            self._earlier_timestamps.append(self.max_timestamp)
        self.size += header.size
        self.next_offset = header.last_offset + 1
        self.max_timestamp = max(self.max_timestamp, header.max_timestamp)

    def locate(self, offset: int) -> int:
        """Return the byte position of the batch that holds `offset`, or `size` if `offset` is after the segment.

        Raises:
            CorruptRecord: the file is no longer as it was written.
        """
        if offset >= self.next_offset:
            return self.size
        entry = max(bisect_right(self._offsets, offset) - 1, 0)
        for position, header in self._headers(self._positions[entry]):
            if header.last_offset >= offset:
                return position
        raise CorruptRecord(f"{self.path} no longer has the batch that holds offset {offset}. {_RESTORE}")

    def offset_upper_bound(self, position: int) -> int:
        """Return the base offset of the first indexed batch at or after byte `position`, or `next_offset` if there is none."""
        entry = bisect_left(self._positions, position)
        return self._offsets[entry] if entry < len(self._offsets) else self.next_offset

    def read(self, position: int, max_bytes: int, *, at_least_one: bool) -> bytes:
        """Return whole batches from `position` on, at most `max_bytes`; with `at_least_one` the first may be larger."""
        limit = min(position + max_bytes, self.size)
        end = limit if limit == self.size else self._last_boundary(position, limit)
        if end <= position:
            if not at_least_one or position >= self.size:
                return b""
            _, first = next(self._headers(position))
            end = position + first.size
        data = self._read_bytes(position, end - position)
        if position < self._unchecked:
            self._check(data, position)
        return data if len(data) == end - position else self._whole(data, position)

    def _check(self, data: bytes, position: int) -> None:
        """Check the CRCs of batches that `recover` did not check.

        Raises:
            CorruptRecord: a CRC is wrong. Many clients do not check it.
        """
        for header, batch in batches(data):
            try:
                check_crc(header, batch)
            except CorruptRecord as error:
                raise CorruptRecord(f"{self.path} is damaged at byte {position}: {error}. {_RESTORE}") from error
            position += header.size

    def _last_boundary(self, start: int, limit: int) -> int:
        """Return the end of the last batch that ends at `limit` or before; `start`, where a batch begins, if there is none."""
        entry = bisect_right(self._positions, limit) - 1
        end = max(self._positions[entry], start)
        for position, header in self._headers(end):
            if position + header.size > limit:
                break
            end = position + header.size
        return end

    def first_at_or_after(self, timestamp: int) -> BatchHeader | None:
        """Return the header of the first batch whose maximum timestamp is `timestamp` or later, None if there is none.

        Raises:
            CorruptRecord: the file is no longer as it was written.
        """
        if self.max_timestamp < timestamp:
            return None
        entry = max(bisect_left(self._earlier_timestamps, timestamp) - 1, 0)
        for _, header in self._headers(self._positions[entry]):
            if header.max_timestamp >= timestamp:
                return header
        raise CorruptRecord(f"{self.path} no longer has the batch with timestamp {timestamp} or later. {_RESTORE}")

    def _headers(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """Yield the positions and headers of the batches from `position` on, at least up to the next indexed batch."""
        chunk = self._read_bytes(position, min(INDEX_INTERVAL + HEADER_SIZE, self.size - position))
        start = 0
        while start + HEADER_SIZE <= len(chunk):
            header = read_header(chunk, start)
            if position + start + header.size > self.size:
                raise CorruptRecord(f"{self.path} has changed at byte {position + start}. {_RESTORE}")
            yield position + start, header
            start += header.size

    def headers_from(self, position: int) -> Iterator[BatchHeader]:
        """Yield the headers of all batches from `position` on.

        Raises:
            CorruptRecord: the file is no longer as it was written.
        """
        while position < self.size:
            for begin, header in self._headers(position):
                yield header
                position = begin + header.size

    def _whole(self, data: bytes, position: int) -> bytes:
        """Return the whole batches in `data`, which are the remaining bytes of a truncated file from `position` on.

        Raises:
            CorruptRecord: there is none. An empty result would look like the end of the log, and consumers would wait there.
        """
        size = sum(header.size for header, _ in batches(data))
        if not size:
            raise CorruptRecord(
                f"{self.path} no longer has its bytes from {position + len(data)} to {self.size}. {_RESTORE}"
            )
        return data[:size]

    def _read_bytes(self, position: int, count: int) -> bytes:
        with self._opened(os.O_RDONLY) as file:
            return os.pread(file, count, position)

    def sync(self) -> None:
        """Force the file to the disk."""
        with self._opened(os.O_RDONLY) as file:
            sync_data(file)

    @contextmanager
    def _opened(self, mode: int) -> Iterator[int]:
        """Open a descriptor of the file for a `with` block."""
        file = os.open(self.path, mode | os.O_CLOEXEC)
        try:
            yield file
        finally:
            os.close(file)


def _write_all(file: int, pieces: Sequence[memoryview], position: int) -> None:
    left = list(pieces)
    while left:
        written = os.pwritev(file, left, position)
        position += written
        while left and written >= len(left[0]):
            written -= len(left.pop(0))
        if left:
            left[0] = left[0][written:]
