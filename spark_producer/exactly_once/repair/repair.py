"""The repairs of a sink: complete what is decided, accept a part of a batch, write lost markers."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence

from spark_producer.admin.exchange import NodeRequest
from spark_producer.common.cluster import ProducerIdAndEpoch, TopicPartition, TransactionVersion
from spark_producer.common.error_codes import Code
from spark_producer.errors import ExactlyOnceError, PyProducerError, broker_error
from spark_producer.exactly_once.cluster.broker_requests import format_partitions
from spark_producer.exactly_once.cluster.command_executor import CommandExecutor
from spark_producer.exactly_once.cluster.control_log import ControlLog
from spark_producer.exactly_once.cluster.control_topic import PARTITION
from spark_producer.exactly_once.cluster.required_acls import Right, missing_right
from spark_producer.exactly_once.protocol import begin as begin_protocol
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
    """Take the sink over, complete decided writes, abort others, and return its last control record. A running query is fenced.

    Raises:
        ExactlyOnceError: a person must decide first. KafkaTimeout, BrokerError, SecurityError: the cluster does not answer, or
            refuses.
    """
    outcome = _begin(cluster)
    return None if outcome is None else outcome.last


def accept_difference(cluster: CommandExecutor) -> ControlRecord | None:
    """Resolve the sink, and remove the number of rows of its last batch, so that it is skipped with any rows when it runs again.

    In `foreachBatch` those of all writes of the micro-batch are removed.

    Raises:
        ExactlyOnceError: another driver took the sink over; and as `resolve`.
    """
    outcome = _begin(cluster)
    if outcome is None or outcome.last is None:
        return None
    earlier = tuple(each._replace(rows=None, content=None) for each in outcome.last.earlier)
    record = outcome.last._replace(done_rows=None, done_content=None, earlier=earlier)
    return _write_record(cluster, outcome.fencing, record)


def accept_partial(cluster: CommandExecutor) -> ControlRecord:
    """Accept the visible rows of a `PARTIAL` batch as the whole batch, and return the control record that says so.

    Raises:
        ExactlyOnceError: the sink's last control record has another status, or another driver took the sink over; and as
            `resolve`.
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
    return _write_record(cluster, fenced.fencing, with_final_status(record, Status.DONE))


def rebind(cluster: CommandExecutor) -> ControlRecord:
    """Resolve the sink, unbind it from its query, and remove its last batch number: the query that commits next owns the sink.

    Raises:
        ExactlyOnceError: the sink has written nothing, or another driver took it over; and as `resolve`.
    """
    outcome = _begin(cluster)
    if outcome is None or outcome.last is None:
        raise ExactlyOnceError(f"sink {cluster.sink!r}: nothing to rebind: it has no record in {cluster.topic!r}")
    record = ControlRecord(cluster.sink, None, Status.INTENT, NO_BATCH, NO_BATCH, secrets.token_hex(16))
    return _write_record(cluster, outcome.fencing, record)


def accept_no_record(cluster: CommandExecutor) -> ControlRecord:
    """Reset a sink whose last control record is lost to an older record, or to a new sink if there is none; return that record.

    Raises:
        ExactlyOnceError: the control topic has the sink's last record; or another driver took the sink over.
    """
    cluster.prepare(make=True)
    fenced, found = cluster.perform(Fence()), cluster.perform(ReadControl())
    if isinstance(found, MarkersLost):
        raise ExactlyOnceError(markers_lost(cluster.sink, found.partitions).text, kind=FailureKind.HUNG.name)
    if not isinstance(found, Missing) or not isinstance(fenced, Fenced):
        raise ExactlyOnceError(
            f"sink {cluster.sink!r}: the control topic {cluster.topic!r} has its last record. Leave --accept-no-record out"
        )
    nothing = ControlRecord(cluster.sink, None, Status.INTENT, NO_BATCH, NO_BATCH, secrets.token_hex(16))
    return _write_record(cluster, fenced.fencing, found.older or nothing)


def _begin(cluster: CommandExecutor) -> Begun | None:
    cluster.prepare()
    outcome = run(begin_protocol.begin(cluster.sink, secrets.token_hex(16)), cluster.perform)
    if isinstance(outcome, Failed):
        raise ExactlyOnceError(outcome.text, kind=outcome.kind.name, names=outcome.names)
    return outcome if isinstance(outcome, Begun) else None


