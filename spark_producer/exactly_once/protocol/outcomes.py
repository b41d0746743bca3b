"""The outcomes of BEGIN, COMMIT and ABORT: plain values, from which the driver makes results and errors."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from spark_producer.common.cluster import ProducerIdAndEpoch, TopicPartition
from spark_producer.exactly_once.protocol.control_record import ControlRecord


class Begun(NamedTuple):
    """Tasks may run. The commit needs `fencing`, and `last`: the last control record, without its transactions and partitions."""

    fencing: ProducerIdAndEpoch
    last: ControlRecord | None


class WriteCommitted(NamedTuple):
    """The batch is committed, and all partitions with its rows have the markers."""

    batch: int


class AlreadyDone(NamedTuple):
    """The tasks have written nothing, since an earlier execution has committed the batch."""

    batch: int


class WriteAborted(NamedTuple):
    """No row of the execution will ever be visible. `transactions` are those that this abort has ended."""

    transactions: tuple[str, ...]


class NothingToAbort(NamedTuple):
    """Nothing was aborted: no transaction was open, or the execution is decided already. `text` has the reason."""

    text: str


class FailureKind(enum.Enum):
    """The kind of a failure of a write."""

    MIXED = "the messages of the tasks do not belong together"
    REFUSED = "the sink belongs to another query, or its checkpoint was rewound"
    VOTE = "transactions of tasks must not be committed"
    FENCED = "a newer driver has taken over, or a transaction of the control id was open for too long"
    EXPIRED = "the control id has expired at its coordinator"
    GLUED = "an older transaction of the control id hangs, and a commit would have committed its rows too"
    NOT_WRITTEN = "the brokers did not answer the commit, and it has not happened"
    UNKNOWN = "the write has no number, and may be committed"
    UNSURE = "the brokers did not answer several writes of the control record"
    VOID = "the write was decided, but all its transactions had timed out"
    PARTIAL = "the write was decided, but only a part of its transactions could be committed"
    NO_RECORD = "the control topic lacks the last committed control record"
    HUNG = "partitions have lost a transaction marker"


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
"""Failures after which the same batch can run again, and each row is visible once. The others need a person."""


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
        f"transactional.id.expiration.ms, so {what}. No other driver has taken it over. Run the write again, as a restarted "
        "query does. If batches are further apart than that, raise the setting (7 days by default)",
    )


def _overtaken(sink: str, what: str) -> Failed:
    """Return the failure of a driver with an old epoch of the control id. `what` is the state of its write.

    A coordinator also raises the epoch when it aborts a transaction after its timeout (`CONTROL_TIMEOUT_MS`), with
    the same error code.
    """
    return Failed(
        FailureKind.FENCED,
        f"sink {sink!r}: a newer driver has begun a write of this sink, or the transaction of its control record was open "
        f"for more than a minute, so {what}. If two jobs or queries are running, give each its own exactlyOnceId; if "
        "not, the brokers were too slow. Run the write again, as a restarted query does",
    )


def no_record(sink: str, topic: str) -> Failed:
    """Return the failure of a sink whose last committed control record is missing from the control topic."""
    return Failed(
        FailureKind.NO_RECORD,
        f"sink {sink!r}: it has committed writes, and the control topic {topic!r} has no record of the last one: "
        "exactlyOnceControlTopic was changed, or that topic was deleted, or has lost records (retention). Nothing is written, "
        "since rows could be written twice. Give exactlyOnceControlTopic its former value. If that record is lost, check which "
        "rows consumers of committed records see, and continue with a new exactlyOnceId, or with this one after `pyproducer txn "
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
        f"sink {sink!r}: transactions have ended, but {', '.join(names)} lost the markers that say so. Readers wait there, and a "
        "later transaction could commit or abort those rows, so nothing more is written. Inspect them with `pyproducer txn "
        f"describe {sink}`, repair them with `pyproducer txn repair {sink}`, and start again",
        names,
    )


def not_acknowledged(sink: str, tries: int, reason: str) -> Failed:
    """Return the failure of repeated writes of the control record without a usable response."""
    return Failed(
        FailureKind.UNSURE,
        f"sink {sink!r}: the control record could not be written in {tries} attempts ({reason}). Nothing is lost. Start again "
        "when the brokers answer",
    )
