"""The final status of a decided write, and the control record that says so. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from spark_producer.exactly_once.protocol.commands import TransactionOutcome
from spark_producer.exactly_once.protocol.control_record import (
    MAX_EARLIER,
    NO_BATCH,
    ControlRecord,
    Earlier,
    Status,
    TaskTransaction,
)
from spark_producer.exactly_once.protocol.outcomes import Failed, FailureKind


def is_committed(refused: bool, outcome: TransactionOutcome) -> bool:
    """Return whether a transaction is committed. If retention has deleted its log, the coordinator's response decides."""
    return outcome is TransactionOutcome.COMMITTED or (outcome is TransactionOutcome.UNKNOWN and not refused)


def final_status(record: ControlRecord, refused: Sequence[bool], outcomes: Sequence[TransactionOutcome]) -> Status:
    """Return the final status of `record` (`COMMITTING` or `HUNG`): `DONE`, `VOID`, `PARTIAL` or `HUNG`.

    `refused` and `outcomes` have for each of its transactions the coordinator's response and the outcome in the logs. A write
    with inline rows is never `VOID`, since those were committed with the record.
    """
    if TransactionOutcome.OPEN in outcomes:
        return Status.HUNG
    if all(map(is_committed, refused, outcomes)):
        return Status.DONE
    if all(outcome is TransactionOutcome.ABORTED for outcome in outcomes) and not record.inline:
        return Status.VOID
    return Status.PARTIAL


def missing(
    record: ControlRecord, refused: Sequence[bool], outcomes: Sequence[TransactionOutcome]
) -> tuple[TaskTransaction, ...]:
    """Return the transactions that are not, or not known to be, committed."""
    return tuple(
        transaction
        for transaction, was_refused, outcome in zip(record.transactions, refused, outcomes, strict=True)
        if not is_committed(was_refused, outcome)
    )


def with_final_status(record: ControlRecord, status: Status) -> ControlRecord:
    """Return the control record with the final status. Transactions are named only as long as they are needed."""
    match status:
        case Status.DONE:
            return done(record)._replace(transactions=(), inline=())
        case Status.VOID:
            return record._replace(status=status, transactions=(), inline=())
        case _:
            return record._replace(status=status)


def done(record: ControlRecord) -> ControlRecord:
    """Return `record` with the status DONE. If its batch has a number, that becomes the last committed one."""
    if record.batch == NO_BATCH:
        return record._replace(status=Status.DONE)
    return record._replace(
        status=Status.DONE,
        last_done=record.batch,
        done_rows=record.rows,
        done_content=record.content,
        done_micro_batch=record.micro_batch,
        earlier=_earlier(record),
    )


def _earlier(record: ControlRecord) -> tuple[Earlier, ...]:
    """Return the numbers of its micro-batch that were committed before this one."""
    if record.last_done == record.batch:
        return record.earlier  # it is done already
    if record.micro_batch is None or record.micro_batch != record.done_micro_batch:
        return ()
    return (*record.earlier, Earlier(record.last_done, record.done_rows, record.done_content))[-MAX_EARLIER:]


def void(record: ControlRecord) -> Failed:
    """Return the failure of a write whose transactions had all timed out before they were committed."""
    return Failed(
        FailureKind.VOID,
        f"sink {record.sink!r}, batch {record.batch}: the write was decided, but all its transactions had timed out before they "
        "could be committed, so none of its rows are visible. Run it again, as a restarted query does",
    )


def incomplete(record: ControlRecord, names: tuple[str, ...] = ()) -> Failed:
    """Return the failure of a decided write of which only a part is committed. `names` are the missing transactions."""
    whose = ", ".join(names) if names else f"some of {len(record.transactions)} transactions"
    return Failed(
        FailureKind.PARTIAL,
        f"sink {record.sink!r}, batch {record.batch}: the write was decided, but {whose} had timed out before they could be "
        "committed, and the other rows are visible. Nothing more is written, since running it again would write those twice. "
        f"`pyproducer txn describe {record.sink}` names the partitions and offsets; `pyproducer txn resolve {record.sink} "
        "--accept-partial` gives the missing rows up",
        names,
    )
