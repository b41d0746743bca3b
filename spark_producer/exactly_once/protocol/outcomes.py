"""How the steps of a write end: plain values, of which the driver makes results and errors."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from spark_producer.exactly_once.protocol.commands import Fencing
from spark_producer.exactly_once.protocol.control_record import ControlRecord, TopicPartition


class Begun(NamedTuple):
    """Tasks may run: `fencing` is what the commit must bear, `last` the sink's last word without transactions and partitions."""

    fencing: Fencing
    last: ControlRecord | None


class Committed(NamedTuple):
    """The batch is committed, and every partition shows it."""

    batch: int


class AlreadyDone(NamedTuple):
    """The tasks have written nothing, since the batch is committed by an earlier execution."""

    batch: int


class Aborted(NamedTuple):
    """Nothing of the execution will ever be visible. `transactions` are those that this abort has ended itself."""

    transactions: tuple[str, ...]


class LeftAlone(NamedTuple):
    """There was nothing to abort, or it is decided already; `text` says which."""

    text: str


class Failure(enum.Enum):
    """Why a write goes no further."""

    MIXED = "the messages of the tasks do not belong together"
    REFUSED = "the sink belongs to another query, or its checkpoint was rewound"
    VOTE = "transactions of tasks are not fit to be committed"
    FENCED = "a newer driver has taken over, or a transaction of the control id was open for too long"
    EXPIRED = "the control id has expired at its coordinator"
    GLUED = "an older transaction of the control id hangs, and would have been decided by this one"
    NOT_WRITTEN = "the commit was not answered, and has not happened"
    UNKNOWN = "the write has no number, and may be committed"
    UNSURE = "writes of the control record are not answered, again and again"
    VOID = "the write was decided, but all its transactions had timed out"
    PARTIAL = "the write was decided, but only a part of its transactions could be committed"
    NO_RECORD = "the control topic lacks the control record that was committed last"
    HUNG = "partitions have lost the marker that ends a transaction"


RUNS_AGAIN = frozenset(
    {Failure.VOTE, Failure.FENCED, Failure.EXPIRED, Failure.GLUED, Failure.NOT_WRITTEN, Failure.UNSURE, Failure.VOID}
)
"""After these the same batch can run again, and each of its rows will be visible once. The others need a person."""


class Failed(NamedTuple):
    """The write goes no further. `text` says what happened and what to do, `names` the transactions or partitions in question."""

    kind: Failure
    text: str
    names: tuple[str, ...] = ()


class Redriven(NamedTuple):
    """What an earlier driver had decided is carried out: `record` (`DONE` or `VOID`) is the last word, written with `fencing`."""

    record: ControlRecord
    fencing: Fencing


Outcome: TypeAlias = Begun | Committed | AlreadyDone | Aborted | LeftAlone | Failed


def fenced_off(sink: str, what: str, *, expired: bool = False) -> Failed:
    """Return the failure of a producer that is fenced off: a newer one has the control id, or (`expired`) the id has expired."""
    return _expired(sink, what) if expired else _overtaken(sink, what)


def _expired(sink: str, what: str) -> Failed:
    return Failed(
        Failure.EXPIRED,
        f"sink {sink!r}: its transactional id has expired, since nothing was written with it for longer than the brokers' "
        f"transactional.id.expiration.ms, so {what}. No other driver has taken it over. It can be run again, which a restarted "
        "query does by itself. If batches take longer than that, raise the setting (7 days by default)",
    )


def _overtaken(sink: str, what: str) -> Failed:
    """A newer epoch of the control id is there. `what` says what became of this one's write.

    Coordinators take one as well to abort a transaction that was open for too long (`CONTROL_TIMEOUT_MS`), and do not say so.
    """
    return Failed(
        Failure.FENCED,
        f"sink {sink!r}: a newer driver has begun a write of this sink, or this one took more than a minute for its control "
        f"record and the rows with it, so {what}. If two jobs or queries are running, give each an exactlyOnceId of its own; if "
        "not, the brokers were too slow. It can be run again, which a restarted query does by itself",
    )


def no_record(sink: str, topic: str) -> Failed:
    """Return the failure of a sink of which the coordinator has committed a record that the control topic lacks."""
    return Failed(
        Failure.NO_RECORD,
        f"sink {sink!r}: it has committed writes, and the control topic {topic!r} has no record of the last one: "
        "exactlyOnceTopic was changed, or that topic was deleted, or has lost records (retention). Nothing is written, since "
        "rows could be written twice. Give exactlyOnceTopic its former value. If that record is lost, check which rows readers "
        "of committed records see, and go on with a new exactlyOnceId, or with this one after `pyproducer txn resolve "
        f"{sink} --control-topic {topic} --accept-no-record`",
    )


def hung(sink: str, partitions: Iterable[TopicPartition]) -> Failed:
    """Brokers have dropped transaction markers (Kafka 4.3 does so where a partition has no live leader)."""
    names = tuple(sorted({f"{topic}-{partition}" for topic, partition in partitions}))
    return Failed(
        Failure.HUNG,
        f"sink {sink!r}: transactions are ended, but {', '.join(names)} lost the markers that say so. Readers wait there, and a "
        "later transaction might decide those rows, so nothing more is written. Look with `pyproducer txn describe`, mend with "
        "`pyproducer txn repair`, and start again",
        names,
    )


def unsure(sink: str, tries: int, reason: str) -> Failed:
    """Write after write of the control record stays without a useful answer."""
    return Failed(
        Failure.UNSURE,
        f"sink {sink!r}: the control record could not be written in {tries} attempts ({reason}). Nothing is lost: start again "
        "when the brokers answer",
    )
