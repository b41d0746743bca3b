"""Only one broker uses a data directory: a lock that dies with its process.

Owns: the file `.lock` in a data directory.
Must not know: what else is there.

A POSIX record lock (`fcntl.lockf`) belongs to the process: forked children have a descriptor of the file, but not the lock,
so that nobody is kept out by a worker that outlives its broker; `flock` is held by every copy of the descriptor. The price:
the lock says nothing within one process, for which there is a table here; and it is given back when the process closes
*any* descriptor of the file, so nothing else may open it.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

from spark_producer.broker.storage.disk import PRIVATE_FILE
from spark_producer.errors import ConfigError

LOCK_NAME: Final = ".lock"

_held: dict[tuple[int, Path], DirectoryLock] = {}
"""(process, directory without links) of this process's locks. A forked child finds those of its parent, which do not count."""


class DirectoryLock:
    """The lock on `data_dir`, which exists, from construction until `close`.

    Raises:
        ConfigError: another broker has it.
        OSError: no file can be made in the directory.
    """

    def __init__(self, data_dir: Path) -> None:
        self.path = data_dir / LOCK_NAME
        self._holder = (os.getpid(), data_dir.resolve())
        if _held.setdefault(self._holder, self) is not self:  # asked first: to close the file would give the lock back
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

    def close(self) -> None:
        """Give the lock back. More than once is harmless; a forked child closes its descriptor, and its parent keeps the lock."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            del _held[self._holder]


def _in_use(data_dir: Path) -> ConfigError:
    return ConfigError(f"data directory {data_dir} is in use by another broker: stop that or use another")
