"""The mark before which nothing is needed: it never goes back, and survives in any of the directories. Ids (tests/ids.md): J."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spark_producer.broker.storage.tiered.journal import JournalDamaged, LastMark, Mark
from tests.support.simulated_disk import SimulatedDisk

LEDGERS = [Path("/ledgers/one"), Path("/ledgers/two")]


class Recording(SimulatedDisk):
    """Keeps what was written to each file as a whole."""

    def __init__(self) -> None:
        super().__init__()
        self.replaced: list[bytes] = []

    def replace_file(self, path: Path, data: bytes, *, sync: bool) -> None:
        assert sync
        super().replace_file(path, data, sync=sync)
        self.replaced.append(data)


def ledgers(disk: SimulatedDisk) -> SimulatedDisk:
    for directory in LEDGERS:
        disk.make_directory(directory)
    return disk


@pytest.mark.covers("J6")
def test_the_mark_is_in_every_directory_and_never_goes_back() -> None:
    disk = ledgers(SimulatedDisk())
    mark = LastMark(LEDGERS, disk)
    assert mark.latest is None
    assert mark.advance(Mark(2, 512))
    assert not mark.advance(Mark(1, 4096))
    assert not mark.advance(Mark(2, 512))
    assert mark.advance(Mark(2, 1024))
    assert mark.latest == Mark(2, 1024)
    for directory in LEDGERS:
        assert LastMark([directory], disk.crash(0)).latest == Mark(2, 1024)


@pytest.mark.covers("J6")
def test_concurrent_checkpoints_leave_the_largest_mark_and_write_none_after_a_larger_one() -> None:
    disk = Recording()
    ledgers(disk)
    disk.script.delay("write", 0.0005)  # so that the others have their turn
    mark = LastMark(LEDGERS, disk)
    marks = [Mark(file_id, position) for file_id in range(1, 9) for position in range(0, 4096, 512)]
    random.Random(6).shuffle(marks)
    with ThreadPoolExecutor(8) as threads:
        kept = list(threads.map(mark.advance, marks))
    assert mark.latest == max(marks)
    assert disk.replaced == sorted(disk.replaced)
    assert len(disk.replaced) == len(LEDGERS) * sum(kept)


@pytest.mark.parametrize("call", ["open", "write", "force", "rename", "sync_directory"])
@pytest.mark.parametrize("after", [0, 1])
def test_a_mark_that_could_not_be_kept_everywhere_is_the_old_one_or_the_new_one(call: str, after: int) -> None:
    for seed in range(10):
        disk = ledgers(SimulatedDisk())
        mark = LastMark(LEDGERS, disk)
        mark.advance(Mark(1, 512))
        disk.script.fail(call, after=after)
        with pytest.raises(OSError, match="Input/output"):
            mark.advance(Mark(1, 1024))
        assert mark.latest == Mark(1, 512)
        assert LastMark(LEDGERS, disk.crash(seed)).latest in (Mark(1, 512), Mark(1, 1024))
        assert mark.advance(Mark(1, 1024))
        assert LastMark(LEDGERS, disk.crash(seed)).latest == Mark(1, 1024)


def test_a_directory_without_a_mark_or_with_an_older_or_damaged_one_does_not_matter_beside_a_good_one() -> None:
    disk = ledgers(SimulatedDisk())
    LastMark(LEDGERS[:1], disk).advance(Mark(3, 512))
    assert LastMark(LEDGERS, disk).latest == Mark(3, 512)
    LastMark(LEDGERS[1:], disk).advance(Mark(2, 512))
    assert LastMark(LEDGERS, disk).latest == Mark(3, 512)
    disk.put(LEDGERS[1] / "lastMark", b"")
    assert LastMark(LEDGERS, disk).latest == Mark(3, 512)


def test_a_mark_of_which_any_byte_changed_is_refused_and_not_taken_for_none() -> None:
    disk = ledgers(SimulatedDisk())
    path = LEDGERS[0] / "lastMark"
    LastMark(LEDGERS, disk).advance(Mark(3, 512))
    content = disk.content(path)
    for at in range(len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 0xFF
        disk.put(path, bytes(damaged))
        with pytest.raises(JournalDamaged, match="/ledgers/one/lastMark"):
            LastMark(LEDGERS[:1], disk)
