"""With `skip_damage` a log is opened although its entry logs lack batches: all others are read as before, at their offsets."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_producer.errors import BrokerError, PyProducerError
from spark_producer.record.batch_v2 import HEADER_SIZE, read_header
from spark_producer.record.control import EndMarker, end_marker_batch
from tests.fakes.small_tiers import collect, settle
from tests.support.simulated_disk import SimulatedDisk
from tests.unit.broker.storage.tiered.engine_harness import LEDGERS, EngineHarness

RECORDS, FLUSHES, LOST = 3, 5, 2
"""Records of each batch, flushes with a file of their own, and the number of the damaged one."""


def missing(disk: SimulatedDisk, path: Path) -> None:
    disk.unlink(path)
    disk.sync_directory(path.parent)


def cut(disk: SimulatedDisk, path: Path) -> None:
    disk.put(path, disk.content(path)[:2200])


def flipped(disk: SimulatedDisk, path: Path) -> None:
    data = bytearray(disk.content(path))
    data[1700] ^= 1
    disk.put(path, bytes(data))


DAMAGES: dict[Callable[[SimulatedDisk, Path], None], list[tuple[int, int]]] = {
    missing: [(0, 0), (0, 1), (1, 0), (1, 1)],
    cut: [(1, 0), (1, 1)],
    flipped: [(0, 1)],
}
"""The damage of a file, and which batches it costs: (log, number in the file)."""


def filled() -> tuple[EngineHarness, list[list[bytes]]]:
    """Two logs with two batches of each flush, and the batches of both."""
    harness = EngineHarness(logs=2, entry_log_bytes=4000)
    for _ in range(FLUSHES):
        for index in (0, 1):
            for _ in range(2):
                harness.append(index, records=RECORDS, size=500)
        harness.flush()
    assert len(harness.entry_logs()) == FLUSHES
    expected = [harness.read_all(index) for index in (0, 1)]
    harness.close()
    return harness, expected


def records(batches: list[bytes]) -> list[tuple[int, int]]:
    """(base offset, number of records) of each batch."""
    return [(header.base_offset, header.records_count) for header in map(read_header, batches)]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda each: each.__name__)
def test_lost_batches_are_skipped_and_all_others_stay(
    damage: Callable[[SimulatedDisk, Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    harness, expected = filled()
    path = LEDGERS / harness.entry_logs()[LOST]
    damage(harness.disk, path)
    if damage is flipped:
        closed = EngineHarness(harness.disk, logs=2)
        with pytest.raises(BrokerError, match=rf"{path.name} has no entry.*--skip-damage"):
            closed.log.read(2 * LOST * RECORDS + RECORDS, 10_000)
        closed.close()
    else:
        with pytest.raises(PyProducerError, match=rf"{path.name} .*--skip-damage"):
            EngineHarness(harness.disk, logs=2)
    caplog.set_level(logging.WARNING)
    skipped = EngineHarness(harness.disk, logs=2, skip_damage=True)
    gone = DAMAGES[damage]
    for index in (0, 1):
        lost = {2 * LOST + number for log, number in gone if log == index}
        found = skipped.read_all(index)
        assert [each for each in found if read_header(each).records_count] == [
            each for number, each in enumerate(expected[index]) if number not in lost
        ]
        assert records(found) == [(RECORDS * number, 0 if number in lost else RECORDS) for number in range(2 * FLUSHES)]
        text = f"t-{index}: {RECORDS * len(lost)} records in {len(lost)} batches are skipped"
        assert (text in caplog.text) == bool(lost)
        skipped.append(index)
    skipped.flush()
    collect(skipped.engine, 0.9)
    after = [skipped.read_all(index) for index in (0, 1)]
    assert [len(each) for each in after] == [2 * FLUSHES + 1] * 2
    skipped.close()
    again = EngineHarness(harness.disk, logs=2)
    assert [again.read_all(index) for index in (0, 1)] == after, "the next start needs no skip_damage"
    again.close()


def test_a_lost_marker_leaves_the_transaction_open(caplog: pytest.LogCaptureFixture) -> None:
    """Its content, commit or abort, is gone with it."""
    harness = EngineHarness(entry_log_bytes=600)
    harness.append(size=500)
    harness.flush()
    marker = end_marker_batch(EndMarker(True, 0), producer_id=7, producer_epoch=0, timestamp=1)
    harness.log.admit(marker, read_header(marker))
    harness.append(size=450)
    harness.flush()
    missing(harness.disk, LEDGERS / harness.entry_logs()[1])
    harness.close()
    skipped = EngineHarness(harness.disk, skip_damage=True)
    headers = list(map(read_header, skipped.read_all()))
    assert [(each.is_control, each.records_count, each.size) for each in headers[1:]] == [
        (False, 0, HEADER_SIZE),
        (False, 0, HEADER_SIZE),
    ]
    assert headers[1].producer_id == -1
    assert "1 records in 2 batches are skipped, and 1 markers of transactions, which stay open" in caplog.text
    skipped.close()


def test_nothing_is_replaced_where_nothing_is_lost() -> None:
    harness, expected = filled()
    before = {name: harness.disk.content(LEDGERS / name) for name in harness.disk.names(LEDGERS) if "." in name}
    skipped = EngineHarness(harness.disk, logs=2, skip_damage=True)
    assert [skipped.read_all(index) for index in (0, 1)] == expected
    settle(skipped.storage)
    skipped.close()
    assert {name: harness.disk.content(LEDGERS / name) for name in before} == before
