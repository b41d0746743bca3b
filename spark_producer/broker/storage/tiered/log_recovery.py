"""The visit of all batches of a log when it is opened: the broker rebuilds its state of producers from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_producer.broker.storage.base import Recovered
from spark_producer.broker.storage.tiered.interfaces import EntryMissing
from spark_producer.broker.storage.tiered.location_index import IndexRow
from spark_producer.broker.storage.tiered.log_state import LogState
from spark_producer.errors import CorruptRecord
from spark_producer.record.batch_v2 import read_header

if TYPE_CHECKING:
    from spark_producer.broker.storage.tiered.engine import Engine


def visit(state: LogState, engine: Engine, recovered: Recovered) -> None:
    """Call `recovered` for every batch of a log, in order.

    The index has the headers of the flushed batches, so only control batches are read from the entry logs.

    Raises:
        CorruptRecord: a batch is damaged.
        EntryMissing, IndexDamaged: batches are missing.
        OSError: the disk refused.
    """
    ledger = engine.ledgers.of(state.log_id)
    lost = ledger.index.file_ids(state.log_id) & ledger.lost_files.keys() if ledger.lost_files else ()
    if lost:
        raise EntryMissing(ledger.lost_files[min(lost)])
    expected = state.start_offset
    for row in ledger.index.rows(state.log_id):
        header = read_header(row.header)
        if header.last_offset < expected:
            continue
        begins_before = (
            expected == state.start_offset and header.base_offset < expected
        )  # its first records are deleted
        if header.base_offset != expected and not begins_before:
            raise CorruptRecord(f"its records from offset {expected} up to {header.base_offset} are missing")
        recovered(header, _stored(row, engine) if header.is_control else b"")
        expected = header.last_offset + 1
    for cached, batch in engine.write_cache.cached_batches(state.log_id):
        if cached.base_offset >= expected:
            header = read_header(batch)
            recovered(header, batch if header.is_control else b"")
            expected = cached.end_offset
    if expected != state.end_offset:
        raise CorruptRecord(f"its records from offset {expected} up to {state.end_offset} are missing")


def _stored(row: IndexRow, engine: Engine) -> bytes:
    stored = next(engine.ledgers.entries(row.file_id, row.file_position))
    return bytes(stored.batch)
