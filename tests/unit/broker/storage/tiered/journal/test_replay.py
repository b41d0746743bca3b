"""Replay after a crash: journals that were cut, damaged, or have lost a file. Ids (tests/ids.md): J."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

import pytest

from spark_producer.broker.storage.file_ops import SystemFiles
from spark_producer.broker.storage.tiered.journal import (
    Journal,
    JournalDamaged,
    JournalMissing,
    JournalRecord,
    JournalSettings,
    LastMark,
    Mark,
    replay,
)
from spark_producer.broker.storage.tiered.journal.reader import WINDOW
from spark_producer.broker.storage.tiered.journal.records import CRC, FILE_HEADER, HEADER_SIZE
from spark_producer.common.error_codes import Code
from tests.support.sampling import Sample
from tests.support.simulated_disk import SimulatedDisk
from tests.unit.broker.storage.tiered.journal.journals import (
    DEADLINE,
    DIRECTORY,
    ON_DEMAND,
    append,
    expected,
    new_disk,
    opened,
    payload,
    record,
    replayed,
    write_group,
)

GROUPS = [range(1), range(1, 4), range(4, 12), range(12, 13), range(13, 20)]
"""Records of the journal that is cut, group by group: 20 records in 5 groups, less than 4 KiB."""
BLOCK = 512


@functools.cache
def written(file_id: int) -> bytes:
    """A journal's only file, as a process left it that died: all groups are forced, there is no end, and space is reserved."""
    disk = new_disk()
    if file_id == 2:
        disk.put(DIRECTORY / "1.txn", b"")
        replayed(disk)
    with opened(disk, ON_DEMAND) as (journal, _):
        for group in GROUPS:
            write_group(journal, group)
            assert journal.force_now(DEADLINE)
        return disk.content(DIRECTORY / f"{file_id:x}.txn")


def disk_with(*files: bytes) -> SimulatedDisk:
    """Put these files as after a loss of power: a file may be shorter than it was, which the death of a process does not do."""
    disk = new_disk()
    disk.boot += 1
    for file_id, content in enumerate(files, 1):
        disk.put(DIRECTORY / f"{file_id:x}.txn", content)
    return disk


def end_of_records() -> int:
    """Return the end of the last group, and of the marker after it."""
    return len(written(1).rstrip(b"\0")) // BLOCK * BLOCK + BLOCK


def whole_records(content: bytes) -> int:
    """Return the number of records that are in `content` as they were written, from the first one on."""
    count = position = 0
    whole = written(1)
    while True:
        position = whole.find(b"%08d" % count, position)
        end = position + len(record(count).batch)
        if position < 0 or content[:end] != whole[:end]:
            return count
        count += 1


@pytest.mark.covers("J7")
@pytest.mark.slow
@pytest.mark.parametrize("tail", ["truncate", "zero", "stale"])
def test_a_journal_cut_at_any_byte_gives_every_record_before_the_cut_and_nothing_else(tail: str) -> None:
    """Stale bytes are those of another file of the journal, with the same records at the same places."""
    whole = written(1)
    stale = written(2)
    assert len(whole) == len(stale) == ON_DEMAND.preallocated
    rests = {"truncate": b"", "zero": bytes(len(whole)), "stale": stale}
    for cut in range(end_of_records() + 1):
        content = whole[:cut] + rests[tail][cut:]
        disk = disk_with(content)
        found = replayed(disk)
        assert found == expected(range(whole_records(content))), f"cut at byte {cut}"
        assert replayed(disk.crash(cut)) == found, f"cut at byte {cut}, the second time"
    assert found == expected(range(20))


@pytest.mark.covers("J7")
def test_records_that_were_cut_off_do_not_come_back_when_the_journal_goes_on() -> None:
    for cut in range(BLOCK, end_of_records(), 37):
        disk = disk_with(written(1)[:cut] + bytes(1000))
        before = replayed(disk)
        with opened(disk, ON_DEMAND) as (journal, _):
            write_group(journal, [77, 78])
        assert replayed(disk.crash(cut)) == before + expected([77, 78])


