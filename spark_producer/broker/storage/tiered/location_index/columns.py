"""The rows of one log in memory, as arrays that can be bisected: about 44 bytes per batch."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import Final

import numpy as np
from numpy.typing import NDArray

from spark_producer.broker.storage.tiered.entry_log_format import ENTRY_HEADER
from spark_producer.broker.storage.tiered.interfaces import Location
from spark_producer.broker.storage.tiered.location_index.base import IndexDamaged, IndexedBatch
from spark_producer.broker.storage.tiered.location_index.index_file import ADDED_ROW

_ROW: Final = np.dtype(
    {
        "names": ["base", "length", "delta", "timestamp", "position", "file", "file_position"],
        "formats": [">i8", ">i4", ">i4", ">i8", ">i8", ">u4", ">u4"],
        "offsets": [0, 8, 23, 35, 61, 69, 73],
        "itemsize": ADDED_ROW.size,
    }
)
"""The fields of a stored row that are needed in memory. Those of the header have the positions of `record.batch_v2`."""
ROW_BYTES: Final = 5 * 8 + 4
"""Memory of the row of a batch in bytes: five numbers of 8 bytes, and its size in 4."""

_LOG_OVERHEAD: Final = 12
_POSITION_BITS: Final = 32


class LogColumns:
    """The batches of a log in order."""

    def __init__(self) -> None:
        self.bases = array("q")
        self.ends = array("q")
        self.sizes = array("i")
        self.timestamps = array("q")
        self.positions = array("q")
        self.file_positions = array("q")
        self.blocks: list[tuple[int, int]] = []
        """The rows in the file: (first byte, number of bytes) of each block."""
        self.replaced: tuple[int, int] | None = None
        """The block that has replaced all rows before `replaced_end` of the other blocks."""
        self.replaced_end = 0

    def replace(self, rows: bytes | memoryview, file_position: int) -> None:
        """Replace all batches up to the end of the last row by the rows of a block.

        Raises:
            IndexDamaged: the rows have a gap, or end within a batch.
        """
        fresh = LogColumns()
        fresh.extend(rows, file_position)
        end = fresh.ends[-1]
        count = bisect_right(self.ends, end)
        if count < len(self.bases) and self.bases[count] != end:
            raise IndexDamaged(f"the index has rows that end at offset {end}, within a batch")
        for name in ("bases", "ends", "sizes", "timestamps", "positions", "file_positions"):
            getattr(self, name)[:count] = getattr(fresh, name)
        self.replaced, self.replaced_end = (file_position, len(rows)), end

    def extend(self, rows: bytes | memoryview, file_position: int) -> None:
        """Append the rows of a block, which begins at byte `file_position` of the index file.

        If the new rows begin after the end of the existing ones, these are dropped: they had been deleted, and a power failure
        lost the batches in between, which had not been flushed.

        Raises:
            IndexDamaged: the rows overlap the existing ones, or have a gap.
        """
        fields = np.frombuffer(rows, _ROW)
        bases = fields["base"].astype(np.int64)
        ends = bases + fields["delta"] + 1
        expected = self.ends[-1] if self.ends else bases[0]
        if bases[0] < expected or not np.array_equal(bases[1:], ends[:-1]):
            raise IndexDamaged(f"the index has batches from offset {bases[0]} on where {expected} should follow")
        if bases[0] > expected:
            self.delete_before(int(bases[0]))
        self.blocks.append((file_position, len(rows)))
        file_positions = (fields["file"].astype(np.int64) << _POSITION_BITS) | fields["file_position"]
        _extend(self.bases, bases)
        _extend(self.ends, ends)
        _extend(self.timestamps, fields["timestamp"])
        _extend(self.positions, fields["position"])
        _extend(self.file_positions, file_positions)
        self.sizes.frombytes((fields["length"].astype(np.int32) + _LOG_OVERHEAD).tobytes())

    def move(self, base_offset: int, file_id: int, file_position: int) -> None:
        """Set the position of a batch. A batch that is not here is ignored."""
        row = self.row(base_offset)
        if row is not None and self.bases[row] == base_offset:
            self.file_positions[row] = file_id << _POSITION_BITS | file_position

    def row(self, offset: int) -> int | None:
        """Return the row of the batch that holds `offset`, None if there is none."""
        row = bisect_right(self.bases, offset) - 1
        return row if row >= 0 and offset < self.ends[row] else None

    def row_at_or_after_position(self, position: int) -> int | None:
        """Return the first row at or after `position`, None if there is none."""
        row = bisect_left(self.positions, position)
        return row if row < len(self.positions) else None

    def row_at_or_after(self, timestamp: int) -> int | None:
        """Return the first row with this timestamp or a later one, None if there is none."""
        found = np.frombuffer(self.timestamps, np.int64) >= timestamp
        row = int(found.argmax())
        return row if found[row] else None

    def latest_timestamp(self) -> int:
        """Return the maximum timestamp."""
        return int(np.frombuffer(self.timestamps, np.int64).max())

    def file_ids(self) -> set[int]:
        """Return the ids of the files with the batches."""
        return {int(each) for each in np.unique(np.frombuffer(self.file_positions, np.int64) >> _POSITION_BITS)}

    def note_file_ends(self, ends: dict[int, int]) -> None:
        """Put the end of the last entry in each file into `ends`, if it is larger than the value there."""
        file_positions = np.frombuffer(self.file_positions, np.int64)
        entry_ends = (
            (file_positions & (1 << _POSITION_BITS) - 1) + np.frombuffer(self.sizes, np.int32) + ENTRY_HEADER.size
        )
        for file_id in self.file_ids():
            last = int(entry_ends[file_positions >> _POSITION_BITS == file_id].max())
            ends[file_id] = max(ends.get(file_id, 0), last)

    def file_bytes(self) -> dict[int, int]:
        """Return the bytes of the batches in each file."""
        files, which = np.unique(np.frombuffer(self.file_positions, np.int64) >> _POSITION_BITS, return_inverse=True)
        sizes = np.bincount(which, weights=np.frombuffer(self.sizes, np.int32) + ENTRY_HEADER.size)
        return {int(file_id): int(size) for file_id, size in zip(files, sizes, strict=True)}

    def location(self, row: int) -> Location:
        """Return the location of the batch of a row."""
        file_id, file_position = divmod(self.file_positions[row], 1 << _POSITION_BITS)
        return Location(self.bases[row], self.ends[row], file_id, file_position, self.sizes[row])

    def indexed(self, row: int) -> IndexedBatch:
        """Return the metadata of the batch of a row."""
        return IndexedBatch(self.bases[row], self.ends[row], self.timestamps[row], self.sizes[row], self.positions[row])

    def delete_before(self, offset: int) -> None:
        """Drop the batches that end at `offset` or before."""
        count = bisect_right(self.ends, offset)
        for column in (self.bases, self.ends, self.sizes, self.timestamps, self.positions, self.file_positions):
            del column[:count]

    def __len__(self) -> int:
        return len(self.bases)


def _extend(column: array[int], values: NDArray[np.generic]) -> None:
    column.frombytes(values.astype(np.int64).tobytes())
