"""Steps that are played through with answers written by hand, and the values that such tests speak of."""

from __future__ import annotations

from collections.abc import Iterable

from spark_producer.common.cluster import ProducerIdAndEpoch, Span, TransactionVersion
from spark_producer.exactly_once.protocol.commands import Command, Result
from spark_producer.exactly_once.protocol.control_record import NO_BATCH, ControlRecord, Status, TaskTransaction
from spark_producer.exactly_once.protocol.outcomes import (
    AlreadyDone,
    Begun,
    Failed,
    NothingToAbort,
    Outcome,
    WriteAborted,
    WriteCommitted,
)
from spark_producer.exactly_once.protocol.state_machine import Next
from spark_producer.exactly_once.protocol.task_messages import (
    EncodedBatch,
    InlineRows,
    PreparedTask,
    Skipped,
    WriteHandle,
)

SINK, QUERY, TOKEN = "orders", "q", "ours"
HELD, NEWER, NEWEST = ProducerIdAndEpoch(7, 1), ProducerIdAndEpoch(7, 2), ProducerIdAndEpoch(7, 3)


def task(number: int, epoch: int = 0) -> TaskTransaction:
    """The transaction of one task, which has written two records to its own partition of topic t."""
    return TaskTransaction(
        f"p.{SINK}.w.{number}", 100 + number, epoch, TransactionVersion.EXPLICIT, (Span("t", number, 10, 11, 2),)
    )


ONE, TWO = task(1), task(2)


def record(status: Status, batch: int = 5, token: str = TOKEN, *transactions: TaskTransaction) -> ControlRecord:
    """A control record of `batch`, whose earlier batches are done."""
    return ControlRecord(SINK, QUERY, status, batch, batch if status is Status.DONE else batch - 1, token, transactions)


def handle(last: ControlRecord | None = None) -> WriteHandle:
    """The result of BEGIN for the tasks."""
    return WriteHandle(SINK, TOKEN, HELD, TransactionVersion.EXPLICIT, last)


def prepared(transaction: TaskTransaction, batch: int = 5, of: WriteHandle | None = None) -> PreparedTask:
    """A task that wrote a transaction of its own."""
    return PreparedTask(of or handle(), QUERY, batch, transaction, started_ms=0, rows=2)


def inline(*partitions: int, batch: int = 5, of: WriteHandle | None = None) -> InlineRows:
    """A task that returns a batch for each of `partitions` of topic t; without rows if there are none."""
    batches = tuple(EncodedBatch("t", number, 1, b"row") for number in partitions)
    return InlineRows(of or handle(), QUERY, batch, batches, len(partitions))


def skipped(batch: int = 5, of: WriteHandle | None = None, rows: int | None = None) -> Skipped:
    """A task that saw that its batch is done."""
    return Skipped(of or handle(), QUERY, batch, rows)


def unknown(batch: int = NO_BATCH) -> ControlRecord:
    """The record that BEGIN leaves for a new sink."""
    return ControlRecord(SINK, None, Status.INTENT, batch, NO_BATCH, TOKEN)


def play(start: Next, answers: Iterable[Result]) -> tuple[list[Command], Next]:
    """All asks on the way through `answers`, and where it leads."""
    asked, now = [], start
    for answer in answers:
        assert not isinstance(now, Begun | WriteCommitted | AlreadyDone | WriteAborted | NothingToAbort | Failed), (
            f"it ended with {now}"
        )
        asked.append(now.command)
        now = now.on_result(answer)
    return asked, now


def ended(start: Next, answers: Iterable[Result]) -> tuple[list[Command], Outcome]:
    """The same to the end."""
    asked, now = play(start, answers)
    if isinstance(now, Begun | WriteCommitted | AlreadyDone | WriteAborted | NothingToAbort | Failed):
        return asked, now
    raise ValueError(f"it asks for {now.command}")
