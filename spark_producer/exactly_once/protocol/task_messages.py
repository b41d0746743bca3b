"""What travels between the driver and the tasks of an exactly-once write. Plain values, pickled by Spark only."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from spark_producer.common.cluster import ProducerIdAndEpoch, Style
from spark_producer.exactly_once.protocol.control_record import ControlRecord, TaskTransaction


class WriteHandle(NamedTuple):
    """What BEGIN gives to the tasks of one execution.

    `token` (hex of 16 random bytes) ties their messages together, `fencing` is what the commit must bear. `last` is the sink's
    last control record without its transactions, by which a task sees that its batch is done already. `style` is the one that
    the cluster speaks.
    """

    sink: str
    token: str
    fencing: ProducerIdAndEpoch
    style: Style
    last: ControlRecord | None


class ForeachBatchOrigin(NamedTuple):
    """The streaming query in whose `foreachBatch` a write is, the run of that query, and the micro-batch; empty, or None, where
    that is not known.
    """

    query: str = ""
    run: str = ""
    micro_batch: int | None = None


NO_ORIGIN = ForeachBatchOrigin()
"""A write that is not in `foreachBatch`."""


class EncodedBatch(NamedTuple):
    """A record batch as it is sent, but for producer id, epoch, sequence and CRC, which the driver stamps."""

    topic: str
    partition: int
    records: int
    data: bytes


class InlineRows(NamedTuple):
    """The task's rows, which the driver writes in the transaction of the control record (path A). `rows` is their number.

    `content` is the sum of their hashes (`repetition`); None if it was not computed.
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

    `started_ms` is the time at which the transaction was begun, by the clock of the executor, and `rows` the number of rows.
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
    """The task has written nothing because the control record says that its batch is done.

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
