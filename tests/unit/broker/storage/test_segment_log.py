"""The log of one partition: offsets, reading, rolling, what is put on the disk and when."""

import errno
import os
import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from spark_producer.broker.settings import TopicSettings
from spark_producer.broker.storage.base import Log, TimestampOffset
from spark_producer.broker.storage.segments.log import SegmentLog
from spark_producer.broker.storage.segments.segment import INDEX_INTERVAL
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError
from spark_producer.record.batch_v2 import BatchHeader, batches, check_crc, read_header
from tests.fakes.disk import Disk
from tests.support.sampling import Sample
from tests.unit.broker.batches import filler_batch as make_batch

MIB = 1024 * 1024


def open_log(path: Path, segment_bytes: int = MIB, **options: Any) -> SegmentLog:
    return SegmentLog(path, TopicSettings(segment_bytes=segment_bytes), **options)


def append(log: Log, batch: memoryview) -> int:
    return log.admit(batch, read_header(batch))


def read_all(log: SegmentLog, max_bytes: int = MIB) -> list[BatchHeader]:
    """Every batch, as a consumer gets them: whole, in order, CRC intact."""
    headers, offset = [], log.start_offset
    while data := log.read(offset, max_bytes):
        found = list(batches(data))
        assert sum(header.size for header, _ in found) == len(data), "only whole batches"
        for header, batch in found:
            check_crc(header, batch)
            headers.append(header)
        offset = headers[-1].last_offset + 1
    assert offset == log.high_watermark
    return headers


def files(path: Path) -> list[str]:
    """The segments."""
    return sorted(entry.name for entry in path.glob("*.log"))


def test_offsets_are_assigned_without_gaps(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert (log.start_offset, log.high_watermark) == (0, 0)
    assert [append(log, make_batch(count)) for count in (3, 1, 5)] == [0, 3, 4]
    assert log.high_watermark == 9
    assert [(header.base_offset, header.partition_leader_epoch) for header in read_all(log)] == [(0, 0), (3, 0), (4, 0)]
    log.close()


def test_the_batch_that_came_is_not_changed(tmp_path: Path) -> None:
    log, batch = open_log(tmp_path), make_batch(2)
    before = bytes(batch)
    append(log, make_batch(7))
    append(log, batch)
    assert bytes(batch) == before
    assert log.read(7, MIB)[16:] == before[16:]
    log.close()


def test_reading_from_the_middle_of_a_batch_gives_the_whole_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, make_batch(10))
    append(log, make_batch(10))
    assert read_header(log.read(13, MIB)).base_offset == 10
    assert log.read(20, MIB) == b""
    log.close()


@pytest.mark.parametrize("offset", [-1, 21])
def test_offsets_outside_the_log_are_refused(tmp_path: Path, offset: int) -> None:
    log = open_log(tmp_path)
    append(log, make_batch(20))
    with pytest.raises(BrokerError) as refusal:
        log.read(offset, MIB)
    assert refusal.value.code == Code.OFFSET_OUT_OF_RANGE
    log.close()


def test_max_bytes_is_kept_but_the_first_batch_always_comes(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for size in (1000, 200, 300):
        append(log, make_batch(size=size))
    assert [len(log.read(0, limit)) for limit in (0, 999, 1000, 1199, 1200, 1499, 1500)] == [
        1000, 1000, 1000, 1000, 1200, 1200, 1500,
    ]  # fmt: skip
    assert log.read(0, 999, at_least_one=False) == b""
    assert len(log.read(0, 1000, at_least_one=False)) == 1000
    log.close()


@pytest.mark.parametrize("seed", range(5))
def test_every_offset_is_found_whatever_the_sizes(tmp_path: Path, seed: int, sample: Sample) -> None:
    rng = random.Random(seed)
    log = open_log(tmp_path, segment_bytes=60_000)
    owner = []
    for _ in sample(range(300)):
        count, size = rng.randrange(1, 9), rng.choice([61, 90, 500, 4000, INDEX_INTERVAL, 5000, 20_000])
        owner += [append(log, make_batch(count, size=size))] * count
    assert len(files(tmp_path)) > 3
    for offset, base in enumerate(owner):
        limit = rng.choice([1, 100, 3000, 50_000])
        data = log.read(offset, limit)
        assert read_header(data).base_offset == base
        assert len(data) <= max(limit, read_header(data).size)
        assert log.available(offset, 10**9) >= len(data)
    headers = read_all(log, max_bytes=7000)
    assert [header.base_offset for header in headers] == sorted(set(owner))
    log.close()


def test_available_counts_over_segments_and_stops_where_asked(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=250)
    for _ in range(5):
        append(log, make_batch(size=100))
    assert len(files(tmp_path)) == 3
    assert [log.available(offset, 10**6) for offset in range(6)] == [500, 400, 300, 200, 100, 0]
    assert log.available(0, 150) == 150
    log.close()


def test_segments_roll_by_size_and_are_named_by_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=250)
    for _ in range(4):
        append(log, make_batch(10, size=100))
    append(log, make_batch(10, size=1000))  # larger than a segment: one for itself
    append(log, make_batch(10, size=100))
    assert files(tmp_path) == [f"{base:020d}.log" for base in (0, 20, 40, 50)]
    assert len(read_all(log)) == 6
    log.close()


