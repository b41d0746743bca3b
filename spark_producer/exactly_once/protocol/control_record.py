"""The control record of a sink: what its last write was, and which transactions of tasks belong to it. Plain values."""

from __future__ import annotations

import enum
from typing import NamedTuple

from spark_producer.common.cluster import Span, Style, TopicPartition

NO_BATCH = -1
"""This stands for the number of a batch where there was none yet."""


class Status(enum.Enum):
    """The state of a write."""

    INTENT = "INTENT"
    """nothing is decided, but the named transactions are left over from a write that never was, and are about to be aborted"""
    COMMITTING = "COMMITTING"
    """the write is decided: each of the named transactions must be committed"""
    DONE = "DONE"
    """all rows of the batch are committed, and every partition shows it"""
    VOID = "VOID"
    """the write was decided, but all of its transactions had timed out, so none of its rows are committed: it is done again"""
    PARTIAL = "PARTIAL"
    """the write was decided, but only some of its transactions could be committed: a person must decide"""
    HUNG = "HUNG"
    """the write is decided, but partitions do not show the end of its transactions, since they lost the marker: a person must
    repair them, and each later BEGIN looks again"""


DECIDED = frozenset({Status.COMMITTING, Status.DONE, Status.VOID, Status.PARTIAL, Status.HUNG})
"""A record with one of these says that the write of its token went past its commit point."""

UNFINISHED = frozenset({Status.COMMITTING, Status.HUNG})
"""A record with one of these names transactions that may be open still, and must never be aborted."""


class TaskTransaction(NamedTuple):
    """A transaction that one task has filled and left open."""

    transactional_id: str
    producer_id: int
    epoch: int
    style: Style
    spans: tuple[Span, ...]


class Earlier(NamedTuple):
    """A number of a micro-batch that was committed before the last one of it, with the rows and their content as known then."""

    number: int
    rows: int | None
    content: int | None


MAX_EARLIER = 64
"""So many of them are kept, the last ones: each takes up to 64 bytes of the record."""


class ControlRecord(NamedTuple):
    """The state of a sink. It replaces all earlier records of the same sink, so each repeats what must still be known.

    `query` is the id of the streaming query, empty for batch writes, and None until the first write: BEGIN does not know it.
    `batch` is the number of the micro-batch, or `txnVersion`, that the record is about; `last_done` is the newest one that is
    wholly committed (`NO_BATCH`: none). `token` is that of the execution that the record is about, also if another driver
    finishes it. `inline` are the partitions to which rows were written in the same transaction as the record; whoever reads the
    record looks whether these show its end. `rows` is the number of rows of `batch`, and `done_rows` that of `last_done`, as the
    tasks have read them; None where it is not known: records of version 1 do not say it. `content` and `done_content` are the
    sums of the hashes of their values. `origin` is the streaming query in whose `foreachBatch` it was written, None of a record
    that is bound to none; `run` is the run of the query that wrote it or found it done, and empty where that is not known.
    `micro_batch` is the number that Spark gave to the micro-batch in whose `foreachBatch` `batch` was written, and
    `done_micro_batch` that of `last_done`; None of other writes, and where it is not known. `earlier` are the numbers below
    `last_done` that were committed in that micro-batch, rising.
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
