"""Reading the journal again after a crash or a stop: every whole record from the mark on, up to the torn end of the last file."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path

from spark_producer.broker.storage.file_ops import FileOps
from spark_producer.broker.storage.tiered.journal.listing import FIRST_ID, ids_in, name_of
from spark_producer.broker.storage.tiered.journal.reader import FoundRecord, JournalReader
from spark_producer.broker.storage.tiered.journal.records import (
    FILE_END,
    GROUP_END,
    Mark,
    damaged,
    missing,
)


def replay(directory: Path, files: FileOps, mark: Mark | None) -> Generator[tuple[int, bytes], None, None]:
    """Yield the id of the log and the batch of every record from `mark` on, in the order in which they were written.

    Without a mark it begins at the first file there ever was. All records that had been forced come, and of those behind them as
    many as can be read, without a gap. When the last one has been taken, the torn end of the last file is cut off, so that a
    `Journal` may be opened; opening one before is refused.

    A record that comes was not necessarily forced: after a force that failed, Linux may show bytes that are not on the disk. So
    records must be brought to the disk elsewhere before anybody is told that they are safe.

    Raises:
        JournalMissing: a file is needed and not there.
        JournalDamaged: a file that had been ended has a record that cannot be read; or the last one has, and a later group says
            that it had been forced.
        OSError: the disk refused.
    """
    ids = _needed(ids_in(directory, files), directory, mark)
    for file_id in ids:
        with closing(JournalReader(directory, file_id, files)) as reader:
            marked = mark.position if mark is not None and mark.file_id == file_id else None
            yield from _records(reader, marked, is_last=file_id == ids[-1])


def _needed(ids: list[int], directory: Path, mark: Mark | None) -> list[int]:
    """Return the ids of the files to read, which must all be there."""
    first = FIRST_ID if mark is None else mark.file_id
    needed = [file_id for file_id in ids if file_id >= first]
    last = max(needed, default=0 if mark is None else first)
    for file_id in range(first, last + 1):
        if file_id not in needed:
            raise missing(
                f"the journal's file {directory / name_of(file_id)} is missing, and has records that are needed"
            )
    return needed


def _records(reader: JournalReader, marked: int | None, *, is_last: bool) -> Iterator[tuple[int, bytes]]:
    """Yield the records of a file, from the mark on if it is in this one; end the last file where its records end."""
    if marked is not None and marked > reader.size:
        raise damaged(f"{reader.path} has {reader.size} bytes, and had {marked} that were forced")
    if marked is not None and reader.first is None:
        raise damaged(f"{reader.path} does not begin as a file of the journal")
    position = (reader.first or 0) if marked is None else marked
    found: FoundRecord | None = None
    if reader.first is not None:
        while (found := reader.record(position)) is not None and found.log_id != FILE_END:
            position = found.end
            if found.log_id != GROUP_END:
                yield found.log_id, found.batch
    if found is not None:
        if is_last and found.end < reader.size:  # a crash came between the marker and the cut behind it
            reader.end_at(position)
        return
    if not is_last or reader.forced_behind(position) > position:
        raise damaged(f"{reader.path} cannot be read at byte {position}")
    reader.end_at(position)
