"""Decides what becomes of batches after an answer, or when they expire: they succeed, fail, are split, or are sent again.

The order of decisions is that of Kafka's Sender.completeBatch. Only the I/O thread calls this module.
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
"""The codes of answers that may name the leader (KIP-951)."""


RECORD_ERRORS = (Code.INVALID_RECORD, Code.INVALID_TIMESTAMP)
"""The codes with which brokers refuse a batch for single records, which they name (KIP-467)."""

TOPIC_ERRORS = (Code.TOPIC_AUTHORIZATION_FAILED, Code.INVALID_TOPIC_EXCEPTION)
"""The codes with which brokers refuse each record for a topic, before they look into the batch."""

SURELY_NOT_WRITTEN = (
    Code.CORRUPT_MESSAGE,
    Code.UNKNOWN_TOPIC_OR_PARTITION,
    Code.NOT_ENOUGH_REPLICAS,
    Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
    Code.UNKNOWN_PRODUCER_ID,
)
"""The codes that are retried and leave no doubt. A leader that moves, a slow replica or a lost answer may have left the batch in
the log."""


class BatchError(NamedTuple):
    """Why a batch was not written: the error code, the broker's messages, also by record, and the start of its log."""

    code: Code
    message: str | None = None
    records: dict[int, str] | None = None
    log_start_offset: int = UNKNOWN_LOG_START


