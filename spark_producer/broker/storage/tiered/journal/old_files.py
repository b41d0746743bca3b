"""The removal of journal files that are not needed any more."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from spark_producer.broker.storage.file_ops import FileOps
from spark_producer.broker.storage.tiered.journal.file_names import ids_in, name_of
from spark_producer.broker.storage.tiered.journal.records import Mark

KEPT_SUFFIX: Final = ".kept"
"""Suffix of a file that is kept although the journal does not need it."""


class OldFiles:
    """The files of a journal that end before the mark. One thread at a time may use it.

    The newest `backups` of them are not removed.
    """

    def __init__(self, directory: Path, files: FileOps, backups: int) -> None:
        self._directory, self._files, self._backups = directory, files, backups
        self._kept: set[int] = set()

    def drop_before(self, mark: Mark) -> None:
        """Remove the files before `mark`, or rename those that must be kept.

        Raises:
            OSError: a file could not be removed; a later call retries.
        """
        old = [file_id for file_id in ids_in(self._directory, self._files) if file_id < mark.file_id]
        for file_id in old[: len(old) - self._backups] if self._backups else old:
            path = self._directory / name_of(file_id)
            if file_id in self._kept:
                self._files.rename(path, path.with_name(path.name + KEPT_SUFFIX))
            else:
                self._files.unlink(path)

    def keep_before(self, file_id: int) -> str:
        """Mark all files before that id to be renamed instead of removed; return their later paths."""
        self._kept = {each for each in ids_in(self._directory, self._files) if each < file_id}
        return ", ".join(str(self._directory / name_of(each)) + KEPT_SUFFIX for each in sorted(self._kept))
