"""The messages between the driver and the tasks of an exactly-once write. Plain values, which only Spark pickles."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from spark_producer.common.cluster import ProducerIdAndEpoch, TransactionVersion
from spark_producer.exactly_once.protocol.control_record import ControlRecord, TaskTransaction


class WriteHandle(NamedTuple):
    """The handle of one execution, which BEGIN gives to its tasks.

    `sink` is the `exactlyOnceId`. `token` (hex of 16 random bytes) ties their messages together. The commit must have the epoch
    of `fencing`. `last` is the sink's last control record without its transactions, from which a task knows that its batch is
    done already.
    """

    sink: str
    token: str
    fencing: ProducerIdAndEpoch
    transaction_version: TransactionVersion
    last: ControlRecord | None


class ForeachBatchOrigin(NamedTuple):
    """The `foreachBatch` that a write is in: its streaming query, the run of that query, and the micro-batch.

    Unknown ones are empty, or None.
    """

    query: str = ""
    run: str = ""
    micro_batch: int | None = None


NO_ORIGIN = ForeachBatchOrigin()
"""The origin of a write outside of `foreachBatch`."""


class EncodedBatch(NamedTuple):
    """An encoded record batch without producer id, epoch, sequence and CRC, which the driver stamps."""

    topic: str
    partition: int
    records: int
    data: bytes


class InlineRows(NamedTuple):
    """The task's rows, which the driver writes in the transaction of the control record (path A). `rows` is their number.

    `content` is the sum of their hashes (`repeated_batch_check`); None if it was not computed.
    """

    handle: WriteHandle
    query: str
    batch: int
    batches: tuple[EncodedBatch, ...]
    rows: int
    origin: ForeachBatchOrigin = NO_ORIGIN
    content: int | None = None


class PreparedTask(NamedTuple):
    """The task's open transaction with all rows acknowledged, which the driver commits (path B).

    `started_ms` is the time at which the transaction began, by the executor's clock, and `rows` is the number of rows.
    """

    handle: WriteHandle
    query: str
    batch: int
    transaction: TaskTransaction
    started_ms: int
    rows: int
    origin: ForeachBatchOrigin = NO_ORIGIN
    content: int | None = None


class Skipped(NamedTuple):
    """The report of a task that has written nothing, because the control record says that its batch is done.

    `rows` is the number of rows that it has read and dropped; None if it has not read them.
    """

    handle: WriteHandle
    query: str
    batch: int
    rows: int | None
    origin: ForeachBatchOrigin = NO_ORIGIN
    content: int | None = None


TaskOutcome: TypeAlias = InlineRows | PreparedTask | Skipped
"""A task without rows reports `InlineRows` without batches."""
