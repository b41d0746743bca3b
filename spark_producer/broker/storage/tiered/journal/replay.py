"""Reading the journal again after a crash or a stop: every whole record from the mark on, up to the torn end of the last file.

A crash of the process leaves the beginning of the group that it wrote last, and a loss of power any part of what had not been
forced. Such an end is cut off, and logged. All other damage has another cause, such as a failing disk or a person: then nothing
is changed, and the start is refused, unless damage is to be skipped.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from spark_producer.broker.storage.disk import DISK_FULL_ERRNOS
from spark_producer.broker.storage.file_ops import FileOps
from spark_producer.broker.storage.tiered.journal.file_names import FIRST_ID, ids_in, name_of
from spark_producer.broker.storage.tiered.journal.reader import FoundRecord, JournalReader
from spark_producer.broker.storage.tiered.journal.records import (
    FILE_END,
    GROUP_END,
    Acknowledged,
    Mark,
    damaged_error,
    missing_error,
)
from spark_producer.common.escape import escaping_logger

DAMAGED: Final = ".damaged"
"""The suffix of the copy that is made of a file before it is cut."""

logger = escaping_logger(__name__)


def replay(
    directory: Path, files: FileOps, mark: Mark | None, *, newest: int = 0, skip_damage: bool = False
) -> Generator[tuple[int, bytes], None, None]:
    """Yield the id of the log and the batch of every record from `mark` on, in the order in which they were written.

    Without a mark it begins at the first file there ever was. All records that had been forced come, and of those after them as
    many as can be read, without a gap. When the last one has been taken, the torn end of the last file is cut off, so that a
    `Journal` may be opened; opening one before is refused.

    A record that comes was not necessarily forced: after a force that failed, Linux may show bytes that are not on the disk. So
    records must be forced elsewhere before they are reported as safe.

    Args:
        directory, files: where the journal is.
        mark: where it begins.
        newest: the id of the newest file, as far as that is known (`LastMark.newest`).
        skip_damage: go on after what is missing or damaged, with the next whole group. There may be gaps then. All that is
            skipped is logged, and each damaged file is copied.

    Raises:
        JournalMissing: a file is needed and not there.
        JournalDamaged: a record cannot be read, and no crash explains it.
        OSError: the disk refused.
    """
    ids = _needed(ids_in(directory, files), directory, mark, newest, skip_damage=skip_damage)
    for file_id in ids:
        with closing(JournalReader(directory, file_id, files)) as reader:
            marked = mark.position if mark is not None and mark.file_id == file_id else None
            each = _FileReplay(reader, marked, files.boot_id(), is_last=file_id == ids[-1], was_begun=file_id <= newest)
            yield from each.records_around_damage() if skip_damage else each.records()


def force_again(directory: Path, files: FileOps, mark: Mark | None) -> None:
    """Force all records from `mark` on, which `replay` has yielded, to the disk where they are.

    Raises:
        OSError: the disk refused.
    """
    for file_id in ids_in(directory, files):
        if mark is None or file_id >= mark.file_id:
            with closing(JournalReader(directory, file_id, files)) as reader:
                reader.write_again()


def _needed(ids: list[int], directory: Path, mark: Mark | None, newest: int, *, skip_damage: bool) -> list[int]:
    """Return the ids of the files to read, which must all be there unless damage is skipped."""
    first = FIRST_ID if mark is None else mark.file_id
    needed = [file_id for file_id in ids if file_id >= first]
    last = max([*needed, newest, 0 if mark is None else first])
    gone = sorted(set(range(first, last + 1)).difference(needed))
    if gone and not skip_damage:
        why = "" if mark is not None or not needed else ", or no ledger directory has the file lastMark any more"
        raise missing_error(
            f"the journal's file {directory / name_of(gone[0])} is missing, and has records that are needed{why}"
        )
    if gone and (mark is not None or not needed):
        logger.error(
            "%s: %d files of the journal are missing, and all records that were only there are skipped: %s",
            *(directory, len(gone), ", ".join(map(name_of, gone[:10]))),
        )
    return needed


class _FileReplay:
    """One file that is read. `marked` is the mark's position if it is in this file; `was_begun`: the file had its header."""

    def __init__(
        self, reader: JournalReader, marked: int | None, boot_id: bytes, *, is_last: bool, was_begun: bool
    ) -> None:
        self._reader, self._marked, self._boot_id = reader, marked, boot_id
        self._is_last, self._was_begun = is_last, was_begun

    def records(self) -> Iterator[tuple[int, bytes]]:
        """Yield the records, from the mark on if it is in this file; end the last file where its records end.

        Raises:
            JournalDamaged: see `replay`.
        """
        reader, marked = self._reader, self._marked
        if marked is not None and marked > reader.size:
            raise damaged_error(f"{reader.path} has {reader.size} bytes, and had {marked} that were forced")
        if (marked is not None or self._was_begun) and reader.first is None:
            raise damaged_error(f"{reader.path} does not begin as a file of the journal")
        position, found = yield from self._from((reader.first or 0) if marked is None else marked)
        if found is not None:
            self._end_undone_cut(position, found)
            return
        self._check_torn(position)
        self._cut(position)

    def _end_undone_cut(self, position: int, found: FoundRecord) -> None:
        """End the last file again: a crash may have come between the marker and the cut after it."""
        if self._is_last and found.end < self._reader.size:
            self._reader.end_at(position)

    def _from(
        self, position: int, *, whatever_header: bool = False
    ) -> Generator[tuple[int, bytes], None, tuple[int, FoundRecord | None]]:
        """Yield the records from a position on; return where they end, and the marker that ends the file, or None."""
        found: FoundRecord | None = None
        if self._reader.first is not None or whatever_header:
            while (found := self._reader.record(position)) is not None and found.log_id != FILE_END:
                position = found.end
                if found.log_id != GROUP_END:
                    yield found.log_id, found.batch
        return position, found

    def _check_torn(self, position: int) -> None:
        """Check that the end of the records at `position` is one that a crash leaves.

        Raises:
            JournalDamaged: it is not.
        """
        reader, after = self._reader, self._reader.after_damage(position)
        where = f"{reader.path} cannot be read at byte {position}"
        if not self._is_last:
            raise damaged_error(f"{where}, and is not the last file ({after.records} whole records follow in it)")
        if self._was_whole() and reader.size < reader.origin.size:  # else it may have been cut at its end
            raise damaged_error(f"{reader.path} has {reader.size} bytes, and had {reader.origin.size} at least")
        if after.forced > position:
            raise damaged_error(
                f"{where}, up to which it had been forced to the disk ({after.records} whole records follow in it)"
            )
        if self._was_whole() and reader.has_group_end(position):
            raise damaged_error(
                f"{where}, which no crash explains: the end of a group follows, and then {after.records} whole records"
            )

    def _was_whole(self) -> bool:
        """Return whether the page cache had everything that was written, so that only the last group may be cut short.

        After a restart of the machine it had not: then what was never forced may be there in part.
        """
        when, boot_id, _ = self._reader.origin
        if boot_id and self._boot_id:
            return boot_id == self._boot_id
        return when is Acknowledged.WRITTEN

    def _cut(self, position: int) -> None:
        """End the last file at `position`; log what is cut off, and keep a copy."""
        used = self._reader.used()
        if (
            used > position and self._reader.first is not None
        ):  # else the process died while it made the file, before any record
            logger.warning(
                "%s: its last %d bytes, from byte %d on, are an incomplete group of records, as a crash leaves, and are cut. %s",
                *(self._reader.path, used - position, position, self._copied(used)),
            )
        self._reader.end_at(position)

    def _copied(self, used: int) -> str:
        """Copy the file once; return a sentence that says where the copy is."""
        path = self._reader.path.with_name(self._reader.path.name + DAMAGED)
        try:
            self._reader.copy_to(path, used)
        except OSError as error:
            if error.errno not in DISK_FULL_ERRNOS:
                raise
            return f"There is no space for a copy of the file ({error.strerror})"
        return f"A copy of the file as it was is {path}"

    def records_around_damage(self) -> Iterator[tuple[int, bytes]]:
        """Yield all records that can be read; log what cannot, and keep a copy."""
        reader, marked = self._reader, self._marked
        position = (reader.first or 0) if marked is None else min(marked, reader.size)
        skipped = gaps = 0
        while True:
            position, found = yield from self._from(position, whatever_header=True)
            following = None
            if found is None:
                following = reader.following(position) or reader.after_damage(position + 1).next_group
            if following is None:
                break
            skipped, gaps, position = skipped + following - position, gaps + 1, following
        used = reader.used()
        lost = max(0, used - position) if found is None else 0
        short = max(0, (marked or 0) - reader.size, reader.origin.size - reader.size if found is None else 0)
        if skipped or lost or short:
            logger.error(
                "%s: %d bytes in %d places cannot be read, and are skipped with all records in them. %s",
                *(reader.path, skipped + lost + short, gaps + bool(lost or short), self._copied(used)),
            )
        if found is not None:
            self._end_undone_cut(position, found)
        elif self._is_last:
            reader.end_at(position)
