"""The broker's functions for files and directories: durable, private to its user, and with errors in Kafka's terms."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError

PRIVATE_FILE: Final = 0o600
PRIVATE_DIRECTORY: Final = 0o700
"""The modes of all files and directories that the broker makes: only its user may read them, whatever the umask allows."""
DISK_FULL_ERRNOS: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The errors of a disk without space, or of a user who may have no more of it: the same call succeeds once there is space."""


@contextmanager
def storage_errors(path: Path, needed: int | None = None) -> Iterator[None]:
    """Raise KAFKA_STORAGE_ERROR, which names `path`, for every OSError inside the `with` block.

    That of a full disk says how many bytes are free, and are `needed` if that is known.
    """
    try:
        yield
    except OSError as error:
        what = _full_disk(path, error, needed) if is_full(error) else str(error)
        raise BrokerError(f"storage of {path} failed: {what}", code=Code.KAFKA_STORAGE_ERROR) from error


def is_full(error: BaseException | None) -> bool:
    """Return whether an error is that of a full disk."""
    return isinstance(error, OSError) and error.errno in DISK_FULL_ERRNOS


def _full_disk(path: Path, error: OSError, needed: int | None) -> str:
    try:
        free = shutil.disk_usage(path if path.exists() else path.parent).free
    except OSError:
        free = None
    if needed is not None:
        return full_disk_message(error, needed, free)
    there = "" if free is None else f"; {free:,} bytes are free"
    return f"{error}{there}. Free some space on that disk, and send it again"


def full_disk_message(error: OSError, needed: int, free: int | None) -> str:
    """Return the message for a full disk: the system's, the bytes needed and free, and what to do."""
    there = "" if free is None else f", and {free:,} are free"
    return (
        f"{error.strerror or error}: {needed:,} bytes are needed{there}. Free some space on that disk; no acknowledged "
        "record is lost, and the broker then goes on"
    )


def is_at(file: int, path: Path) -> bool:
    """Return whether an open file is still the one that is found at `path`: neither it nor a directory above was moved."""
    try:
        found = path.stat()
    except OSError:
        return False
    opened = os.fstat(file)
    return (found.st_ino, found.st_dev) == (opened.st_ino, opened.st_dev)


class HeldDirectory:
    """A directory that is kept open, so that another one in its place is noticed, even one with the number of its inode.

    `check` comes before each change of a file by its path: the other directory may have a broker of its own.
    """

    def __init__(self, path: Path) -> None:
        """Raises: OSError."""
        self._path = path
        self._file = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def check(self) -> None:
        """Check that the directory is where it was, also after `close`, which is to come last.

        Raises:
            OSError: it, or a directory above it, was renamed or removed.
        """
        if self._file >= 0 and not is_at(self._file, self._path):
            raise moved_error(self._path)

    def close(self) -> None:
        """Let the directory go. To call it again is harmless."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def moved_error(path: Path) -> OSError:
    """Return the error that an open file is no longer at `path`."""
    return OSError(
        errno.ENOENT,
        "it is no longer there: it, or a directory above it, was renamed or removed while the broker ran. Stop the broker, "
        "put the directory back, and start it again",
        str(path),
    )


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable, which a file's own fsync does not promise."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def sync_data(file: int) -> None:
    """Put a file's content on the disk (macOS has no fdatasync)."""
    getattr(os, "fdatasync", os.fsync)(file)


def make_private_directory(path: Path) -> None:
    """Make a directory, and those above it that are missing, for this user only. A directory that exists stays as it is."""
    for missing in reversed([each for each in (path, *path.parents) if not each.exists()]):
        missing.mkdir(PRIVATE_DIRECTORY, exist_ok=True)


def write_private(path: Path, text: str, *, sync: bool) -> None:
    """Replace a file as a whole: after the death of the process either the old or the new one is there.

    With `sync` that holds after a loss of power too, and the new file is on the disk when this returns.
    """
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)  # an old file would keep its mode
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE), "w") as file:
        file.write(text)
        file.flush()
        if sync:
            os.fsync(file.fileno())
    fresh.replace(path)
    if sync:
        sync_directory(path.parent)


def folds_case(file: Path) -> bool:
    """Return whether the file system that holds the existing `file` takes names that differ only in case for the same one."""
    return file.with_name(file.name.swapcase()).exists()
