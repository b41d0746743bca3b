"""The outcomes of BEGIN, COMMIT and ABORT: plain values, from which the driver makes results and errors."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from spark_producer.common.cluster import ProducerIdAndEpoch, TopicPartition
from spark_producer.exactly_once.protocol.control_record import ControlRecord


class Begun(NamedTuple):
    """Tasks may run. The commit needs `fencing`; `last` is the last control record without transactions and partitions."""

    fencing: ProducerIdAndEpoch
    last: ControlRecord | None


class WriteCommitted(NamedTuple):
    """The batch is committed, with markers in all partitions."""

    batch: int


class AlreadyDone(NamedTuple):
    """The tasks have written nothing, since an earlier execution has committed the batch."""

    batch: int


class WriteAborted(NamedTuple):
    """No row of the execution will ever be visible. `transactions` are those that this abort has ended."""

    transactions: tuple[str, ...]


class NothingToAbort(NamedTuple):
    """Nothing was aborted: nothing was open, or the execution is decided already. `text` says which."""

    text: str


class FailureKind(enum.Enum):
    """Why a write has failed."""

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
    {
        FailureKind.VOTE,
        FailureKind.FENCED,
        FailureKind.EXPIRED,
        FailureKind.GLUED,
        FailureKind.NOT_WRITTEN,
        FailureKind.UNSURE,
        FailureKind.VOID,
    }
)
"""After these the same batch can run again, and each of its rows will be visible once. The others need a person."""


class Failed(NamedTuple):
    """The write has failed. `text` says what happened and what to do; `names` are the transactions or partitions concerned."""

    kind: FailureKind
    text: str
    names: tuple[str, ...] = ()


class RolledForward(NamedTuple):
    """A decided write is completed: `record` (`DONE` or `VOID`) is the last control record, written with `fencing`."""

    record: ControlRecord
    fencing: ProducerIdAndEpoch


Outcome: TypeAlias = Begun | WriteCommitted | AlreadyDone | WriteAborted | NothingToAbort | Failed


def fenced_off(sink: str, what: str, *, expired: bool = False) -> Failed:
    """Return the failure of a producer that is fenced off: a newer one has the control id, or (`expired`) the id has expired."""
    return _expired(sink, what) if expired else _overtaken(sink, what)


def _expired(sink: str, what: str) -> Failed:
    return Failed(
        FailureKind.EXPIRED,
        f"sink {sink!r}: its transactional id has expired, since nothing was written with it for longer than the brokers' "
        f"transactional.id.expiration.ms, so {what}. No other driver has taken it over. It can be run again, which a restarted "
        "query does by itself. If batches take longer than that, raise the setting (7 days by default)",
    )


def _overtaken(sink: str, what: str) -> Failed:
    """Return the failure of a driver with an old epoch of the control id. `what` says what became of its write.

    A coordinator also raises the epoch when it aborts a transaction after its timeout (`CONTROL_TIMEOUT_MS`), and does not
    tell the two apart.
    """
    return Failed(
        FailureKind.FENCED,
        f"sink {sink!r}: a newer driver has begun a write of this sink, or this one took more than a minute for its control "
        f"record and the rows with it, so {what}. If two jobs or queries are running, give each an exactlyOnceId of its own; if "
        "not, the brokers were too slow. It can be run again, which a restarted query does by itself",
    )


def no_record(sink: str, topic: str) -> Failed:
    """Return the failure of a sink of which the coordinator has committed a record that the control topic lacks."""
    return Failed(
        FailureKind.NO_RECORD,
        f"sink {sink!r}: it has committed writes, and the control topic {topic!r} has no record of the last one: "
        "exactlyOnceControlTopic was changed, or that topic was deleted, or has lost records (retention). Nothing is written, "
        "since rows could be written twice. Give exactlyOnceControlTopic its former value. If that record is lost, check which "
        "rows readers of committed records see, and go on with a new exactlyOnceId, or with this one after `pyproducer txn "
        f"resolve {sink} --control-topic {topic} --accept-no-record`",
    )


def partition_names(partitions: Iterable[TopicPartition]) -> tuple[str, ...]:
    """Return the names of partitions, sorted, as Kafka writes them: `orders-0`."""
    return tuple(sorted({f"{tp.topic}-{tp.partition}" for tp in partitions}))


def markers_lost(sink: str, partitions: Iterable[TopicPartition]) -> Failed:
    """Return the failure of a sink whose partitions lost transaction markers (Kafka 4.3 drops them without a live leader)."""
    names = partition_names(partitions)
    return Failed(
        FailureKind.HUNG,
        f"sink {sink!r}: transactions are ended, but {', '.join(names)} lost the markers that say so. Readers wait there, and a "
        "later transaction might decide those rows, so nothing more is written. Look with `pyproducer txn describe`, mend with "
        "`pyproducer txn repair`, and start again",
        names,
    )


def not_acknowledged(sink: str, tries: int, reason: str) -> Failed:
    """Return the failure of repeated writes of the control record without a usable response."""
    return Failed(
        FailureKind.UNSURE,
        f"sink {sink!r}: the control record could not be written in {tries} attempts ({reason}). Nothing is lost: start again "
        "when the brokers answer",
    )
