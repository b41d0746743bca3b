"""The driver's side of a write: BEGIN, COMMIT and ABORT on a real cluster, with connections that stay open for the next batch."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from spark_producer.admin import BlockingClient
from spark_producer.common.cluster import Span
from spark_producer.common.escape import escaping_logger
from spark_producer.config.control_topics import DEFAULT_CONTROL_TOPIC, is_control_topic, refusal
from spark_producer.errors import ExactlyOnceError, IllegalState, PyProducerError
from spark_producer.exactly_once.cluster import durability_warning
from spark_producer.exactly_once.cluster.command_executor import CommandExecutor
from spark_producer.exactly_once.cluster.control_topic import COORDINATORS_TOPIC
from spark_producer.exactly_once.cluster.waits import Waits
from spark_producer.exactly_once.protocol import abort as aborting
from spark_producer.exactly_once.protocol import begin as beginning
from spark_producer.exactly_once.protocol import commit as committing
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

Returned = TypeVar("Returned")

CONTROL_TOPIC = DEFAULT_CONTROL_TOPIC
DEFAULT_TIMEOUT_S = 60.0

LISTING_TIMEOUT_S = 2.0
"""Seconds for which a commit asks what dead tasks have left open."""

MAX_OPEN_CLUSTERS = 4
"""So many clusters keep their connections in one process; the one that was used longest ago is closed for another."""


class SinkSettings(NamedTuple):
    """Which sink, on which cluster. `timeout`: seconds for which each step is tried. `topics`: those known to be written to."""

    name: str
    connection: ConnectionSettings
    control_topic: str = CONTROL_TOPIC
    timeout: float = DEFAULT_TIMEOUT_S
    topics: tuple[str, ...] = ()


_open: list[tuple[SinkSettings, CommandExecutor]] = []
"""The clusters of this process, the one used last at the end. Settings have secrets, so they can be compared, but not hashed."""


def begin(sink: SinkSettings) -> WriteHandle:
    """Take the sink: finish or abort what an earlier driver left, and return what the tasks of this execution need.

    Raises:
        ExactlyOnceError: the write does not start: a person must look (PARTIAL, HUNG), a newer driver took over, or the cluster
            is not fit for it. BrokerError: a right is missing, with the command that grants it.
        KafkaTimeout, BrokersUnreachable, SecurityError: the cluster does not answer; the text says what was waited for.
    """
    return _with_cluster(sink, partial(_begin, topics=sink.topics))


def commit(sink: SinkSettings, messages: Sequence[TaskOutcome], batch: int) -> WriteCommitted | AlreadyDone:
    """Make visible what the tasks have written, as a whole, and return when every partition shows it.

    Raises: as `begin`. With `again` of ExactlyOnceError, the batch can run again; every other error leaves it to the next BEGIN,
    or to `abort`, to find out what was decided.
    """

    def act(cluster: CommandExecutor) -> WriteCommitted | AlreadyDone:
        _prepare_for(cluster, messages)
        _refuse_control_topics(cluster, messages)
        durability_warning.warn_once(
            cluster.brokers, _topics_of(messages) - set(sink.topics)
        )  # of those BEGIN has told
        cluster.take_inline(each for one in messages if isinstance(one, InlineRows) for each in one.batches)
        try:
            outcome = _told(run(committing.commit(messages, batch), partial(perform_commit, cluster)))
        finally:
            cluster.drop_inline()
        if not isinstance(outcome, WriteCommitted | AlreadyDone):
            raise IllegalState(f"COMMIT ended with {type(outcome).__name__}: a defect of pyproducer")
        return outcome

    return _with_cluster(sink, act)


def perform_commit(cluster: CommandExecutor, command: Command) -> Result:
    """As the cluster does; but a commit neither fails nor waits for long because dead tasks' transactions stay open."""
    if not isinstance(command, ListOpen) and not (isinstance(command, EndTasks) and not command.commit):
        return cluster.perform(command)
    try:
        return (
            cluster.perform(command, LISTING_TIMEOUT_S) if isinstance(command, ListOpen) else cluster.perform(command)
        )
    except PyProducerError as error:
        logger.warning(
            "sink %r: transactions that dead tasks have left open could not be aborted, and hold back readers of committed "
            "records. The next write of the sink aborts them, or `pyproducer txn resolve`. %s",
            cluster.sink,
            error,
        )
        return Opened(()) if isinstance(command, ListOpen) else TasksEnded(())


