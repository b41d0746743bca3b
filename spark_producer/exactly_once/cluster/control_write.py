"""The write of a control record and the rows of inline tasks: one transaction of the control id, and the commit point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from spark_producer.admin.exchange import Exchange, NodeRequest
from spark_producer.common.cluster import ProducerIdAndEpoch, TopicPartition, TransactionVersion
from spark_producer.common.error_codes import FENCING, Code
from spark_producer.common.failpoints import failpoint
from spark_producer.errors import KafkaTimeout, PyProducerError
from spark_producer.exactly_once.cluster import record_json
from spark_producer.exactly_once.cluster.await_markers import await_markers
from spark_producer.exactly_once.cluster.broker_requests import (
    GONE_AFTER_S,
    MOVED,
    TransactionAdmin,
    by_topic,
    format_partitions,
    refused,
    worst_error,
)
from spark_producer.exactly_once.cluster.control_topic import PARTITION
from spark_producer.exactly_once.cluster.coordinator_state import ask_states, describe
from spark_producer.exactly_once.cluster.early_requests import EarlyRequest
from spark_producer.exactly_once.cluster.end_transactions import END_TXN_APIS
from spark_producer.exactly_once.cluster.inline_produce import InlineProduce
from spark_producer.exactly_once.cluster.partition_state import (
    TransactionSpan,
    ask_producers,
    find_uncommittable,
    producers,
)
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

MAX_WAIT_OF_CHECK_S = 0.02
"""Maximum seconds for which the response to a pipelined check waits for the other responses. A topic that was deleted meanwhile
would not be noticed, and a second check takes one round trip."""

ABORT_SECONDS = 5.0
"""Maximum time in seconds of the abort of a transaction that cannot be committed."""


class ControlWrite:
    """One transaction of the control id."""

    def __init__(
        self,
        brokers: TransactionAdmin,
        topic: str,
        transaction_version: TransactionVersion,
        command: WriteControl,
        deadline: float,
    ) -> None:
        self._brokers = brokers
        self._control_tp: TopicPartition = TopicPartition(topic, PARTITION)
        self._transaction_version = transaction_version
        self._fencing = command.fencing
        self._record = command.record
        self.command = command
        self._id = control_id(brokers.sink)
        self._deadline = deadline
        self._batches: Mapping[TopicPartition, Sequence[EncodedBatch]] = {}
        self._added: Exchange | None = None
        """The request that adds the partitions to the transaction, if it is sent already."""
        self._produce: InlineProduce | None = None
        self._checks: list[EarlyRequest] = []
        """The requests of `find_uncommittable`, pipelined after the first requests with rows, on the same connections."""
        self.spans: list[TransactionSpan] = []
        """The offsets of the record and the rows, once all are acknowledged."""

    def begin(self, inline: Mapping[TopicPartition, Sequence[EncodedBatch]], max_part_bytes: int) -> None:
        """Send the first requests of the transaction and return without waiting; `run` continues.

        Raises:
            ExactlyOnceError: the record is too large.
        """
        self._encode(inline, max_part_bytes)
        self._send_first()

    def wait(self) -> None:
        """Wait for the responses to the requests of `begin`, as long as each may take; `run` handles them."""
        if self._added is not None:
            self._brokers.client.finish(self._added)
        if self._produce is not None:
            self._produce.wait()

    def cancel(self) -> None:
        """Abort the transaction of a write that was begun and is not continued."""
        with suppress(PyProducerError):
            self.wait()
        self._abort()

    def _encode(self, inline: Mapping[TopicPartition, Sequence[EncodedBatch]], max_part_bytes: int) -> None:
        now = self._brokers.client.now_ms()
        records = record_json.encode(self._record, max_part_bytes, self._fencing)
        control = [EncodedBatch(*self._control_tp, 1, bytes(encode_few([one], now))) for one in records]
        self._batches = {**inline, self._control_tp: control}

    def _send_first(self) -> None:
        """Send the requests that need no earlier response: the rows; or, with `EXPLICIT`, those that must come before the
        rows."""
        if self._transaction_version is TransactionVersion.IMPLICIT:
            self._produce = self._send_rows(0)
            return
        node = self._brokers.known_coordinators([self._id]).get(self._id)
        if node is not None:
            ask_producers(self._brokers, [self._control_tp])
            call = NodeRequest(node, ADD_PARTITIONS_TO_TXN, self._partitions_request())
            self._added = self._brokers.client.begin([call], self._deadline)

    def _send_rows(self, sequence: int) -> InlineProduce:
        """Send the first Produce requests, and after them requests for the first offset of the transaction in each partition
        (R7).

        A broker answers the requests of a connection in order. If a response does not show that the transaction begins at its own
        first row, `find_uncommittable` repeats the request. `sequence` is the next one in the control partition.
        """
        version = self._transaction_version
        sequences = {self._control_tp: sequence}
        produce = InlineProduce(self._brokers, self._id, self._fencing, version, self._batches, sequences)
        if produce.begin(self._deadline):
            self._checks = ask_producers(self._brokers, self._batches)
        return produce

    def run(
        self,
        inline: Mapping[TopicPartition, Sequence[EncodedBatch]],
        max_part_bytes: int,
        deadline: float | None = None,
    ) -> WriteResult:
        """Write the record and the rows, and commit them, until `deadline` if it is given; `begin` may have been called.

        Raises:
            BrokerError: rows are refused, or a right is missing; the transaction is aborted. ExactlyOnceError: the record is too
            large. KafkaTimeout: all is committed, but a partition did not have the marker in time.
        """
        is_begun = bool(self._batches)
        if not is_begun:
            self._encode(inline, max_part_bytes)
        self._deadline = self._deadline if deadline is None else deadline
        try:
            if not is_begun:
                self._send_first()
            response, sequence = self._open()
            if response is not None:
                return response
            produce = self._produce or self._send_rows(sequence)
            stop = produce.run(self._deadline)
            self._brokers.early.drop(self._fresh_checks())  # others may be older than the rows, or than their loss
            failpoint("control.produced")
            if stop is not None:
                return self._fenced_off(stop) if isinstance(stop, FencedOff) else stop
            self.spans = spans = produce.spans()
            older, gone = find_uncommittable(self._brokers, spans, self._deadline)
        except BaseException:  # after a defect or Ctrl-C too: readers would wait for a minute
            self._abort()
            raise
        if older:
            self._abort()
            return OlderTransactionHangs(tuple(sorted({each.topic_partition for each in older})))
        if gone:
            self._abort()
            return Indeterminate(
                "the transaction has timed out, or acknowledged rows are no longer in "
                + format_partitions(each.topic_partition for each in gone)
            )
        written = self._commit()
        failpoint("control.ended")
        if not isinstance(written, ControlWritten) or not self.command.awaits_markers:
            return written
        lost = await_markers(self._brokers, {self._id: spans}, self._deadline, without_tasks={self._control_tp})
        return MarkersLost(lost) if lost else written

    def _fresh_checks(self) -> list[EarlyRequest]:
        """Return the checks that are as good as new ones: their responses have hardly waited."""
        now = self._brokers.client.clock()
        return [each for each in self._checks if each.seconds_waited(now) <= MAX_WAIT_OF_CHECK_S]

    def _open(self) -> tuple[FencedOff | Indeterminate | None, int]:
        """Begin the transaction, if its version needs that; return the failure or None, and the control partition's next
        sequence.

        With `EXPLICIT` all transactions of one BEGIN have the same epoch, so the sequence continues in the control
        partition: a batch with a sequence that was used before would be acknowledged, and not written. With `IMPLICIT` each
        transaction has its own epoch.
        """
        if self._transaction_version is TransactionVersion.IMPLICIT:
            return None, 0
        stop = self._stop(self._add(), "adding partitions to the transaction")
        return stop, 0 if stop is not None else self._next_sequence()

    def _partitions_request(self) -> AddPartitionsToTxnRequest:
        topics = tuple(AddPartitionsToTxnTopic(topic, tuple(some)) for topic, some in by_topic(self._batches).items())
        return AddPartitionsToTxnRequest(self._id, *self._fencing, topics)

    def _add(self) -> Any:
        """Add partitions to the transaction, and return the response.

        While the coordinator does not know one, the request is repeated: other brokers may know a topic that was just created.
        """
        requests = {self._id: self._partitions_request()}
        response: Any = None
        until = min(self._deadline, self._brokers.client.clock() + GONE_AFTER_S)
        with suppress(KafkaTimeout):
            for _ in self._brokers.attempts(until, "the coordinator to know the topics"):
                begun, self._added = self._added, None
                response = self._brokers.request_coordinators(
                    ADD_PARTITIONS_TO_TXN, requests, self._deadline, resend=False, begun=begun
                )[self._id]
                if not _is_unknown(response):
                    break
        return response

    def _next_sequence(self) -> int:
        known = producers(self._brokers, [self._control_tp], self._deadline).get(self._control_tp)
        if known is None:
            raise missing_right(Right.CONTROL_TOPIC, self._brokers.sink, self._brokers.client.user, self._control_tp[0])
        row = known.get(self._fencing.producer_id)
        if row is None or row.producer_epoch != self._fencing.epoch or row.last_sequence < 0:
            return 0
        return add_to_sequence(row.last_sequence, 1)

    def _commit(self) -> ControlWritten | FencedOff | Indeterminate:
        """Send the EndTxn that is the commit point. It is sent again after a retriable error, but not after no response (D4).

        The commit may happen even after a retriable error, when the record in the coordinator's log was only not replicated in
        time. So if a newer holder appears only after that, it is unknown whether the commit came before it.
        """
        body = EndTxnRequest(self._id, *self._fencing, True)
        postponed: set[str] = set()
        api, requests = END_TXN_APIS[self._transaction_version], {self._id: body}
        self._brokers.early.drop()
        response = self._brokers.request_coordinators(
            api, requests, self._deadline, resend=False, postponed=postponed, ask_next=self._ask_next
        )[self._id]
        if not isinstance(response, PyProducerError) and worst_error(response) == Code.INVALID_TXN_STATE:
            return Indeterminate("the transaction had timed out")
        stop = self._stop(response, "the commit")
        if isinstance(stop, FencedOff) and postponed:
            return Indeterminate("the coordinator put the commit off, and then had a newer holder")
        if stop is not None:
            return stop
        if self._transaction_version is TransactionVersion.EXPLICIT:
            return ControlWritten(self._fencing)
        if response.producer_id < 0 or response.producer_epoch < 0:
            return Indeterminate("the response to the commit lacks the next epoch")
        return ControlWritten(ProducerIdAndEpoch(response.producer_id, response.producer_epoch))

    def _ask_next(self) -> None:
        if self.command.awaits_markers:
            ask_states(self._brokers, [self._id])

    def _abort(self) -> None:
        """Abort the transaction, if the brokers answer; otherwise the next fence does. A failure of this is ignored."""
        body = EndTxnRequest(self._id, *self._fencing, False)
        deadline = min(self._deadline, self._brokers.client.clock() + ABORT_SECONDS)
        with suppress(PyProducerError):
            self._brokers.request_coordinators(
                END_TXN_APIS[self._transaction_version], {self._id: body}, deadline, resend=False
            )

    def _fenced_off(self, found: FencedOff) -> FencedOff:
        """Return the result, which says whether the id has expired or was taken over: both may have the same error code."""
        if found.expired:
            with suppress(PyProducerError):
                return FencedOff(describe(self._brokers, [self._id], self._deadline)[self._id] is None)
        return FencedOff()

    def _stop(self, response: Any, what: str) -> FencedOff | Indeterminate | None:
        """Return the result of the write after an error of the coordinator; None if there is none."""
        if isinstance(response, PyProducerError):
            return Indeterminate(str(response))
        code = worst_error(response)
        if not code:
            return None
        if code in FENCING:
            return self._fenced_off(FencedOff(code == Code.INVALID_PRODUCER_ID_MAPPING))
        if code in MOVED or code == Code.CONCURRENT_TRANSACTIONS:
            return Indeterminate(f"{what} was answered with {Code(code).name} until the deadline")
        if topic := _refused_topic(response):
            right = Right.CONTROL_TOPIC if topic == self._control_tp[0] else Right.WRITE_TOPIC
            raise missing_right(right, self._brokers.sink, self._brokers.client.user, topic)
        if unknown := _unknown_partition(response):
            with suppress(PyProducerError):
                self._brokers.leaderless([unknown], self._brokers.client.clock() + ABORT_SECONDS)
            raise self._brokers.not_found(unknown)
        raise refused(code, what, self._brokers.sink, self._brokers.client.user)


def _is_unknown(response: Any) -> bool:
    """Return whether the coordinator has added nothing to the transaction, since it does not know one of the topics (yet)."""
    if isinstance(response, PyProducerError) or _refused_topic(response):
        return False
    return worst_error(response) == Code.UNKNOWN_TOPIC_OR_PARTITION


def _unknown_partition(response: Any) -> TopicPartition | None:
    """Return a partition that the coordinator does not know, by its response to AddPartitionsToTxn."""
    for topic in getattr(response, "results_by_topic_v3_and_below", ()):
        for row in topic.results_by_partition:
            if row.partition_error_code == Code.UNKNOWN_TOPIC_OR_PARTITION:
                return TopicPartition(topic.name, row.partition_index)
    return None


def _refused_topic(response: Any) -> str:
    """Return the topic that the user may not write to, by a response to AddPartitionsToTxn."""
    topics = getattr(response, "results_by_topic_v3_and_below", ())
    refused_ones = (
        topic.name
        for topic in topics
        for row in topic.results_by_partition
        if row.partition_error_code == Code.TOPIC_AUTHORIZATION_FAILED
    )
    return next(refused_ones, "")
