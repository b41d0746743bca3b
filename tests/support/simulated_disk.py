"""A disk in memory, as a `FileOps`: it loses and tears what was not forced, fails, waits, and reports which calls came."""

from __future__ import annotations

import errno
import random
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from spark_producer.broker.storage.file_ops import Buffer
from tests.support.disk_script import Call, DiskScript

PAGE = 4096
SECTOR = 512


class Inode:
    """A file's bytes as its readers see them, those that are on the disk for sure, and which pages differ between them."""

    def __init__(self, data: bytes = b"") -> None:
        self.current, self.durable = bytearray(data), bytearray(data)
        self.dirty: set[int] = set()
        self.cached: set[int] = set()

    def write(self, data: Buffer, position: int) -> None:
        if not len(data):  # that makes no file larger
            return
        self.grow(position)
        self.current[position : position + len(data)] = data
        self.dirty |= pages(position, len(data))
        self.cached |= pages(position, len(data))

    def grow(self, size: int) -> None:
        if size > len(self.current):
            self.current.extend(bytes(size - len(self.current)))

    def truncate(self, size: int) -> None:
        """Truncated bytes stay on the disk until the next `force`, so the pages there differ from it."""
        self.dirty |= pages(size, max(len(self.current), len(self.durable)) - size)
        del self.current[size:]
        self.grow(size)

    def force(self) -> None:
        """Only dirty pages go to the disk: what a force that failed has dropped stays lost."""
        resize(self.durable, len(self.current))
        for page in self.dirty:
            self.durable[page * PAGE : (page + 1) * PAGE] = self.current[page * PAGE : (page + 1) * PAGE]
        self.dirty.clear()

    def after_crash(self, rng: random.Random) -> Inode:
        """The file as the power may leave it: of each dirty page the old bytes, the new ones, or some of both."""
        data = bytearray(self.durable)
        resize(data, max(len(data), len(self.current)))
        for page in sorted(self.dirty):
            start, end = page * PAGE, min((page + 1) * PAGE, len(data))
            new = bytes(self.current[start:end]).ljust(end - start, b"\0")
            fate = rng.randrange(4)
            if fate == 1:
                data[start:end] = new
            elif fate == 2:  # torn at any byte
                cut = rng.randrange(end - start + 1)
                data[start : start + cut] = new[:cut]
            elif fate == 3:  # sectors in any order
                for at in range(0, end - start, SECTOR):
                    if rng.random() < 0.5:
                        data[start + at : min(start + at + SECTOR, end)] = new[at : at + SECTOR]
        resize(data, rng.choice((len(self.current), len(self.durable))))
        return Inode(bytes(data))


class Directory:
    """Names, those that are on the disk for sure, and the changes in between, in order."""

    def __init__(self) -> None:
        self.names: dict[str, Inode] = {}
        self.durable: dict[str, Inode] = {}
        self.changes: list[dict[str, Inode | None]] = []

    def change(self, change: dict[str, Inode | None]) -> None:
        """All of a change comes to the disk, or nothing."""
        self.changes.append(change)
        apply(self.names, change)

    def sync(self) -> None:
        self.durable = dict(self.names)
        self.changes.clear()


def apply(names: dict[str, Inode], change: dict[str, Inode | None]) -> None:
    for name, inode in change.items():
        if inode is None:
            names.pop(name, None)
        else:
            names[name] = inode


