"""The commands of the state machine and their results: the interface between the pure protocol and the cluster.

The states (`begin`, `commit`, `roll_forward`, `abort`) are pure: a state and a result give the next state, whose `command` is one
of these values. The cluster of the tests' models and the real brokers return the same results. The executor of a command retries
while a broker answers with a retriable error, and raises at its deadline: a write may stop at any command, and the next BEGIN
continues from what is in the cluster.
"""

from __future__ import annotations

import enum
from typing import NamedTuple, TypeAlias

from spark_producer.common.cluster import ProducerIdAndEpoch, TopicPartition
from spark_producer.exactly_once.protocol.control_record import ControlRecord, TaskTransaction

# --- commands -----------------------------------------------------------------------------------------------------------


class Fence(NamedTuple):
    """Take the next epoch of the control id (InitProducerId), which aborts the open transaction of an earlier holder.

    Result: `Fenced`.
    """


class DescribeControlId(NamedTuple):
    """Read the producer id and epoch that hold the control id, without fencing it.

    The executor waits until no transaction of the id is being completed (PrepareCommit, PrepareAbort). Result: `ControlIdHolder`.
    """


class ReadControl(NamedTuple):
    """Read the sink's last committed control record, after a fence has ended all earlier transactions of the control id.

    The executor checks that their transaction markers are in the log: in the control partition and in the record's `inline`
    partitions (R8). Result: `Found`, `Missing`, `MarkersLost`.
    """


class WriteControl(NamedTuple):
    """Write `record` in a transaction of the control id, with the rows of inline tasks if `inline`.

    Before EndTxn the executor checks that the transaction starts at its own first row in each partition, so that no older
    transaction is merged with it and none of its rows is missing (R7); after it, that all partitions have the marker (R8), which
    without `awaits_markers` is left to the `ReadLogs` that follows, or to the next `ReadControl`. A request without a response is
    never sent again (`Indeterminate`). Result: `ControlWritten`, `MarkersLost`, `FencedOff`, `Indeterminate`,
    `OlderTransactionHangs`.
    """

    fencing: ProducerIdAndEpoch
    record: ControlRecord
    inline: bool = False
    awaits_markers: bool = True


class ListOpen(NamedTuple):
    """List the open transactions of this sink's task ids on all brokers, except those with the ids of `excluding`.

    Requests of the write `following` may be sent at the same time, up to its EndTxn; that write gets their responses. Result:
    `Opened`.
    """

    excluding: tuple[TaskTransaction, ...] = ()
    following: WriteControl | None = None


class Vote(NamedTuple):
    """Check that each transaction is open, has enough time left and all of its rows, and is not merged with an older one (R7).

    `fencing` is that of the write: it shows whether another writer is the cause of an objection. Result: `Voted`.
    """

    transactions: tuple[TaskTransaction, ...]
    fencing: ProducerIdAndEpoch


class EndTasks(NamedTuple):
    """Commit or abort transactions of tasks (EndTxn) by id, epoch and transaction version, in any order and in parallel.

    Result: `TasksEnded`.
    """

    transactions: tuple[TaskTransaction, ...]
    commit: bool


class ReadLogs(NamedTuple):
    """Read the outcome of each transaction from the partitions' logs, and whether its markers are there (R8).

    `written` is the producer id and epoch of the control record's own transaction, if its write has left its markers to this
    command. Result: `LogOutcomes`.
    """

    transactions: tuple[TaskTransaction, ...]
    written: ProducerIdAndEpoch | None = None


Command: TypeAlias = Fence | DescribeControlId | ReadControl | ListOpen | WriteControl | Vote | EndTasks | ReadLogs


# --- results ------------------------------------------------------------------------------------------------------------


class Fenced(NamedTuple):
    """The new epoch. `previous_epoch` is the coordinator's previous epoch, or -1 if it did not know the id.

    `noted_commit` is the coordinator's note of the sink's last commit (`cluster/last_commit.py`); None if there is none.
    """

    fencing: ProducerIdAndEpoch
    noted_commit: int | None = None
    previous_epoch: int = -1


