"""The mark: the place in the journal before which nothing is needed, because it is in the entry logs and the index.

Its file also says which file of the journal is the newest one, since nothing else does if that is missing.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from struct import Struct
from typing import Final

from spark_producer.broker.storage.file_ops import FileOps
from spark_producer.broker.storage.tiered.journal.records import Mark, damaged_error
from spark_producer.common.escape import escaping_logger
from spark_producer.record.checksum import crc32c

NAME: Final = "lastMark"
"""The name of the file in every ledger directory (BookKeeper's LastLogMark)."""
logger = escaping_logger(__name__)

_MARK: Final = Struct(">QQ")
_FILE: Final = Struct(">16sI")
_NEWEST: Final = Struct(">Q")
_FILE_WITH_NEWEST: Final = Struct(">24sI")


class LastMark:
    """The mark in every one of the ledger directories, the largest of which counts. Any thread may use it.

    With `skip_damage`, marks that cannot be read are renamed, and count as missing.

    Raises:
        JournalDamaged: no directory has a mark that can be read, but one has a file of that name.
        OSError: the disk refused.
    """

    def __init__(self, directories: Sequence[Path], files: FileOps, *, skip_damage: bool = False) -> None:
        self._paths = [directory / NAME for directory in directories]
        self._files = files
        self._lock = threading.Lock()
        there = [path for path in self._paths if NAME in files.names(path.parent)]
        found = [each for path in there if (each := _decoded(files.read_file(path))) is not None]
        if there and not found:
            if not skip_damage:
                raise damaged_error(f"{there[0]} does not say where the journal begins")
            for path in there:
                files.rename(path, path.with_name(f"{NAME}.damaged"))
                logger.error("%s cannot be read, and is kept as %s.damaged: the whole journal is read", path, NAME)
        self._latest = max((mark for mark, _ in found), default=None)
        self._newest = max((newest for _, newest in found), default=0)

    @property
    def latest(self) -> Mark | None:
        """The mark, None as long as there has been none in this data directory."""
        return self._latest

    @property
    def newest(self) -> int:
        """The id of a file of the journal that was there, and none is known to be newer; 0 if there is no mark."""
        return self._newest

    def note_file(self, file_id: int) -> None:
        """Keep in every directory, on the disk, that a file of the journal was begun.

        Raises:
            OSError: the disk refused; it may be kept or not.
        """
        with self._lock:
            if self._latest is not None and file_id > self._newest:
                self._store(self._latest, file_id)

    def _store(self, mark: Mark, newest: int) -> None:
        for path in self._paths:
            self._files.replace_file(path, _encoded(mark, newest), sync=True)
        self._latest, self._newest = mark, newest

    def advance(self, mark: Mark) -> bool:
        """Keep the mark in every directory, on the disk, unless a later one is kept; return whether this one is.

        Everything that was journalled before the mark must be safe elsewhere, in whichever directory.

        Raises:
            OSError: the disk refused; the mark may be kept or not.
        """
        with self._lock:
            if self._latest is not None and mark <= self._latest:
                return False
            self._store(mark, max(mark.file_id, self._newest))
            return True


def _encoded(mark: Mark, newest: int) -> bytes:
    body = _MARK.pack(*mark) + _NEWEST.pack(newest)
    return _FILE_WITH_NEWEST.pack(body, crc32c(body))


def _decoded(data: bytes) -> tuple[Mark, int] | None:
    """Return the mark that a file holds, and the newest file; None if it does not hold them as they were written.

    Earlier versions wrote the mark alone.
    """
    if len(data) not in (_FILE.size, _FILE_WITH_NEWEST.size):
        return None
    body, crc = (_FILE if len(data) == _FILE.size else _FILE_WITH_NEWEST).unpack(data)
    if crc32c(body) != crc:
        return None
    mark = Mark(*_MARK.unpack_from(body))
    return mark, mark.file_id if len(data) == _FILE.size else int(_NEWEST.unpack_from(body, _MARK.size)[0])
