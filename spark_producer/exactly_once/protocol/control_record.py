"""The control record of a sink: its last write, and the transactions of tasks that belong to it. Plain values."""

from __future__ import annotations

import enum
from typing import NamedTuple

from spark_producer.common.cluster import Span, TopicPartition, TransactionVersion

NO_BATCH = -1
"""The number of a write without a number, or of no batch."""


class Status(enum.Enum):
    """The state of a write."""

    INTENT = "INTENT"
    """nothing is decided; the named transactions are orphans of an undecided write, and are about to be aborted"""
    COMMITTING = "COMMITTING"
    """the write is decided: each of the named transactions must be committed"""
    DONE = "DONE"
    """all rows of the batch are committed, and every partition shows it"""
    VOID = "VOID"
    """the write was decided, but all of its transactions had timed out, so none of its rows are committed: it runs again"""
    PARTIAL = "PARTIAL"
    """the write was decided, but only some of its transactions could be committed: a person must decide"""
    HUNG = "HUNG"
    """the write is decided, but partitions lost the markers of its transactions: a person must repair them, and each later BEGIN
    checks them again"""


DECIDED = frozenset({Status.COMMITTING, Status.DONE, Status.VOID, Status.PARTIAL, Status.HUNG})
"""The statuses of a write that is past its commit point."""

UNFINISHED = frozenset({Status.COMMITTING, Status.HUNG})
"""The statuses of a record that names transactions which may still be open, and must never be aborted."""


class TaskTransaction(NamedTuple):
    """A transaction that one task has filled and left open for the driver."""

    transactional_id: str
    producer_id: int
    epoch: int
    transaction_version: TransactionVersion
    spans: tuple[Span, ...]


class Earlier(NamedTuple):
    """A number that was committed in a micro-batch before its last one, with the number of rows and the sum of their hashes."""

    number: int
    rows: int | None
    content: int | None


MAX_EARLIER = 64
"""Maximum number of them in a record, the last ones. Each takes up to 64 bytes."""


class ControlRecord(NamedTuple):
    """The state of a sink. A record replaces all earlier records of its sink, so it repeats what must still be known.

    `query` is the id of the streaming query, empty for batch writes, and None until the first write: BEGIN does not know it.
    `batch` is the number of the micro-batch, or `txnVersion`, of the write; `last_done` is the newest number that is wholly
    committed (`NO_BATCH`: none). `token` is that of the execution, also if another driver completes it. `inline` are the
    partitions with rows in the same transaction as the record; each reader of the record checks that they have its marker.
    `rows` is the number of rows of `batch`, and `done_rows` that of `last_done`, as the tasks read them; None if unknown, as in
    records of version 1. `content` and `done_content` are the sums of the hashes of their values. `origin` is the streaming query
    in whose `foreachBatch` the write was; None if the sink is bound to none. `run` is the run of the query that wrote the batch
    or found it done; empty if unknown. `micro_batch` is Spark's number of the micro-batch in whose `foreachBatch` `batch` was
    written, and `done_micro_batch` that of `last_done`; None for other writes, and if unknown. `earlier` are the numbers below
    `last_done` that were committed in that micro-batch, in rising order.
    """

    sink: str
    query: str | None
    status: Status
    batch: int
    last_done: int
    token: str
    transactions: tuple[TaskTransaction, ...] = ()
    inline: tuple[TopicPartition, ...] = ()
    rows: int | None = None
    done_rows: int | None = None
    origin: str | None = None
    run: str = ""
    content: int | None = None
    done_content: int | None = None
    micro_batch: int | None = None
    done_micro_batch: int | None = None
    earlier: tuple[Earlier, ...] = ()
