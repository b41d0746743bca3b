"""The write of a control record, with the rows of inline tasks: one transaction of the control id, and the commit point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from spark_producer.common.cluster import ProducerIdAndEpoch, Style, TopicPartition
from spark_producer.common.error_codes import FENCING, Code
from spark_producer.common.failpoints import failpoint
from spark_producer.errors import KafkaTimeout, PyProducerError
from spark_producer.exactly_once.cluster import record_json
from spark_producer.exactly_once.cluster.await_markers import await_markers
from spark_producer.exactly_once.cluster.broker_requests import (
    GONE_AFTER,
    MOVED,
    TransactionAdmin,
    by_topic,
    format_partitions,
    refused,
    worst_error,
)
from spark_producer.exactly_once.cluster.control_topic import PARTITION
from spark_producer.exactly_once.cluster.coordinator_state import describe
from spark_producer.exactly_once.cluster.end_transactions import END_STYLE
from spark_producer.exactly_once.cluster.inline_produce import Production
from spark_producer.exactly_once.cluster.partition_state import TransactionSpan, find_uncommittable, producers
from spark_producer.exactly_once.cluster.required_acls import Right, missing_right
from spark_producer.exactly_once.names import control_id
from spark_producer.exactly_once.protocol.commands import (
    ControlWritten,
    FencedOff,
    Indeterminate,
    MarkersLost,
    OlderTransactionHangs,
    WriteControl,
    WriteResult,
)
from spark_producer.exactly_once.protocol.task_messages import EncodedBatch
from spark_producer.protocol import ADD_PARTITIONS_TO_TXN
from spark_producer.protocol.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic, EndTxnRequest
from spark_producer.record.sequence_numbers import add_to_sequence
from spark_producer.record.small_batch import encode_few

ABORT_SECONDS = 5.0
"""Seconds that are spent on the abort of a transaction that cannot be committed."""


class ControlWrite:
    """One transaction of the control id."""

    def __init__(
        self, brokers: TransactionAdmin, topic: str, style: Style, command: WriteControl, deadline: float
    ) -> None:
        self._brokers = brokers
        self._where: TopicPartition = TopicPartition(topic, PARTITION)
        self._style = style
        self._fencing = command.fencing
        self._record = command.record
        self._id = control_id(brokers.sink)
        self._deadline = deadline
        self.spans: list[TransactionSpan] = []
        """Where the record and the rows have come to lie, once all are acknowledged."""

    def run(self, inline: Mapping[TopicPartition, Sequence[EncodedBatch]], largest_part: int) -> WriteResult:
        """Write the record and the rows, and commit them.

        Raises:
            BrokerError: rows are refused, or a right is missing; the transaction is aborted. ExactlyOnceError: the record is too
            large. KafkaTimeout: all is committed, and a partition did not show it in time.
        """
        now = self._brokers.client.now_ms()
        records = record_json.encode(self._record, largest_part, self._fencing)
        control = [EncodedBatch(*self._where, 1, bytes(encode_few([one], now))) for one in records]
        batches = {**inline, self._where: control}
        try:
            answer, sequence = self._open(list(batches))
            if answer is not None:
                return answer
            production = Production(
                self._brokers, self._id, self._fencing, self._style, batches, {self._where: sequence}
            )
            stop = production.run(self._deadline)
            failpoint("control.produced")
            if stop is not None:
                return self._fenced_off(stop) if isinstance(stop, FencedOff) else stop
            self.spans = spans = production.spans()
            older, gone = find_uncommittable(self._brokers, spans, self._deadline)
        except (
            BaseException
        ):  # also of defects and of somebody who is tired of waiting: readers would wait for a minute
            self._abort()
            raise
        if older:
            self._abort()
            return OlderTransactionHangs(tuple(sorted({each.topic_partition for each in older})))
        if gone:
            self._abort()
            return Indeterminate(
                f"rows that were acknowledged are not in {format_partitions(each.topic_partition for each in gone)} any more"
            )
        written = self._commit()
        failpoint("control.ended")
        if not isinstance(written, ControlWritten):
            return written
        lost = await_markers(self._brokers, {self._id: spans}, self._deadline, without_tasks={self._where})
        return MarkersLost(lost) if lost else written

    def _open(self, partitions: Sequence[TopicPartition]) -> tuple[FencedOff | Indeterminate | None, int]:
        """Begin the transaction, if its style needs that; return also the next sequence in the control partition.

        In the explicit style all transactions of one BEGIN have the same epoch, so the sequence goes on in the control partition.
        A batch with one that was used before would be acknowledged, and not written. Implicitly each has an epoch of its own.
        """
        if self._style is Style.IMPLICIT:
            return None, 0
        stop = self._stop(self._add(partitions), "adding partitions to the transaction")
        return stop, 0 if stop is not None else self._next_sequence()

    def _add(self, partitions: Sequence[TopicPartition]) -> Any:
        """Add partitions to the transaction, and return the answer.

        The coordinator is asked again for a while if it does not know one: a topic that was just made may be known to others.
        """
        topics = tuple(AddPartitionsToTxnTopic(topic, tuple(some)) for topic, some in by_topic(partitions).items())
        requests = {self._id: AddPartitionsToTxnRequest(self._id, *self._fencing, topics)}
        answer: Any = None
        until = min(self._deadline, self._brokers.client.clock() + GONE_AFTER)
        with suppress(KafkaTimeout):
            for _ in self._brokers.attempts(until, "the coordinator to know the topics"):
                answer = self._brokers.settle(ADD_PARTITIONS_TO_TXN, requests, self._deadline, resend=False)[self._id]
                if not _is_unknown(answer):
                    break
        return answer

    def _next_sequence(self) -> int:
        known = producers(self._brokers, [self._where], self._deadline).get(self._where)
        if known is None:
            raise missing_right(Right.CONTROL_TOPIC, self._brokers.sink, self._brokers.client.user, self._where[0])
        row = known.get(self._fencing.producer_id)
        if row is None or row.producer_epoch != self._fencing.epoch or row.last_sequence < 0:
            return 0
        return add_to_sequence(row.last_sequence, 1)

    def _commit(self) -> ControlWritten | FencedOff | Indeterminate:
        """The commit point. After an answer that says "later" it may be sent again; after one that never came it may not (D4).

        "Later" may be said of a commit that happens all the same: what the coordinator had written to its log was not replicated
        in time. So if a newer holder shows up only after that, it is not known what it came upon.
        """
        body = EndTxnRequest(self._id, *self._fencing, True)
        put_off: set[str] = set()
        api, requests = END_STYLE[self._style], {self._id: body}
        answer = self._brokers.settle(api, requests, self._deadline, resend=False, put_off=put_off)[self._id]
        if not isinstance(answer, PyProducerError) and worst_error(answer) == Code.INVALID_TXN_STATE:
            return Indeterminate("the transaction had timed out")
        stop = self._stop(answer, "the commit")
        if isinstance(stop, FencedOff) and put_off:
            return Indeterminate("the coordinator put the commit off, and then had a newer holder")
        if stop is not None:
            return stop
        if self._style is Style.EXPLICIT:
            return ControlWritten(self._fencing)
        if answer.producer_id < 0 or answer.producer_epoch < 0:
            return Indeterminate("the commit was answered without the epoch that follows")
        return ControlWritten(ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch))

    def _abort(self) -> None:
        """End the transaction, if that can be had; else the next fence does. What called for it is told, not this."""
        body = EndTxnRequest(self._id, *self._fencing, False)
        deadline = min(self._deadline, self._brokers.client.clock() + ABORT_SECONDS)
        with suppress(PyProducerError):
            self._brokers.settle(END_STYLE[self._style], {self._id: body}, deadline, resend=False)

    def _fenced_off(self, found: FencedOff) -> FencedOff:
        """Return whether the id was taken over or has expired, for which the error code may be the same."""
        if found.expired:
            with suppress(PyProducerError):
                return FencedOff(describe(self._brokers, [self._id], self._deadline)[self._id] is None)
        return FencedOff()

    def _stop(self, answer: Any, what: str) -> FencedOff | Indeterminate | None:
        """Return what a bad answer of the coordinator means for the write; None for a good one."""
        if isinstance(answer, PyProducerError):
            return Indeterminate(str(answer))
        code = worst_error(answer)
        if not code:
            return None
        if code in FENCING:
            return self._fenced_off(FencedOff(code == Code.INVALID_PRODUCER_ID_MAPPING))
        if code in MOVED or code == Code.CONCURRENT_TRANSACTIONS:
            return Indeterminate(f"{what} was answered {Code(code).name} until the end")
        if topic := _refused_topic(answer):
            right = Right.CONTROL_TOPIC if topic == self._where[0] else Right.WRITE_TOPIC
            raise missing_right(right, self._brokers.sink, self._brokers.client.user, topic)
        if unknown := _unknown_partition(answer):
            with suppress(PyProducerError):
                self._brokers.leaderless([unknown], self._brokers.client.clock() + ABORT_SECONDS)
            raise self._brokers.not_found(unknown)
        raise refused(code, what, self._brokers.sink, self._brokers.client.user)


def _is_unknown(answer: Any) -> bool:
    """Whether the coordinator has added nothing to the transaction, since it does not know one of the topics (yet)."""
    if isinstance(answer, PyProducerError) or _refused_topic(answer):
        return False
    return worst_error(answer) == Code.UNKNOWN_TOPIC_OR_PARTITION


def _unknown_partition(answer: Any) -> TopicPartition | None:
    """Return a partition that the coordinator does not know, by its answer to AddPartitionsToTxn."""
    for topic in getattr(answer, "results_by_topic_v3_and_below", ()):
        for row in topic.results_by_partition:
            if row.partition_error_code == Code.UNKNOWN_TOPIC_OR_PARTITION:
                return TopicPartition(topic.name, row.partition_index)
    return None


def _refused_topic(answer: Any) -> str:
    """Return the topic to which we may not write, by an answer to AddPartitionsToTxn."""
    topics = getattr(answer, "results_by_topic_v3_and_below", ())
    refused_ones = (
        topic.name
        for topic in topics
        for row in topic.results_by_partition
        if row.partition_error_code == Code.TOPIC_AUTHORIZATION_FAILED
    )
    return next(refused_ones, "")
