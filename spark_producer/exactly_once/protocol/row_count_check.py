"""Whether a batch that Spark runs again has the rows that were committed under its number. Pure functions.

A checkpoint that is one micro-batch behind has Spark plan that batch anew, under the same number. Nothing but its rows tells it
from an honest repetition, so their number is in the control record.
"""

from __future__ import annotations

from collections.abc import Sequence

from spark_producer.exactly_once.protocol.control_record import Earlier
from spark_producer.exactly_once.protocol.outcomes import AlreadyDone, Failed, FailureKind
from spark_producer.exactly_once.protocol.task_messages import Skipped, TaskOutcome

CONTENT_MASK = (1 << 63) - 1
"""The bits that a sum of hashes keeps: those that a number of the control record holds."""


def check_repeated_batch(skipped: Sequence[Skipped]) -> AlreadyDone | Failed:
    """How a batch ends whose tasks, one or more, have all found it done.

    It is `AlreadyDone` too where nobody has counted: tasks of jobs do not read their rows, records of version 1 do not say their
    number, and none says that of a lower one, unless it is of the same micro-batch.
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
    """What the sink's last word says of the rows that were committed under the number of a task."""
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
        f"clock), what was committed is the whole batch: `pyproducer txn resolve {sink} --accept-difference`, and set "
        "exactlyOnceCompare to count"
    )


def _difference(sink: str, query: str, batch: int, before: int, now: int) -> str:
    what = f"batch {batch}" if query else f"txnVersion {batch}"
    mine = "" if query else ", or the function of foreachBatch writes twice with one id"
    return (
        f"sink {sink!r}: {what} was committed with {before} rows, and now has {now}. None of these is written. The checkpoint "
        f"was rewound by one micro-batch, or is a copy of an older one{mine}; or the input does not give the same rows again. "
        "Start from the newest checkpoint, or with a new exactlyOnceId: then no row is missing, and rows may be there twice. If "
        f"what was committed is the whole batch: `pyproducer txn resolve {sink} --accept-difference`, and start again"
    )
