"""The records that a broker refuses for their own sake are taken out of their batch, and the others are sent again (KIP-467).

Kafka refuses a whole batch for a few of its records, and names those. Whoever sent a record may want it back (`RefusedRows`);
else the batch fails as a whole.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from spark_producer.accumulator.batch import ProducerBatch
from spark_producer.accumulator.compressing import Compression
from spark_producer.accumulator.failure_tracking import ThreadFailures
from spark_producer.accumulator.row_origins import Refused, RowRange, rows_told, runs_containing, without_records
from spark_producer.errors import BrokerError, RecordsRefused
from spark_producer.record.batch_v2 import HEADER_SIZE
from spark_producer.record.codecs import Codec, decompress

MAX_ROUNDS = 10
"""How often records are taken out of a batch. A broker tells of one kind of error at a time (KAFKA-12606), and there are few."""

_NO_LIMIT = (1 << 31) - 1


class RefusedRows:
    """The records that brokers have refused, on their way back to the thread that sent them.

    `wants` says of an error whether its records are wanted. Copies of at most about `most_bytes` are held: beyond that batches
    fail as a whole, so take them often. The I/O thread adds; any thread takes.
    """

    has_future = False

    def __init__(self, wants: Callable[[BrokerError], bool], most_bytes: int) -> None:
        self._wants = wants
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._held: list[Refused] = []
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self._held)

    def expect(self) -> None:
        """Do nothing: a flush waits for all rows."""

    def written(self, place: tuple[str, int], offset: int, records: int) -> None:
        """Do nothing: written rows are counted elsewhere."""

    def failed(self, error: Exception, run: RowRange) -> None:
        """Do nothing: the thread is told by its flush."""

    def takes(self, error: BrokerError) -> bool:
        """Whether records with this error are wanted, and there is room."""
        return self._bytes <= self._most_bytes and self._wants(error)

    def refused(self, refused: Refused) -> None:
        """Hold records until they are taken."""
        with self._lock:
            self._held.append(refused)
            self._bytes += refused.records.nbytes

    def take(self) -> list[Refused]:
        """Return what is held, in the order in which brokers refused it, and hold it no longer."""
        with self._lock:
            held, self._held, self._bytes = self._held, [], 0
        return held


def take_out(
    batch: ProducerBatch, texts: Mapping[int, str], error: BrokerError, compression: Compression | None
) -> bool:
    """Take the records at the indices `texts` out of a batch that is not in flight, and give them to those who sent them.

    Sequences are not touched. Nothing is done, and False is returned, if one of the records is not wanted back, if there is no
    such record, or if this has been done too often.
    """
    indices = sorted(texts)
    parts = runs_containing(batch.runs, indices)
    if not parts or batch.rounds >= MAX_ROUNDS:
        return False
    if not all(run.table is not None and run.table.takes(error) for run, _ in parts):
        return False
    records = _rewrite(batch, indices, compression)
    done = 0
    for run, mine in parts:
        rows = [run.rows[index - run.offset_delta] for index in mine]
        told = [texts[index] for index in mine]
        if run.table is not None:
            run.table.refused(Refused(batch.place, error, rows, told, records.slice(done, len(mine))))
        done += len(mine)
    batch.runs = without_records(batch.runs, indices)
    if batch.result is not None:
        batch.result.close_gaps(indices)
    batch.rounds += 1
    batch.resent = True
    return True


def _rewrite(batch: ProducerBatch, indices: list[int], compression: Compression | None) -> pa.RecordBatch:
    """Leave in the buffer only the records that are not at `indices`, and return those that are."""
    from spark_producer.record.record_removal import take_records_out  # it reads records, which no other writer does

    bad = np.array(indices, dtype=np.int64)
    first = batch.begin + HEADER_SIZE
    if batch.codec == Codec.NONE or compression is None:
        taken = take_records_out(batch.buffer, first, batch.position, batch.records_count, batch.base_timestamp, bad)
        batch.position = taken.end
    else:
        records = memoryview(bytearray(decompress(batch.codec, batch.data[HEADER_SIZE:], _NO_LIMIT)))
        taken = take_records_out(records, 0, len(records), batch.records_count, batch.base_timestamp, bad)
        if taken.end:
            compression.replace(batch, records[: taken.end])
    batch.records_count -= len(bad)
    batch.max_timestamp = batch.base_timestamp + taken.latest
    return taken.records


def errors_by_thread(batch: ProducerBatch, error: RecordsRefused) -> dict[ThreadFailures, Exception]:
    """Return the error for each thread with rows in the batch, with the numbers of its own rows."""
    found: dict[ThreadFailures, Exception] = {}
    for account in batch.accounts:
        rows = rows_told(batch.runs, error.records, account)
        if rows:
            found[account] = RecordsRefused(str(error), **{**error.__dict__, "rows": rows})
    return found
