"""Rows for tests of an index of locations."""

from __future__ import annotations

from spark_producer.broker.storage.tiered.location_index import IndexRow
from spark_producer.record.batch_v2 import HEADER_SIZE, assign_base_offset
from tests.unit.broker.batches import filler_batch

SIZE = 100


def rows(first: int, count: int, *, records: int = 2, file_id: int = 1, timestamp: int = 0) -> list[IndexRow]:
    """Rows of batches of `records` records each; the first one begins at offset `first`."""
    found = []
    for number in range(count):
        base = first + number * records
        batch = bytearray(filler_batch(records, size=SIZE, timestamp=timestamp + number))
        assign_base_offset(memoryview(batch), base, 0)
        found.append(IndexRow(bytes(batch[:HEADER_SIZE]), base // records * SIZE, file_id, 1000 + number * 116))
    return found
