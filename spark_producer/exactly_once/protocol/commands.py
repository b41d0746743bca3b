"""What the steps of a write ask of a cluster, and what may be answered: the seam between the pure steps and whoever does them.

The steps (`begin`, `commit`, `redrive`, `abort`) are pure: a state and an answer give the next state, whose `ask` is one of these
values. The cluster of the tests' models, the simulator and the real brokers answer them alike. Whoever performs an ask repeats it
while a broker says that it cannot answer yet, and raises when its time is over: a write may stop at any ask, and the next BEGIN
goes on from what is in the cluster.
"""

from __future__ import annotations

import enum
from typing import NamedTuple, TypeAlias

from spark_producer.exactly_once.protocol.control_record import ControlRecord, TaskTransaction, TopicPartition


class Fencing(NamedTuple):
    """The producer id and epoch of the sink's control id: whoever has the newest may write the control record."""

    producer_id: int
    epoch: int


# --- asks ---------------------------------------------------------------------------------------------------------------


class Fence(NamedTuple):
    """Take the next epoch of the control id, which ends whatever an earlier holder has open. Answer: `Fenced`."""


class LookAtHolder(NamedTuple):
    """Look who holds the control id, without fencing. It is answered when no transaction of the id is being ended (the state is
    not PrepareCommit or PrepareAbort). Answer: `Holder`.
    """


class ReadControl(NamedTuple):
    """Read the sink's last committed control record; asked after a fence has ended all earlier transactions of the control id.

    It is checked that the log shows their end: in the control partition, and in the record's `inline` partitions (R8).
    Answer: `Found`, `Missing`, `Hung`.
    """


class ListOpen(NamedTuple):
    """List the open transactions of this sink's task ids on all brokers, `besides` those of these transactions' ids.

    Answer: `Opened`.
    """

    besides: tuple[TaskTransaction, ...] = ()


class WriteControl(NamedTuple):
    """Write `record` in a transaction of the control id, with the rows of inline tasks if `inline`.

    Just before the end of the transaction it is checked that it begins with its own first row in each partition: no older one is
    glued to it, and nothing of it is gone (R7); and after it that all partitions show the end (R8). A request of it that was not
    answered is never sent again (`Unsure`). Answer: `Written`, `Hung`, `FencedOff`, `Unsure`, `Glued`.
    """

    fencing: Fencing
    record: ControlRecord
    inline: bool = False


class Vote(NamedTuple):
    """Ask whether every transaction is still open, with enough time left, all its rows, and not glued to an older one (R7).

    `fencing` is that of the write, by which an objection can be told to be another writer's deed. Answer: `Voted`.
    """

    transactions: tuple[TaskTransaction, ...]
    fencing: Fencing


class EndTasks(NamedTuple):
    """Commit or abort transactions of tasks, each by its id, epoch and style alone; in any order, and at the same time.

    Answer: `TasksEnded`.
    """

    transactions: tuple[TaskTransaction, ...]
    commit: bool


class LookAtLogs(NamedTuple):
    """Look in the partitions themselves what became of each transaction, and whether they show its end (R8).

    Answer: `Fates`.
    """

    transactions: tuple[TaskTransaction, ...]


Ask: TypeAlias = Fence | LookAtHolder | ReadControl | ListOpen | WriteControl | Vote | EndTasks | LookAtLogs


# --- answers ------------------------------------------------------------------------------------------------------------


class Fenced(NamedTuple):
    """The epoch is taken. `before` is the previous one at the coordinator; -1: it did not know the id.

    `noted` is its note of the sink's last commit (`last_commit`); None if there is none.
    """

    fencing: Fencing
    noted: int | None = None
    before: int = -1


class Holder(NamedTuple):
    """The newest producer id and epoch of the control id; None if the coordinator does not know the id.

    `noted`: as of `Fenced`.
    """

    fencing: Fencing | None
    noted: int | None = None


class Found(NamedTuple):
    """The last control record; None if the sink is new."""

    record: ControlRecord | None


class Missing(NamedTuple):
    """The control topic lacks the record of the sink that the coordinator has committed last. `older` is the newest one that it
    has, if any.
    """

    topic: str
    older: ControlRecord | None = None


class Opened(NamedTuple):
    """The open transactions of the sink's tasks. Their `spans` are empty."""

    transactions: tuple[TaskTransaction, ...]


class Written(NamedTuple):
    """The record is committed, and all partitions show it; `fencing` is for the next write (EndTxn 5 raises the epoch)."""

    fencing: Fencing


class Hung(NamedTuple):
    """The coordinator has ended a transaction of the control id, but these partitions have lost the marker that says so.

    As the answer to a write: it is committed all the same. As that to a look: `record` is the last word, if that is to be seen.
    """

    partitions: tuple[TopicPartition, ...]
    record: ControlRecord | None = None


class FencedOff(NamedTuple):
    """A newer holder of the control id has taken over, and nothing was written: the first answer to the end of it said so.

    The newer holder may be the coordinator itself, which aborts a transaction that is open for too long. `expired`: there is no
    newer one, but the coordinator has forgotten the id.
    """

    expired: bool = False


class Unsure(NamedTuple):
    """It is not known whether the record was written: no answer came. `reason` is for people."""

    reason: str = ""


class Glued(NamedTuple):
    """An older transaction of the same producer hangs in these partitions, and ours would decide it too: ours was aborted."""

    partitions: tuple[TopicPartition, ...]


class Voted(NamedTuple):
    """`objections` name the transactions that must not be committed, and why; if there are none all is well.

    `overtaken` says of objections that another writer holds the sink now, and has aborted what it found open.
    """

    objections: tuple[str, ...] = ()
    overtaken: bool = False


class Ended(NamedTuple):
    """The coordinator has decided the transaction as asked."""


class Refused(NamedTuple):
    """The coordinator refuses: the transaction is not that of this id and epoch any more. `code` is its error code."""

    code: int


class TasksEnded(NamedTuple):
    """What the coordinators say of each transaction, in the order of the ask."""

    results: tuple[Ended | Refused, ...]


class Fate(enum.Enum):
    """What the logs say of a transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"
    UNKNOWN = "unknown"
    """the log does not reach back to it, because of retention, or its topic is gone"""
    MIXED = "mixed"
    """some partitions say committed and others aborted, since a lost marker was decided by a later transaction;
    or rows that were acknowledged are gone"""


class Fates(NamedTuple):
    """The fate of each transaction that was asked for, in order (`OPEN` if it is so in any partition), and where it is open."""

    fates: tuple[Fate, ...]
    open_partitions: tuple[TopicPartition, ...] = ()


WriteAnswer: TypeAlias = Written | Hung | FencedOff | Unsure | Glued
Answer: TypeAlias = Fenced | Holder | Found | Missing | Opened | WriteAnswer | Voted | TasksEnded | Fates
