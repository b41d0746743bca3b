"""What people do to a sink that stands still: carry on what is decided, accept a part, write markers that were lost."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence

from spark_producer.admin.exchange import NodeRequest
from spark_producer.common.cluster import ProducerIdAndEpoch, Style, TopicPartition
from spark_producer.common.error_codes import Code
from spark_producer.errors import ExactlyOnceError, PyProducerError, broker_error
from spark_producer.exactly_once.cluster.broker_requests import format_partitions
from spark_producer.exactly_once.cluster.command_executor import CommandExecutor
from spark_producer.exactly_once.cluster.control_log import ControlLog
from spark_producer.exactly_once.cluster.control_topic import PARTITION
from spark_producer.exactly_once.cluster.required_acls import Right, missing_right
from spark_producer.exactly_once.protocol import begin as beginning
from spark_producer.exactly_once.protocol.commands import (
    ControlWritten,
    Fence,
    Fenced,
    Found,
    MarkersLost,
    Missing,
    ReadControl,
    WriteControl,
)
from spark_producer.exactly_once.protocol.control_record import NO_BATCH, ControlRecord, Status
from spark_producer.exactly_once.protocol.final_status import with_final_status
from spark_producer.exactly_once.protocol.outcomes import Begun, Failed, FailureKind, markers_lost, no_record
from spark_producer.exactly_once.protocol.state_machine import run
from spark_producer.exactly_once.repair.lost_markers import LAST_EPOCH, LostMarker, find_lost_markers
from spark_producer.protocol import WRITE_TXN_MARKERS
from spark_producer.protocol.messages import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest


def resolve(cluster: CommandExecutor) -> ControlRecord | None:
    """Take the sink over, finish what is decided, abort what is not, and return its last word. A running query is fenced.

    Raises:
        ExactlyOnceError: a person must decide first. KafkaTimeout, BrokerError, SecurityError: it is not there, or refuses.
    """
    outcome = _begun(cluster)
    return None if outcome is None else outcome.last


def accept_difference(cluster: CommandExecutor) -> ControlRecord | None:
    """As `resolve`; but the number of rows of the last batch is forgotten, so that it is skipped whatever rows it has when it is
    run again; in `foreachBatch` that of all writes of the micro-batch.

    Raises:
        ExactlyOnceError: somebody else took the sink over; and as `resolve`.
    """
    outcome = _begun(cluster)
    if outcome is None or outcome.last is None:
        return None
    earlier = tuple(each._replace(rows=None, content=None) for each in outcome.last.earlier)
    record = outcome.last._replace(done_rows=None, done_content=None, earlier=earlier)
    return _written(cluster, outcome.fencing, record)


def accept_partial(cluster: CommandExecutor) -> ControlRecord:
    """Take what is visible of a `PARTIAL` batch for the whole of it, and return the word that says so.

    Raises:
        ExactlyOnceError: the sink's last word is another, or somebody else took the sink over; and as `resolve`.
    """
    cluster.prepare()
    fenced, found = cluster.perform(Fence()), cluster.perform(ReadControl())
    if isinstance(found, MarkersLost):
        raise ExactlyOnceError(markers_lost(cluster.sink, found.partitions).text, kind=FailureKind.HUNG.name)
    if isinstance(found, Missing):
        raise ExactlyOnceError(no_record(cluster.sink, found.topic).text, kind=FailureKind.NO_RECORD.name)
    record = found.record if isinstance(found, Found) else None
    if record is None or record.status is not Status.PARTIAL or not isinstance(fenced, Fenced):
        raise ExactlyOnceError(f"sink {cluster.sink!r}: there is no partial batch to accept")
    return _written(cluster, fenced.fencing, with_final_status(record, Status.DONE))


def rebind(cluster: CommandExecutor) -> ControlRecord:
    """As `resolve`; then unbind the sink from its query, and forget its last number: the query that commits next gets it.

    Raises:
        ExactlyOnceError: it has written nothing, or another driver took it over; and as `resolve`.
    """
    outcome = _begun(cluster)
    if outcome is None or outcome.last is None:
        raise ExactlyOnceError(f"sink {cluster.sink!r}: nothing to rebind: it has no record in {cluster.topic!r}")
    record = ControlRecord(cluster.sink, None, Status.INTENT, NO_BATCH, NO_BATCH, secrets.token_hex(16))
    return _written(cluster, outcome.fencing, record)


def accept_no_record(cluster: CommandExecutor) -> ControlRecord:
    """Reset a sink whose last record is lost to an older one in the control topic, which is written again, or to one that has
    written nothing yet if there is none; and return the record that says so.

    Raises:
        ExactlyOnceError: the control topic has the sink's last record; or another driver took the sink over.
    """
    cluster.prepare(make=True)
    fenced, found = cluster.perform(Fence()), cluster.perform(ReadControl())
    if isinstance(found, MarkersLost):
        raise ExactlyOnceError(markers_lost(cluster.sink, found.partitions).text, kind=FailureKind.HUNG.name)
    if not isinstance(found, Missing) or not isinstance(fenced, Fenced):
        raise ExactlyOnceError(
            f"sink {cluster.sink!r}: nothing to accept: the control topic {cluster.topic!r} has its last committed record"
        )
    nothing = ControlRecord(cluster.sink, None, Status.INTENT, NO_BATCH, NO_BATCH, secrets.token_hex(16))
    return _written(cluster, fenced.fencing, found.older or nothing)


def _begun(cluster: CommandExecutor) -> Begun | None:
    cluster.prepare()
    outcome = run(beginning.begin(cluster.sink, secrets.token_hex(16)), cluster.perform)
    if isinstance(outcome, Failed):
        raise ExactlyOnceError(outcome.text, kind=outcome.kind.name, names=outcome.names)
    return outcome if isinstance(outcome, Begun) else None


def _written(cluster: CommandExecutor, fencing: ProducerIdAndEpoch, record: ControlRecord) -> ControlRecord:
    answer = cluster.perform(WriteControl(fencing, record))
    if isinstance(answer, MarkersLost):
        raise ExactlyOnceError(markers_lost(cluster.sink, answer.partitions).text, kind=FailureKind.HUNG.name)
    if not isinstance(answer, ControlWritten):
        raise ExactlyOnceError(
            f"sink {cluster.sink!r}: the word was not written ({answer}); look again with `describe`"
        )
    return record


def write_markers(
    cluster: CommandExecutor,
    lost: Sequence[LostMarker],
    more: Collection[TopicPartition] = (),
    *,
    take_for: bool | None = None,
) -> None:
    """Write the end of transactions into the partitions that have lost it, as their coordinator had decided it. `more` are the
    partitions that were looked at besides those that the sink's last words name. `take_for`: how those were ended of which
    nobody knows it, by the word of a person (True: committed).

    Raises:
        ExactlyOnceError: it is not known how one was ended (the others are written), or others are lost by now. BrokerError: the
        right to ALTER the cluster is missing, or a leader refuses.
    """
    known = with_known_outcome(lost, take_for)
    unknown = [each.topic_partition for each in lost if each.commit is None] if take_for is None else []
    if known:
        _write_markers(cluster, lost, known, more)
    if unknown and known:
        raise ExactlyOnceError(
            f"sink {cluster.sink!r}: how the transactions in {format_partitions(unknown)} were ended was not known before "
            "the others were. Run the command again: the logs may tell now"
        )
    if unknown:
        raise ExactlyOnceError(
            f"sink {cluster.sink!r}: neither the coordinator nor the logs tell any more how the transactions in "
            f"{format_partitions(unknown)} were ended, or they were committed and no record in {cluster.topic} names them (is "
            "that its control topic?), so nothing is written anywhere. Look whether readers of committed records see rows of "
            "that batch in other partitions. If they do, `--assume committed` is right, since its next run would double them; "
            "if they see none at all, `--assume aborted` is, and the batch runs again"
        )


def with_known_outcome(lost: Sequence[LostMarker], take_for: bool | None = None) -> list[LostMarker]:
    """Return those of which it is known how they were ended, and the others if somebody says what to take them for."""
    told = [each._replace(commit=take_for) if each.commit is None else each for each in lost]
    return [each for each in told if each.commit is not None]


def _write_markers(
    cluster: CommandExecutor, shown: Sequence[LostMarker], lost: Sequence[LostMarker], more: Collection[TopicPartition]
) -> None:
    brokers, deadline = cluster.brokers, cluster.client.deadline()
    cluster.prepare()
    log = ControlLog(brokers, cluster.topic)
    now = find_lost_markers(brokers, log, TopicPartition(cluster.topic, PARTITION), log.read(deadline), deadline, more)
    if set(now.markers) != set(shown):
        raise ExactlyOnceError(
            f"sink {cluster.sink!r}: somebody else writes to it, or repairs it: what is lost is not what was shown any more. "
            "Nothing was written: stop its query, and look again with `pyproducer txn describe`"
        )
    leaders = brokers.leaders([each.topic_partition for each in lost], deadline)
    bump = 1 if cluster.style is Style.IMPLICIT else 0
    calls = [
        NodeRequest(
            leaders[each.topic_partition],
            WRITE_TXN_MARKERS,
            WriteTxnMarkersRequest(
                (
                    WritableTxnMarker(
                        each.producer_id,
                        min(each.epoch + bump, LAST_EPOCH),
                        bool(each.commit),
                        (WritableTxnMarkerTopic(each.topic_partition[0], (each.topic_partition[1],)),),
                        max(0, each.coordinator_epoch),
                    ),
                )
            ),
        )
        for each in lost
    ]
    for each, answer in zip(lost, brokers.client.request_all(calls, deadline), strict=True):
        if isinstance(answer, PyProducerError):
            raise answer
        codes = [row.error_code for marker in answer.markers for topic in marker.topics for row in topic.partitions]
        for code in codes:
            if code == Code.CLUSTER_AUTHORIZATION_FAILED:
                raise missing_right(Right.REPAIR, cluster.sink, cluster.client.user)
            if code:
                raise broker_error(code, f"the marker for {format_partitions([each.topic_partition])}")