@pytest.mark.covers("J7")
def test_a_file_whose_cut_a_crash_has_undone_is_ended_again() -> None:
    """The marker that ends it may be on the disk while the truncation after it is not."""
    disk = disk_with(written(1))
    found = replayed(disk)
    ended = disk.content(DIRECTORY / "1.txn")
    undone = disk_with(ended + bytes(len(written(1)) - len(ended)))
    assert replayed(undone) == found
    assert undone.durable(DIRECTORY / "1.txn") == ended
    with opened(undone, ON_DEMAND) as (journal, _):
        write_group(journal, [77])
    assert replayed(undone) == found + expected([77])


def replayed_or_refused(disk: SimulatedDisk) -> list[tuple[int, bytes]] | None:
    try:
        return replayed(disk)
    except JournalDamaged:
        return None


@pytest.mark.covers("J7")
def test_a_byte_that_changed_is_never_taken_for_a_record_and_not_for_the_end_if_it_was_forced(
    sample: Sample,
) -> None:
    """Holds for the last group too: the marker after it says that it was forced."""
    whole = written(1)
    note = end_of_records() - BLOCK
    for at in sample(range(end_of_records())):
        content = bytearray(whole)
        content[at] ^= 0xFF
        found = replayed_or_refused(disk_with(bytes(content)))
        if FILE_HEADER.size + CRC.size <= at < BLOCK:  # the padding of the first block has no meaning
            assert found == expected(range(20)), f"byte {at}"
        elif at < note:
            assert found is None, f"byte {at}"
        else:
            assert found == expected(range(20)), f"byte {at}"


def test_a_mark_leaves_out_what_is_before_it() -> None:
    disk = new_disk()
    marks = []
    with opened(disk, ON_DEMAND) as (journal, _):
        for group in GROUPS:
            marks.append(journal.mark())
            write_group(journal, group)
            assert journal.force_now(DEADLINE)
        marks.append(journal.mark())
    firsts = [0, 1, 4, 12, 13, 20]
    assert [replayed(disk, mark) for mark in marks] == [expected(range(first, 20)) for first in firsts]


def test_records_larger_than_what_is_read_at_a_time_are_read() -> None:
    disk = new_disk()
    sizes = [WINDOW - 17, WINDOW, 3 * WINDOW + 5, 1]
    with opened(disk, ON_DEMAND) as (journal, _):
        for number, size in enumerate(sizes):
            append(journal, [number], size)
    assert replayed(disk) == [expected([number], size)[0] for number, size in enumerate(sizes)]


def three_files() -> SimulatedDisk:
    disk = new_disk()
    with opened(disk, replace(ON_DEMAND, max_file_bytes=1)) as (journal, _):
        for number in range(3):
            write_group(journal, [number])
    return disk


@pytest.mark.covers("J9")
def test_a_file_that_the_mark_needs_must_be_there() -> None:
    disk = three_files()
    disk.unlink(DIRECTORY / "2.txn")
    with pytest.raises(JournalMissing, match=r"/journal/2\.txn is missing.*restore a backup.*--skip-damage") as raised:
        replayed(disk, Mark(2, BLOCK))
    assert raised.value.code is Code.KAFKA_STORAGE_ERROR
    with pytest.raises(JournalMissing, match=r"2\.txn"):
        replayed(disk, Mark(1, BLOCK))
    with pytest.raises(JournalMissing, match=r"2\.txn"):
        replayed(disk)
    assert replayed(disk, Mark(3, BLOCK)) == expected([2])


@pytest.mark.covers("J9")
def test_a_mark_without_any_file_is_refused() -> None:
    with pytest.raises(JournalMissing, match=r"1\.txn"):
        replayed(new_disk(), Mark(1, BLOCK))


