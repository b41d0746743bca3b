"""The mark: the position in the journal before which no record is needed, because it is in the entry logs and the index.

Its file also has the id of the newest journal file, so that the loss of that file is detected.
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
    """The mark. Each ledger directory has a copy, and the largest one is valid. Any thread may use it.

    With `skip_damage`, marks that cannot be read are renamed, and considered missing.

    Raises:
        JournalDamaged: there are files with marks, and none of them can be read.
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
                raise damaged_error(f"cannot read the position of the first needed record from {there[0]}")
            for path in there:
                files.rename(path, path.with_name(f"{NAME}.damaged"))
                logger.error("%s cannot be read, and is renamed to %s.damaged: the whole journal is read", path, NAME)
        self._latest = max((mark for mark, _ in found), default=None)
        self._newest = max((newest for _, newest in found), default=0)

    @property
    def latest(self) -> Mark | None:
        """The mark, None if the data directory had none yet."""
        return self._latest

    @property
    def newest(self) -> int:
        """The id of the newest known journal file; 0 if there is no mark."""
        return self._newest

    def note_file(self, file_id: int) -> None:
        """Store durably in every directory that a journal file was created.

        Raises:
            OSError: the disk refused; it may be stored or not.
        """
        with self._lock:
            if self._latest is not None and file_id > self._newest:
                self._store(self._latest, file_id)

    def _store(self, mark: Mark, newest: int) -> None:
        for path in self._paths:
            self._files.replace_file(path, _encoded(mark, newest), sync=True)
        self._latest, self._newest = mark, newest

    def advance(self, mark: Mark) -> bool:
        """Store the mark durably in every directory, unless a later one is stored; return whether this one is.

        All records before the mark must be durable in the entry logs.

        Raises:
            OSError: the disk refused; the mark may be stored or not.
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
    """Return the mark and the id of the newest journal file in the content of a file; None if the content is damaged.

    Earlier versions wrote only the mark.
    """
    if len(data) not in (_FILE.size, _FILE_WITH_NEWEST.size):
        return None
    body, crc = (_FILE if len(data) == _FILE.size else _FILE_WITH_NEWEST).unpack(data)
    if crc32c(body) != crc:
        return None
    mark = Mark(*_MARK.unpack_from(body))
    return mark, mark.file_id if len(data) == _FILE.size else int(_NEWEST.unpack_from(body, _MARK.size)[0])
