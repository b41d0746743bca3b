"""Opening a log after a crash, or after its files were damaged: a torn end is cut off, nothing else is."""

import errno
import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from spark_producer.broker.storage.file_ops import SystemFiles
from spark_producer.broker.storage.segments.log import SegmentLog
from spark_producer.broker.storage.segments.recovery import DamagedLog
from spark_producer.broker.storage.segments.segment import Segment
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError
from tests.fakes.disk import Disk
from tests.support.sampling import Sample
from tests.unit.broker.batches import filler_batch as make_batch
from tests.unit.broker.storage.test_segment_log import append, files, open_log, read_all

FIRST = f"{0:020d}.log"


def written(path: Path, batches: int, *, cleanly: bool, segment_bytes: int = 10_000) -> None:
    """A log of batches with two records and 90 bytes each; one that is not closed is what a crash leaves."""
    log = open_log(path, segment_bytes)
    for _ in range(batches):
        append(log, make_batch(2, size=90))
    if cleanly:
        log.close()


def flip(path: Path, position: int) -> bytes:
    content = bytearray(path.read_bytes())
    content[position] ^= 0x40
    path.write_bytes(content)
    return bytes(content)


def refused(path: Path, **options: Any) -> str:
    with pytest.raises(DamagedLog) as refusal:
        open_log(path, **options)
    assert refusal.value.code == Code.KAFKA_STORAGE_ERROR
    return str(refusal.value)


def test_a_tail_cut_at_any_byte_loses_only_the_torn_batch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, sample: Sample
) -> None:
    whole = tmp_path / "whole"
    log = open_log(whole)
    for _ in range(3):
        append(log, make_batch(2, size=90))
    log.close()
    content = (whole / f"{0:020d}.log").read_bytes()
    for length in sample(range(len(content) + 1)):
        directory = tmp_path / str(length)
        directory.mkdir()
        (directory / f"{0:020d}.log").write_bytes(content[:length])
        caplog.clear()
        log = open_log(directory)
        kept = length // 90
        assert log.high_watermark == 2 * kept
        assert len(read_all(log)) == kept
        assert len(caplog.records) == (length % 90 > 0), "one line for a torn tail, none for a clean one"
        assert append(log, make_batch(2, size=90)) == 2 * kept
        log.close()
        assert (directory / f"{0:020d}.log").stat().st_size == 90 * (kept + 1)


@pytest.mark.parametrize("position", [0, 7, 10, 16, 17, 22, 25, 60, 89])
def test_a_last_batch_that_a_loss_of_power_tore_is_cut_off_and_copied(
    tmp_path: Path, position: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, 2, cleanly=False)
    damaged = flip(tmp_path / FIRST, 90 + position)
    monkeypatch.setattr(SystemFiles, "boot_id", lambda _: b"another boot")
    log = open_log(tmp_path)
    (copy,) = (tmp_path / "damaged").iterdir()
    assert copy.read_bytes() == damaged
    assert f"{tmp_path / FIRST}: cut off 90 bytes at byte 90, after offset 1" in caplog.text
    assert str(copy) in caplog.text
    assert log.high_watermark == 2
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    log.close()


@pytest.mark.parametrize("position", [0, 7, 10, 16, 17, 22, 25, 60, 89])
def test_a_last_batch_that_is_there_as_a_whole_is_not_torn_by_the_death_of_the_process(
    tmp_path: Path, position: int
) -> None:
    written(tmp_path, 2, cleanly=False)
    damaged = flip(tmp_path / FIRST, 90 + position)
    if not SystemFiles().boot_id():
        pytest.skip("this system has no boot id")
    assert "is damaged at byte 90, offset 2" in refused(tmp_path)
    assert (tmp_path / FIRST).read_bytes() == damaged


@pytest.mark.parametrize("content", [None, b""])
def test_a_segment_that_was_written_to_is_missed_after_a_kill(tmp_path: Path, content: bytes | None) -> None:
    written(tmp_path, 3, cleanly=False, segment_bytes=200)
    (last,) = files(tmp_path)[1:]
    if content is None:
        (tmp_path / last).unlink()
    else:
        (tmp_path / last).write_bytes(content)
    assert (
        f"{tmp_path / last} is {'missing' if content is None else 'empty'}, but records were written to it"
        in refused(tmp_path)
    )


def test_bytes_that_change_before_the_recovery_point_are_not_given_to_readers(tmp_path: Path) -> None:
    written(tmp_path, 3, cleanly=True)
    flip(tmp_path / FIRST, 90 + 70)
    log = open_log(tmp_path)
    assert log.read(0, 90)
    with pytest.raises(BrokerError, match=f"{FIRST} is damaged at byte 90.*restore the file from a backup"):
        log.read(2, 1000)
    assert append(log, make_batch(2, size=90)) == 6
    assert log.read(6, 1000)
    log.close()


