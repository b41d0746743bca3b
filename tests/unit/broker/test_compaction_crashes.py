"""Compaction, SIGKILL, and a disk that refuses: what was acknowledged is there, once; old and new batches are never mixed."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_producer.broker import BrokerSettings, TopicSettings
from spark_producer.broker.storage.empty_batch import empty_batch
from spark_producer.broker.storage.segments.log import SegmentLog, ignore
from spark_producer.broker.topic_store import TopicStore
from spark_producer.record.batch_v2 import batches, read_header
from spark_producer.record.reading import read_records, single_records
from tests.support.processes import ChildProcess
from tests.support.waiting import wait_until
from tests.unit.broker.batches import filler_batch

SECONDS = 60.0
KEYS = 20
LIVES = 6

LIFE = """
import sys
from pathlib import Path
from spark_producer.broker import BrokerSettings, TopicSettings
from spark_producer.broker.log.compaction import CompactionTimer
from spark_producer.broker.topic_store import TopicStore
from spark_producer.broker.storage.tiered import TieredStorage
from tests.unit.broker.batches import make_record, sealed

home, engine, first = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
topic = TopicSettings(cleanup_policy="compact", segment_bytes=2000, min_cleanable_dirty_ratio=0.0)
store = TopicStore(home, BrokerSettings(storage_engine=engine, topic=topic))
store.watch(lambda *_: None, lambda: None)
if store.get("t") is None:
    store.create("t", 1)
partition = store.partition("t", 0)
timer = CompactionTimer(store.partitions, 0.0, 0.0)
number = first
while True:
    for _ in range(30):
        key = b"k%d" % (number % KEYS)
        record = make_record(0, key, b"%d" % number)
        offset = partition.append(sealed(record, 1, producer_id=9, epoch=0, sequence=number))
        assert partition.log.is_confirmed(offset)
        print(number, flush=True)
        number += 1
    if isinstance(store._storage, TieredStorage):
        store._storage.engine.flusher.flush_now()
    timer.run_all()
""".replace("KEYS", str(KEYS))


def acknowledged(log: Path) -> int:
    """The last number that was acknowledged, -1 if none was."""
    lines = log.read_text().split("\n")[:-1] if log.exists() else []
    return int(lines[-1]) if lines else -1


def wait_for_records(process: ChildProcess, output: Path, number: int) -> None:
    wait_until(
        lambda: acknowledged(output) >= number,
        f"record {number} is acknowledged",
        seconds=SECONDS,
        pause=0.005,
        more=process.tail,
        ended=process.has_ended,
    )


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["segments", "tiered"])
def test_a_kill_in_the_middle_loses_and_doubles_nothing(engine: str, tmp_path: Path) -> None:
    rng, last, compacted = random.Random(engine), -1, False
    for life in range(LIVES):
        output = tmp_path / f"life-{life}.log"
        process = ChildProcess([sys.executable, "-c", LIFE, str(tmp_path / "data"), engine, str(last + 1)], output)
        try:
            wait_for_records(process, output, last + rng.randrange(50, 900))
        finally:
            process.kill()
        found, last = read_log(tmp_path / "data", engine, acknowledged(output))
        compacted = compacted or len(found) < last / 2
    assert compacted, "nothing was compacted"


def read_log(home: Path, engine: str, min_offset: int) -> tuple[dict[int, tuple[bytes, bytes]], int]:
    """Return the records by offset, and the last number: every number was written at the offset that is the number."""
    settings = BrokerSettings(storage_engine=engine, topic=TopicSettings(cleanup_policy="compact", segment_bytes=2000))
    store = TopicStore(home, settings)
    partition = store.partition("t", 0)
    log, offset = partition.log, 0
    found: dict[int, tuple[bytes, bytes]] = {}
    while data := log.read(offset, 10_000):
        for header, _ in batches(data):
            assert header.base_offset == offset, "no gap, and nothing twice"
            offset = header.last_offset + 1
        for part in read_records(data):
            found |= {each.offset: (each.key or b"", each.value or b"") for each in single_records(part)}
    assert offset == log.high_watermark > min_offset
    for number, (key, value) in found.items():
        assert (key, value) == (b"k%d" % (number % KEYS), b"%d" % number)
    newest = {b"k%d" % (number % KEYS): number for number in range(offset)}
    assert set(newest.values()) <= set(found), "the last of each key"
    (producer,) = partition.active_producers()
    assert producer.last_sequence == offset - 1
    store.close()
    return found, offset - 1


@contextlib.contextmanager
def refusing(monkeypatch: pytest.MonkeyPatch, at: int) -> Iterator[list[int]]:
    """The `at`th change of a name or removal of a file is the last thing that this process does not do."""
    count = [0]

    def counted(do: object) -> object:
        def call(*arguments: object, **others: object) -> object:
            count[0] += 1
            if count[0] > at:
                raise OSError("the power is gone")
            assert callable(do)
            return do(*arguments, **others)

        return call

    with monkeypatch.context() as patch:
        for name in ("replace", "unlink", "rename"):
            patch.setattr(os, name, counted(getattr(os, name)))
            patch.setattr(Path, name, counted(getattr(Path, name)))
        yield count


def test_segments_are_the_old_or_the_new_ones_wherever_the_disk_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = tmp_path / "origin"
    settings = TopicSettings(segment_bytes=450)
    log = SegmentLog(origin, settings)
    for number in range(30):
        batch = filler_batch(3, timestamp=number)
        log.admit(batch, read_header(batch))
    old, end = whole(log), log.rewritable_end
    log.close()
    new = [empty_batch(0, end - 1), *old[end // 3 :]]
    seen = set()
    for at in range(40):
        directory = tmp_path / f"at-{at}"
        shutil.copytree(origin, directory)
        log = SegmentLog(directory, settings)
        with refusing(monkeypatch, at) as count, contextlib.suppress(Exception):
            rewriting = log.rewrite(end)
            for batch_bytes in new[:1]:
                rewriting.add(batch_bytes)
            rewriting.commit()
        again = SegmentLog(directory, settings, visit=ignore)
        found = whole(again)
        assert found in (old, new), f"after {at} steps"
        assert again.high_watermark == 90
        assert not list(directory.glob("*.cleaned"))
        assert not (directory / "rewritten").exists()
        seen.add(found == new)
        if count[0] <= at:
            break
    assert seen == {True, False}
    assert count[0] <= at, "all steps were tried"


def whole(log: SegmentLog) -> list[bytes]:
    found, offset = [], log.start_offset
    while data := log.read(offset, 1):
        found.append(data)
        offset = read_header(data).last_offset + 1
    return found