class ProduceResponseHandler:
    """Ends the batches of a Produce request, or puts them back into their queues, when its answer comes or when none will."""

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
        """`user` is what brokers know us as, for messages. `transactions` is there if the producer is transactional."""
        self.counts = DeliveryCounts(metrics)
        self._backlog = accumulator.incomplete
        self._outcomes = accumulator.completion
        self._metadata = metadata
        self._sequencer = sequencer
        self._retries = retries
        self._user = user
        self._transactions = transactions
        self._backoff = backoff
        self._judged = 0
        """the number of answers of the brokers at the last look for partitions that no longer exist"""

    def answered(self, batches: tuple[ProducerBatch, ...], body: ProduceResponse, now: float) -> None:
        """Take in the leader's answer to a request."""
        answers: dict[tuple[str, int], ProducePartitionResponse] = {}
        for topic in body.responses:
            name = topic.name
            for partition in topic.partition_responses:
                answers[name, partition[0]] = partition
        failed: list[tuple[ProducerBatch, BatchError]] = []
        queues = [batch.queue for batch in batches]
        for batch in batches:
            answer = answers.get(batch.queue.topic_partition)
            if answer is None:
                failed.append((batch, BatchError(Code.NETWORK_EXCEPTION, "the answer does not name this partition")))
            elif not answer.error_code:
                self._succeed(batch, answer.base_offset, answer.log_append_time_ms, now)
            elif Action.SUCCESS in Code(answer.error_code).action:
                self._succeed(batch, -1, -1, now)
            else:
                failed.append((batch, _refusal(answer)))
        if failed:
            self._take_hints(batches, answers, body)
            self._refused(failed, now)
        self._settle(queues, now)

    def unanswered(self, batches: tuple[ProducerBatch, ...], refusal: BatchError, now: float) -> None:
        """Refuse the batches of a request to which no answer will come."""
        self._metadata.request_update()
        self._refused([(batch, refusal) for batch in batches], now)
        self._settle([batch.queue for batch in batches], now)

    def unacknowledged(self, batches: tuple[ProducerBatch, ...], now: float) -> None:
        """Count the batches of a request as written because it was sent, which is all that `acks=0` asks for."""
        for batch in batches:
            self._succeed(batch, -1, -1, now)
        self._settle([batch.queue for batch in batches], now)

    def expire(self, now: float, last_error: Callable[[int], PyProducerError | None]) -> None:
        """Give up the batches whose `delivery.timeout.ms` is over, whether they wait or are in flight (KIP-91).

        `last_error` tells why a node cannot be reached, if so.
        """
        expired = self._outcomes.take_expired(now)
        if not expired:
            return
        for batch in expired:
            obstacle = self._obstacle(batch, last_error)
            self._give_up(batch, self._outcomes.expiry_error(batch, now, obstacle), now)
        self._settle({batch.queue for batch in expired}, now)

    def end_missing(self, topics: Collection[str], now: float) -> None:
        """Fail the batches that wait for partitions of these topics that certainly no longer exist.

        Records of a topic that does not exist are handed back where that is wanted, as are those that a broker rejects. If only
        the partition is missing they fail: another attempt distributes the same rows over the existing partitions.
        """
        if self._metadata.response_count == self._judged:
            return
        self._judged = self._metadata.response_count
        ended = []
        for queue in self._backlog.nonempty.of_topics(topics):
            if (absence := self._metadata.absence(queue.topic_partition, now)) is not None:
                ended.append(queue)
                for batch in self._outcomes.withdraw_queue(queue):
                    self._end_missing(batch, absence, now)
        if ended:
            self._settle(ended, now)

    def _end_missing(self, batch: ProducerBatch, absence: Absence, now: float) -> None:
        error = missing_error(batch, absence, self._user)
        refused = absence.code in TOPIC_ERRORS
        why = f"the brokers refuse the topic ({absence.code.name})" if refused else "the topic no longer exists"
        texts = dict.fromkeys(range(batch.records_count), why)
        if absence.partitions or not self._hand_back(batch, texts, error):
            self._give_up(batch, error, now)

    def recreated(self, topics: Collection[str], now: float) -> None:
        """Reset the sequences of topics that were deleted and created again: their logs do not know this producer."""
        if self._sequencer.enabled:
            queues = [queue for queue in list(self._backlog.queues.values()) if queue.topic_partition.topic in topics]
            for queue in queues:
                self._sequencer.recreated(queue)
            self._outcomes.refresh(queues, now)

    def _obstacle(self, batch: ProducerBatch, last_error: Callable[[int], PyProducerError | None]) -> str:
        """Return a sentence, after a space, on what keeps a batch from its leader now; an empty string if nothing is known."""
        leader, _ = self._metadata.cluster.leader_of(batch.topic_partition)
        if leader == NO_LEADER:
            return " The brokers name no leader of the partition, or not its address."
        error = last_error(leader)
        if error is None:
            return ""
        reason = str(error).rstrip(".")
        return f" Its leader, broker {leader}, cannot be reached: {reason} (brokers give addresses by advertised.listeners)."

    # --- one batch --------------------------------------------------------------------------------------------------

    def _succeed(self, batch: ProducerBatch, base_offset: int, log_append_time: int, now: float) -> None:
        self._outcomes.remove_in_flight(batch)
        if self._sequencer.enabled:
            self._sequencer.acknowledged(batch, base_offset)
        if batch.state is None:
            if self._transactions is not None:
                self._transactions.contents.wrote(batch, base_offset)
            self.counts.wrote(batch, base_offset, now)
            self._outcomes.complete(batch, base_offset, log_append_time)

    def _refused(self, failed: Iterable[tuple[ProducerBatch, BatchError]], now: float) -> None:
        """Refuse batches, after all successes of the same answer, since an error may end the producer."""
        failed = list(failed)
        for batch, _ in failed:
            self._outcomes.remove_in_flight(batch)
        for batch, refusal in failed:
            if batch.state is None:
                self._refuse(batch, refusal, now)
            else:
                self.counts.failed(batch, now, again=True)

    def _refuse(self, batch: ProducerBatch, refusal: BatchError, now: float) -> None:
        code = refusal.code
        if Action.REFRESH_METADATA in code.action:
            self._metadata.request_update()
        if Action.SPLIT in code.action and batch.records_count > 1:
            self.counts.was_split(now)
            self._outcomes.split(batch)
        elif self._take_out(batch, refusal):
            pass
        elif self._can_retry(batch, refusal, now):
            batch.in_doubt = batch.in_doubt or code not in SURELY_NOT_WRITTEN
            batch.retry_at = now + self._backoff(batch.attempts)
            batch.last_error = f"{code.name} ({code}){f': {refusal.message}' if refusal.message else ''}"
            self.counts.retried(batch, now)
            self._outcomes.reenqueue(batch)
        else:
            error = _error(batch, refusal, self._user)
            if Action.FATAL in code.action and self._sequencer.enabled:
                self.counts.failed(batch, now)
                if self._transactions is None:
                    self._outcomes.abort(error)
                else:
                    self._transactions.fail(error)
            else:
                self._give_up(batch, error, now)

    def _take_out(self, batch: ProducerBatch, refusal: BatchError) -> bool:
        """Give the records that the broker has refused for their own sake to those who want them, and queue the others again.

        Nothing is done, and False returned, if the broker refuses all for another reason, if nobody wants one of the records, or
        if an earlier attempt may have written them.
        """
        texts = _texts_by_record(batch, refusal)
        return bool(texts) and self._hand_back(batch, texts, _error(batch, refusal, self._user))

    def _hand_back(self, batch: ProducerBatch, texts: Mapping[int, str], error: BrokerError) -> bool:
        if batch.in_doubt:
            return False
        records = batch.records_count
        if not self._outcomes.remove_rejected(batch, texts, error):
            return False
        if self._sequencer.enabled:
            self._sequencer.taken_out(batch, records)
        self._outcomes.reenqueue_rest(batch)
        return True

    def _can_retry(self, batch: ProducerBatch, refusal: BatchError, now: float) -> bool:
        if batch.attempts >= self._retries or self._backlog.is_expired(batch, now):
            return False
        if self._sequencer.enabled and refusal.code in (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, Code.UNKNOWN_PRODUCER_ID):
            if refusal.code is Code.OUT_OF_ORDER_SEQUENCE_NUMBER or refusal.log_start_offset != UNKNOWN_LOG_START:
                return self._sequencer.gap(batch)
            return True
        return Action.RETRY in refusal.code.action

    def _give_up(self, batch: ProducerBatch, error: Exception, now: float) -> None:
        self.counts.failed(batch, now)
        if self._sequencer.enabled:
            self._sequencer.lost(batch)
        self._outcomes.fail(batch, error)
        if self._transactions is not None:
            self._transactions.on_batch_failed(batch, error, now)

    def _settle(self, queues: Iterable[PartitionQueue], now: float) -> None:
        queues = list(queues)
        if self._sequencer.enabled:
            for queue in queues:
                if queue.gate:
                    self._sequencer.review(queue)
        self._outcomes.refresh(queues, now)

    def _take_hints(
        self,
        batches: tuple[ProducerBatch, ...],
        answers: dict[tuple[str, int], ProducePartitionResponse],
        body: ProduceResponse,
    ) -> None:
        """Take in the leaders that refusals name (KIP-951), so that batches go there without a pause."""
        hints: dict[TopicPartition, tuple[int, int]] = {}
        for batch in batches:
            answer = answers.get(batch.topic_partition)
            if answer is not None and answer.error_code in LEADER_HINTS and answer.current_leader.leader_id >= 0:
                hints[batch.topic_partition] = answer.current_leader.leader_id, answer.current_leader.leader_epoch
        if hints:
            endpoints = {node.node_id: Node(node.host, node.port, node.rack) for node in body.node_endpoints}
            self._metadata.apply_leader_hints(hints, endpoints)


