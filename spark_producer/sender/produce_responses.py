"""Completes, fails, splits or retries batches after a response, or when they expire.

The order of the decisions is that of Kafka's Sender.completeBatch. Only the I/O thread calls this module.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from spark_producer.accumulator import PartitionQueue, ProducerBatch, RecordAccumulator
from spark_producer.common.cluster import NO_LEADER, Node, TopicPartition
from spark_producer.common.error_codes import Action, Code
from spark_producer.common.escape import for_log
from spark_producer.errors import BrokerError, PyProducerError, RecordsRefused, broker_error
from spark_producer.metrics import ProducerMetrics
from spark_producer.protocol.messages import ProducePartitionResponse, ProduceResponse
from spark_producer.sender.delivery_counts import DeliveryCounts
from spark_producer.sender.metadata import Metadata
from spark_producer.sender.missing_partitions import Absence, missing_error
from spark_producer.sender.sequences import Sequencer

if TYPE_CHECKING:  # only transactional producers import it
    from spark_producer.sender.transactions.manager import TransactionManager

UNKNOWN_LOG_START = -1
LEADER_HINTS = (Code.NOT_LEADER_OR_FOLLOWER, Code.FENCED_LEADER_EPOCH)
"""The error codes of responses that may have the leader (KIP-951)."""


RECORD_ERRORS = (Code.INVALID_RECORD, Code.INVALID_TIMESTAMP)
"""The error codes with which brokers reject a batch because of single records, which the response lists (KIP-467)."""

TOPIC_ERRORS = (Code.TOPIC_AUTHORIZATION_FAILED, Code.INVALID_TOPIC_EXCEPTION)
"""The error codes with which brokers reject all records of a topic, without reading the batch."""

SURELY_NOT_WRITTEN = (
    Code.CORRUPT_MESSAGE,
    Code.UNKNOWN_TOPIC_OR_PARTITION,
    Code.UNKNOWN_TOPIC_ID,
    Code.INCONSISTENT_TOPIC_ID,
    Code.NOT_ENOUGH_REPLICAS,
    Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
    Code.UNKNOWN_PRODUCER_ID,
)
"""The retriable error codes after which the batch is surely not in the log. After others, such as those of a moving leader, a
slow replica or a lost response, it may be."""


class BatchError(NamedTuple):
    """The error of a batch: the error code, the broker's message, its messages by record, and the log start offset."""

    code: Code
    message: str | None = None
    records: dict[int, str] | None = None
    log_start_offset: int = UNKNOWN_LOG_START