@pytest.mark.parametrize("tail", [bytes(5000), b"\xff" * 70, b"\0\0\0\0\2" * 100])
def test_the_torn_end_after_a_power_failure_is_cut_off(tmp_path: Path, tail: bytes) -> None:
    written(tmp_path, 2, cleanly=False)
    with (tmp_path / FIRST).open("ab") as file:
        file.write(tail)
    log = open_log(tmp_path)
    assert (log.high_watermark, (tmp_path / FIRST).stat().st_size) == (4, 180)
    log.close()


@pytest.mark.parametrize("position", [0, 7, 10, 16, 17, 22, 25, 60, 89])
def test_damage_with_whole_batches_after_it_cuts_nothing(tmp_path: Path, position: int) -> None:
    """The file of a broker that was killed: no recovery point says what was on the disk."""
    written(tmp_path, 3, cleanly=False)
    damaged = flip(tmp_path / FIRST, 90 + position)
    said = refused(tmp_path)
    for expected in (tmp_path.name, str(tmp_path / FIRST), "byte 90, offset 2", "A copy of it is", "--skip-damage"):
        assert expected in said
    assert (tmp_path / FIRST).read_bytes() == damaged
    (copy,) = (tmp_path / "damaged").iterdir()
    assert copy.read_bytes() == damaged
    assert refused(tmp_path) == said
    assert len(list((tmp_path / "damaged").iterdir())) == 1, "the same damage is copied once"


def test_damage_before_the_recovery_point_cuts_nothing_even_at_the_end(tmp_path: Path) -> None:
    written(tmp_path, 2, cleanly=True)
    damaged = flip(tmp_path / FIRST, 90 + 16)
    refused(tmp_path)
    assert (tmp_path / FIRST).read_bytes() == damaged


def test_one_flipped_byte_in_the_first_segment_costs_no_later_one(tmp_path: Path) -> None:
    written(tmp_path, 5, cleanly=True, segment_bytes=200)
    before = {name: (tmp_path / name).read_bytes() for name in files(tmp_path)}
    assert len(before) == 3
    before[FIRST] = flip(tmp_path / FIRST, 90 + 16)
    assert "lose all records from offset 2 to 3: start once with skip_damage" in refused(tmp_path)
    assert {name: (tmp_path / name).read_bytes() for name in files(tmp_path)} == before


