"""Single records that a broker rejects are removed from their batch, and the rest of the batch is sent again (KIP-467).

Kafka rejects a whole batch for a few of its records, and names those. The sender of a record may ask for it back
(`RejectionCollector`); otherwise the whole batch fails.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from spark_producer.accumulator.batch import ProducerBatch
from spark_producer.accumulator.compressing import Compression
from spark_producer.accumulator.failure_tracking import ThreadFailures
from spark_producer.accumulator.row_origins import (
    BrokerRejection,
    RowRange,
    errors_by_row,
    runs_containing,
    without_records,
)
from spark_producer.errors import BrokerError, RecordsRefused
from spark_producer.record.batch_v2 import HEADER_SIZE
from spark_producer.record.codecs import Codec, decompress

MAX_ROUNDS = 10
"""Maximum number of times that records are removed from one batch. A broker reports one kind of error at a time (KAFKA-12606),
and there are few."""

_NO_LIMIT = (1 << 31) - 1


class RejectionCollector:
    """Collects the records that brokers reject, for the thread that sent them.

    `wants` returns whether the records of an error are to be collected. About `max_bytes` of copies are held: beyond that whole
    batches fail, so take them often. The I/O thread adds; any thread takes.
    """

    has_future = False

    def __init__(self, wants: Callable[[BrokerError], bool], max_bytes: int) -> None:
        self._wants = wants
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._held: list[BrokerRejection] = []
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self._held)

    def expect(self) -> None:
        """Do nothing: a flush waits for all rows."""

    def written(self, tp: tuple[str, int], offset: int, records: int) -> None:
        """Do nothing: written rows are counted elsewhere."""

    def failed(self, error: Exception, run: RowRange) -> None:
        """Do nothing: the flush of the thread reports it."""

    def wants(self, error: BrokerError) -> bool:
        """Return whether records with this error are wanted, and `max_bytes` is not reached."""
        return self._bytes <= self._max_bytes and self._wants(error)

    def rejected(self, rejection: BrokerRejection) -> None:
        """Add records, and hold them until they are taken."""
        with self._lock:
            self._held.append(rejection)
            self._bytes += rejection.records.nbytes

    def take(self) -> list[BrokerRejection]:
        """Return and remove the held records, in the order in which brokers rejected them."""
        with self._lock:
            held, self._held, self._bytes = self._held, [], 0
        return held


def remove_rejected(
    batch: ProducerBatch, texts: Mapping[int, str], error: BrokerError, compression: Compression | None
) -> bool:
    """Remove rejected records from a batch that is not in flight, and pass them to their listeners.

    `texts` has the broker's message for each index of a rejected record. Sequences do not change. Return False, and change
    nothing, if a listener does not want one of the records, if there is no
    such record, or after `MAX_ROUNDS`.
    """
    indices = sorted(texts)
    parts = runs_containing(batch.runs, indices)
    if not parts or batch.removals >= MAX_ROUNDS:
        return False
    if not all(run.listener is not None and run.listener.wants(error) for run, _ in parts):
        return False
    records = _rewrite(batch, indices, compression)
    done = 0
    for run, mine in parts:
        rows = [run.rows[index - run.offset_delta] for index in mine]
        messages = [texts[index] for index in mine]
        if run.listener is not None:
            run.listener.rejected(
                BrokerRejection(batch.topic_partition, error, rows, messages, records.slice(done, len(mine)))
            )
        done += len(mine)
    batch.runs = without_records(batch.runs, indices)
    if batch.result is not None:
        batch.result.close_gaps(indices)
    batch.removals += 1
    batch.resent = True
    return True


def _rewrite(batch: ProducerBatch, indices: list[int], compression: Compression | None) -> pa.RecordBatch:
    """Remove the records at `indices` from the buffer, and return them."""
    from spark_producer.record.record_removal import remove_records  # it reads records, which no other writer does

    bad = np.array(indices, dtype=np.int64)
    first = batch.begin + HEADER_SIZE
    if batch.codec == Codec.NONE or compression is None:
        taken = remove_records(batch.buffer, first, batch.position, batch.records_count, batch.base_timestamp, bad)
        batch.position = taken.end
    else:
        records = memoryview(bytearray(decompress(batch.codec, batch.data[HEADER_SIZE:], _NO_LIMIT)))
        taken = remove_records(records, 0, len(records), batch.records_count, batch.base_timestamp, bad)
        if taken.end:
            compression.replace(batch, records[: taken.end])
    batch.records_count -= len(bad)
    batch.max_timestamp = batch.base_timestamp + taken.latest
    return taken.records


def errors_by_thread(batch: ProducerBatch, error: RecordsRefused) -> dict[ThreadFailures, Exception]:
    """Return the error for each thread with rows in the batch; it has the numbers of that thread's rows."""
    found: dict[ThreadFailures, Exception] = {}
    for owner in batch.owners:
        rows = errors_by_row(batch.runs, error.records, owner)
        if rows:
            found[owner] = RecordsRefused(str(error), **{**error.__dict__, "rows": rows})
    return found
