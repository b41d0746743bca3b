"""The check that a batch that Spark runs again has the rows that were committed under its number. Pure functions.

With a checkpoint that lacks its last micro-batch Spark plans that batch again, perhaps with other rows, under the same number.
Only the rows distinguish it from a repetition of the same batch, so the control record has their number.
"""

from __future__ import annotations

from collections.abc import Sequence

from spark_producer.exactly_once.protocol.control_record import Earlier
from spark_producer.exactly_once.protocol.outcomes import AlreadyDone, Failed, FailureKind
from spark_producer.exactly_once.protocol.task_messages import Skipped, TaskOutcome

CONTENT_MASK = (1 << 63) - 1
"""The bits of a sum of hashes that are kept: those of a number in the control record."""


def check_repeated_batch(skipped: Sequence[Skipped]) -> AlreadyDone | Failed:
    """Return the outcome of a batch that all of its tasks, one or more, have found done.

    It is also `AlreadyDone` if a number of rows is unknown: tasks of jobs do not read their rows, records of version 1 have no
    number, and no record has that of a lower batch, unless it was in the same micro-batch.
    """
    one = skipped[0]
    before, counted = _committed(one), [each.rows for each in skipped if each.rows is not None]
    if before is None or before.rows is None or len(counted) < len(skipped):
        return AlreadyDone(one.batch)
    now = sum(counted)
    if now != before.rows:
        return Failed(FailureKind.REFUSED, _difference(one.handle.sink, one.query, one.batch, before.rows, now))
    content = total_content(skipped)
    if before.content is None or content is None or content == before.content:
        return AlreadyDone(one.batch)
    return Failed(FailureKind.REFUSED, _other_rows(one.handle.sink, one.query, one.batch, now))


def _committed(one: Skipped) -> Earlier | None:
    """Return the rows that were committed under the number of a task, from the sink's last control record; None if unknown."""
    last = one.handle.last
    if last is None:
        return None
    if one.batch == last.last_done:
        return Earlier(one.batch, last.done_rows, last.done_content)
    return next((each for each in last.earlier if each.number == one.batch), None)


def total_content(messages: Sequence[TaskOutcome]) -> int | None:
    """Return the sum of the hashes of all rows, however tasks share them; None if one task reports none."""
    known = [one.content for one in messages if one.content is not None]
    return sum(known) & CONTENT_MASK if known and len(known) == len(messages) else None


def _other_rows(sink: str, query: str, batch: int, rows: int) -> str:
    what = f"batch {batch}" if query else f"txnVersion {batch}"
    return (
        f"sink {sink!r}: {what} was committed with {rows} rows, and now has as many, but others. Nothing is written. The "
        "checkpoint was rewound by one micro-batch, or is a copy of an older one; or the input does not give the same rows. "
        "Start from the newest checkpoint, or with a new exactlyOnceId. If the query makes new values each time (uuid, rand, a "
        f"clock), the batch is committed completely: run `pyproducer txn resolve {sink} --accept-row-count-mismatch`, and set "
        "exactlyOnceCompare to count"
    )


def _difference(sink: str, query: str, batch: int, before: int, now: int) -> str:
    what = f"batch {batch}" if query else f"txnVersion {batch}"
    mine = "" if query else ", or the function of foreachBatch writes twice with one id"
    return (
        f"sink {sink!r}: {what} was committed with {before} rows, and now has {now}. None of these is written. The checkpoint "
        f"was rewound by one micro-batch, or is a copy of an older one{mine}; or the input does not give the same rows again. "
        "Start from the newest checkpoint, or with a new exactlyOnceId: then no row is missing, and rows may be there twice. If "
        f"the batch is committed completely, run `pyproducer txn resolve {sink} --accept-row-count-mismatch`, and start again"
    )
