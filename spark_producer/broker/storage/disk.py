"""Functions of the broker for files and directories: durable, private to its user, and with errors in Kafka's terms."""

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
"""Modes of all files and directories that the broker creates: only its user may read them, whatever the umask is."""
DISK_FULL_ERRNOS: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Error numbers of a full disk and of an exceeded quota: the same call succeeds once there is space."""


@contextmanager
def storage_errors(path: Path, needed: int | None = None) -> Iterator[None]:
    """Raise KAFKA_STORAGE_ERROR, with `path` in its message, for every OSError inside the `with` block.

    The message for a full disk says how many bytes are free, and how many are `needed` if that is known.
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
    return f"{error}{there}. Free some space on that disk, then send the batch again"


def full_disk_message(error: OSError, needed: int, free: int | None) -> str:
    """Return the message for a full disk: the system's, the bytes needed and free, and what to do."""
    there = "" if free is None else f", and {free:,} are free"
    return (
        f"{error.strerror or error}: {needed:,} bytes are needed{there}. Free some space on that disk; no acknowledged "
        "record is lost, and the broker then continues"
    )


def is_at(file: int, path: Path) -> bool:
    """Return whether `path` still names the open file `file`: neither it nor a directory above it was moved."""
    try:
        found = path.stat()
    except OSError:
        return False
    opened = os.fstat(file)
    return (found.st_ino, found.st_dev) == (opened.st_ino, opened.st_dev)


class HeldDirectory:
    """A directory that is kept open, so that its replacement by another one is detected, even if that has the same inode number.

    Call `check` before each change of a file by its path: another broker may use the directory that is there now.
    """

    def __init__(self, path: Path) -> None:
        """Raises: OSError."""
        self._path = path
        self._file = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def check(self) -> None:
        """Check that the directory is still at its path. After `close`, which is the last call, this does nothing.

        Raises:
            OSError: it, or a directory above it, was renamed or removed.
        """
        if self._file >= 0 and not is_at(self._file, self._path):
            raise moved_error(self._path)

    def close(self) -> None:
        """Close the directory. Repeated calls do nothing."""
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
    """Force the names in a directory to the disk, which the fsync of a file does not guarantee."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def sync_data(file: int) -> None:
    """Force the content of a file to the disk (macOS has no fdatasync)."""
    getattr(os, "fdatasync", os.fsync)(file)


def make_private_directory(path: Path) -> None:
    """Create a directory and its missing parents for this user only. A directory that exists is not changed."""
    for missing in reversed([each for each in (path, *path.parents) if not each.exists()]):
        missing.mkdir(PRIVATE_DIRECTORY, exist_ok=True)


def write_private(path: Path, text: str, *, sync: bool) -> None:
    """Replace a file atomically: if the process dies, either the old or the new one is there.

    With `sync` that is also true after a power failure, and the new file is on the disk when this returns.
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
    """Return whether the file system of the existing `file` is case-insensitive."""
    return file.with_name(file.name.swapcase()).exists()
