"""Damage of a journal that no crash explains: it is refused and named, and nothing changed; or skipped if asked for."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from spark_producer.broker.storage.tiered.journal import JournalDamaged, JournalMissing, LastMark, Mark, replay
from spark_producer.record.checksum import crc32c
from tests.support.simulated_disk import SimulatedDisk
from tests.unit.broker.storage.tiered.journal.journals import (
    DEADLINE,
    DIRECTORY,
    ON_DEMAND,
    SMALL,
    append,
    expected,
    new_disk,
    opened,
    replayed,
    write_group,
)

NEVER_FORCED = replace(SMALL, unsynced_force_ms=3_600_000, preallocated=64 * 1024)
FIRST = DIRECTORY / "1.txn"
BLOCK = 512
_MARK = bytes.fromhex("00000000000000020000000000000200")
EARLIER_MARK = _MARK + crc32c(_MARK).to_bytes(4, "big")
"""The journal of versions that did not note the newest file."""


def unforced() -> SimulatedDisk:
    """Ten records, a group each, that were acknowledged and never forced, as a `kill -9` leaves them."""
    disk, after = new_disk(), new_disk()
    with opened(disk, NEVER_FORCED, sync=False) as (journal, _):
        append(journal, range(10))
        after.put(FIRST, disk.content(FIRST))
    return after


def flipped(disk: SimulatedDisk, at: int) -> SimulatedDisk:
    content = bytearray(disk.content(FIRST))
    content[at] ^= 1
    disk.put(FIRST, bytes(content))
    return disk


def replayed_after_damage(disk: SimulatedDisk, mark: Mark | None = None, newest: int = 0) -> list[tuple[int, bytes]]:
    return list(replay(DIRECTORY, disk, mark, newest=newest, skip_damage=True))


def test_a_flipped_bit_of_what_was_never_forced_is_refused_and_the_file_stays_as_it_is() -> None:
    """Damage of the last record counts too. Only the padding of a block may change, since no record is lost by that."""
    whole = unforced().content(FIRST)
    for at in range(BLOCK, 11 * BLOCK, 7):
        disk = new_disk()
        disk.put(FIRST, whole)
        before = flipped(disk, at).content(FIRST)
        if at >= 10 * BLOCK + 56:
            assert replayed(disk) == expected(range(10)), f"byte {at}"
        else:
            with pytest.raises(JournalDamaged, match=rf"{FIRST}.*--skip-damage"):
                replayed(disk)
            assert disk.content(FIRST) == before


def test_after_another_start_of_the_machine_what_was_never_forced_may_be_there_in_part(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = flipped(unforced(), 5 * BLOCK + 20)
    disk.boot += 1
    before = disk.content(FIRST)
    with caplog.at_level(logging.WARNING):
        assert replayed(disk) == expected(range(4))
    (callbacks,) = caplog.messages
    used = len(before.rstrip(b"\0"))
    assert f"{FIRST}: the last {used - 5 * BLOCK} bytes, from byte {5 * BLOCK} on, are cut off" in callbacks
    assert f"A copy of the file as it was is {FIRST}.damaged" in callbacks
    assert disk.content(DIRECTORY / "1.txn.damaged") == before[:used]


def test_a_torn_end_is_cut_off_and_logged_and_kept(caplog: pytest.LogCaptureFixture) -> None:
    disk = unforced()
    whole = disk.content(FIRST)
    cut = 10 * BLOCK + 30
    disk.put(FIRST, whole[:cut] + bytes(len(whole) - cut))
    with caplog.at_level(logging.WARNING):
        assert replayed(disk) == expected(range(9))
    (callbacks,) = caplog.messages
    assert "A crash left an incomplete group of records there" in callbacks
    assert disk.content(DIRECTORY / "1.txn.damaged") == whole[:cut].rstrip(b"\0")
    caplog.clear()
    assert replayed(disk) == expected(range(9))
    assert not caplog.messages, "once"


def test_a_file_that_is_shorter_than_it_was_made_is_refused() -> None:
    """Holds also where it ends after a whole group."""
    for size in range(0, 12 * BLOCK, BLOCK // 2):
        disk = unforced()
        disk.put(FIRST, disk.content(FIRST)[:size])
        with pytest.raises(JournalDamaged, match=rf"{FIRST}"):
            list(replay(DIRECTORY, disk, None, newest=1))


def test_a_torn_end_is_cut_off_on_a_full_disk_too(caplog: pytest.LogCaptureFixture) -> None:
    disk = unforced()
    whole, cut = disk.content(FIRST), 10 * BLOCK + 30
    disk.put(FIRST, whole[:cut] + bytes(len(whole) - cut))
    disk.capacity = 0
    assert replayed(disk) == expected(range(9))
    assert "There is no space for a copy of the file (the simulated disk is full)" in caplog.text


@pytest.mark.parametrize("at", [BLOCK, BLOCK + 9, 5 * BLOCK, 5 * BLOCK + 20, 10 * BLOCK, 10 * BLOCK + 20])
def test_damage_is_skipped_and_counted_if_that_is_asked_for(at: int, caplog: pytest.LogCaptureFixture) -> None:
    disk = flipped(unforced(), at)
    before = disk.content(FIRST)
    gone = at // BLOCK - 1
    assert replayed_after_damage(disk) == [*expected(range(gone)), *expected(range(gone + 1, 10))]
    assert f"{FIRST}: " in caplog.text
    assert "bytes in 1 places cannot be read, and their records are skipped" in caplog.text
    assert disk.content(DIRECTORY / "1.txn.damaged") == before[: len(before.rstrip(b"\0"))]


def test_after_skipped_damage_the_journal_continues() -> None:
    disk = flipped(unforced(), 10 * BLOCK + 20)
    replayed_after_damage(disk)
    with opened(disk, ON_DEMAND) as (journal, _):
        write_group(journal, [77])
    assert replayed(disk, Mark(2, BLOCK)) == expected([77])


def test_a_damaged_header_is_refused_and_records_after_it_can_be_read() -> None:
    disk = flipped(unforced(), 3)
    with pytest.raises(JournalDamaged, match=r"1\.txn cannot be read at byte 0.*10 whole records"):
        replayed(disk)
    assert replayed_after_damage(disk) == expected(range(10))


def rolled() -> tuple[SimulatedDisk, LastMark]:
    """Three files; the mark is in the first one, as a process leaves it that is killed before it has flushed anything."""
    disk = new_disk()
    mark = LastMark([DIRECTORY], disk)
    mark.advance(Mark(1, BLOCK))
    with opened(disk, replace(ON_DEMAND, max_file_bytes=1)) as (journal, _):
        journal._call_begun = mark.note_file
        for number in range(3):
            write_group(journal, [number])
        assert journal.force_now(DEADLINE)
    return disk, mark


def test_the_newest_file_that_is_missing_is_missed() -> None:
    disk, _ = rolled()
    disk.unlink(DIRECTORY / "3.txn")
    mark = LastMark([DIRECTORY], disk)
    assert mark.latest == Mark(1, BLOCK)
    with pytest.raises(JournalMissing, match=r"3\.txn is missing"):
        list(replay(DIRECTORY, disk, mark.latest, newest=mark.newest))
    assert replayed_after_damage(disk, mark.latest, mark.newest) == expected(range(2))


def test_a_mark_of_an_earlier_version_is_read() -> None:
    disk, _ = rolled()
    disk.put(DIRECTORY / "lastMark", bytes.fromhex("00000000000000020000000000000200") + bytes.fromhex("00000000"))
    with pytest.raises(JournalDamaged):
        LastMark([DIRECTORY], disk)
    disk.put(DIRECTORY / "lastMark", EARLIER_MARK)
    mark = LastMark([DIRECTORY], disk)
    assert (mark.latest, mark.newest) == (Mark(2, BLOCK), 2)


def test_without_a_mark_files_that_begin_later_are_refused_with_that_reason() -> None:
    disk, _ = rolled()
    disk.unlink(DIRECTORY / "1.txn")
    disk.unlink(DIRECTORY / "lastMark")
    with pytest.raises(
        JournalMissing, match=r"1\.txn is missing.*the file lastMark is missing in all ledger directories"
    ):
        replayed(disk)
    assert replayed_after_damage(disk) == expected([1, 2])
