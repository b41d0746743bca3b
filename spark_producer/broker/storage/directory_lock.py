"""The lock on a data directory, the file `.lock` in it: only one broker may use the directory, until its process ends.

It is a POSIX record lock (`fcntl.lockf`), which belongs to the process: forked children have a descriptor of the file, but not
the lock, so a worker that outlives its broker does not block the next one. A lock of `flock` would be held by every copy of the
descriptor. There are two drawbacks: the lock has no effect within one process, so this module has a table of held locks; and it
is released when the process closes *any* descriptor of the file, so no other code may open it.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

from spark_producer.broker.storage.disk import PRIVATE_FILE, is_at, moved_error
from spark_producer.errors import ConfigError

LOCK_NAME: Final = ".lock"

_held: dict[tuple[int, Path], DirectoryLock] = {}
"""Locks of this process, by (process id, resolved directory). A forked child ignores its parent's."""


class DirectoryLock:
    """The lock on the existing directory `data_dir`, held from construction until `close`.

    Raises:
        ConfigError: another broker holds the lock.
        OSError: the lock file cannot be created.
    """

    def __init__(self, data_dir: Path) -> None:
        self.path = data_dir / LOCK_NAME
        self._holder = (os.getpid(), data_dir.resolve())
        if _held.setdefault(self._holder, self) is not self:  # before opening the file, since closing it frees the lock
            raise _in_use(data_dir)
        try:
            self._file = self._locked()
        except BaseException:
            del _held[self._holder]
            raise

    def _locked(self) -> int:
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(file)
            raise _in_use(self.path.parent) from error
        return file

    def check(self) -> None:
        """Check that the locked file is still in the directory.

        Raises:
            OSError: the directory, or one above it, was renamed or removed; another one may be in its place.
        """
        if not is_at(self._file, self.path):
            raise moved_error(self.path.parent)

    def close(self) -> None:
        """Release the lock. Repeated calls do nothing. A call in a forked child leaves the parent's lock."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            del _held[self._holder]


def _in_use(data_dir: Path) -> ConfigError:
    return ConfigError(
        f"cannot lock the data directory {data_dir}: it is in use by another broker. Stop it, or use another directory"
    )
