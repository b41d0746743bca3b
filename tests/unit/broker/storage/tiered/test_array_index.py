"""The file of the index of locations that is made of arrays."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_producer.broker.storage.tiered.interfaces import Location
from spark_producer.broker.storage.tiered.location_index import ArrayIndex, IndexDamaged
from spark_producer.broker.storage.tiered.location_index.arrays import NAME
from tests.support.simulated_disk import SimulatedDisk
from tests.unit.broker.storage.tiered.engine_harness import LEDGERS, EngineHarness
from tests.unit.broker.storage.tiered.index_rows import SIZE, rows


@pytest.fixture
def disk() -> SimulatedDisk:
    made = SimulatedDisk()
    made.make_directory(LEDGERS)
    return made


def opened(disk: SimulatedDisk, durable_bytes: int = 0) -> ArrayIndex:
    return ArrayIndex(disk, LEDGERS, durable_bytes=durable_bytes)


def test_a_torn_end_is_cut_off_at_every_byte(disk: SimulatedDisk) -> None:
    index = opened(disk)
    index.add({5: rows(0, 1)})
    durable_bytes = index.durable_bytes
    index.add({5: rows(2, 1)})
    content = disk.content(LEDGERS / NAME)
    for cut in range(durable_bytes, len(content)):
        torn = SimulatedDisk()
        torn.make_directory(LEDGERS)
        torn.put(LEDGERS / NAME, content[:cut] + bytes(len(content) - cut))
        again = opened(torn, durable_bytes)
        assert (again.row_count, again.durable_bytes) == (1, durable_bytes), cut
        again.add({5: rows(2, 1)})
        again.close()
        assert opened(torn, again.durable_bytes).row_count == 2, cut


def test_damage_of_forced_rows_is_reported(disk: SimulatedDisk) -> None:
    index = opened(disk)
    index.add({5: rows(0, 2)})
    content = bytearray(disk.content(LEDGERS / NAME))
    content[40] ^= 1
    disk.put(LEDGERS / NAME, bytes(content))
    with pytest.raises(IndexDamaged, match="is damaged at byte 0"):
        opened(disk, index.durable_bytes)


@pytest.mark.covers("IDX2")
def test_rows_are_on_the_disk_when_add_or_move_returns(disk: SimulatedDisk) -> None:
    index = opened(disk)
    index.add({5: rows(0, 2)})
    added = disk.durable(LEDGERS / NAME)
    assert (len(added), added) == (index.durable_bytes, disk.content(LEDGERS / NAME))
    index.move({5: [Location(0, 2, 7, 2000, SIZE)]})
    assert len(disk.durable(LEDGERS / NAME)) == index.durable_bytes > len(added)


@pytest.mark.covers("IDX2")
def test_no_flush_leaves_an_index_that_a_loss_of_power_empties(caplog: pytest.LogCaptureFixture) -> None:
    """The rebuilding would hide that rows were not forced."""
    harness = EngineHarness(sync=True)
    for seed in range(10):
        harness.append()
        harness.flush()
        harness, before = EngineHarness(harness.disk.crash(seed)), harness
        before.close()
        assert harness.engine.ledgers[0].index.row_count == seed + 1
    assert "rebuilt" not in caplog.text
    harness.close()


def test_a_failed_add_adds_nothing_and_may_be_repeated(disk: SimulatedDisk) -> None:
    index = opened(disk)
    index.add({5: rows(0, 2)})
    disk.script.fail("force", NAME)
    with pytest.raises(OSError, match="Input/output"):
        index.add({5: rows(4, 2)})
    assert index.row_count == 2
    index.add({5: rows(4, 2)})
    assert opened(disk.crash(1), index.durable_bytes).row_count == 4


def test_rows_that_can_be_read_and_may_not_be_on_the_disk_are_written_again(disk: SimulatedDisk) -> None:
    """After a force that failed the system takes the pages for written, and shows them to the next process."""
    index = opened(disk)
    index.add({5: rows(0, 2)})
    durable_bytes = index.durable_bytes
    disk.script.fail("force", NAME)
    with pytest.raises(OSError, match="Input/output"):
        index.add({5: rows(4, 2)})
    again = opened(disk, durable_bytes)
    assert again.row_count == 4
    assert len(disk.durable(LEDGERS / NAME)) == again.durable_bytes
    assert opened(disk.crash(1), again.durable_bytes).row_count == 4


def test_a_rewritten_file_has_all_rows(disk: SimulatedDisk) -> None:
    index = opened(disk)
    index.add({5: rows(0, 50), 9: rows(0, 50)})
    index.delete_log(9)
    index.delete_before(5, 50)
    index.move({5: [Location(50, 52, 7, 2000, SIZE)]})
    before, size = list(index.rows(5)), index.durable_bytes
    index._rewrite(index._packed())
    assert index.durable_bytes < size / 3
    assert list(index.rows(5)) == before
    assert disk.durable(LEDGERS / NAME) == disk.content(LEDGERS / NAME), "the new file has the name on the disk too"
    index.add({5: rows(100, 1)})
    index.close()
    again = opened(disk.crash(1), index.durable_bytes)
    assert list(again.rows(5))[:-1] == before
    assert (again.row_count, again.find(5, 51)) == (26, Location(50, 52, 7, 2000, SIZE))


@pytest.mark.covers("IDX1")
@pytest.mark.parametrize("damage", ["flipped", "gone"])
def test_an_index_that_is_rebuilt_is_the_original(damage: str, caplog: pytest.LogCaptureFixture) -> None:
    harness = EngineHarness(logs=3, entry_log_bytes=3000)
    for number in range(60):
        harness.append(number % 3, records=1 + number % 4, size=100 + number)
        if number % 20 == 19:
            harness.flush()
    original = [
        list(harness.engine.ledgers[0].index.rows(log_id)) for log_id in harness.engine.ledgers[0].index.log_ids()
    ]
    read = [harness.read_all(index) for index in range(3)]
    harness.close()
    path: Path = LEDGERS / NAME
    content = bytearray(harness.disk.content(path))
    content[len(content) // 2] ^= 1
    harness.disk.put(path, bytes(content) if damage == "flipped" else b"")
    again = EngineHarness(harness.disk, logs=3)
    assert [
        list(again.engine.ledgers[0].index.rows(log_id)) for log_id in again.engine.ledgers[0].index.log_ids()
    ] == original
    assert [again.read_all(index) for index in range(3)] == read
    assert "the index is rebuilt from the entry logs" in caplog.text
    again.close()
