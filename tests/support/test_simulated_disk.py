"""The simulated disk keeps what was forced in every crash, and in some of them loses, keeps or tears everything else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.simulated_disk import PAGE, SimulatedDisk

DIRECTORY = Path("/data")
FILE = DIRECTORY / "a"
SEEDS = range(200)
OLD, NEW = b"o" * PAGE, b"n" * PAGE


def new_disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(DIRECTORY)
    return disk


def disk_with(content: bytes) -> tuple[SimulatedDisk, int]:
    """A disk with one file that is on it for sure."""
    disk = new_disk()
    disk.put(FILE, content)
    return disk, disk.open(FILE)


def contents(disk: SimulatedDisk) -> list[bytes]:
    """The file after each of many crashes."""
    return [disk.crash(seed).content(FILE) for seed in SEEDS]


def test_what_was_forced_survives_every_crash() -> None:
    disk, file = disk_with(b"")
    disk.write(file, [b"abc" * 5000], 10)
    disk.force(file)
    assert set(contents(disk)) == {bytes(10) + b"abc" * 5000}
    assert disk.durable(FILE) == bytes(10) + b"abc" * 5000


def test_pages_that_were_not_forced_are_lost_or_kept_each_by_itself_or_torn() -> None:
    disk, file = disk_with(OLD * 3)
    disk.write(file, [NEW * 2], PAGE)
    found = contents(disk)
    assert {content[:PAGE] for content in found} == {OLD}
    later = {(content[PAGE : 2 * PAGE], content[2 * PAGE :]) for content in found}
    assert {(OLD, OLD), (OLD, NEW), (NEW, OLD), (NEW, NEW)} <= later
    torn = {page for pair in later for page in pair} - {OLD, NEW}
    assert any(page.startswith(b"n") and page.endswith(b"o") and b"on" not in page for page in torn)
    assert any(b"on" in page for page in torn)


def test_a_crash_is_the_same_by_its_seed_and_changes_nothing_for_who_goes_on() -> None:
    disk, file = disk_with(OLD)
    disk.write(file, [NEW * 5], 100)
    assert contents(disk) == contents(disk)
    after = disk.crash(1)
    disk.write(file, [b"later"], 0)
    assert not after.content(FILE).startswith(b"later")
    with pytest.raises(OSError, match="number"):
        after.write(file, [b"later"], 0)


def test_a_file_that_grew_may_have_its_old_size() -> None:
    disk, file = disk_with(OLD)
    disk.write(file, [NEW], PAGE)
    assert {len(content) for content in contents(disk)} == {PAGE, 2 * PAGE}
    disk, file = disk_with(OLD)
    disk.reserve(file, 0, 3 * PAGE)
    assert set(contents(disk)) == {OLD, OLD + bytes(2 * PAGE)}
    disk.force(file)
    assert set(contents(disk)) == {OLD + bytes(2 * PAGE)}


def test_what_was_cut_off_may_come_back_until_it_is_forced() -> None:
    disk, file = disk_with(OLD * 2)
    disk.truncate(file, 10)
    disk.truncate(file, 2 * PAGE)
    assert any(content.endswith(b"o") for content in contents(disk))
    disk.force(file)
    assert set(contents(disk)) == {b"o" * 10 + bytes(2 * PAGE - 10)}


def test_after_a_force_that_failed_another_one_does_not_bring_back_what_was_lost() -> None:
    disk, file = disk_with(OLD)
    disk.write(file, [NEW], 0)
    disk.script.fail("force")
    with pytest.raises(OSError, match="Input/output"):
        disk.force(file)
    disk.force(file)
    assert disk.content(FILE) == NEW
    assert set(contents(disk)) == {OLD}


def test_names_are_kept_for_sure_only_when_their_directory_was_synced() -> None:
    disk = new_disk()
    disk.close(disk.open(FILE, create=True))
    assert {tuple(disk.crash(seed).names(DIRECTORY)) for seed in SEEDS} == {(), ("a",)}
    disk.sync_directory(DIRECTORY)
    disk.rename(FILE, DIRECTORY / "b")
    assert {tuple(disk.crash(seed).names(DIRECTORY)) for seed in SEEDS} == {("a",), ("b",)}
    disk.sync_directory(DIRECTORY)
    disk.unlink(DIRECTORY / "b")
    assert {tuple(disk.crash(seed).names(DIRECTORY)) for seed in SEEDS} == {(), ("b",)}
    disk.sync_directory(DIRECTORY)
    assert {tuple(disk.crash(seed).names(DIRECTORY)) for seed in SEEDS} == {()}


def test_a_file_that_is_replaced_is_the_old_one_or_the_new_one_and_with_sync_the_new_one() -> None:
    disk, _ = disk_with(b"old")
    disk.replace_file(FILE, b"new", sync=False)
    assert {b"old", b"new", b""} <= set(contents(disk)), "a rename may come to the disk before what it names"
    disk.replace_file(FILE, b"newer", sync=True)
    assert set(contents(disk)) == {b"newer"}


@pytest.mark.parametrize("failing", ["open", "write", "force", "close", "rename", "sync_directory"])
def test_a_replacement_with_sync_that_fails_leaves_the_old_file_or_the_new_one(failing: str) -> None:
    disk, _ = disk_with(b"old")
    disk.script.fail(failing)
    with pytest.raises(OSError, match="Input/output"):
        disk.replace_file(FILE, b"new", sync=True)
    assert set(contents(disk)) <= {b"old", b"new"}


def test_calls_fail_by_name_and_file_and_number() -> None:
    disk, file = disk_with(b"")
    disk.script.fail("write", "b*")
    disk.script.fail("write", "a", times=2, after=1, kept=2)
    outcomes = [outcome(lambda: disk.write(file, [b"abcd"], 0)) for _ in range(5)]
    assert outcomes == ["", "OSError", "OSError", "", ""]
    disk.script.fail("write", times=None)
    assert [outcome(lambda: disk.write(file, [b"xyz"], 8)) for _ in range(9)] == ["OSError"] * 9
    disk.script.heal()
    assert disk.content(FILE) == b"abcd"
    assert disk.script.count("write", "a") == 14


def test_a_write_that_fails_may_have_begun() -> None:
    disk, file = disk_with(b"----")
    disk.script.fail("write", kept=2)
    assert outcome(lambda: disk.write(file, [b"ab", b"cd"], 0)) == "OSError"
    assert disk.content(FILE) == b"ab--"


def test_a_disk_is_full_at_its_capacity() -> None:
    disk = SimulatedDisk(capacity=10)
    disk.make_directory(DIRECTORY)
    file, other = disk.open(FILE, create=True), disk.open(DIRECTORY / "b", create=True)
    disk.write(file, [b"123456"], 0)
    assert outcome(lambda: disk.write(other, [b"12345"], 0)) == "OSError"
    assert outcome(lambda: disk.reserve(other, 0, 5)) == "OSError"
    disk.write(other, [b"1234"], 0)
    disk.write(file, [b"abcdef"], 0)
    disk.unlink(DIRECTORY / "b")
    disk.write(file, [b"7890"], 6)


def test_calls_wait_until_they_are_released() -> None:
    disk, file = disk_with(b"")
    done: list[str] = []

    def force() -> None:
        disk.force(file)
        done.append("forced")

    thread = threading.Thread(target=force)
    with disk.script.blocked("force", "a"):
        thread.start()
        disk.script.wait_for("force")
        disk.write(file, [b"others go on"], 0)
        assert done == []
    thread.join(30)
    assert done == ["forced"]
    assert disk.durable(FILE) == b"others go on"


def test_calls_take_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("tests.support.disk_script.time.sleep", slept.append)
    disk, file = disk_with(b"")
    disk.script.delay("force", 0.005)
    disk.force(file)
    disk.write(file, [b"a"], 0)
    assert slept == [0.005]


def outcome(call: Callable[[], object]) -> str:
    try:
        call()
    except OSError as error:
        return type(error).__name__
    return ""