def _write_record(cluster: CommandExecutor, fencing: ProducerIdAndEpoch, record: ControlRecord) -> ControlRecord:
    response = cluster.perform(WriteControl(fencing, record))
    if isinstance(response, MarkersLost):
        raise ExactlyOnceError(markers_lost(cluster.sink, response.partitions).text, kind=FailureKind.HUNG.name)
    if not isinstance(response, ControlWritten):
        raise ExactlyOnceError(
            f"sink {cluster.sink!r}: the control record was not written ({response}). Run `pyproducer txn "
            f"describe {cluster.sink}`"
        )
    return record


def write_markers(
    cluster: CommandExecutor,
    lost: Sequence[LostMarker],
    more: Collection[TopicPartition] = (),
    *,
    assumed: bool | None = None,
) -> None:
    """Write the lost markers of transactions, with the outcomes that their coordinators had decided.

    `more` are the partitions that were checked in addition to those in the sink's last control records. `assumed` is the outcome
    (True: committed) that a person assumes for transactions whose outcome is unknown.

    Raises:
        ExactlyOnceError: the outcome of a transaction is unknown (the markers of the others are written), or other markers are
            lost by now.
        BrokerError: the right to ALTER the cluster is missing, or a leader refuses.
    """
    known = with_known_outcome(lost, assumed)
    unknown = [each.topic_partition for each in lost if each.commit is None] if assumed is None else []
    if known:
        _write_markers(cluster, lost, known, more)
    if unknown and known:
        raise ExactlyOnceError(
            f"sink {cluster.sink!r}: the outcome of the transactions in {format_partitions(unknown)} was not known before "
            "the other markers were written. Run the command again: the logs may show it now"
        )
    if unknown:
        raise ExactlyOnceError(
            f"sink {cluster.sink!r}: the outcome of the transactions in {format_partitions(unknown)} is unknown to the "
            f"coordinator and in the logs, or they were committed and no record in {cluster.topic} names them (is that its "
            "control topic?). Nothing is written. Check whether consumers of committed records see rows of that batch in other "
            "partitions. If they do, `--assume committed` is right, since its next run would write them twice; "
            "if they see none at all, `--assume aborted` is, and the batch runs again"
        )


def with_known_outcome(lost: Sequence[LostMarker], assumed: bool | None = None) -> list[LostMarker]:
    """Return those with a known outcome; with an `assumed` outcome all of them."""
    assumed_markers = [each._replace(commit=assumed) if each.commit is None else each for each in lost]
    return [each for each in assumed_markers if each.commit is not None]


def _write_markers(
    cluster: CommandExecutor, shown: Sequence[LostMarker], lost: Sequence[LostMarker], more: Collection[TopicPartition]
) -> None:
    brokers, deadline = cluster.brokers, cluster.client.deadline()
    cluster.prepare()
    log = ControlLog(brokers, cluster.topic)
    now = find_lost_markers(brokers, log, TopicPartition(cluster.topic, PARTITION), log.read(deadline), deadline, more)
    if set(now.markers) != set(shown):
        raise ExactlyOnceError(
            f"sink {cluster.sink!r}: another program writes to it, or repairs it: the lost markers are no longer those that were "
            f"shown. Nothing was written. Stop its query, and run `pyproducer txn describe {cluster.sink}` again"
        )
    leaders = brokers.leaders([each.topic_partition for each in lost], deadline)
    epoch_increment = 1 if cluster.transaction_version is TransactionVersion.IMPLICIT else 0
    calls = [
        NodeRequest(
            leaders[each.topic_partition],
            WRITE_TXN_MARKERS,
            WriteTxnMarkersRequest(
                (
                    WritableTxnMarker(
                        each.producer_id,
                        min(each.epoch + epoch_increment, LAST_EPOCH),
                        bool(each.commit),
                        (WritableTxnMarkerTopic(each.topic_partition[0], (each.topic_partition[1],)),),
                        max(0, each.coordinator_epoch),
                    ),
                )
            ),
        )
        for each in lost
    ]
    for each, response in zip(lost, brokers.client.request_all(calls, deadline), strict=True):
        if isinstance(response, PyProducerError):
            raise response
        codes = [row.error_code for marker in response.markers for topic in marker.topics for row in topic.partitions]
        for code in codes:
            if code == Code.CLUSTER_AUTHORIZATION_FAILED:
                raise missing_right(Right.REPAIR, cluster.sink, cluster.client.user)
            if code:
                raise broker_error(code, f"the marker for {format_partitions([each.topic_partition])}")