class ProduceResponseHandler:
    """Completes the batches of a Produce request, or queues them again, after its response or failure."""

    def __init__(
        self,
        accumulator: RecordAccumulator,
        metadata: Metadata,
        sequencer: Sequencer,
        retries: int,
        backoff: Callable[[int], float],
        metrics: ProducerMetrics,
        user: str = "",
        transactions: TransactionManager | None = None,
    ) -> None:
        """`user` is the producer's principal, for messages. `transactions` is set for a transactional producer."""
        self.counts = DeliveryCounts(metrics)
        self._incomplete = accumulator.incomplete
        self._completion = accumulator.completion
        self._metadata = metadata
        self._sequencer = sequencer
        self._retries = retries
        self._user = user
        self._transactions = transactions
        self._backoff = backoff
        self._checked_responses = 0
        """the number of Metadata responses at the last check for partitions that no longer exist"""

    def on_response(self, batches: tuple[ProducerBatch, ...], body: ProduceResponse, now: float) -> None:
        """Handle the response to a request."""
        responses: dict[tuple[str | bytes, int], ProducePartitionResponse] = {}
        for topic in body.responses:
            name = topic.name or topic.topic_id
            for partition in topic.partition_responses:
                responses[name, partition[0]] = partition
        failed: list[tuple[ProducerBatch, BatchError]] = []
        queues = [batch.queue for batch in batches]
        for batch in batches:
            response = _response_for(batch, responses)
            if response is None:
                failed.append((batch, BatchError(Code.NETWORK_EXCEPTION, "the response lacks this partition")))
            elif not response.error_code:
                self._succeed(batch, response.base_offset, response.log_append_time_ms, now)
            elif Action.SUCCESS in Code(response.error_code).action:
                self._succeed(batch, -1, -1, now)
            else:
                failed.append((batch, _batch_error(response)))
        if failed:
            self._apply_leader_hints(batches, responses, body)
            self._handle_failed(failed, now)
        self._refresh(queues, now)

    def on_failure(self, batches: tuple[ProducerBatch, ...], failure: BatchError, now: float) -> None:
        """Fail or retry the batches of a request that has no response."""
        self._metadata.request_update()
        self._handle_failed([(batch, failure) for batch in batches], now)
        self._refresh([batch.queue for batch in batches], now)

    def complete_unacknowledged(self, batches: tuple[ProducerBatch, ...], now: float) -> None:
        """Complete the batches of a request with `acks=0`, once it is sent."""
        for batch in batches:
            self._succeed(batch, -1, -1, now)
        self._refresh([batch.queue for batch in batches], now)

    def expire(self, now: float, last_error: Callable[[int], PyProducerError | None]) -> None:
        """Fail the batches whose `delivery.timeout.ms` is over, whether they wait or are in flight (KIP-91).

        `last_error(node)` returns the reason why a node cannot be reached, if there is one.
        """
        expired = self._completion.take_expired(now)
        if not expired:
            return
        for batch in expired:
            obstacle = self._obstacle(batch, last_error)
            self._fail(batch, self._completion.expiry_error(batch, now, obstacle), now)
        self._refresh({batch.queue for batch in expired}, now)

    def fail_missing(self, topics: Collection[str], now: float) -> None:
        """Fail the batches that wait for partitions of these topics if the partitions surely no longer exist.

        Records of a topic that does not exist are returned to a caller that collects them, as are records that a broker rejects.
        If only the partition is missing they fail: another attempt distributes the same rows over the existing partitions.
        """
        if self._metadata.response_count == self._checked_responses:
            return
        self._checked_responses = self._metadata.response_count
        finished = []
        for queue in self._incomplete.nonempty.of_topics(topics):
            if (absence := self._metadata.absence(queue.topic_partition, now)) is not None:
                finished.append(queue)
                for batch in self._completion.withdraw_queue(queue):
                    self._fail_missing(batch, absence, now)
        if finished:
            self._refresh(finished, now)

    def _fail_missing(self, batch: ProducerBatch, absence: Absence, now: float) -> None:
        error = missing_error(batch, absence, self._user)
        rejected = absence.code in TOPIC_ERRORS
        reason = f"the brokers reject the topic ({absence.code.name})" if rejected else "the topic no longer exists"
        messages = dict.fromkeys(range(batch.records_count), reason)
        if absence.partitions or not self._return_records(batch, messages, error):
            self._fail(batch, error, now)

    def recreated(self, topics: Collection[str], now: float) -> None:
        """Reset the sequence numbers of topics that were recreated: their logs do not know this producer."""
        if self._sequencer.enabled:
            queues = [
                queue for queue in list(self._incomplete.queues.values()) if queue.topic_partition.topic in topics
            ]
            for queue in queues:
                self._sequencer.recreated(queue)
            self._completion.refresh(queues, now)

    def _obstacle(self, batch: ProducerBatch, last_error: Callable[[int], PyProducerError | None]) -> str:
        """Return a sentence, after a space, on why a batch cannot reach its leader; empty if no reason is known."""
        leader, _ = self._metadata.cluster.leader_of(batch.topic_partition)
        if leader == NO_LEADER:
            return " The partition has no leader, or the brokers lack its address."
        error = last_error(leader)
        if error is None:
            return ""
        reason = str(error).rstrip(".")
        return (
            f" Its leader, broker {leader}, cannot be reached: {reason} (its address is that in advertised.listeners)."
        )

    # --- one batch --------------------------------------------------------------------------------------------------

    def _succeed(self, batch: ProducerBatch, base_offset: int, log_append_time: int, now: float) -> None:
        self._completion.remove_in_flight(batch)
        if self._sequencer.enabled:
            self._sequencer.acknowledged(batch, base_offset)
        if batch.state is None:
            if self._transactions is not None:
                self._transactions.wrote(batch, base_offset, now)
            self.counts.wrote(batch, base_offset, now)
            self._completion.complete(batch, base_offset, log_append_time)

    def _handle_failed(self, failed: Iterable[tuple[ProducerBatch, BatchError]], now: float) -> None:
        """Handle failed batches, after all successes of the same response, since an error may end the producer."""
        failed = list(failed)
        for batch, _ in failed:
            self._completion.remove_in_flight(batch)
        for batch, failure in failed:
            if batch.state is None:
                self._handle_error(batch, failure, now)
            else:
                self.counts.failed(batch, now, again=True)

    def _handle_error(self, batch: ProducerBatch, failure: BatchError, now: float) -> None:
        code = failure.code
        if Action.REFRESH_METADATA in code.action:
            self._metadata.request_update()
        if Action.SPLIT in code.action and batch.records_count > 1:
            self.counts.was_split(now)
            self._completion.split(batch)
        elif self._return_rejected(batch, failure):
            pass
        elif self._can_retry(batch, failure, now):
            batch.in_doubt = batch.in_doubt or code not in SURELY_NOT_WRITTEN
            batch.retry_at = now + self._backoff(batch.attempts)
            batch.last_error = f"{code.name} ({code}){f': {failure.message}' if failure.message else ''}"
            self.counts.retried(batch, now)
            self._completion.reenqueue(batch)
        else:
            error = _error(batch, failure, self._user)
            if Action.FATAL in code.action and self._sequencer.enabled:
                self.counts.failed(batch, now)
                if self._transactions is None:
                    self._completion.abort(error)
                else:
                    self._transactions.fail(error)
            else:
                self._fail(batch, error, now)

    def _return_rejected(self, batch: ProducerBatch, failure: BatchError) -> bool:
        """Return the rejected records of a batch to the caller that collects them, and queue the others again.

        Return False, and change nothing, if the error is not about single records, if no caller collects one of them, or if an
        earlier attempt may have written them.
        """
        messages = _texts_by_record(batch, failure)
        return bool(messages) and self._return_records(batch, messages, _error(batch, failure, self._user))

    def _return_records(self, batch: ProducerBatch, messages: Mapping[int, str], error: BrokerError) -> bool:
        if batch.in_doubt:
            return False
        records = batch.records_count
        if not self._completion.remove_rejected(batch, messages, error):
            return False
        if self._sequencer.enabled:
            self._sequencer.records_removed(batch, records)
        self._completion.reenqueue_rest(batch)
        return True

    def _can_retry(self, batch: ProducerBatch, failure: BatchError, now: float) -> bool:
        if batch.attempts >= self._retries or self._incomplete.is_expired(batch, now):
            return False
        if self._sequencer.enabled and failure.code in (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, Code.UNKNOWN_PRODUCER_ID):
            if failure.code is Code.OUT_OF_ORDER_SEQUENCE_NUMBER or failure.log_start_offset != UNKNOWN_LOG_START:
                return self._sequencer.on_gap(batch)
            return True
        return Action.RETRY in failure.code.action

    def _fail(self, batch: ProducerBatch, error: Exception, now: float) -> None:
        self.counts.failed(batch, now)
        if self._sequencer.enabled:
            self._sequencer.batch_failed(batch)
        self._completion.fail(batch, error)
        if self._transactions is not None:
            self._transactions.on_batch_failed(batch, error, now)

    def _refresh(self, queues: Iterable[PartitionQueue], now: float) -> None:
        queues = list(queues)
        if self._sequencer.enabled:
            for queue in queues:
                if queue.gate:
                    self._sequencer.review(queue)
        self._completion.refresh(queues, now)

    def _apply_leader_hints(
        self,
        batches: tuple[ProducerBatch, ...],
        responses: dict[tuple[str | bytes, int], ProducePartitionResponse],
        body: ProduceResponse,
    ) -> None:
        """Apply the leaders in failed responses (KIP-951), so that batches are sent there without a pause."""
        hints: dict[TopicPartition, tuple[int, int]] = {}
        for batch in batches:
            response = _response_for(batch, responses)
            if response is not None and response.error_code in LEADER_HINTS and response.current_leader.leader_id >= 0:
                hints[batch.topic_partition] = response.current_leader.leader_id, response.current_leader.leader_epoch
        if hints:
            endpoints = {node.node_id: Node(node.host, node.port, node.rack) for node in body.node_endpoints}
            self._metadata.apply_leader_hints(hints, endpoints)


