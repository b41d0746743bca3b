"""The replay of the journal after a crash or a stop: all whole records from the mark to the torn end of the last file.

A crash of the process leaves the beginning of the last group, and a power failure any part of the groups that had not been
forced. Such an end is cut off, and logged. All other damage has another cause, such as a failing disk: then no file is changed,
and the start is refused, unless `skip_damage` is set.
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
"""Suffix of the copy of a file that is made before it is truncated."""

logger = escaping_logger(__name__)


def replay(
    directory: Path, files: FileOps, mark: Mark | None, *, newest: int = 0, skip_damage: bool = False
) -> Generator[tuple[int, bytes], None, None]:
    """Yield the id of the log and the batch of every record from `mark` on, in the order in which they were written.

    Without a mark, begin at the first file of the data directory. The result has all forced records, and as many of the following
    ones as can be read without a gap. At its end the torn end of the last file is cut off, so that a `Journal` can be created;
    before that the constructor refuses.

    A record in the result was not necessarily forced: after a failed force, Linux may show bytes that are not on the disk. So
    records must be forced elsewhere before they are confirmed.

    Args:
        directory, files: of the journal.
        mark: position of the first record.
        newest: id of the newest known file (`LastMark.newest`).
        skip_damage: continue after missing or damaged records with the next whole group, so there may be gaps. Skipped bytes are
            logged, and each damaged file is copied.

    Raises:
        JournalMissing: a needed file is missing.
        JournalDamaged: a record cannot be read, and a crash does not explain it.
        OSError: the disk refused.
    """
    ids = _needed(ids_in(directory, files), directory, mark, newest, skip_damage=skip_damage)
    for file_id in ids:
        with closing(JournalReader(directory, file_id, files)) as reader:
            marked = mark.position if mark is not None and mark.file_id == file_id else None
            each = _FileReplay(reader, marked, files.boot_id(), is_last=file_id == ids[-1], was_begun=file_id <= newest)
            yield from each.records_around_damage() if skip_damage else each.records()


def force_again(directory: Path, files: FileOps, mark: Mark | None) -> None:
    """Force all records from `mark` on, which `replay` has yielded, in their files.

    Raises:
        OSError: the disk refused.
    """
    for file_id in ids_in(directory, files):
        if mark is None or file_id >= mark.file_id:
            with closing(JournalReader(directory, file_id, files)) as reader:
                reader.write_again()


def _needed(ids: list[int], directory: Path, mark: Mark | None, newest: int, *, skip_damage: bool) -> list[int]:
    """Return the ids of the files to read; raise JournalMissing if one is missing, unless damage is skipped."""
    first = FIRST_ID if mark is None else mark.file_id
    needed = [file_id for file_id in ids if file_id >= first]
    last = max([*needed, newest, 0 if mark is None else first])
    gone = sorted(set(range(first, last + 1)).difference(needed))
    if gone and not skip_damage:
        why = "" if mark is not None or not needed else ", or the file lastMark is missing in all ledger directories"
        raise missing_error(
            f"the journal's file {directory / name_of(gone[0])} is missing, and has records that are needed{why}"
        )
    if gone and (mark is not None or not needed):
        logger.error(
            "%s: %d files of the journal are missing, and their records are skipped: %s",
            *(directory, len(gone), ", ".join(map(name_of, gone[:10]))),
        )
    return needed


class _FileReplay:
    """The replay of one file. `marked`: position of the mark if it is in this file; `was_begun`: the file had its header."""

    def __init__(
        self, reader: JournalReader, marked: int | None, boot_id: bytes, *, is_last: bool, was_begun: bool
    ) -> None:
        self._reader, self._marked, self._boot_id = reader, marked, boot_id
        self._is_last, self._was_begun = is_last, was_begun

    def records(self) -> Iterator[tuple[int, bytes]]:
        """Yield the records, from the mark on if it is in this file; truncate the last file after its records.

        Raises:
            JournalDamaged: see `replay`.
        """
        reader, marked = self._reader, self._marked
        if marked is not None and marked > reader.size:
            raise damaged_error(f"{reader.path} has {reader.size} bytes, but {marked} were forced")
        if (marked is not None or self._was_begun) and reader.first is None:
            raise damaged_error(f"{reader.path} does not begin with the header of a journal file")
        position, found = yield from self._from((reader.first or 0) if marked is None else marked)
        if found is not None:
            self._end_undone_cut(position, found)
            return
        self._check_torn(position)
        self._cut(position)

    def _end_undone_cut(self, position: int, found: FoundRecord) -> None:
        """End the last file again: a crash may have interrupted that after the marker and before the truncation."""
        if self._is_last and found.end < self._reader.size:
            self._reader.end_at(position)

    def _from(
        self, position: int, *, whatever_header: bool = False
    ) -> Generator[tuple[int, bytes], None, tuple[int, FoundRecord | None]]:
        """Yield the records from `position` on; return their end, and the end marker of the file, or None."""
        found: FoundRecord | None = None
        if self._reader.first is not None or whatever_header:
            while (found := self._reader.record(position)) is not None and found.log_id != FILE_END:
                position = found.end
                if found.log_id != GROUP_END:
                    yield found.log_id, found.batch
        return position, found

    def _check_torn(self, position: int) -> None:
        """Check that a crash explains the end of the records at `position`.

        Raises:
            JournalDamaged: it does not.
        """
        reader, after = self._reader, self._reader.after_damage(position)
        where = f"{reader.path} cannot be read at byte {position}"
        if not self._is_last:
            raise damaged_error(f"{where}, and is not the last file ({after.records} whole records follow in it)")
        if self._was_whole() and reader.size < reader.origin.size:  # else it may have been cut at its end
            raise damaged_error(f"{reader.path} has {reader.size} bytes, but had at least {reader.origin.size}")
        if after.forced > position:
            raise damaged_error(
                f"{where}, but later bytes had been forced to the disk ({after.records} whole records follow in it)"
            )
        if self._was_whole() and reader.has_group_end(position):
            raise damaged_error(
                f"{where}, and a crash does not explain it: the end of a group follows, and then {after.records} whole records"
            )

    def _was_whole(self) -> bool:
        """Return whether all written bytes have survived, so that only the last group may be incomplete.

        They have if the machine was not restarted. Otherwise any part of the bytes that were not forced may be missing.
        """
        when, boot_id, _ = self._reader.origin
        if boot_id and self._boot_id:
            return boot_id == self._boot_id
        return when is Acknowledged.WRITTEN

    def _cut(self, position: int) -> None:
        """Truncate the last file at `position`; log the number of bytes, and make a copy of the file."""
        used = self._reader.used()
        if (
            used > position and self._reader.first is not None
        ):  # else the process died while it created the file, before any record
            logger.warning(
                "%s: the last %d bytes, from byte %d on, are cut off. A crash left an incomplete group of records there. %s",
                *(self._reader.path, used - position, position, self._copied(used)),
            )
        self._reader.end_at(position)

    def _copied(self, used: int) -> str:
        """Copy the file once; return a sentence with the path of the copy."""
        path = self._reader.path.with_name(self._reader.path.name + DAMAGED)
        try:
            self._reader.copy_to(path, used)
        except OSError as error:
            if error.errno not in DISK_FULL_ERRNOS:
                raise
            return f"There is no space for a copy of the file ({error.strerror})"
        return f"A copy of the file as it was is {path}"

    def records_around_damage(self) -> Iterator[tuple[int, bytes]]:
        """Yield all records that can be read; log the number of other bytes, and make a copy of the file."""
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
                "%s: %d bytes in %d places cannot be read, and their records are skipped. %s",
                *(reader.path, skipped + lost + short, gaps + bool(lost or short), self._copied(used)),
            )
        if found is not None:
            self._end_undone_cut(position, found)
        elif self._is_last:
            reader.end_at(position)
