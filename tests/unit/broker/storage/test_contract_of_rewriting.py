"""The behaviour of every storage engine when the start of a log is moved or batches are rewritten: as `test_contract`."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_producer.broker import TopicSettings
from spark_producer.broker.storage.empty_batch import empty_batch
from spark_producer.broker.storage.tiered import TieredStorage
from spark_producer.common.error_codes import Code
from spark_producer.record.batch_v2 import batches, read_header
from tests.unit.broker.batches import filler_batch as make_batch
from tests.unit.broker.storage.test_contract import ENGINES, MIB, SETTINGS, StorageHarness, refusal


def again(harness: StorageHarness, path: Path, settings: TopicSettings) -> None:
    """Close and open everything."""
    harness.log.close()
    harness.storage.close()
    harness.storage = harness.engine.open(path, SETTINGS)
    harness.storage.recover({"t": 1})
    harness.log = harness.storage.open("t", 0, settings, lambda _, __: None)


@pytest.mark.parametrize("offset", [1, 4, 5, 10, 12])
@pytest.mark.parametrize("name", ENGINES)
def test_the_start_is_moved_to_any_offset(name: str, offset: int, tmp_path: Path) -> None:
    settings = TopicSettings(segment_bytes=250)
    harness = StorageHarness(name, tmp_path, settings)
    for number in range(3):
        harness.append(make_batch(4, timestamp=number))
    for before in (offset, offset - 1, 0):
        harness.log.delete_before(before)
        assert (harness.log.start_offset, harness.log.high_watermark) == (offset, 12)
    if ENGINES[name].survives:
        again(harness, tmp_path, settings)
    assert (harness.log.start_offset, harness.log.high_watermark) == (offset, 12)
    assert refusal(lambda: harness.log.read(offset - 1, MIB)) == Code.OFFSET_OUT_OF_RANGE
    assert harness.log.available(offset, MIB) == 100 * (3 - offset // 4)
    found = harness.log.offset_for_timestamp(0)
    assert (None if found is None else found.offset) == (offset if offset < 12 else None)
    assert harness.append(make_batch(1)) == 12
    assert harness.log.read(12, MIB)
    harness.log.close()
    harness.storage.close()


def settle_all(harness: StorageHarness) -> None:
    if isinstance(harness.storage, TieredStorage):
        harness.engine.confirm(harness.storage)
        harness.storage.engine.flusher.flush_now()


def rewrite(harness: StorageHarness, *, commit: bool = True) -> list[bytes]:
    """Rewrite all that may be: one batch without records, and the last one as it is; return the new ones."""
    log, end = harness.log, harness.log.rewritable_end
    old, offset = [], log.start_offset
    while offset < end:
        data = log.read(offset, MIB, up_to=end)
        found = list(batches(data))
        old += [(header, bytes(batch)) for header, batch in found]
        offset = found[-1][0].last_offset + 1
    assert offset == end
    *gone, (_, last) = old
    new = [empty_batch(gone[0][0].base_offset, gone[-1][0].last_offset), last]
    rewriting = log.rewrite(end)
    for batch in new:
        while not rewriting.add(batch):
            pass
    if commit:
        while not rewriting.commit():
            pass
    else:
        rewriting.abort()
    return new


@pytest.mark.parametrize("cleanly", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("name", ENGINES)
def test_batches_are_rewritten_with_the_same_offsets(name: str, cleanly: bool, tmp_path: Path) -> None:
    settings = TopicSettings(segment_bytes=450)
    harness = StorageHarness(name, tmp_path, settings)
    for number in range(20):
        harness.append(make_batch(3, timestamp=number, producer_id=number, epoch=0, sequence=0))
    settle_all(harness)
    before = harness.read_all()
    harness.log.read(0, MIB)  # the cached batches are outdated now
    rewrite(harness, commit=False)
    assert harness.read_all() == before
    for _ in range(2):
        new = rewrite(harness)
        end = read_header(new[-1]).last_offset + 1
        expected = [read_header(batch) for batch in new] + [each for each in before if each.base_offset >= end]
        assert harness.read_all() == expected
    assert harness.log.available(0, MIB) == sum(each.size for each in expected)
    assert harness.log.read(1, 0) == new[0]
    for offset, size in ((0, len(new[0])), (0, len(new[0]) + 100), (0, len(new[0]) + 300), (end, 100)):
        assert harness.log.offset_upper_bound(offset, size) >= read_header(harness.log.read(offset, size)).last_offset
    earlier = harness.storage
    if ENGINES[name].survives:
        if cleanly:
            again(harness, tmp_path, settings)
        else:
            harness.storage = harness.engine.open(tmp_path, SETTINGS)
            harness.storage.recover({"t": 1})
            harness.log = harness.storage.open("t", 0, settings, lambda _, __: None)
        assert harness.read_all() == expected
    assert harness.append(make_batch(2)) == 60
    assert len(harness.read_all()) == len(expected) + 1
    harness.log.close()
    harness.storage.close()
    if not cleanly and earlier is not harness.storage:
        earlier.close()


@pytest.mark.parametrize("name", ENGINES)
def test_records_are_deleted_from_a_batch_without_records_on(name: str, tmp_path: Path) -> None:
    settings = TopicSettings(segment_bytes=450)
    harness = StorageHarness(name, tmp_path, settings)
    for _ in range(20):
        harness.append(make_batch(3))
    settle_all(harness)
    rewrite(harness)
    harness.log.delete_before(7)
    if ENGINES[name].survives:
        again(harness, tmp_path, settings)
    assert (harness.log.start_offset, harness.log.high_watermark) == (7, 60)
    assert read_header(harness.log.read(7, MIB)).base_offset == 0
    harness.log.close()
    harness.storage.close()