class ControlIdHolder(NamedTuple):
    """The newest producer id and epoch of the control id; None if the coordinator does not know the id.

    `noted_commit` is as in `Fenced`.
    """

    fencing: ProducerIdAndEpoch | None
    noted_commit: int | None = None


class Found(NamedTuple):
    """The last control record; None if the sink is new."""

    record: ControlRecord | None


class Missing(NamedTuple):
    """The control topic lacks the sink's last committed record. `older` is the newest record of the sink that it has, if any."""

    topic: str
    older: ControlRecord | None = None


class Opened(NamedTuple):
    """The open transactions of the sink's tasks. Their `spans` are empty."""

    transactions: tuple[TaskTransaction, ...]


class ControlWritten(NamedTuple):
    """The record is committed, with markers in all partitions if they were awaited.

    `fencing` is for the next write (EndTxn 5 raises the epoch).
    """

    fencing: ProducerIdAndEpoch


class MarkersLost(NamedTuple):
    """The coordinator has ended a transaction of the control id, but these partitions have lost its marker (KIP-664).

    As the result of a write: the write is committed nevertheless. As the result of a read: `record` is the last control record
    that readers of committed records see.
    """

    partitions: tuple[TopicPartition, ...]
    record: ControlRecord | None = None


class FencedOff(NamedTuple):
    """A newer epoch of the control id exists, and nothing was written: the first response to EndTxn said so.

    The coordinator takes a newer epoch itself when it aborts a transaction after its timeout. `expired`: there is no newer epoch,
    but the coordinator has removed the id (`transactional.id.expiration.ms`).
    """

    expired: bool = False


class Indeterminate(NamedTuple):
    """It is unknown whether the record was written, since there was no response. `reason` is for error messages."""

    reason: str = ""


class OlderTransactionHangs(NamedTuple):
    """The write was aborted, because an older transaction of the same producer hangs in these partitions.

    A commit would have committed the rows of the older one as well.
    """

    partitions: tuple[TopicPartition, ...]


class Voted(NamedTuple):
    """`objections` name the transactions that must not be committed, with the reason; without any, the write can be committed.

    `overtaken`: the reason is another writer, which holds the sink now and has aborted the open transactions.
    """

    objections: tuple[str, ...] = ()
    overtaken: bool = False


class Ended(NamedTuple):
    """The coordinator has committed or aborted the transaction as requested."""


class EndRefused(NamedTuple):
    """The coordinator refused, because the transaction is no longer that of this id and epoch. `code` is its error code."""

    code: int


class TasksEnded(NamedTuple):
    """The coordinators' response for each transaction, in the order of the command."""

    results: tuple[Ended | EndRefused, ...]


class TransactionOutcome(enum.Enum):
    """The outcome of a transaction according to the logs of its partitions."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"
    UNKNOWN = "unknown"
    """retention has deleted that part of the log, or the topic is deleted"""
    MIXED = "mixed"
    """committed in some partitions and aborted in others, since a later transaction decided where a marker was lost;
    or acknowledged rows are missing"""


class LogOutcomes(NamedTuple):
    """The outcome of each transaction, in the order of the command (`OPEN` if open in any partition), and the open partitions.

    `hanging` are partitions that have lost the marker of the control record's own transaction.
    """

    outcomes: tuple[TransactionOutcome, ...]
    open_partitions: tuple[TopicPartition, ...] = ()
    hanging: tuple[TopicPartition, ...] = ()


WriteResult: TypeAlias = ControlWritten | MarkersLost | FencedOff | Indeterminate | OlderTransactionHangs
Result: TypeAlias = Fenced | ControlIdHolder | Found | Missing | Opened | WriteResult | Voted | TasksEnded | LogOutcomes
