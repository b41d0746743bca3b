"""Both implementations of `FileOps` keep the same contract: that of the system, and the simulated disk of the tests."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from spark_producer.broker.storage.file_ops import MAX_BUFFERS, FileOps, SystemFiles
from tests.support.simulated_disk import SimulatedDisk
from tests.support.waiting import wait_until

Place: TypeAlias = tuple[FileOps, Path]


@pytest.fixture(params=["system", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An implementation of `FileOps`, and an empty directory for it."""
    files: FileOps = SystemFiles() if request.param == "system" else SimulatedDisk()
    directory = tmp_path / "made" / "below"
    files.make_directory(directory)
    files.make_directory(directory)
    return files, directory


def test_a_new_file_must_be_new_and_an_old_one_must_exist(place: Place) -> None:
    files, directory = place
    with pytest.raises(FileNotFoundError):
        files.open(directory / "a")
    files.close(files.open(directory / "a", create=True))
    with pytest.raises(FileExistsError):
        files.open(directory / "a", create=True)
    files.close(files.open(directory / "a"))
    with pytest.raises(FileNotFoundError):
        files.open(directory / "none" / "a", create=True)
    assert files.names(directory) == ["a"]


def test_buffers_are_written_one_after_another_wherever_they_are_to_stand(place: Place) -> None:
    files, directory = place
    file = files.open(directory / "a", create=True)
    files.write(file, [b"abc", bytearray(b"de"), memoryview(b"xfgx")[1:3], b""], 4)
    files.write(file, [], 100)
    assert files.size(file) == 11
    assert files.read(file, 100, 0) == b"\0\0\0\0abcdefg"
    assert files.read(file, 3, 5) == b"bcd"
    assert files.read(file, 3, 11) == b""
    files.write(file, [b"XY"], 5)
    view = bytearray(20)
    assert files.read_into(file, memoryview(view)[2:6], 4) == 4
    assert view == b"\0\0aXYd" + bytes(14)
    assert files.read_into(file, memoryview(view), 8) == 3
    files.close(file)
    assert files.read_file(directory / "a") == b"\0\0\0\0aXYdefg"


@pytest.mark.parametrize("count", [MAX_BUFFERS - 1, MAX_BUFFERS, MAX_BUFFERS + 1, 3 * MAX_BUFFERS + 7])
def test_more_buffers_are_written_than_one_call_takes(place: Place, count: int) -> None:
    files, directory = place
    file = files.open(directory / "a", create=True)
    buffers = [b"%d," % number for number in range(count)]
    files.write(file, buffers, 10)
    assert files.read(file, 10**6, 10) == b"".join(buffers)
    files.close(file)


def test_space_is_reserved_as_zeros_and_cut_off_again(place: Place) -> None:
    files, directory = place
    file = files.open(directory / "a", create=True)
    files.write(file, [b"abc"], 0)
    files.reserve(file, 0, 10_000)
    assert files.read(file, 10**6, 0) == b"abc" + bytes(9997)
    files.force(file)
    files.truncate(file, 2)
    files.truncate(file, 4)
    assert files.read(file, 10, 0) == b"ab\0\0"
    files.close(file)


def test_names_change(place: Place) -> None:
    files, directory = place
    for name in ("b", "a"):
        files.replace_file(directory / name, name.encode(), sync=False)
    files.make_directory(directory / "c")
    assert files.names(directory) == ["a", "b", "c"]
    files.rename(directory / "a", directory / "b")
    files.sync_directory(directory)
    assert files.read_file(directory / "b") == b"a"
    with pytest.raises(FileNotFoundError):
        files.rename(directory / "a", directory / "b")
    files.unlink(directory / "b")
    with pytest.raises(FileNotFoundError):
        files.unlink(directory / "b")
    with pytest.raises(FileNotFoundError):
        files.read_file(directory / "b")
    with pytest.raises(FileNotFoundError):
        files.names(directory / "d")
    assert files.names(directory) == ["c"]


@pytest.mark.parametrize("sync", [True, False])
def test_a_file_is_replaced_as_a_whole(place: Place, sync: bool) -> None:
    files, directory = place
    files.replace_file(directory / "a", b"longer", sync=sync)
    files.replace_file(directory / "a.new", b"left over", sync=sync)
    files.replace_file(directory / "a", b"short", sync=sync)
    assert files.read_file(directory / "a") == b"short"
    assert files.names(directory) == ["a"]


