"""The contract of an index of locations, which both of its engines keep."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from spark_producer.broker.storage.file_ops import SystemFiles
from spark_producer.broker.storage.tiered.interfaces import Location
from spark_producer.broker.storage.tiered.location_index import ArrayIndex, IndexDamaged, LocationIndex, RocksIndex
from tests.unit.broker.storage.tiered.index_rows import SIZE, rows

MIB = 1024 * 1024
Opened: TypeAlias = Callable[[int], LocationIndex]


@pytest.fixture(params=["arrays", "rocks"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    """Opens the index in the same directory, with the size that is trusted. All are closed at the end."""
    made: list[LocationIndex] = []

    def open_index(durable_bytes: int) -> LocationIndex:
        is_arrays = request.param == "arrays"
        made.append(
            ArrayIndex(SystemFiles(), tmp_path, durable_bytes=durable_bytes) if is_arrays else RocksIndex(tmp_path, MIB)
        )
        return made[-1]

    yield open_index
    made[-1].close()


def test_every_offset_of_a_batch_finds_where_it_lies(opened: Opened) -> None:
    index = opened(0)
    index.add({5: rows(0, 3), 9: rows(10, 1)})
    assert [found and found.base_offset for found in (index.find(5, offset) for offset in range(-1, 7))] == [
        *(None, 0, 0, 2, 2, 4, 4, None),
    ]
    assert index.find(5, 3) == Location(2, 4, 1, 1116, SIZE)
    assert (index.find(9, 9), index.find(7, 0)) == (None, None)
    assert index.log_ids() == [5, 9]


def test_positions_and_timestamps_find_the_first_batch_that_reaches_them(opened: Opened) -> None:
    index = opened(0)
    index.add({5: rows(0, 4, timestamp=10)})
    later = [index.first_at_or_after_position(5, position) for position in (0, 1, 300, 301)]
    assert [found and found.base_offset for found in later] == [0, 2, 6, None]
    at = [index.first_at_or_after(5, timestamp) for timestamp in (0, 11, 13, 14)]
    assert [found and found.base_offset for found in at] == [0, 2, 6, None]
    assert (index.latest_timestamp(5), index.latest_timestamp(6)) == (13, None)


def test_everything_is_there_when_it_is_opened_again(opened: Opened) -> None:
    index = opened(0)
    index.add({5: rows(0, 3), 9: rows(0, 1)})
    index.add({5: rows(6, 2)})
    index.move({5: [Location(2, 4, 7, 2000, SIZE)]})
    before = [list(index.rows(log_id)) for log_id in (5, 9)]
    index.close()
    again = opened(index.durable_bytes)
    assert [list(again.rows(log_id)) for log_id in (5, 9)] == before
    assert again.find(5, 2) == Location(2, 4, 7, 2000, SIZE)
    assert (again.row_count, again.file_ids(5), again.file_ends()) == (6, {1, 7}, {1: 1000 + 2 * 116 + 116, 7: 2116})


def test_rows_are_put_in_the_place_of_all_before(opened: Opened) -> None:
    index = opened(0)
    index.add({5: rows(0, 4), 9: rows(0, 1)})
    index.add({5: rows(8, 2)})
    (fresh,) = rows(0, 1, records=6, file_id=7)
    index.replace(5, [fresh._replace(position=-7)])
    for _ in range(2):
        assert index.find(5, 3) == Location(0, 6, 7, 1000, SIZE)
        found = [(int.from_bytes(row.header[:8], "big"), row.position, row.file_id) for row in index.rows(5)]
        assert found == [(0, -7, 7), (6, 300, 1), (8, 400, 1), (10, 500, 1)]
        assert index.row_count == 5
        assert index.file_bytes(5)[7] * 3 == index.file_bytes(5)[1]
        assert index.find(9, 1) is not None
        durable_bytes = index.durable_bytes
        index.close()
        index = opened(durable_bytes)
    index.add({5: rows(12, 1)})
    assert [int.from_bytes(row.header[:8], "big") for row in index.rows(5)] == [0, 6, 8, 10, 12]


def test_what_was_deleted_is_not_found(opened: Opened) -> None:
    index = opened(0)
    index.add({5: rows(0, 3), 9: rows(0, 1)})
    index.delete_before(5, 3)
    index.delete_log(9)
    assert [index.find(5, offset) is None for offset in range(6)] == [True, True, False, False, False, False]
    assert (index.log_ids(), index.row_count) == ([5], 2)
    index.delete_before(5, 6)
    assert (index.last(5), index.first_at_or_after(5, 0), index.latest_timestamp(5)) == (None, None, None)


def test_rows_that_overlap_are_damage(opened: Opened) -> None:
    index = opened(0)
    index.add({5: rows(0, 2)})
    with pytest.raises(IndexDamaged, match="where 4 should follow"):
        index.add({5: rows(2, 1)})


def test_a_gap_drops_what_was_deleted_before_it(opened: Opened) -> None:
    index = opened(0)
    index.add({5: rows(0, 2)})
    index.add({5: rows(10, 2)})
    found = (index.row_count, index.find(5, 2), index.find(5, 8), [row.header for row in index.rows(5)])
    index.close()
    again = opened(index.durable_bytes)
    assert found == (2, None, None, [row.header for row in rows(10, 2)])
    assert found == (again.row_count, again.find(5, 2), again.find(5, 8), [row.header for row in again.rows(5)])


def test_a_log_larger_than_a_scan_takes_at_once_is_read_whole(opened: Opened) -> None:
    index = opened(0)
    index.add({5: rows(0, 2500), 6: rows(0, 1)})
    assert len(list(index.rows(5))) == 2500
    index.delete_before(5, 2 * 1200)
    assert [index.row_count, len(list(index.rows(5)))] == [1301, 1300]


def test_what_is_deleted_comes_back_unless_the_catalog_was_stored_first(opened: Opened) -> None:
    index = opened(0)
    index.add({5: rows(0, 3), 9: rows(0, 1)})
    index.delete_log(9)
    index.delete_before(5, 3)
    index.close()
    again = opened(index.durable_bytes)
    assert (again.row_count, again.log_ids()) == (4, [5, 9])


def test_what_is_deleted_is_gone_for_good_after_a_compaction(opened: Opened) -> None:
    """The catalog is stored before. A batch that the start lies within stays."""
    index = opened(0)
    count = 20_000
    index.add({5: rows(0, count), 9: rows(0, 10)})
    index.delete_log(9)
    index.delete_before(5, 2 * count - 5)
    noted: list[tuple[int, int]] = []
    index.compact(lambda durable_bytes: noted.append((durable_bytes, len(list(index.rows(5))))))
    assert noted[0] == (0, 3)
    index.add({5: rows(2 * count, 1)})
    index.close()
    again = opened(index.durable_bytes)
    assert again.memory_bytes > 0
    assert (again.row_count, again.log_ids(), again.find(5, 2 * count - 7)) == (4, [5], None)
    assert again.find(5, 2 * count - 6) is not None
    again.compact(lambda durable_bytes: pytest.fail("there is nothing to give back"))
