"""The interface to files for engines that are tested with a simulated disk: `FileOps`, and `SystemFiles`, the real files.

Such an engine uses it for every read, write and force, so a test can lose bytes that were not forced, tear pages, and make any
call fail or block.
"""

from __future__ import annotations

import errno
import fcntl
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from spark_producer.broker.storage.disk import (
    DISK_FULL_ERRNOS,
    PRIVATE_FILE,
    HeldDirectory,
    full_disk_message,
    is_at,
    make_private_directory,
    sync_data,
    sync_directory,
)

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Contiguous bytes to write. A memoryview must have the format of bytes."""

MAX_BUFFERS: Final = 1024
"""Maximum number of buffers in one call: IOV_MAX of Linux and macOS."""
MAX_PROBED_BYTES: Final = 64 * 1024
"""Maximum number of bytes that `is_cached` reads."""
UNSUPPORTED: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
"""Errors of file systems without an optional call (reserve space, drop pages); they are ignored."""
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class FileOps(Protocol):
    """The calls on files. A file is a descriptor, as in `os`. Several threads may call. OSErrors are not caught.

    Files and directories are created for this user only.
    """

    def open(self, path: Path, *, create: bool = False) -> int:
        """Open a file for reading and writing. With `create` it must not exist (FileExistsError), else it must."""

    def close(self, file: int) -> None:
        """Close a file. A power failure may lose bytes that were written and not forced."""

    def size(self, file: int) -> int:
        """Return the size of a file in bytes."""

    def write(self, file: int, buffers: Sequence[Buffer], position: int) -> None:
        """Write the buffers one after another from `position` on. If this raises OSError, any part of them may have been
        written."""

    def read(self, file: int, size: int, position: int) -> bytes:
        """Return `size` bytes from `position` on; fewer only at the end of the file."""

    def read_into(self, file: int, view: memoryview, position: int) -> int:
        """Fill `view` from `position` on; return the number of bytes, which is smaller only at the end of the file."""

    def reserve(self, file: int, position: int, size: int) -> None:
        """Reserve disk space for `size` bytes from `position` on, which then read as zeros; the file grows to hold them.

        Where the file system does not support that, nothing happens.
        """

    def force(self, file: int) -> None:
        """Write all bytes of the file, and its size, from the page cache to the disk.

        After an OSError it is unknown which bytes are on the disk: Linux reports the error once, and may then consider the pages
        written. So nothing that was written to the file may be relied on, even if a later `force` succeeds.
        """

    def drop_pages(self, file: int, position: int, size: int) -> None:
        """Drop these bytes from the page cache of the system. Only pages that were forced are dropped."""

    def is_cached(self, file: int, position: int, size: int) -> bool | None:
        """Return whether these bytes, or the first 64 KiB of them, are in the page cache; None if the system does not know."""

    def truncate(self, file: int, size: int) -> None:
        """Truncate a file to `size` bytes, or extend it with zeros."""

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file; a file that has the new name is replaced."""

    def unlink(self, path: Path) -> None:
        """Remove a file."""

    def names(self, directory: Path) -> list[str]:
        """Return the names in a directory, sorted."""

    def make_directory(self, path: Path) -> None:
        """Create a directory and its missing parents. A directory that exists is not changed."""

    def device(self, directory: Path) -> int:
        """Return the device number of a directory: directories on one file system have the same."""

    def sync_directory(self, path: Path) -> None:
        """Force the names in a directory to the disk, which `force` of a file does not guarantee."""

    def read_file(self, path: Path) -> bytes:
        """Return the content of a file."""

    def replace_file(self, path: Path, data: bytes, *, sync: bool) -> None:
        """Replace a file atomically: if the process dies, either the old or the new one is there.

        With `sync` that is also true after a power failure, and the new file is on the disk when this returns.
        """

    def free_bytes(self, file: int) -> int | None:
        """Return the number of bytes that are free for this user on the file system of a file, None if it is unknown."""

    def is_at(self, file: int, path: Path) -> bool:
        """Return whether `path` still names the open file `file`, which was neither removed nor moved."""

    def boot_id(self) -> bytes:
        """Return the 16 bytes of the boot id, which changes when the machine starts; empty if it is unknown (macOS).

        As long as it is the same, the page cache has everything that was written, also by processes that were killed.
        """


