"""Deleting old segments: by time and by size, whole ones, and what a crash in the middle of it leaves."""

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_producer.broker import BrokerSettings, TopicSettings
from spark_producer.broker.context import Endpoint
from spark_producer.broker.log.retention_timer import RetentionTimer
from spark_producer.broker.server import Server
from spark_producer.broker.storage.segments.log import SegmentLog
from spark_producer.broker.storage.segments.segment import Segment
from spark_producer.broker.topic_store import TopicStore
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError, ConfigError
from tests.fakes.disk import Disk
from tests.unit.broker.batches import filler_batch as make_batch
from tests.unit.broker.handler_calls import context_of
from tests.unit.broker.storage.test_segment_log import append, files, read_all

SEGMENT = 200


def filled(path: Path, *timestamps: int, **settings: Any) -> SegmentLog:
    """Two batches of 90 bytes, with two records each, to a segment."""
    log = SegmentLog(path, TopicSettings(segment_bytes=SEGMENT, **settings))
    for timestamp in timestamps:
        append(log, make_batch(2, size=90, timestamp=timestamp))
    return log


def left(log: SegmentLog) -> int:
    """The first offset, after a look whether all is there from it on."""
    assert sum(header.records_count for header in read_all(log)) == log.high_watermark - log.start_offset
    return log.start_offset


def test_nothing_is_deleted_unless_it_is_asked_for(tmp_path: Path) -> None:
    log = filled(tmp_path, *[0] * 6)
    log.delete_old(10**15)
    assert left(log) == 0
    log.close()


def test_segments_go_when_their_newest_record_is_older_than_retention_ms(tmp_path: Path) -> None:
    log = filled(tmp_path, 100, 300, 200, 400, 500, 600, retention_ms=1000)
    for now, start in ((1300, 0), (1301, 4), (1400, 4), (1401, 8), (1600, 8)):
        log.delete_old(now)
        assert left(log) == start
    assert files(tmp_path) == [f"{8:020d}.log"]
    log.close()


def test_a_younger_segment_keeps_those_after_it(tmp_path: Path) -> None:
    log = filled(tmp_path, 900, 900, 100, 100, 100, 100, retention_ms=1000)
    log.delete_old(1500)
    assert left(log) == 0
    log.close()


def test_the_last_segment_goes_too_once_all_of_its_records_expired(tmp_path: Path) -> None:
    log = filled(tmp_path, 100, 200, 300, retention_ms=1000)
    log.delete_old(1301)
    assert (log.start_offset, log.high_watermark, files(tmp_path)) == (6, 6, [f"{6:020d}.log"])
    log.delete_old(10**6)
    assert files(tmp_path) == [f"{6:020d}.log"], "an empty segment is not rolled for ever"
    assert append(log, make_batch(2, size=90)) == 6
    with pytest.raises(BrokerError) as refusal:
        log.read(5, 1000)
    assert refusal.value.code == Code.OFFSET_OUT_OF_RANGE
    log.close()


def test_records_without_a_time_have_that_of_their_file(tmp_path: Path) -> None:
    log = filled(tmp_path, -1, -1, -1, retention_ms=1000)
    written = Segment(tmp_path, 4).modified_ms()
    log.delete_old(written + 1)
    assert left(log) == 0
    log.delete_old(written + 1001)
    assert log.start_offset == 6
    log.close()


@pytest.mark.parametrize(("limit", "start"), [(540, 0), (361, 0), (360, 4), (181, 4), (180, 8), (1, 8), (0, 12)])
def test_segments_go_while_retention_bytes_are_left_without_them(tmp_path: Path, limit: int, start: int) -> None:
    log = filled(tmp_path, *[100] * 6, retention_bytes=limit)
    log.delete_old(0)
    assert left(log) == start
    log.close()


def test_the_start_of_the_log_is_kept(tmp_path: Path) -> None:
    log = filled(tmp_path, *[100] * 6, retention_bytes=180)
    log.delete_old(0)
    log.close()
    log = filled(tmp_path)
    assert (left(log), log.high_watermark) == (8, 12)
    log.close()


