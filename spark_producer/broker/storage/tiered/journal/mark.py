"""The mark: the place in the journal before which nothing is needed, because it is in the entry logs and the index."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from struct import Struct
from typing import Final

from spark_producer.broker.storage.file_ops import FileOps
from spark_producer.broker.storage.tiered.journal.records import Mark, damaged
from spark_producer.record.checksum import crc32c

NAME: Final = "lastMark"
"""The name of the file in every ledger directory (BookKeeper's LastLogMark)."""
_MARK: Final = Struct(">QQ")
_FILE: Final = Struct(">16sI")


class LastMark:
    """The mark in every one of the ledger directories, the largest of which counts. Any thread may use it.

    Raises:
        JournalDamaged: no directory has a mark that can be read, but one has a file of that name.
        OSError: the disk refused.
    """

    def __init__(self, directories: Sequence[Path], files: FileOps) -> None:
        self._paths = [directory / NAME for directory in directories]
        self._files = files
        self._lock = threading.Lock()
        there = [path for path in self._paths if NAME in files.names(path.parent)]
        marks = [mark for path in there if (mark := _decoded(files.read_file(path))) is not None]
        if there and not marks:
            raise damaged(f"{there[0]} does not say where the journal begins")
        self._latest = max(marks, default=None)

    @property
    def latest(self) -> Mark | None:
        """The mark, None as long as there has been none in this data directory."""
        return self._latest

    def advance(self, mark: Mark) -> bool:
        """Keep the mark in every directory, on the disk, unless a later one is kept; return whether this one is.

        Everything that was journalled before the mark must be safe elsewhere, in whichever directory.

        Raises:
            OSError: the disk refused; the mark may be kept or not.
        """
        with self._lock:
            if self._latest is not None and mark <= self._latest:
                return False
            for path in self._paths:
                self._files.replace_file(path, _encoded(mark), sync=True)
            self._latest = mark
            return True


def _encoded(mark: Mark) -> bytes:
    body = _MARK.pack(*mark)
    return _FILE.pack(body, crc32c(body))


def _decoded(data: bytes) -> Mark | None:
    """Return the mark that a file holds, None if it does not hold one as it was written."""
    if len(data) != _FILE.size:
        return None
    body, crc = _FILE.unpack(data)
    return Mark(*_MARK.unpack(body)) if crc32c(body) == crc else None
