"""The contract of an index of locations, and the file of the one that is made of arrays."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_producer.broker.storage.tiered.location_index import ArrayIndex, IndexDamaged, IndexRow
from spark_producer.broker.storage.tiered.location_index.arrays import NAME
from spark_producer.broker.storage.tiered.sources import Location
from spark_producer.record.batch_v2 import HEADER_SIZE, assign_base_offset
from tests.support.simulated_disk import SimulatedDisk
from tests.unit.broker.batches import filler_batch
from tests.unit.broker.storage.tiered.engine_stage import LEDGERS, EngineStage

SIZE = 100


@pytest.fixture
def disk() -> SimulatedDisk:
    made = SimulatedDisk()
    made.make_directory(LEDGERS)
    return made


def opened(disk: SimulatedDisk, trusted: int = 0) -> ArrayIndex:
    return ArrayIndex(disk, LEDGERS, trusted=trusted)


def rows(first: int, count: int, *, records: int = 2, file_id: int = 1, timestamp: int = 0) -> list[IndexRow]:
    """Rows of batches of `records` records each; the first one begins at offset `first`."""
    found = []
    for number in range(count):
        base = first + number * records
        batch = bytearray(filler_batch(records, size=SIZE, timestamp=timestamp + number))
        assign_base_offset(memoryview(batch), base, 0)
        found.append(IndexRow(bytes(batch[:HEADER_SIZE]), base // records * SIZE, file_id, 1000 + number * 116))
    return found


def test_every_offset_of_a_batch_finds_where_it_lies(disk: SimulatedDisk) -> None:
    index = opened(disk)
    index.add({5: rows(0, 3), 9: rows(10, 1)})
    assert [found and found.base_offset for found in (index.find(5, offset) for offset in range(-1, 7))] == [
        *(None, 0, 0, 2, 2, 4, 4, None),
    ]
    assert index.find(5, 3) == Location(2, 4, 1, 1116, SIZE)
    assert (index.find(9, 9), index.find(7, 0)) == (None, None)
    assert index.log_ids() == [5, 9]


def test_positions_and_timestamps_find_the_first_batch_that_reaches_them(disk: SimulatedDisk) -> None:
    index = opened(disk)
    index.add({5: rows(0, 4, timestamp=10)})
    behind = [index.first_behind(5, position) for position in (0, 1, 300, 301)]
    assert [found and found.base_offset for found in behind] == [0, 2, 6, None]
    at = [index.first_at_or_after(5, timestamp) for timestamp in (0, 11, 13, 14)]
    assert [found and found.base_offset for found in at] == [0, 2, 6, None]
    assert (index.latest_timestamp(5), index.latest_timestamp(6)) == (13, None)


def test_everything_is_there_when_it_is_opened_again(disk: SimulatedDisk) -> None:
    index = opened(disk)
    index.add({5: rows(0, 3), 9: rows(0, 1)})
    index.add({5: rows(6, 2)})
    index.move({5: [Location(2, 4, 7, 2000, SIZE)]})
    before = [list(index.rows(log_id)) for log_id in (5, 9)]
    index.close()
    again = opened(disk, index.trusted)
    assert [list(again.rows(log_id)) for log_id in (5, 9)] == before
    assert again.find(5, 2) == Location(2, 4, 7, 2000, SIZE)
    assert (again.row_count, again.file_ids(5), again.file_ends()) == (6, {1, 7}, {1: 1000 + 2 * 116 + 116, 7: 2116})


def test_what_was_deleted_is_not_found(disk: SimulatedDisk) -> None:
    index = opened(disk)
    index.add({5: rows(0, 3), 9: rows(0, 1)})
    index.delete_before(5, 3)
    index.delete_log(9)
    assert [index.find(5, offset) is None for offset in range(6)] == [True, True, False, False, False, False]
    assert (index.log_ids(), index.row_count) == ([5], 2)
    index.delete_before(5, 6)
    assert (index.last(5), index.first_at_or_after(5, 0), index.latest_timestamp(5)) == (None, None, None)


def test_a_torn_end_is_cut_off_at_every_byte(disk: SimulatedDisk) -> None:
    index = opened(disk)
    index.add({5: rows(0, 1)})
    trusted = index.trusted
    index.add({5: rows(2, 1)})
    content = disk.content(LEDGERS / NAME)
    for cut in range(trusted, len(content)):
        torn = SimulatedDisk()
        torn.make_directory(LEDGERS)
        torn.put(LEDGERS / NAME, content[:cut] + bytes(len(content) - cut))
        again = opened(torn, trusted)
        assert (again.row_count, again.trusted) == (1, trusted), cut
        again.add({5: rows(2, 1)})
        again.close()
        assert opened(torn, again.trusted).row_count == 2, cut


def test_damage_of_what_was_on_the_disk_is_told(disk: SimulatedDisk) -> None:
    index = opened(disk)
    index.add({5: rows(0, 2)})
    content = bytearray(disk.content(LEDGERS / NAME))
    content[40] ^= 1
    disk.put(LEDGERS / NAME, bytes(content))
    with pytest.raises(IndexDamaged, match="is damaged at byte 0"):
        opened(disk, index.trusted)


def test_rows_that_overlap_are_damage(disk: SimulatedDisk) -> None:
    index = opened(disk)
    index.add({5: rows(0, 2)})
    with pytest.raises(IndexDamaged, match="where 4 should follow"):
        index.add({5: rows(2, 1)})


def test_a_failed_add_adds_nothing_and_may_be_repeated(disk: SimulatedDisk) -> None:
    index = opened(disk)
    index.add({5: rows(0, 2)})
    disk.script.fail("force", NAME)
    with pytest.raises(OSError, match="Input/output"):
        index.add({5: rows(4, 2)})
    assert index.row_count == 2
    index.add({5: rows(4, 2)})
    assert opened(disk.crash(1), index.trusted).row_count == 4


def test_rows_that_can_be_read_and_may_not_be_on_the_disk_are_written_again(disk: SimulatedDisk) -> None:
    """After a force that failed the system takes the pages for written, and shows them to the next process."""
    index = opened(disk)
    index.add({5: rows(0, 2)})
    trusted = index.trusted
    disk.script.fail("force", NAME)
    with pytest.raises(OSError, match="Input/output"):
        index.add({5: rows(4, 2)})
    again = opened(disk, trusted)
    assert again.row_count == 4
    assert len(disk.durable(LEDGERS / NAME)) == again.trusted
    assert opened(disk.crash(1), again.trusted).row_count == 4


def test_a_file_that_is_written_anew_has_what_there_is(disk: SimulatedDisk) -> None:
    index = opened(disk)
    index.add({5: rows(0, 50), 9: rows(0, 50)})
    index.delete_log(9)
    index.delete_before(5, 50)
    index.move({5: [Location(50, 52, 7, 2000, SIZE)]})
    before, size = list(index.rows(5)), index.trusted
    index.rewrite()
    assert index.trusted < size / 3
    assert list(index.rows(5)) == before
    assert disk.durable(LEDGERS / NAME) == disk.content(LEDGERS / NAME), "the new file has the name on the disk too"
    index.add({5: rows(100, 1)})
    index.close()
    again = opened(disk.crash(1), index.trusted)
    assert list(again.rows(5))[:-1] == before
    assert (again.row_count, again.find(5, 51)) == (26, Location(50, 52, 7, 2000, SIZE))


@pytest.mark.parametrize("damage", ["flipped", "gone"])
def test_idx1_an_index_that_is_rebuilt_is_the_original(damage: str, caplog: pytest.LogCaptureFixture) -> None:
    stage = EngineStage(logs=3, entry_log_bytes=3000)
    for number in range(60):
        stage.append(number % 3, records=1 + number % 4, size=100 + number)
        if number % 20 == 19:
            stage.flush()
    original = [list(stage.engine.index.rows(log_id)) for log_id in stage.engine.index.log_ids()]
    read = [stage.read_all(index) for index in range(3)]
    stage.close()
    path: Path = LEDGERS / NAME
    content = bytearray(stage.disk.content(path))
    content[len(content) // 2] ^= 1
    stage.disk.put(path, bytes(content) if damage == "flipped" else b"")
    again = EngineStage(stage.disk, logs=3)
    assert [list(again.engine.index.rows(log_id)) for log_id in again.engine.index.log_ids()] == original
    assert [again.read_all(index) for index in range(3)] == read
    assert "the index is rebuilt from the entry logs" in caplog.text
    again.close()