class SystemFiles:
    """The files of the operating system (a `FileOps`).

    After `hold` was called with directories, files are not opened or changed by their paths if one of these was moved.
    """

    def __init__(self) -> None:
        self._held: list[HeldDirectory] = []

    def hold(self, directory: Path) -> None:
        """Keep a directory open until `release`. From then on it must not be moved.

        Raises:
            OSError: it cannot be opened.
        """
        self._held.append(HeldDirectory(directory))

    def release(self) -> None:
        """Close all held directories."""
        while self._held:
            self._held.pop().close()

    def _check_held(self) -> None:
        for directory in self._held:
            directory.check()

    def open(self, path: Path, *, create: bool = False) -> int:
        """See `FileOps.open`."""
        self._check_held()
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        return os.open(path, flags, PRIVATE_FILE)

    def close(self, file: int) -> None:
        """See `FileOps.close`."""
        os.close(file)

    def size(self, file: int) -> int:
        """See `FileOps.size`."""
        return os.fstat(file).st_size

    def write(self, file: int, buffers: Sequence[Buffer], position: int) -> None:
        """See `FileOps.write`."""
        for first in range(0, len(buffers), MAX_BUFFERS):
            some = buffers[first : first + MAX_BUFFERS]
            size = sum(map(len, some))
            with self._with_space_details(file, size):
                written = os.pwritev(file, some, position)
                if written < size:  # the disk is nearly full, or the call exceeded the limit of the system
                    rest = memoryview(b"".join(some))[written:]
                    self._write_rest(file, rest, position + written)
            position += size

    @contextmanager
    def _with_space_details(self, file: int, size: int) -> Iterator[None]:
        """Add the needed and the free bytes to the message of a full-disk error inside the `with` block."""
        try:
            yield
        except OSError as error:
            if error.errno not in DISK_FULL_ERRNOS:
                raise
            raise OSError(error.errno, full_disk_message(error, size, self.free_bytes(file))) from error

    @staticmethod
    def _write_rest(file: int, rest: memoryview, position: int) -> None:
        """Write the remaining bytes after a short write; if the disk is full, the next call fails."""
        while rest:
            written = os.pwrite(file, rest, position)
            if written == 0:
                raise OSError(errno.EIO, "write failed: the system wrote nothing")
            rest, position = rest[written:], position + written

    def read(self, file: int, size: int, position: int) -> bytes:
        """See `FileOps.read`."""
        found = os.pread(file, size, position)
        if len(found) in (0, size):
            return found
        parts = [found]
        while found and size > (done := sum(map(len, parts))):
            found = os.pread(file, size - done, position + done)
            parts.append(found)
        return b"".join(parts)

    def read_into(self, file: int, view: memoryview, position: int) -> int:
        """See `FileOps.read_into`."""
        done = 0
        while done < len(view):
            count = os.preadv(file, [view[done:]], position + done)
            if count == 0:
                break
            done += count
        return done

    def reserve(self, file: int, position: int, size: int) -> None:
        """See `FileOps.reserve`. macOS has no call for it."""
        if hasattr(os, "posix_fallocate"):
            try:
                with self._with_space_details(file, size):
                    os.posix_fallocate(file, position, size)
            except OSError as error:
                if error.errno not in UNSUPPORTED:
                    raise

    def force(self, file: int) -> None:
        """See `FileOps.force`. On macOS fsync leaves the data in the cache of the drive, F_FULLFSYNC does not (its fsync(2))."""
        if hasattr(fcntl, "F_FULLFSYNC"):
            fcntl.fcntl(file, fcntl.F_FULLFSYNC)
        else:
            sync_data(file)

    def drop_pages(self, file: int, position: int, size: int) -> None:
        """See `FileOps.drop_pages`. macOS has no call for it."""
        if hasattr(os, "posix_fadvise"):
            try:
                os.posix_fadvise(file, position, size, os.POSIX_FADV_DONTNEED)
            except OSError as error:
                if error.errno not in UNSUPPORTED:
                    raise

    def is_cached(self, file: int, position: int, size: int) -> bool | None:
        """See `FileOps.is_cached`: a read that must not wait for the disk (RWF_NOWAIT, Linux)."""
        if not hasattr(os, "RWF_NOWAIT"):
            return None
        wanted = min(size, MAX_PROBED_BYTES, max(0, self.size(file) - position))
        try:
            return os.preadv(file, [bytearray(wanted)], position, os.RWF_NOWAIT) == wanted
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise
            return None

    def truncate(self, file: int, size: int) -> None:
        """See `FileOps.truncate`."""
        os.ftruncate(file, size)

    def rename(self, old: Path, new: Path) -> None:
        """See `FileOps.rename`."""
        self._check_held()
        old.replace(new)

    def unlink(self, path: Path) -> None:
        """See `FileOps.unlink`."""
        self._check_held()
        path.unlink()

    def names(self, directory: Path) -> list[str]:
        """See `FileOps.names`."""
        return sorted(path.name for path in directory.iterdir())

    def make_directory(self, path: Path) -> None:
        """See `FileOps.make_directory`."""
        make_private_directory(path)

    def device(self, directory: Path) -> int:
        """See `FileOps.device`."""
        return directory.stat().st_dev

    def sync_directory(self, path: Path) -> None:
        """See `FileOps.sync_directory`."""
        sync_directory(path)

    def read_file(self, path: Path) -> bytes:
        """See `FileOps.read_file`."""
        return path.read_bytes()

    def replace_file(self, path: Path, data: bytes, *, sync: bool) -> None:
        """See `FileOps.replace_file`."""
        self._check_held()
        fresh = path.with_name(f"{path.name}.new")
        fresh.unlink(missing_ok=True)  # an old file would keep its mode
        file = self.open(fresh, create=True)
        try:
            self.write(file, [data], 0)
            if sync:
                self.force(file)
        finally:
            os.close(file)
        fresh.replace(path)
        if sync:
            self.sync_directory(path.parent)

    def free_bytes(self, file: int) -> int | None:
        """See `FileOps.free_bytes`."""
        found = os.fstatvfs(file)
        return found.f_bavail * found.f_frsize

    def is_at(self, file: int, path: Path) -> bool:
        """See `FileOps.is_at`."""
        return is_at(file, path)

    def boot_id(self) -> bytes:
        """See `FileOps.boot_id`."""
        try:
            return uuid.UUID(_BOOT_ID.read_text().strip()).bytes
        except (OSError, ValueError):
            return b""


class UnforcedFiles(SystemFiles):
    """Files of temporary data (a `FileOps`): no call waits for the disk.

    Written bytes survive the death of the process, but not a power failure.
    """

    def reserve(self, file: int, position: int, size: int) -> None:
        """Do nothing: space is reserved because a force is faster if the file does not grow, and there are no forces here."""

    def force(self, file: int) -> None:
        """Do nothing: the system writes the file to the disk at any time."""

    def sync_directory(self, path: Path) -> None:
        """Do nothing: the system writes the names to the disk at any time."""
