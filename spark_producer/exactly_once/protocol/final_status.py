"""What follows from a decided write: which verdict its transactions add up to, and the words that say so. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from spark_producer.exactly_once.protocol.commands import Fate
from spark_producer.exactly_once.protocol.control_record import (
    MAX_EARLIER,
    NO_BATCH,
    ControlRecord,
    Earlier,
    Status,
    TaskTransaction,
)
from spark_producer.exactly_once.protocol.outcomes import Failed, Failure


def is_committed(refused: bool, fate: Fate) -> bool:
    """A log that does not reach back says nothing, but then the coordinator's yes is enough."""
    return fate is Fate.COMMITTED or (fate is Fate.UNKNOWN and not refused)


def judge(record: ControlRecord, refused: Sequence[bool], fates: Sequence[Fate]) -> Status:
    """The verdict on `record` (`COMMITTING` or `HUNG`): `DONE`, `VOID`, `PARTIAL` or `HUNG`.

    `refused` and `fates` are for each of its transactions what the coordinator and the logs say. A write with inline rows is
    never `VOID`, since those were committed together with the record.
    """
    if Fate.OPEN in fates:
        return Status.HUNG
    if all(map(is_committed, refused, fates)):
        return Status.DONE
    if all(fate is Fate.ABORTED for fate in fates) and not record.inline:
        return Status.VOID
    return Status.PARTIAL


def missing(record: ControlRecord, refused: Sequence[bool], fates: Sequence[Fate]) -> tuple[TaskTransaction, ...]:
    """The transactions that are not known to be committed."""
    return tuple(
        transaction
        for transaction, no, fate in zip(record.transactions, refused, fates, strict=True)
        if not is_committed(no, fate)
    )


def word(record: ControlRecord, verdict: Status) -> ControlRecord:
    """What `record` becomes by the verdict. Names are kept only as long as somebody needs them."""
    match verdict:
        case Status.DONE:
            return done(record)._replace(transactions=(), inline=())
        case Status.VOID:
            return record._replace(status=verdict, transactions=(), inline=())
        case _:
            return record._replace(status=verdict)


def done(record: ControlRecord) -> ControlRecord:
    """`record` when it is carried out: its batch is the newest that is wholly committed, with its rows, if it has a number."""
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
    """The numbers of its micro-batch that were committed before this one."""
    if record.last_done == record.batch:
        return record.earlier  # it is done already
    if record.micro_batch is None or record.micro_batch != record.done_micro_batch:
        return ()
    return (*record.earlier, Earlier(record.last_done, record.done_rows, record.done_content))[-MAX_EARLIER:]


def void(record: ControlRecord) -> Failed:
    """All transactions had timed out before they were committed, so the write has not happened."""
    return Failed(
        Failure.VOID,
        f"sink {record.sink!r}, batch {record.batch}: the write was decided, but all its transactions had timed out before they "
        "could be committed, so none of its rows are visible. Run it again, which a restarted query does by itself",
    )


def incomplete(record: ControlRecord, names: tuple[str, ...] = ()) -> Failed:
    """Only a part of a decided write could be committed: a person must judge. `names` are the transactions that are missing."""
    whose = ", ".join(names) if names else f"some of {len(record.transactions)} transactions"
    return Failed(
        Failure.PARTIAL,
        f"sink {record.sink!r}, batch {record.batch}: the write was decided, but {whose} had timed out before they could be "
        "committed, and the other rows are visible. Nothing more is written, since running it again would double those. "
        "`pyproducer txn describe` names the partitions and offsets, `pyproducer txn resolve --accept-partial` gives them up",
        names,
    )