def test_what_a_crash_keeps_from_being_removed_is_removed_when_the_log_is_opened(tmp_path: Path, disk: Disk) -> None:
    log = filled(tmp_path, *[100] * 6, retention_bytes=180)
    real = os.unlink

    def segments_refused(path: Path) -> None:
        if path.suffix == ".log":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(path)

    disk.replace("unlink", segments_refused)
    with pytest.raises(BrokerError) as refusal:
        log.delete_old(0)
    disk.restore()
    assert refusal.value.code == Code.KAFKA_STORAGE_ERROR
    assert left(log) == 8
    assert len(files(tmp_path)) == 3
    log = filled(tmp_path)
    assert (left(log), len(files(tmp_path))) == (8, 1)
    log.close()


def test_a_life_that_syncs_nothing_keeps_an_older_checkpoint_true(tmp_path: Path) -> None:
    filled(tmp_path, 100, 100, 100, 100, 300).close()
    log = SegmentLog(tmp_path, TopicSettings(retention_ms=100), sync_on_close=False)
    log.delete_old(300)
    log.close()
    log = filled(tmp_path)
    assert left(log) == 8
    log.close()


def test_a_new_segment_begins_after_segment_ms(tmp_path: Path) -> None:
    log = filled(tmp_path, 100, 1100, segment_ms=1000)
    assert len(files(tmp_path)) == 1
    append(log, make_batch(1, size=90, timestamp=50))
    append(log, make_batch(1, size=61, timestamp=1051))
    assert len(files(tmp_path)) == 3
    log.close()
    log = SegmentLog(tmp_path, TopicSettings(segment_ms=1000))
    append(log, make_batch(1, size=61, timestamp=2052))
    assert len(files(tmp_path)) == 4, "a segment that was found has its first timestamp too"
    append(log, make_batch(1, size=61, timestamp=-1))
    append(log, make_batch(1, size=61, timestamp=10**15))
    assert len(files(tmp_path)) == 5
    log.close()


def test_the_timer_calls_once_in_an_interval_with_the_time_of_day() -> None:
    called: list[int] = []
    days: Iterator[float] = iter([5.25, 4.0])
    timer = RetentionTimer(called.append, 10.0, 100.0, days.__next__)
    for now in (100.0, 109.9, 110.0, 110.1, 119.9, 121.0, 130.9):
        timer.run_if_due(now)
    assert called == [5250, 4000]
    assert timer.due == 131.0


def test_the_server_looks_for_old_segments_at_intervals(tmp_path: Path) -> None:
    settings = BrokerSettings(retention_check_s=60, topic=TopicSettings(segment_bytes=SEGMENT, retention_ms=1000))
    store = TopicStore(tmp_path, settings)
    store.create("t", 1)
    now = [1000.0]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Server(context_of(store, settings, Endpoint("127.0.0.1", 0)), listener, clock=lambda: now[0])
        log = store.partition("t", 0).log
        for _ in range(3):
            append(log, make_batch(2, size=90, timestamp=1000))
        now[0] += 60
        server.call(server.stop)  # within the first turn, which looks for old segments all the same
        server.run()
        assert (log.start_offset, log.high_watermark) == (6, 6)
    store.close()


def test_a_partition_whose_disk_fails_keeps_no_other_from_being_looked_at(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = BrokerSettings(storage_engine="segments", topic=TopicSettings(segment_bytes=SEGMENT, retention_bytes=0))
    store = TopicStore(tmp_path, settings)
    store.create("t", 2)
    for index in (0, 1):
        append(store.partition("t", index).log, make_batch(2, size=90))
    (tmp_path / "t-0" / f"{2:020d}.log").mkdir()  # where its next segment would be
    store.delete_old(0)
    assert [store.partition("t", index).log.start_offset for index in (0, 1)] == [0, 2]
    assert ["topic t, partition 0: old records were not deleted" in record.message for record in caplog.records] == [
        True
    ]
    store.close()


def test_the_interval_is_positive() -> None:
    with pytest.raises(ConfigError, match="retention_check_s"):
        BrokerSettings(retention_check_s=0)
