"""Whether a batch is to be written to a sink, is done already, or is refused. Tasks decide it, and the commit does again."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from spark_producer.exactly_once.control_record import NO_BATCH, ControlRecord
from spark_producer.exactly_once.messages import NOWHERE, Origin


class Run(NamedTuple):
    """The batch is to be written."""


class Skip(NamedTuple):
    """The batch is committed already: its tasks write nothing."""


class Refuse(NamedTuple):
    """The batch must not be written, because of `reason`."""

    reason: str


Admission: TypeAlias = Run | Skip | Refuse


def admit(last: ControlRecord | None, sink: str, query: str, batch: int, origin: Origin = NOWHERE) -> Admission:
    """Judge by the sink's last word whether `batch` of `query` is to be written.

    `query` is the id of a streaming query, and empty for a batch write, whose `batch` is its `txnVersion`, or `NO_BATCH` if it
    has none and is written whenever it is run. `origin` is that of a batch write in `foreachBatch`: it binds the sink to its
    query as well. Spark gives each number once in a run, and repeats the last one alone in the next run.
    """
    if last is None:
        return Run()
    if last.query is not None and last.query != query:
        return Refuse(f"exactlyOnceId {sink!r} {belongs(last.query)}: {advice(last.query, query)}{rebind(sink)}")
    if origin.query and last.origin is not None and last.origin != origin.query:
        return Refuse(
            f"exactlyOnceId {sink!r} {belongs(last.origin)}, in foreachBatch: {advice(last.origin, origin.query)}{rebind(sink)}"
        )
    if batch == NO_BATCH or batch > last.last_done:
        return Run()
    if batch == last.last_done:
        return Refuse(_twice(sink, batch)) if origin.run and origin.run == last.run else Skip()
    if not query and not (origin.query and (last.origin or origin.run)):
        return Skip()
    return Refuse(
        f"exactlyOnceId {sink!r} has batch {last.last_done} of this query, and now batch {batch} is to be written: the "
        "checkpoint was rewound or is a copy of an older one. Rows would be doubled. Start from the newest checkpoint, or with a "
        "new exactlyOnceId if readers shall see those rows again"
    )


def _twice(sink: str, batch: int) -> str:
    return (
        f"exactlyOnceId {sink!r}: txnVersion {batch} was written before in this run of the query: the function of foreachBatch "
        "writes twice with one id, and these rows would be taken for those. Give each write of the function an id of its own. If "
        "this repeats a write that has ended with an error, start the query again"
    )


def rebind(sink: str) -> str:
    """How a sink is given to another query."""
    return f". To give this id to the query that writes next: `pyproducer txn resolve {sink} --rebind`"


def belongs(query: str) -> str:
    """Whose the sink is."""
    return f"belongs to the streaming query {query}" if query else "belongs to batch writes"


def advice(owner: str, query: str) -> str:
    """What to do about a sink of somebody else's."""
    if owner and query:
        return (
            f"this is query {query}. Give each query an exactlyOnceId of its own; a query with a new checkpoint needs a new "
            "one too, since its batches begin at 0 again and would be taken for those of the old one"
        )
    return "give streaming queries and batch writes each an exactlyOnceId of their own"