@pytest.mark.covers("J9")
def test_files_without_their_mark_must_begin_at_the_first_one() -> None:
    disk = three_files()
    assert replayed(disk) == expected(range(3))
    disk.unlink(DIRECTORY / "1.txn")
    with pytest.raises(JournalMissing, match=r"1\.txn"):
        replayed(disk)


def test_an_empty_directory_has_no_records() -> None:
    assert replayed(new_disk()) == []


@pytest.mark.covers("J7")
def test_a_file_that_had_been_ended_must_be_whole(sample: Sample) -> None:
    whole = three_files().content(DIRECTORY / "2.txn")
    for cut in sample(range(len(whole))):
        disk = three_files()
        disk.put(DIRECTORY / "2.txn", whole[:cut])
        with pytest.raises(JournalDamaged, match=r"2\.txn"):
            replayed(disk)


@pytest.mark.covers("J7")
def test_the_last_file_may_be_cut_while_it_is_made(sample: Sample) -> None:
    whole = three_files().content(DIRECTORY / "3.txn")
    for cut in sample(range(BLOCK)):
        disk = three_files()
        disk.put(DIRECTORY / "3.txn", whole[:cut] + bytes(2000))
        disk.boot += 1
        assert replayed(disk) == expected(range(2))
        with opened(disk, ON_DEMAND) as (journal, _):
            write_group(journal, [5])
        assert disk.names(DIRECTORY) == ["1.txn", "2.txn", "3.txn", "4.txn"]
        assert replayed(disk.crash(cut)) == expected([0, 1, 5])


def test_a_last_file_that_is_shorter_than_its_mark_has_lost_what_was_forced() -> None:
    disk = disk_with(written(1)[: 2 * BLOCK])
    with pytest.raises(JournalDamaged, match="has 1024 bytes, but 1536 were forced") as raised:
        replayed(disk, Mark(1, 3 * BLOCK))
    assert raised.value.code is Code.KAFKA_STORAGE_ERROR


def test_a_file_that_a_mark_points_to_has_lost_what_was_forced_if_its_header_is_damaged() -> None:
    for at in (0, 9, 15, 23):
        content = bytearray(written(1))
        content[at] ^= 1
        with pytest.raises(JournalDamaged, match="does not begin with the header of a journal file"):
            replayed(disk_with(bytes(content)), Mark(1, end_of_records() - BLOCK))


def test_a_journal_of_the_system_is_read_again_after_its_end_and_without_one(tmp_path: Path) -> None:
    files = SystemFiles()
    safe: list[JournalRecord] = []
    for run in range(3):
        assert [batch for _, batch in replay(tmp_path, files, None)] == [payload(number) for number in range(5 * run)]
        journal = Journal(
            tmp_path, files, JournalSettings(), sync=True, written=lambda *_: None, forced=safe.extend, failed=print
        )
        append(journal, range(5 * run, 5 * run + 5))
        journal.close(DEADLINE)
        path = tmp_path / f"{run + 1}.txn"
        if run == 1:  # as a death would leave it: without the marker at the end, with reserved space after it
            content = path.read_bytes()[:-HEADER_SIZE]
            path.write_bytes(content.ljust(JournalSettings().preallocated, b"\0"))
    assert [each.base_offset for each in safe] == list(range(15))
    assert [path.stat().st_size % 4096 for path in sorted(tmp_path.iterdir())] == [HEADER_SIZE] * 3


def test_other_names_in_the_directory_do_not_matter() -> None:
    disk = disk_with(written(1))
    for name in ("LOCK", "1.txn.old", "00.TXN", "x.txn", ".txn"):
        disk.put(DIRECTORY / name, b"?")
    assert len(replayed(disk)) == 20


def test_files_are_closed_also_by_a_reader_that_stops() -> None:
    disk = disk_with(written(1))
    records = replay(DIRECTORY, disk, None)
    next(records)
    records.close()
    with pytest.raises(JournalDamaged):
        replayed(disk, Mark(1, 10**6))
    replayed(disk)
    assert disk.script.count("open") == disk.script.count("close") == 3
    assert LastMark([DIRECTORY], disk).latest is None
