"""Entry logs that are shorter than the index says, as those of a copy of a data directory that was cut short."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spark_producer.broker.storage.file_ops import SystemFiles
from spark_producer.broker.storage.tiered.entry_log import EntryLogWriter, NewEntry
from spark_producer.broker.storage.tiered.entry_log_files import EntryLogFiles
from spark_producer.broker.storage.tiered.entry_log_format import ENTRY_HEADER, HEADER_SIZE, Extent
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError
from tests.unit.broker.storage.tiered.engine_harness import LEDGERS, EngineHarness
from tests.unit.broker.storage.tiered.read_path_harness import LOG, batch_at

SIZE = 300
WHOLE = ENTRY_HEADER.size + SIZE


@pytest.mark.covers("RAH5")
@pytest.mark.parametrize("left", [0, 1, ENTRY_HEADER.size - 1, ENTRY_HEADER.size, 60, WHOLE - 1])
@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_file_that_ends_before_its_entries_do_is_damage(left: int, is_sealed: bool) -> None:
    """Neither a read of the entry that is cut nor a read-ahead that comes to it waits for the rest."""
    harness = EngineHarness()
    for _ in range(3):
        harness.append(size=SIZE)
    before = harness.read_all()
    harness.flush()
    if is_sealed:
        harness.engine.ledgers[0].entry_log.end()
    path = LEDGERS / harness.entry_logs()[0]
    harness.disk.put(path, harness.disk.content(path)[: HEADER_SIZE + 2 * WHOLE + left])
    assert harness.log.read(0, 10_000) == b"".join(before[:2])
    with pytest.raises(BrokerError, match="or a damaged one") as refused:
        harness.log.read(2, 10_000)
    assert refused.value.code is Code.KAFKA_STORAGE_ERROR
    harness.close()


@pytest.mark.covers("GC1")
@pytest.mark.parametrize("left", [0, WHOLE, WHOLE + 1, WHOLE + 20])
def test_a_file_whose_map_is_gone_is_read_instead(left: int, tmp_path: Path) -> None:
    """On a real disk, which refuses reads of negative length. Such a file would otherwise end every garbage collection."""
    files = SystemFiles()
    writer = EntryLogWriter(files, tmp_path, 10_000)
    batch = batch_at(0, size=SIZE)
    writer.write([NewEntry(LOG, 0, 2, batch)])
    writer.end()
    reader = EntryLogFiles(files, tmp_path)
    assert reader.stored_extents(1) == list(reader.scanned_extents(1)) == [Extent(LOG, 0, 2, WHOLE)]
    os.truncate(reader.path(1), HEADER_SIZE + left)
    assert reader.stored_extents(1) is None
    assert len(list(reader.scanned_extents(1))) == (left >= WHOLE)