def test_everything_is_there_after_reopening(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=2000)
    for count in range(1, 50):
        append(log, make_batch(count, timestamp=count))
    before = read_all(log)
    log.close()
    seen: list[BatchHeader] = []
    log = open_log(tmp_path, segment_bytes=2000, visit=lambda header, _: seen.append(header))
    assert read_all(log) == before == seen
    assert append(log, make_batch(1)) == sum(range(1, 50))
    log.close()


def test_timestamps_find_the_first_batch_that_reaches_them(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=20_000)
    rng = random.Random(7)
    stamps = [rng.randrange(1000) for _ in range(400)]
    for stamp in stamps:
        append(log, make_batch(1, size=150, timestamp=stamp))
    for wanted in (0, 1, 500, 990, max(stamps)):
        expected = next(offset for offset, stamp in enumerate(stamps) if stamp >= wanted)
        assert log.offset_for_timestamp(wanted) == TimestampOffset(stamps[expected], expected)
    assert log.offset_for_timestamp(max(stamps) + 1) is None
    assert log.latest_timestamp() == TimestampOffset(max(stamps), stamps.index(max(stamps)))
    log.close()


def test_an_empty_log_has_no_timestamps(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert log.latest_timestamp() is None
    assert log.offset_for_timestamp(0) is None
    log.close()


def test_a_full_disk_refuses_and_leaves_the_log_as_it_was(
    tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(tmp_path)
    append(log, make_batch(2, size=90))
    real = os.pwritev

    def half_then_full(file: int, pieces: list[memoryview], position: int) -> int:
        if len(pieces) > 1:
            return real(file, [pieces[0], pieces[1][:20]], position)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    disk.replace("pwritev", half_then_full)
    for _ in range(2):
        with pytest.raises(
            BrokerError, match=r"No space left on device: 90 bytes are needed, and [\d,]+ are free"
        ) as refusal:
            append(log, make_batch(2, size=90))
        assert refusal.value.code == Code.KAFKA_STORAGE_ERROR
    disk.restore()
    assert (tmp_path / f"{0:020d}.log").stat().st_size == 90
    assert append(log, make_batch(2, size=90)) == 2
    assert len(read_all(log)) == 2
    log.close()
    refused, again = (record.getMessage() for record in caplog.records)
    assert f"{tmp_path}: batches are refused: storage of {tmp_path} failed: No space left" in refused
    assert again == f"{tmp_path}: the disk has space again, batches are accepted"


def test_short_writes_are_continued(tmp_path: Path, disk: Disk) -> None:
    real = os.pwritev
    disk.replace("pwritev", lambda file, pieces, position: real(file, [pieces[0][:7]], position))
    log, batch = open_log(tmp_path), make_batch(3, size=200)
    append(log, batch)
    assert log.read(0, MIB)[16:] == bytes(batch[16:])
    log.close()


@pytest.mark.parametrize("sync", [False, True])
def test_an_append_costs_one_write_and_no_copy(tmp_path: Path, disk: Disk, sync: bool) -> None:
    log, batch = open_log(tmp_path, sync_each_append=sync), make_batch(3, size=50_000)
    append(log, batch)  # with the first one, the name of the file is synced
    calls: list[str] = []
    written: list[memoryview] = []

    def counted(name: str, *arguments: Any) -> Any:
        calls.append(name)
        if name == "pwritev":
            written.extend(arguments[1])
        return real[name](*arguments)

    real = {name: getattr(os, name) for name in ("open", "pwritev", "close", "fdatasync", "fsync", "pread", "stat")}
    for name in real:
        disk.replace(name, partial(counted, name))
    append(log, batch)
    disk.restore()
    assert calls == ["open", "pwritev", "close", *(["open", "fdatasync", "close"] if sync else [])]
    assert [len(piece) for piece in written] == [16, 50_000 - 16]
    assert written[1].obj is batch.obj, "the very bytes that came"
    log.close()


def test_sync_each_append_syncs_before_it_returns(tmp_path: Path, disk: Disk) -> None:
    log = open_log(tmp_path, sync_each_append=True)
    append(log, make_batch())
    assert len(disk.synced) == 1
    log.close()
    quiet = open_log(tmp_path)
    append(quiet, make_batch())
    assert len(disk.synced) == 1, "nothing was left for close to sync"
    quiet.close()
    assert len(disk.synced) == 2


def test_a_roll_that_fails_leaves_nothing_that_a_recovery_would_stumble_over(tmp_path: Path, disk: Disk) -> None:
    log = open_log(tmp_path, segment_bytes=1000, sync_each_append=True)
    append(log, make_batch(1, size=600))
    real = os.open

    def made_and_refused(path: Path, flags: int, *mode: int) -> int:
        file = real(path, flags, *mode)
        if flags & os.O_CREAT and path.suffix == ".log":
            os.close(file)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return file

    disk.replace("open", made_and_refused)
    with pytest.raises(BrokerError):
        append(log, make_batch(1, size=600))
    disk.restore()
    assert [append(log, make_batch(1, size=size)) for size in (200, 600)] == [1, 2]
    log.close()
    log = open_log(tmp_path, segment_bytes=1000)
    assert log.high_watermark == 3
    log.close()


def storage_errors(questions: Sequence[Callable[[], object]], saying: str) -> int:
    """Return the number of requests that are refused with a storage error that says so."""
    count = 0
    for ask in questions:
        with pytest.raises(BrokerError, match=saying) as refusal:
            ask()
        count += refusal.value.code == Code.KAFKA_STORAGE_ERROR
    return count


def test_a_read_that_the_disk_refuses_is_a_storage_error(tmp_path: Path, disk: Disk) -> None:
    log = open_log(tmp_path)
    append(log, make_batch())
    disk.refuse("pread", errno.EIO)
    questions = (
        lambda: log.read(0, 1),
        lambda: log.available(0, 1),
        lambda: log.offset_for_timestamp(0),
        log.latest_timestamp,
    )
    assert storage_errors(questions, "Input/output error") == len(questions)
    log.close()


def test_what_a_cut_file_has_lost_is_a_storage_error_and_no_end_of_the_log(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for number in range(20):
        append(log, make_batch(size=1000, timestamp=number))
    os.truncate(tmp_path / files(tmp_path)[0], 10_500)
    assert [header.base_offset for header, _ in batches(log.read(8, MIB))] == [8, 9], "what is there can be read"
    assert log.offset_for_timestamp(9) == TimestampOffset(9, 9)
    questions = (
        lambda: log.read(10, MIB),
        lambda: log.read(19, MIB),
        lambda: log.available(19, MIB),
        lambda: log.offset_for_timestamp(15),
        log.latest_timestamp,
    )
    assert storage_errors(questions, "restore the file from a backup") == len(questions)


def test_a_header_that_was_changed_names_no_bytes_beyond_the_log(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, make_batch(size=1000))
    with (tmp_path / files(tmp_path)[0]).open("r+b") as file:
        file.seek(8)
        file.write((2**31 - 1).to_bytes(4, "big"))
    with pytest.raises(BrokerError, match="has changed at byte 0") as refusal:
        log.read(0, MIB)
    assert refusal.value.code == Code.KAFKA_STORAGE_ERROR


def test_every_segment_of_this_life_is_synced_at_close(tmp_path: Path, disk: Disk) -> None:
    log = open_log(tmp_path, segment_bytes=100)
    append(log, make_batch())
    log.close()
    disk.synced.clear()
    log = open_log(tmp_path, segment_bytes=100)
    for _ in range(3):
        append(log, make_batch())
    log.close()
    assert len(files(tmp_path)) == 4
    assert len(disk.synced) == 4, "the one that was open, and three more"
    disk.synced.clear()
    log = open_log(tmp_path, segment_bytes=100, sync_on_close=False)
    append(log, make_batch())
    log.close()
    log = open_log(tmp_path)
    log.close(discard=True)
    assert disk.synced == []