def _response_for(
    batch: ProducerBatch, responses: dict[tuple[str | bytes, int], ProducePartitionResponse]
) -> ProducePartitionResponse | None:
    """Return the response for a batch, by the name of its topic or the id that it was sent to, which may be an earlier one."""
    topic, partition = batch.queue.topic_partition
    return responses.get((topic, partition)) or responses.get((batch.topic_id, partition))


def _batch_error(response: ProducePartitionResponse) -> BatchError:
    records = {row.batch_index: for_log(row.batch_index_error_message or "rejected") for row in response.record_errors}
    message = None if response.error_message is None else for_log(response.error_message)
    return BatchError(Code(response.error_code), message, records, response.log_start_offset)


def _texts_by_record(batch: ProducerBatch, failure: BatchError) -> dict[int, str]:
    """Return the broker's messages on single records, by their index in the batch; empty if it rejects the whole batch."""
    code, message = failure.code, failure.message or failure.code.advice
    if code in RECORD_ERRORS and failure.records:
        return failure.records
    if code in TOPIC_ERRORS:
        return dict.fromkeys(range(batch.records_count), message)
    single = batch.records_count == 1 and (code in RECORD_ERRORS or Action.SPLIT in code.action)
    return {0: message} if single else {}


def _error(batch: ProducerBatch, failure: BatchError, user: str) -> BrokerError:
    tp = batch.topic_partition
    detail = ""
    if failure.records:
        index, text = next(iter(failure.records.items()))
        detail = f" (record {index} of the batch: {text})"
    elif batch.row is not None:
        detail = f" (row {batch.row} of the task)"
    records = "a record" if batch.records_count == 1 else f"{batch.records_count} records"
    subject = f"{records} of {batch.size} bytes for {tp}, attempt {batch.attempts + 1}{detail}"
    error = broker_error(failure.code, subject, failure.message, user=user)
    error.__dict__.update(topic=tp.topic, partition=tp.partition)
    if not failure.records:
        return error
    return RecordsRefused(str(error), **error.__dict__, records=failure.records, rows={})