def test_a_closed_file_is_closed(place: Place) -> None:
    files, directory = place
    file = files.open(directory / "a", create=True)
    files.close(file)
    calls: list[Callable[[], object]] = [
        lambda: files.close(file), lambda: files.size(file), lambda: files.force(file), lambda: files.read(file, 1, 0),
        lambda: files.write(file, [b"a"], 0),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(OSError, match=rf"Errno {errno.EBADF}"):
            call()


def test_a_removed_file_is_readable_until_it_is_closed(place: Place) -> None:
    files, directory = place
    file = files.open(directory / "a", create=True)
    files.write(file, [b"abc"], 0)
    files.unlink(directory / "a")
    files.replace_file(directory / "a", b"other", sync=True)
    assert files.read(file, 3, 0) == b"abc"
    files.close(file)


def test_forced_pages_leave_the_cache_and_a_read_brings_them_back(place: Place) -> None:
    files, directory = place
    file = files.open(directory / "a", create=True)
    files.write(file, [bytes(64 * 1024)], 0)
    knows = files.is_cached(file, 0, 64 * 1024) is not None
    assert knows or sys.platform != "linux"
    files.force(file)

    def dropped() -> bool:
        files.drop_pages(file, 0, 64 * 1024)
        return not any(files.is_cached(file, at, 4096) for at in range(0, 64 * 1024, 4096))

    if not (isinstance(files, SystemFiles) and is_in_memory(directory)):
        # posix_fadvise is advice: a page that another processor holds in its list of new pages stays until the next call
        wait_until(dropped, "no page of the file to be cached")
    assert len(files.read(file, 64 * 1024, 0)) == 64 * 1024
    assert files.is_cached(file, 0, 64 * 1024) is (True if knows else None)
    files.close(file)


def test_random_calls_leave_the_same_bytes_in_both_implementations(tmp_path: Path) -> None:
    rng = random.Random(1)
    doors: list[FileOps] = [SystemFiles(), SimulatedDisk()]
    for files in doors:
        files.make_directory(tmp_path)
    open_files = [files.open(tmp_path / "a", create=True) for files in doors]
    for _ in range(500):
        at, size = rng.randrange(30_000), rng.randrange(9000)
        data, kind = rng.randbytes(size), rng.choice(("write", "write", "read", "truncate", "reserve", "force"))
        found = []
        for files, file in zip(doors, open_files, strict=True):
            if kind == "write":
                files.write(file, [data[:10], data[10:]], at)
            elif kind == "truncate":
                files.truncate(file, at)
            elif kind == "reserve":
                files.reserve(file, at, size + 1)
            elif kind == "force":
                files.force(file)
            found.append((files.size(file), files.read(file, size, at)))
        assert found[0] == found[1]
    for files, file in zip(doors, open_files, strict=True):
        files.close(file)


def test_files_and_directories_are_for_their_user_only(tmp_path: Path) -> None:
    files = SystemFiles()
    old = os.umask(0)
    try:
        files.make_directory(tmp_path / "a" / "b")
        files.close(files.open(tmp_path / "a" / "b" / "c", create=True))
        files.replace_file(tmp_path / "a" / "d", b"", sync=False)
    finally:
        os.umask(old)
    modes = [stat.S_IMODE((tmp_path / path).stat().st_mode) for path in ("a", "a/b", "a/b/c", "a/d")]
    assert modes == [0o700, 0o700, 0o600, 0o600]


@pytest.mark.parametrize("most", [1, 7, 4096])
def test_what_the_system_does_in_parts_is_done_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """A system that writes and reads `most` bytes at a time."""
    pwritev, pwrite, pread, preadv = os.pwritev, os.pwrite, os.pread, os.preadv
    monkeypatch.setattr(os, "pwritev", lambda file, buffers, at: pwritev(file, [b"".join(buffers)[:most]], at))
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: pwrite(file, data[:most], at))
    monkeypatch.setattr(os, "pread", lambda file, size, at: pread(file, min(size, most), at))
    monkeypatch.setattr(os, "preadv", lambda file, views, at: preadv(file, [views[0][:most]], at))
    files = SystemFiles()
    file = files.open(tmp_path / "a", create=True)
    buffers = [b"%d," % number for number in range(MAX_BUFFERS + 5)]
    whole = b"".join(buffers)
    files.write(file, buffers, 3)
    assert files.read(file, len(whole), 3) == whole
    assert files.read(file, len(whole) + 100, 3) == whole
    view = bytearray(len(whole) + 9)
    assert files.read_into(file, memoryview(view), 3) == len(whole)
    assert view == whole + bytes(9)
    files.close(file)


def test_a_system_that_writes_nothing_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pwritev", lambda *_: 0)
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    files = SystemFiles()
    file = files.open(tmp_path / "a", create=True)
    with pytest.raises(OSError, match="nothing"):
        files.write(file, [b"abc"], 0)
    files.close(file)


@pytest.mark.parametrize(
    ("method", "call", "arguments"), [("reserve", "posix_fallocate", (0, 1)), ("drop_pages", "posix_fadvise", (0, 1))]
)
def test_a_missing_call_is_no_error_and_a_full_disk_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, call: str, arguments: tuple[int, int]
) -> None:
    files = SystemFiles()
    file = files.open(tmp_path / "a", create=True)
    for code in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
        monkeypatch.setattr(os, call, refusing(code), raising=False)
        getattr(files, method)(file, *arguments)
    monkeypatch.setattr(os, call, refusing(errno.ENOSPC), raising=False)
    with pytest.raises(OSError, match="No space"):
        getattr(files, method)(file, *arguments)
    monkeypatch.delattr(os, call)
    getattr(files, method)(file, *arguments)
    files.close(file)


def test_where_the_page_cache_is_unknown_the_result_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = SystemFiles()
    file = files.open(tmp_path / "a", create=True)
    monkeypatch.setattr(os, "preadv", refusing(errno.EOPNOTSUPP))
    assert files.is_cached(file, 0, 1) is None
    monkeypatch.delattr(os, "RWF_NOWAIT", raising=False)
    assert files.is_cached(file, 0, 1) is None
    files.close(file)


def test_macos_forces_through_the_cache_of_the_drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", lambda file, command: asked.append((file, command)))
    files = SystemFiles()
    file = files.open(tmp_path / "a", create=True)
    files.force(file)
    files.close(file)
    assert asked == [(file, 51)]


def is_in_memory(directory: Path) -> bool:
    """Return whether the file system keeps its files in the page cache alone."""
    named = subprocess.run(
        ["stat", "-f", "-c", "%T", str(directory)], capture_output=True, text=True, timeout=60, check=False
    )
    return named.stdout.strip() in ("tmpfs", "ramfs")


def refusing(code: int) -> Callable[..., None]:
    def refused(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    return refused