@pytest.mark.parametrize("position", [0, 7, 10, 16, 17, 22, 25, 60, 89])
@pytest.mark.parametrize("number", range(4))
def test_what_the_message_says_to_do_costs_the_damaged_batch_alone(
    tmp_path: Path, number: int, position: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Also before the recovery point, where a start checks no checksums: a reader could not get past the batch."""
    written(tmp_path, 5, cleanly=True, segment_bytes=200)
    before = read_all(open_log(tmp_path))
    damaged = flip(tmp_path / files(tmp_path)[number // 2], 90 * (number % 2) + position)
    log = open_log(tmp_path, skip_damage=True)
    first = 2 * number
    assert f"is opened without its records from offset {first} to {first + 1}, which are skipped" in caplog.text
    found = read_all(log)
    assert found[:number] + found[number + 1 :] == before[:number] + before[number + 1 :]
    lost = found[number]
    assert (lost.base_offset, lost.last_offset, lost.records_count) == (first, first + 1, 0)
    assert append(log, make_batch(5)) == 10
    log.close()
    assert damaged in [path.read_bytes() for path in (tmp_path / "damaged").iterdir()]
    again = open_log(tmp_path)
    assert read_all(again)[:5] == found
    again.close()


def test_several_damaged_batches_are_skipped_and_the_last_one_is_cut_off(tmp_path: Path) -> None:
    written(tmp_path, 8, cleanly=True, segment_bytes=400)
    before = read_all(open_log(tmp_path))
    for name, positions in zip(files(tmp_path), ([20, 110, 300], [10, 290]), strict=True):
        for position in positions:
            flip(tmp_path / name, position)
    log = open_log(tmp_path, skip_damage=True)
    assert [each for each in read_all(log) if each.records_count] == [before[2], before[5], before[6]]
    assert log.high_watermark == 14, "nothing shows where the last batch ended"
    log.close()


@pytest.mark.parametrize(("gone", "left"), [(0, [2, 3, 4]), (1, [0, 1, 4]), (2, [0, 1, 2, 3])])
def test_after_a_missing_segment_the_log_continues_with_skip_damage(tmp_path: Path, gone: int, left: list[int]) -> None:
    """Without its first segment it begins with the next one; a gap gets a batch without records."""
    written(tmp_path, 5, cleanly=True, segment_bytes=200)
    before = read_all(open_log(tmp_path))
    (tmp_path / files(tmp_path)[gone]).unlink()
    log = open_log(tmp_path, skip_damage=True)
    assert [each for each in read_all(log) if each.records_count] == [before[number] for number in left]
    log.close()
    open_log(tmp_path).close()


@pytest.mark.parametrize(("gone", "missing"), [(0, (0, 4)), (1, (4, 8)), (2, (8, 10))])
def test_a_missing_segment_is_reported(tmp_path: Path, gone: int, missing: tuple[int, int]) -> None:
    written(tmp_path, 5, cleanly=True, segment_bytes=200)
    (tmp_path / files(tmp_path)[gone]).unlink()
    left = files(tmp_path)
    assert f"records from offset {missing[0]} up to {missing[1]} are missing" in refused(tmp_path)
    assert files(tmp_path) == left


def test_a_log_without_a_checkpoint_is_checked_from_its_start(tmp_path: Path) -> None:
    """Data directories of earlier versions have none."""
    written(tmp_path, 5, cleanly=True, segment_bytes=200)
    (tmp_path / "checkpoint").unlink()
    log = open_log(tmp_path, segment_bytes=200)
    assert len(read_all(log)) == 5
    log.close()
    (tmp_path / "checkpoint").write_text("{torn")
    flip(tmp_path / FIRST, 89)
    assert "CRC" in refused(tmp_path)


def test_only_batches_after_the_recovery_point_have_their_crc_checked(tmp_path: Path) -> None:
    written(tmp_path, 2, cleanly=True)
    log = open_log(tmp_path)
    append(log, make_batch(2, size=90))
    append(log, make_batch(2, size=90))
    flip(tmp_path / FIRST, 89)
    crashed = open_log(tmp_path)
    assert crashed.high_watermark == 8
    flip(tmp_path / FIRST, 180 + 89)
    assert "byte 180, offset 4" in refused(tmp_path)


def test_a_leader_epoch_that_changed_is_damage_though_no_crc_covers_it(tmp_path: Path) -> None:
    """Consumers would commit it, and get an error later, since no leader has it."""
    written(tmp_path, 3, cleanly=True)
    flip(tmp_path / FIRST, 90 + 13)
    assert "record batch at byte 90 has leader epoch" in refused(tmp_path)


def test_a_roll_notes_the_recovery_point(tmp_path: Path, disk: Disk) -> None:
    log = open_log(tmp_path, segment_bytes=200)
    for _ in range(3):
        append(log, make_batch(2, size=90))
    assert disk.synced == [(tmp_path / FIRST).stat().st_ino]
    stored = json.loads((tmp_path / "checkpoint").read_text())
    assert (stored["recovery_point"], stored["log_start_offset"]) == (4, 0)
    log.close()


def test_a_damaged_file_that_cannot_be_copied_is_kept_and_reported(tmp_path: Path) -> None:
    written(tmp_path, 3, cleanly=True)
    flip(tmp_path / FIRST, 16)
    (tmp_path / "damaged").write_text("in the way")
    assert "could not be copied" in refused(tmp_path)


# A sync that fails


def failed_append(log: SegmentLog) -> str:
    with pytest.raises(BrokerError) as refusal:
        append(log, make_batch(2, size=90))
    assert refusal.value.code == Code.KAFKA_STORAGE_ERROR
    return str(refusal.value)


def test_after_a_failed_sync_the_log_is_read_only_up_to_what_was_forced(
    tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(tmp_path, sync_each_append=True)
    append(log, make_batch(2, size=90))
    disk.refuse("fdatasync", errno.EIO)
    assert "Input/output error" in failed_append(log)
    disk.accept_syncs()
    disk.synced.clear()
    said = failed_append(log)
    assert "read-only" in said
    assert "restart the broker" in said
    assert [record.message for record in caplog.records] == [said]
    assert log.high_watermark == 2
    assert [len(log.read(offset, 1000)) for offset in (0, 1, 2)] == [90, 90, 0]
    for offset, code in (
        (3, Code.KAFKA_STORAGE_ERROR),
        (4, Code.KAFKA_STORAGE_ERROR),
        (5, Code.OFFSET_OUT_OF_RANGE),
    ):
        with pytest.raises(BrokerError) as refusal:
            log.read(offset, 1000)
        assert refusal.value.code == code
    assert log.offset_for_timestamp(0) is not None
    log.close()
    assert not disk.synced, "a sync that failed is never tried again"
    assert json.loads((tmp_path / "checkpoint").read_text())["recovery_point"] == 2


def test_a_restart_writes_what_was_not_forced_once_more(tmp_path: Path, disk: Disk) -> None:
    """The system may hold pages for clean that never came to the disk: only written again are they synced."""
    log = open_log(tmp_path, sync_each_append=True)
    append(log, make_batch(2, size=90))
    disk.refuse("fdatasync", errno.EIO)
    failed_append(log)
    disk.accept_syncs()
    rewritten: list[tuple[int, int]] = []
    real = os.pwritev

    def note(file: int, pieces: list[memoryview], position: int) -> int:
        rewritten.append((position, sum(map(len, pieces))))
        return real(file, pieces, position)

    disk.replace("pwritev", note)
    log = open_log(tmp_path, sync_each_append=True)
    assert (log.high_watermark, len(read_all(log))) == (4, 2)
    assert rewritten == [(90, 90)], "the checkpoint says that the first batch was forced"
    log.close()


def test_a_roll_whose_sync_fails_makes_the_log_read_only(tmp_path: Path, disk: Disk) -> None:
    log = open_log(tmp_path, segment_bytes=200)
    for _ in range(2):
        append(log, make_batch(2, size=90))
    disk.refuse("fdatasync", errno.EIO)
    failed_append(log)
    disk.accept_syncs()
    assert "read-only" in failed_append(log)
    assert files(tmp_path) == [FIRST]
    log.close()
    log = open_log(tmp_path, segment_bytes=200)
    assert (log.high_watermark, append(log, make_batch(2, size=90))) == (4, 4)
    log.close()


def test_a_directory_that_cannot_be_synced_makes_the_log_read_only(tmp_path: Path, disk: Disk) -> None:
    log = open_log(tmp_path, sync_each_append=True)
    disk.refuse("fsync", errno.EIO)
    failed_append(log)
    disk.restore()
    assert "read-only" in failed_append(log)


def test_a_log_that_cannot_be_forced_when_it_is_opened_can_be_read(tmp_path: Path, disk: Disk) -> None:
    written(tmp_path, 2, cleanly=True)
    crashed = open_log(tmp_path)
    append(crashed, make_batch(2, size=90))
    disk.refuse("fdatasync", errno.EIO)
    log = open_log(tmp_path, sync_each_append=True)
    assert (log.high_watermark, len(read_all(log))) == (4, 2)
    assert "read-only" in failed_append(log)


@pytest.mark.parametrize("name", ["recovery_point", "log_start_offset"])
def test_a_checkpoint_with_a_flipped_digit_deletes_nothing(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    written(tmp_path, 6, cleanly=True, segment_bytes=200)
    stored = json.loads((tmp_path / "checkpoint").read_text())
    (tmp_path / "checkpoint").write_text(json.dumps(stored | {name: 4}))
    log = open_log(tmp_path, 200)
    assert (log.start_offset, log.high_watermark) == (0, 12)
    assert "its checksum does not match" in caplog.text
    log.close()


def test_a_checkpoint_of_earlier_versions_has_no_checksum(tmp_path: Path) -> None:
    written(tmp_path, 6, cleanly=True, segment_bytes=200)
    (tmp_path / "checkpoint").write_text('{"format": 1, "recovery_point": 13, "log_start_offset": 0}')
    assert "records from offset 12 up to 13 are missing" in refused(tmp_path)


def test_the_checkpoint_of_another_partition_deletes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("a-0", "a-1"):
        written(tmp_path / name, 6, cleanly=True, segment_bytes=200)
    other = open_log(tmp_path / "a-1", 200)
    other.delete_before(9)
    other.close()
    (tmp_path / "a-0" / "checkpoint").write_bytes((tmp_path / "a-1" / "checkpoint").read_bytes())
    log = open_log(tmp_path / "a-0", 200)
    assert (log.start_offset, log.high_watermark, len(read_all(log))) == (0, 12, 6)
    assert "it belongs to partition a-1" in caplog.text
    log.close()


def test_a_checkpoint_that_nests_without_end_is_none(tmp_path: Path) -> None:
    written(tmp_path, 1, cleanly=True)
    (tmp_path / "checkpoint").write_text("[" * 100_000)
    log = open_log(tmp_path)
    assert log.high_watermark == 2
    log.close()


def test_files_with_other_names_do_not_matter(tmp_path: Path) -> None:
    for name in ("²٣.log", "notes.log", "-1.log"):
        (tmp_path / name).write_bytes(b"junk")
    assert Segment.base_offsets(tmp_path) == []
