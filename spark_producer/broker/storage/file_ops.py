"""The door to files for the engines that are tried with a simulated disk: `FileOps`, and `SystemFiles`, the real one.

Every read, write and force of such an engine goes through it, so a test can lose what was not forced, tear pages, fail any call,
or have it wait.
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
"""What can be written: bytes in one piece (a memoryview must be of bytes, and contiguous)."""

MAX_BUFFERS: Final = 1024
"""IOV_MAX, the largest number of buffers that Linux and macOS take in one call."""
MAX_PROBED_BYTES: Final = 64 * 1024
"""How many bytes `is_cached` reads at most."""
UNSUPPORTED: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
"""The errors of file systems that cannot do what only helps (reserve space, drop pages)."""
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class FileOps(Protocol):
    """The calls on files. A file is an int, as in `os`. Several threads may call; OSErrors pass.

    All files and directories that are made are for this user only.
    """

    def open(self, path: Path, *, create: bool = False) -> int:
        """Open a file for reading and writing. With `create` it must be new (FileExistsError), else it must exist."""

    def close(self, file: int) -> None:
        """Close a file. What was written and not forced may be lost with the power."""

    def size(self, file: int) -> int:
        """Return the size of a file in bytes."""

    def write(self, file: int, buffers: Sequence[Buffer], position: int) -> None:
        """Write the buffers one after another from `position` on. All are written, or there is an OSError, after which any part
        may have been."""

    def read(self, file: int, size: int, position: int) -> bytes:
        """Return `size` bytes from `position` on; fewer only where the file ends."""

    def read_into(self, file: int, view: memoryview, position: int) -> int:
        """Fill `view` from `position` on; return the number of bytes, which is smaller only where the file ends."""

    def reserve(self, file: int, position: int, size: int) -> None:
        """Have the disk keep room for `size` bytes from `position` on, which then read as zeros; the file grows to hold them.

        Where that is not supported, nothing happens.
        """

    def force(self, file: int) -> None:
        """Return when all that was written to the file is on the disk, with the size that is needed to read it.

        After an OSError nobody knows what is: Linux gives the error once, and may then take the pages for written. So nothing
        that was written to the file may be relied on, even if a later `force` succeeds.
        """

    def drop_pages(self, file: int, position: int, size: int) -> None:
        """Tell the system that these bytes need not stay in its page cache. Only pages that were forced are dropped."""

    def is_cached(self, file: int, position: int, size: int) -> bool | None:
        """Return whether these bytes can be read without the disk; None where that cannot be told. At most 64 KiB are tried."""

    def truncate(self, file: int, size: int) -> None:
        """Cut a file off at `size` bytes, or fill it up with zeros."""

    def rename(self, old: Path, new: Path) -> None:
        """Give a file another name; a file that had that name is replaced."""

    def unlink(self, path: Path) -> None:
        """Remove a file."""

    def names(self, directory: Path) -> list[str]:
        """Return the names in a directory, in order."""

    def make_directory(self, path: Path) -> None:
        """Make a directory, and those above it that are missing. One that exists stays as it is."""

    def device(self, directory: Path) -> int:
        """Return the number of the device (the file system) on which a directory lies."""

    def sync_directory(self, path: Path) -> None:
        """Return when the names in a directory are on the disk, which `force` of a file does not promise."""

    def read_file(self, path: Path) -> bytes:
        """Return a whole file."""

    def replace_file(self, path: Path, data: bytes, *, sync: bool) -> None:
        """Replace a file as a whole: after the death of the process either the old or the new one is there.

        With `sync` that holds after a loss of power too, and the new file is on the disk when this returns.
        """

    def free_bytes(self, file: int) -> int | None:
        """Return how many bytes the file system of a file has left for this user, None where that cannot be told."""

    def is_at(self, file: int, path: Path) -> bool:
        """Return whether an open file is still the one that is found at `path`, and not removed or moved."""

    def boot_id(self) -> bytes:
        """Return 16 bytes that stay the same until the machine starts again; none where they are not known (macOS).

        While they are the same, the page cache has everything that was written, also by processes that were killed.
        """


class SystemFiles:
    """The files of the operating system (a `FileOps`).

    Once `hold` was called with directories, nothing is opened or changed by its path if one of them was moved.
    """

    def __init__(self) -> None:
        self._held: list[HeldDirectory] = []

    def hold(self, directory: Path) -> None:
        """Keep a directory open until `release`. From now on it must stay where it is.

        Raises:
            OSError: it cannot be opened.
        """
        self._held.append(HeldDirectory(directory))

    def release(self) -> None:
        """Let all directories go."""
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
                if written < size:  # the disk is nearly full, or the call was more than the system takes at once
                    rest = memoryview(b"".join(some))[written:]
                    self._write_rest(file, rest, position + written)
            position += size

    @contextmanager
    def _with_space_details(self, file: int, size: int) -> Iterator[None]:
        """Have an error inside the `with` block that the disk is full say how much was wanted, and how much there is."""
        try:
            yield
        except OSError as error:
            if error.errno not in DISK_FULL_ERRNOS:
                raise
            raise OSError(error.errno, full_disk_message(error, size, self.free_bytes(file))) from error

    @staticmethod
    def _write_rest(file: int, rest: memoryview, position: int) -> None:
        """Write on after a short write; where there is no room, the next call says so."""
        while rest:
            written = os.pwrite(file, rest, position)
            if written == 0:
                raise OSError(errno.EIO, "the system wrote nothing")
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
        """See `FileOps.force`. On macOS fsync leaves the data in the drive's cache; F_FULLFSYNC does not (fsync(2) there)."""
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
    """Files that are thrown away in the end (a `FileOps`): nothing waits for the disk.

    What was written survives the death of the process, but no loss of power.
    """

    def reserve(self, file: int, position: int, size: int) -> None:
        """No room is kept, since that is done for forces, which are quicker where a file does not grow."""

    def force(self, file: int) -> None:
        """The system puts the file on the disk when it likes."""

    def sync_directory(self, path: Path) -> None:
        """The system puts the names on the disk when it likes."""