def _refusal(answer: ProducePartitionResponse) -> BatchError:
    records = {row.batch_index: for_log(row.batch_index_error_message or "refused") for row in answer.record_errors}
    said = None if answer.error_message is None else for_log(answer.error_message)
    return BatchError(Code(answer.error_code), said, records, answer.log_start_offset)


def _texts_by_record(batch: ProducerBatch, refusal: BatchError) -> dict[int, str]:
    """Return what the broker says of single records, by their index in the batch; nothing if it refuses the batch as such."""
    code, said = refusal.code, refusal.message or refusal.code.advice
    if code in RECORD_ERRORS and refusal.records:
        return refusal.records
    if code in TOPIC_ERRORS:
        return dict.fromkeys(range(batch.records_count), said)
    alone = batch.records_count == 1 and (code in RECORD_ERRORS or Action.SPLIT in code.action)
    return {0: said} if alone else {}


def _error(batch: ProducerBatch, refusal: BatchError, user: str) -> BrokerError:
    tp = batch.topic_partition
    told = ""
    if refusal.records:
        index, text = next(iter(refusal.records.items()))
        told = f" (record {index} of the batch: {text})"
    elif batch.row is not None:
        told = f" (row {batch.row} of the task)"
    records = "a record" if batch.records_count == 1 else f"{batch.records_count} records"
    subject = f"{records} of {batch.size} bytes for {tp}, attempt {batch.attempts + 1}{told}"
    error = broker_error(refusal.code, subject, refusal.message, user=user)
    error.__dict__.update(topic=tp.topic, partition=tp.partition)
    if not refusal.records:
        return error
    return RecordsRefused(str(error), **error.__dict__, records=refusal.records, rows={})
