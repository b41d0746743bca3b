"""The driver's side of a write: BEGIN, COMMIT and ABORT on a real cluster, with connections that stay open for the next batch."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from spark_producer.admin import BlockingClient
from spark_producer.common.cluster import Span
from spark_producer.common.escape import escaping_logger
from spark_producer.config.control_topics import DEFAULT_CONTROL_TOPIC, is_control_topic, refusal
from spark_producer.errors import ExactlyOnceError, IllegalState, PyProducerError
from spark_producer.exactly_once.cluster import durability_warning
from spark_producer.exactly_once.cluster.command_executor import CommandExecutor
from spark_producer.exactly_once.cluster.control_topic import COORDINATORS_TOPIC
from spark_producer.exactly_once.cluster.waits import Waits
from spark_producer.exactly_once.protocol import abort as abort_protocol
from spark_producer.exactly_once.protocol import begin as begin_protocol
from spark_producer.exactly_once.protocol import commit as commit_protocol
from spark_producer.exactly_once.protocol.commands import Command, EndTasks, ListOpen, Opened, Result, TasksEnded
from spark_producer.exactly_once.protocol.outcomes import (
    RUNS_AGAIN,
    AlreadyDone,
    Begun,
    Failed,
    FailureKind,
    NothingToAbort,
    Outcome,
    WriteAborted,
    WriteCommitted,
)
from spark_producer.exactly_once.protocol.state_machine import run
from spark_producer.exactly_once.protocol.task_messages import InlineRows, PreparedTask, TaskOutcome, WriteHandle
from spark_producer.network import ConnectionSettings

logger = escaping_logger(__name__)

CONTROL_TOPIC = DEFAULT_CONTROL_TOPIC
DEFAULT_TIMEOUT_S = 60.0

LISTING_TIMEOUT_S = 2.0
"""Maximum time in seconds for which a commit lists the transactions that dead tasks have left open."""

MAX_OPEN_CLUSTERS = 4
"""Maximum number of clusters with open connections in one process; the least recently used one is closed first."""


class SinkSettings(NamedTuple):
    """A sink on a cluster. `name` is its `exactlyOnceId`.

    `timeout` is the maximum time of each command in seconds; `topics` are the known ones of the write.
    """

    name: str
    connection: ConnectionSettings
    control_topic: str = CONTROL_TOPIC
    timeout: float = DEFAULT_TIMEOUT_S
    topics: tuple[str, ...] = ()


_open: list[tuple[SinkSettings, CommandExecutor]] = []
"""The clusters of this process in the order of their last use. Settings have secrets: they can be compared, but not hashed."""


def begin(sink: SinkSettings) -> WriteHandle:
    """Take the sink over, complete or abort the writes of earlier drivers, and return the handle for the tasks of this execution.

    Raises:
        ExactlyOnceError: the write does not start: a person must decide (PARTIAL, HUNG), a newer driver took over, or the cluster
            does not support it. BrokerError: a right is missing; the message has the command that grants it.
        KafkaTimeout, BrokersUnreachable, SecurityError: the cluster does not answer; the message says what was waited for.
    """
    with _cluster_of(sink) as cluster:
        cluster.prepare()
        durability_warning.warn_once(cluster.brokers, [cluster.topic, COORDINATORS_TOPIC, *sink.topics])
        token = secrets.token_hex(16)
        outcome = _raise_if_failed(run(begin_protocol.begin(sink.name, token), cluster.perform))
        if not isinstance(outcome, Begun):
            raise IllegalState(f"BEGIN ended with {type(outcome).__name__}: a bug in pyproducer")
        if outcome.last is None and cluster.fenced is not None and cluster.fenced.previous_epoch > 0:
            logger.warning(
                "exactlyOnceId %s: its transactional id was used before, and the control topic %s has no record of it, so it is "
                "treated as a new sink whose first writes failed. If it has written with another exactlyOnceControlTopic, or "
                "that topic was deleted, stop it: rows could be written twice",
                sink.name,
                cluster.topic,
            )
        return WriteHandle(sink.name, token, outcome.fencing, cluster.transaction_version, outcome.last)


def commit(sink: SinkSettings, messages: Sequence[TaskOutcome], batch: int) -> WriteCommitted | AlreadyDone:
    """Make the rows of all tasks visible, as a whole, and return when all partitions with rows have the markers.

    Raises: as `begin`. If `again` of the ExactlyOnceError is true, the batch can run again. After any other error, the next BEGIN
    or `abort` finds out what was decided.
    """
    with _cluster_of(sink) as cluster:
        _prepare_for(cluster, messages)
        _refuse_control_topics(cluster, messages)
        durability_warning.warn_once(
            cluster.brokers, _topics_of(messages) - set(sink.topics)
        )  # BEGIN has checked those
        cluster.take_inline(each for one in messages if isinstance(one, InlineRows) for each in one.batches)
        try:
            outcome = _raise_if_failed(run(commit_protocol.commit(messages, batch), partial(perform_commit, cluster)))
        finally:
            cluster.drop_inline()
        if not isinstance(outcome, WriteCommitted | AlreadyDone):
            raise IllegalState(f"COMMIT ended with {type(outcome).__name__}: a bug in pyproducer")
        return outcome


def perform_commit(cluster: CommandExecutor, command: Command) -> Result:
    """Execute a command of COMMIT. A failure to list or abort the transactions of dead tasks is logged, and not raised."""
    if not isinstance(command, ListOpen) and not (isinstance(command, EndTasks) and not command.commit):
        return cluster.perform(command)
    try:
        return (
            cluster.perform(command, LISTING_TIMEOUT_S) if isinstance(command, ListOpen) else cluster.perform(command)
        )
    except PyProducerError as error:
        logger.warning(
            "sink %r: transactions of dead tasks could not be aborted, and block readers of committed records: %s. The next "
            "write of the sink aborts them, and `pyproducer txn resolve` does",
            cluster.sink,
            error,
        )
        return Opened(()) if isinstance(command, ListOpen) else TasksEnded(())


def inline_spans(sink: SinkSettings) -> tuple[Span, ...]:
    """Return the spans of the inline rows of the last commit of this sink in this process; empty if there were none."""
    return next((cluster.written for known, cluster in _open if known == sink), ())


def abort(
    sink: SinkSettings, messages: Sequence[TaskOutcome | None], batch: int
) -> WriteAborted | WriteCommitted | NothingToAbort:
    """Abort the tasks' transactions in `messages`, unless the execution is decided.

    Raises: as `begin`. The next BEGIN finds transactions that could not be aborted.
    """

    with _cluster_of(sink) as cluster:
        _prepare_for(cluster, messages)
        outcome = _raise_if_failed(run(abort_protocol.abort(messages), cluster.perform))
        if not isinstance(outcome, WriteAborted | WriteCommitted | NothingToAbort):
            raise IllegalState(f"ABORT of batch {batch} ended with {type(outcome).__name__}: a bug in pyproducer")
        return outcome


def _prepare_for(cluster: CommandExecutor, messages: Sequence[TaskOutcome | None]) -> None:
    """Use the transaction version of BEGIN: all transactions of the control id in one execution have the same one.

    Raises:
        ExactlyOnceError: messages are from another sink, which this sink's control id does not fence.
    """
    handles = [one.handle for one in messages if one is not None]
    foreign = next((each.sink for each in handles if each.sink != cluster.sink), None)
    if foreign is not None:
        raise ExactlyOnceError(
            f"sink {cluster.sink!r}: messages of tasks are of sink {foreign!r}. Nothing is done",
            kind=FailureKind.MIXED.name,
        )
    if handles:
        cluster.transaction_version = handles[0].transaction_version


def _refuse_control_topics(cluster: CommandExecutor, messages: Sequence[TaskOutcome]) -> None:
    """Refuse rows in control topics, which tasks of an older version may have written.

    Raises:
        ExactlyOnceError: a task has written some.
    """
    for topic in sorted(_topics_of(messages)):
        if topic == cluster.topic or is_control_topic(topic):
            raise ExactlyOnceError(
                f"sink {cluster.sink!r}: {refusal(topic)}. Nothing is committed", kind=FailureKind.REFUSED.name
            )


def _topics_of(messages: Sequence[TaskOutcome]) -> set[str]:
    topics = {each.topic for one in messages if isinstance(one, InlineRows) for each in one.batches}
    return topics | {span.topic for one in messages if isinstance(one, PreparedTask) for span in one.transaction.spans}


def _raise_if_failed(outcome: Outcome) -> Outcome:
    """Return the outcome.

    Raises:
        ExactlyOnceError: the outcome is a failure.
    """
    if isinstance(outcome, Failed):
        raise ExactlyOnceError(
            outcome.text, kind=outcome.kind.name, names=outcome.names, again=outcome.kind in RUNS_AGAIN
        )
    return outcome


@contextmanager
def _cluster_of(sink: SinkSettings) -> Iterator[CommandExecutor]:
    """Yield the sink's cluster, which is opened if this process has none, and closed after an error."""
    found = next((entry for entry in _open if entry[0] == sink), None)
    if found is None:
        client = BlockingClient(sink.connection, timeout=sink.timeout)
        found = (sink, CommandExecutor(client, sink.name, sink.control_topic))
    else:
        _open.remove(found)
    client = found[1].client
    client.on_wait = waits = Waits(sink.name, sink.timeout, client.clock)
    try:
        yield found[1]
    except BaseException:
        client.close()
        raise
    waits.finished()
    _open.append(found)
    while len(_open) > MAX_OPEN_CLUSTERS:
        _open.pop(0)[1].client.close()


def close_all() -> None:
    """Close the connections of this process, before it ends or forks."""
    while _open:
        _open.pop()[1].client.close()