def inline_spans(sink: SinkSettings) -> tuple[Span, ...]:
    """Return where the rows of inline tasks lie, right after a commit of this sink in this process; none if there were none."""
    return next((cluster.written for known, cluster in _open if known == sink), ())


def abort(
    sink: SinkSettings, messages: Sequence[TaskOutcome | None], batch: int
) -> WriteAborted | WriteCommitted | NothingToAbort:
    """End the transactions of tasks that are told in `messages`, unless the execution turns out to be decided.

    Raises: as `begin`. What could not be ended is found by the next BEGIN.
    """

    def act(cluster: CommandExecutor) -> WriteAborted | WriteCommitted | NothingToAbort:
        _prepare_for(cluster, messages)
        outcome = _told(run(aborting.abort(messages), cluster.perform))
        if not isinstance(outcome, WriteAborted | WriteCommitted | NothingToAbort):
            raise IllegalState(f"ABORT of batch {batch} ended with {type(outcome).__name__}: a defect of pyproducer")
        return outcome

    return _with_cluster(sink, act)


def _begin(cluster: CommandExecutor, topics: Sequence[str]) -> WriteHandle:
    cluster.prepare()
    durability_warning.warn_once(cluster.brokers, [cluster.topic, COORDINATORS_TOPIC, *topics])
    token = secrets.token_hex(16)
    outcome = _told(run(beginning.begin(cluster.sink, token), cluster.perform))
    if not isinstance(outcome, Begun):
        raise IllegalState(f"BEGIN ended with {type(outcome).__name__}: a defect of pyproducer")
    if outcome.last is None and cluster.fenced is not None and cluster.fenced.previous_epoch > 0:
        logger.warning(
            "exactlyOnceId %s: its transactional id was used before, and the control topic %s has no record of it, so it is "
            "treated as a new sink whose first writes failed. If it has written with another exactlyOnceControlTopic, or that "
            "topic was deleted, stop it: rows could be written twice",
            cluster.sink,
            cluster.topic,
        )
    return WriteHandle(cluster.sink, token, outcome.fencing, cluster.style, outcome.last)


def _prepare_for(cluster: CommandExecutor, messages: Sequence[TaskOutcome | None]) -> None:
    """Speak as BEGIN did: the control id's transactions of one execution have one style.

    Raises:
        ExactlyOnceError: messages are of another sink, whose control id this one's does not fence.
    """
    handles = [one.handle for one in messages if one is not None]
    foreign = next((each.sink for each in handles if each.sink != cluster.sink), None)
    if foreign is not None:
        raise ExactlyOnceError(
            f"sink {cluster.sink!r}: messages of tasks are of sink {foreign!r}. Nothing is done",
            kind=FailureKind.MIXED.name,
        )
    if handles:
        cluster.style = handles[0].style


def _refuse_control_topics(cluster: CommandExecutor, messages: Sequence[TaskOutcome]) -> None:
    """Refuse rows in control topics, which tasks of an older version write.

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


def _told(outcome: Outcome) -> Outcome:
    """Return an outcome that is none of a failure.

    Raises:
        ExactlyOnceError: it is one.
    """
    if isinstance(outcome, Failed):
        raise ExactlyOnceError(
            outcome.text, kind=outcome.kind.name, names=outcome.names, again=outcome.kind in RUNS_AGAIN
        )
    return outcome


def _with_cluster(sink: SinkSettings, act: Callable[[CommandExecutor], Returned]) -> Returned:
    """Let `act` use the cluster of the sink, which is opened if this process has none. After an error it is closed."""
    found = next((entry for entry in _open if entry[0] == sink), None)
    if found is None:
        client = BlockingClient(sink.connection, timeout=sink.timeout)
        found = (sink, CommandExecutor(client, sink.name, sink.control_topic))
    else:
        _open.remove(found)
    client = found[1].client
    client.on_wait = waits = Waits(sink.name, sink.timeout, client.clock)
    try:
        result = act(found[1])
    except BaseException:
        client.close()
        raise
    waits.over()
    _open.append(found)
    while len(_open) > MAX_OPEN_CLUSTERS:
        _open.pop(0)[1].client.close()
    return result


def close_all() -> None:
    """Close the connections of this process, before it ends or forks."""
    while _open:
        _open.pop()[1].client.close()
