"""Batch admission: a batch is written to a sink, skipped as done already, or refused. Tasks check it, and COMMIT does."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from spark_producer.exactly_once.protocol.control_record import MAX_EARLIER, NO_BATCH, ControlRecord
from spark_producer.exactly_once.protocol.task_messages import NO_ORIGIN, ForeachBatchOrigin


class Admit(NamedTuple):
    """The batch is to be written."""


class Skip(NamedTuple):
    """The batch is committed already: its tasks write nothing."""


class Refuse(NamedTuple):
    """The batch must not be written, because of `reason`."""

    reason: str


Admission: TypeAlias = Admit | Skip | Refuse


def admit(
    last: ControlRecord | None, sink: str, query: str, batch: int, origin: ForeachBatchOrigin = NO_ORIGIN
) -> Admission:
    """Return whether `batch` of `query` is to be written, by the sink's last control record.

    `query` is the id of a streaming query, and empty for a batch write, whose `batch` is its `txnVersion`, or `NO_BATCH` if it
    has none and is written each time. The `origin` of a batch write in `foreachBatch` binds the sink to its query as well.
    """
    if last is None:
        return Admit()
    if last.query is not None and last.query != query:
        return Refuse(
            f"exactlyOnceId {sink!r} {describe_owner(last.query)}: {owner_advice(last.query, query)}{rebind_advice(sink)}"
        )
    if origin.query and last.origin is not None and last.origin != origin.query:
        owner = f"{describe_owner(last.origin)}, in foreachBatch"
        return Refuse(f"exactlyOnceId {sink!r} {owner}: {owner_advice(last.origin, origin.query)}{rebind_advice(sink)}")
    if batch == NO_BATCH:
        return Admit()
    if origin.query:
        return _in_foreach_batch(last, sink, batch, origin)
    if batch > last.last_done:
        return Admit()
    if not query or batch == last.last_done:
        return Skip()
    return Refuse(_rewound(sink, f"batch {last.last_done}", f"batch {batch}"))


def _in_foreach_batch(last: ControlRecord, sink: str, number: int, origin: ForeachBatchOrigin) -> Admission:
    """Return the admission of a write in `foreachBatch`, whose function may write several rising numbers in a micro-batch.

    Spark numbers micro-batches upwards, and a new run repeats the last micro-batch unless the checkpoint has it as done. The
    function then writes all numbers of that micro-batch again: the last number that is done, and lower ones, which were done
    before.
    """
    done, now = last.done_micro_batch, origin.micro_batch
    if done is not None and now is not None and now < done:
        return Refuse(_rewound(sink, f"micro-batch {done}", f"micro-batch {now}"))
    if number > last.last_done:
        return Admit()
    if done is not None and now is not None and now > done:
        return Refuse(_not_rising(sink, number, now, last.last_done, done))
    if origin.run and origin.run == last.run:
        return Refuse(_twice(sink, number) if number == last.last_done else _falling(sink, number, last.last_done))
    if number == last.last_done:
        return Skip()
    if done is not None and now is not None:
        return Skip() if _came_before(last, number) else Refuse(_never_written(sink, number, done, last.last_done))
    if not origin.run and last.origin is None:
        return Skip()  # no run is known, as before version 3: the driver warns
    if now is None or number == now:
        return Refuse(_rewound(sink, f"batch {last.last_done}", f"batch {number}"))
    return Refuse(_unknown(sink, number, now, last.last_done))


def _came_before(last: ControlRecord, number: int) -> bool:
    """Return whether a number below `last_done` was committed in the same micro-batch. Of many, only the last ones are known."""
    forgotten = len(last.earlier) == MAX_EARLIER and number < last.earlier[0].number
    return forgotten or any(each.number == number for each in last.earlier)


def _rewound(sink: str, done: str, now: str) -> str:
    return (
        f"exactlyOnceId {sink!r} has {done} of this query, and now {now} is to be written: the checkpoint was rewound or is a "
        "copy of an older one. Rows would be written twice. Start from the newest checkpoint, or with a new exactlyOnceId if "
        "readers shall see those rows again"
    )


def _twice(sink: str, batch: int) -> str:
    return (
        f"exactlyOnceId {sink!r}: txnVersion {batch} was written before in this run of the query: the function of foreachBatch "
        "writes twice with one id. Give each write of the function its own id. If this repeats a write that ended with an error, "
        "start the query again"
    )


def _falling(sink: str, number: int, done: int) -> str:
    return (
        f"exactlyOnceId {sink!r}: txnVersion {number} comes after {done} in this run of the query: the function of foreachBatch "
        "writes a lower number after a higher one, and these rows would count as written. Let its numbers rise, or give each "
        "write of the function its own id. If this repeats a write that ended with an error, start the query again"
    )


def _never_written(sink: str, number: int, micro_batch: int, done: int) -> str:
    return (
        f"exactlyOnceId {sink!r}: txnVersion {number} was not written before {done} in micro-batch {micro_batch}, which Spark "
        "repeats: the function of foreachBatch makes other writes now, or its numbers do not rise. These rows would count as "
        f"written. Give this write a number above {done}, or its own id"
    )


def _not_rising(sink: str, number: int, micro_batch: int, done: int, done_in: int) -> str:
    return (
        f"exactlyOnceId {sink!r}: txnVersion {number} of micro-batch {micro_batch} is not higher than {done}, which was written "
        f"in micro-batch {done_in}, so these rows would count as written. Give each micro-batch higher numbers than those "
        "before it have (batch_id, or 2 * batch_id and 2 * batch_id + 1), or use a new exactlyOnceId"
    )


def _unknown(sink: str, number: int, micro_batch: int, done: int) -> str:
    return (
        f"exactlyOnceId {sink!r}: txnVersion {number} of micro-batch {micro_batch} is lower than {done}, and the control record "
        "does not say in which micro-batch that was written: by an older pyproducer, or outside of foreachBatch. If Spark "
        f"repeats that micro-batch, its rows are there: leave out the writes below {done} in micro-batch {micro_batch}, this "
        "once. Otherwise the checkpoint was rewound, or numbers do not rise: use a new exactlyOnceId"
    )


def rebind_advice(sink: str) -> str:
    """Return how to bind a sink to another query, for a message."""
    return f". To give this id to the query that writes next: `pyproducer txn resolve {sink} --rebind`"


def describe_owner(query: str) -> str:
    """Return which query, or kind of writes, a sink belongs to."""
    return f"belongs to the streaming query {query}" if query else "belongs to batch writes"


def owner_advice(owner: str, query: str) -> str:
    """Return what to do about a sink that belongs to another query or kind of writes."""
    if owner and query:
        return (
            f"this is query {query}. Give each query its own exactlyOnceId; a query with a new checkpoint needs a new one "
            "too, since its batches begin at 0 again and would be taken for those of the old one"
        )
    return "give streaming queries and batch writes each their own exactlyOnceId"