def pages(position: int, size: int) -> set[int]:
    return set(range(position // PAGE, -(-(position + size) // PAGE))) if size > 0 else set()


def resize(data: bytearray, size: int) -> None:
    del data[size:]
    data.extend(bytes(size - len(data)))


class OpenFile(NamedTuple):
    """The object of a file descriptor."""

    path: Path
    inode: Inode


class SimulatedDisk:
    """A `FileOps`. Directories are on the disk as soon as they are made; names in them, and what files hold, are not.

    `script` has the calls that came, and can make them fail, take time, or wait. Any thread may call.
    """

    def __init__(self, *, capacity: int | None = None) -> None:
        self.script = DiskScript()
        self.capacity = capacity
        self.boot = 1
        self.devices: dict[Path, int] = {}
        self._lock = threading.RLock()
        self._directories: dict[Path, Directory] = {}
        self._open: dict[int, OpenFile] = {}
        self._next = 3

    def crash(self, seed: int) -> SimulatedDisk:
        """The disk as another life finds it after a loss of power: what was forced, and by `seed` some of the rest.

        The old disk can still be used, which changes nothing in the new one.
        """
        rng = random.Random(seed)
        after = SimulatedDisk(capacity=self.capacity)
        after.boot = self.boot + 1
        with self._lock:
            for path, directory in sorted(self._directories.items()):
                names = dict(directory.durable)
                for change in directory.changes:
                    if rng.random() < 0.5:
                        apply(names, change)
                left = Directory()
                left.names = {name: inode.after_crash(rng) for name, inode in sorted(names.items())}
                left.sync()
                after._directories[path] = left
        return after

    def durable(self, path: Path) -> bytes:
        """The bytes of a file that are on the disk for sure; none if its name is not."""
        with self._lock:
            inode = self._directories[path.parent].durable.get(path.name)
            return bytes(inode.durable) if inode is not None else b""

    def put(self, path: Path, data: bytes) -> None:
        """Put a file on the disk, without a call."""
        with self._lock:
            directory = self._directory(path.parent)
            directory.names[path.name] = directory.durable[path.name] = Inode(data)

    def content(self, path: Path) -> bytes:
        """The bytes of a file as its readers see them, without a call."""
        with self._lock:
            return bytes(self._named(self._directory(path.parent), path).current)

    def open(self, path: Path, *, create: bool = False) -> int:
        self._called("open", path)
        with self._lock:
            directory = self._directory(path.parent)
            if create == (path.name in directory.names):
                raise OSError(errno.EEXIST if create else errno.ENOENT, "open", str(path))
            if create:
                directory.change({path.name: Inode()})
            self._next += 1
            self._open[self._next] = OpenFile(path, directory.names[path.name])
            return self._next

    def close(self, file: int) -> None:
        self._called("close", self._file(file).path)
        with self._lock:
            del self._open[file]

    def size(self, file: int) -> int:
        with self._lock:
            return len(self._file(file).inode.current)

    def write(self, file: int, buffers: Sequence[Buffer], position: int) -> None:
        path, inode = self._file(file)
        data = b"".join(buffers)
        try:
            self._called("write", path, position, len(data))
        except OSError:
            kept = self.script.kept_bytes
            with self._lock:
                inode.write(data[:kept], position)
            raise
        with self._lock:
            self._check_capacity(inode, position + len(data))
            inode.write(data, position)

    def read(self, file: int, size: int, position: int) -> bytes:
        path, inode = self._file(file)
        self._called("read", path, position, size)
        with self._lock:
            found = bytes(inode.current[position : position + size])
            inode.cached |= pages(position, len(found))
            return found

    def read_into(self, file: int, view: memoryview, position: int) -> int:
        found = self.read(file, len(view), position)
        view[: len(found)] = found
        return len(found)

    def reserve(self, file: int, position: int, size: int) -> None:
        path, inode = self._file(file)
        self._called("reserve", path, position, size)
        with self._lock:
            self._check_capacity(inode, position + size)
            inode.grow(position + size)

    def force(self, file: int) -> None:
        path, inode = self._file(file)
        try:
            self._called("force", path)
        except OSError:
            with self._lock:
                inode.dirty.clear()  # Linux takes the pages for written, and reports nothing again
            raise
        with self._lock:
            inode.force()

    def drop_pages(self, file: int, position: int, size: int) -> None:
        path, inode = self._file(file)
        self._called("drop_pages", path, position, size)
        with self._lock:
            whole = set(range(-(-position // PAGE), (position + size) // PAGE))
            inode.cached -= whole - inode.dirty

    def is_cached(self, file: int, position: int, size: int) -> bool | None:
        path, inode = self._file(file)
        self._called("is_cached", path, position, size)
        with self._lock:
            return pages(position, min(size, len(inode.current) - position)) <= inode.cached

    def truncate(self, file: int, size: int) -> None:
        path, inode = self._file(file)
        self._called("truncate", path, size=size)
        with self._lock:
            inode.truncate(size)

    def rename(self, old: Path, new: Path) -> None:
        """Within one directory, as all renames of the engines are."""
        assert old.parent == new.parent, "a rename between directories may leave both names, or none"
        self._called("rename", new)
        with self._lock:
            directory = self._directory(old.parent)
            directory.change({old.name: None, new.name: self._named(directory, old)})

    def unlink(self, path: Path) -> None:
        self._called("unlink", path)
        with self._lock:
            directory = self._directory(path.parent)
            self._named(directory, path)
            directory.change({path.name: None})

    def names(self, directory: Path) -> list[str]:
        with self._lock:
            within = {path.name for path in self._directories if path.parent == directory and path != directory}
            return sorted({*self._directory(directory).names, *within})

    def device(self, directory: Path) -> int:
        """Return the device that `devices` names, else one of its own."""
        self._called("device", directory)
        with self._lock:
            return self.devices.setdefault(directory, -len(self.devices) - 1)

    def make_directory(self, path: Path) -> None:
        self._called("make_directory", path)
        with self._lock:
            for missing in (path, *path.parents):
                self._directories.setdefault(missing, Directory())

    def sync_directory(self, path: Path) -> None:
        self._called("sync_directory", path)
        with self._lock:
            self._directory(path).sync()

    def read_file(self, path: Path) -> bytes:
        self._called("read_file", path)
        with self._lock:
            return bytes(self._named(self._directory(path.parent), path).current)

    def replace_file(self, path: Path, data: bytes, *, sync: bool) -> None:
        """Write by the calls above, so that a script can fail each of them, and a crash can come between them."""
        fresh = path.with_name(f"{path.name}.new")
        if fresh.name in self.names(path.parent):
            self.unlink(fresh)
        file = self.open(fresh, create=True)
        try:
            self.write(file, [data], 0)
            if sync:
                self.force(file)
        finally:
            self.close(file)
        self.rename(fresh, path)
        if sync:
            self.sync_directory(path.parent)

    def free_bytes(self, file: int) -> int | None:
        """Return the free bytes."""
        if self.capacity is None:
            return None
        with self._lock:
            return max(0, self.capacity - self._used())

    def is_at(self, file: int, path: Path) -> bool:
        """Return whether the file is still at `path`."""
        with self._lock:
            directory = self._directories.get(path.parent)
            return directory is not None and directory.names.get(path.name) is self._file(file).inode

    def boot_id(self) -> bytes:
        """The number of losses of power before this."""
        return self.boot.to_bytes(16, "big")

    def _called(self, name: str, path: Path, position: int = 0, size: int = 0) -> None:
        self.script.meet(Call(name, path, position, size))

    def _file(self, file: int) -> OpenFile:
        with self._lock:
            if file not in self._open:
                raise OSError(errno.EBADF, "no open file has this number")
            return self._open[file]

    def _directory(self, path: Path) -> Directory:
        if path not in self._directories:
            raise OSError(errno.ENOENT, "no such directory", str(path))
        return self._directories[path]

    def _named(self, directory: Directory, path: Path) -> Inode:
        if path.name not in directory.names:
            raise OSError(errno.ENOENT, "no such file", str(path))
        return directory.names[path.name]

    def _used(self) -> int:
        inodes = {id(found): found for each in self._directories.values() for found in each.names.values()}
        return sum(len(found.current) for found in inodes.values())

    def _check_capacity(self, inode: Inode, size: int) -> None:
        if self.capacity is None:
            return
        growth = size - len(inode.current)
        if growth > 0 and self._used() + growth > self.capacity:
            raise OSError(errno.ENOSPC, "the simulated disk is full")
