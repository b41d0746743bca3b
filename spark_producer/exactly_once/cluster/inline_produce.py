"""Produce requests for the rows of inline tasks and the control record, in the transaction of the control id.

A request has one batch of each partition, as brokers demand, and up to five requests are in flight, in order. A batch that a
broker refused with a retriable error is sent again, in order and with the same sequence; one that is too large is split first;
one without a response is never sent again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from spark_producer.admin.exchange import Exchange, NodeRequest
from spark_producer.admin.exchange_client import MAX_IN_FLIGHT
from spark_producer.common.cluster import ProducerIdAndEpoch, TopicPartition, TransactionVersion
from spark_producer.common.error_codes import FENCING, Action, Code
from spark_producer.errors import BrokersUnreachable, KafkaTimeout, PyProducerError, broker_error
from spark_producer.exactly_once.cluster.broker_requests import TransactionAdmin, by_topic, format_partitions
from spark_producer.exactly_once.cluster.partition_state import TransactionSpan
from spark_producer.exactly_once.cluster.required_acls import Right, missing_right
from spark_producer.exactly_once.protocol.commands import FencedOff, Indeterminate
from spark_producer.exactly_once.protocol.task_messages import EncodedBatch
from spark_producer.protocol import PRODUCE, PRODUCE_BY_ID, Api, produce_by_name
from spark_producer.protocol.messages import (
    NO_UUID,
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
)
from spark_producer.record.batch_v2 import read_header
from spark_producer.record.sequence_numbers import add_to_sequence
from spark_producer.record.transaction_stamp import stamp

PRODUCE_APIS: dict[TransactionVersion, Api[ProduceRequest, ProduceResponse]] = {
    TransactionVersion.EXPLICIT: PRODUCE._replace(max_version=11),
    TransactionVersion.IMPLICIT: PRODUCE_BY_ID._replace(min_version=12),
}

REQUEST_BYTES = 4 << 20
"""Maximum bytes of rows in one request, unless a single batch has more."""

ALL = -1


class _Batch:
    """One batch with its first sequence, and its first and last offset once it is acknowledged."""

    __slots__ = ("encoded", "offsets", "sequence")

    def __init__(self, encoded: EncodedBatch, sequence: int) -> None:
        self.encoded = encoded
        self.sequence = sequence
        self.offsets: tuple[int, int] | None = None

    def halves(self) -> list[_Batch]:
        """Return two batches with the same records and sequences."""
        from spark_producer.record.splitting import halve  # pyarrow and the codecs, which few commits need

        found: list[_Batch] = []
        for data in halve(self.encoded.data):
            records = read_header(data).records_count
            sequence = add_to_sequence(found[0].sequence, found[0].encoded.records) if found else self.sequence
            found.append(_Batch(self.encoded._replace(records=records, data=data), sequence))
        return found


class _Queue:
    """The batches of one partition, in order."""

    def __init__(self, batches: Sequence[EncodedBatch], sequence: int, *, first_alone: bool) -> None:
        self._first_alone = first_alone
        self.batches: list[_Batch] = []
        for batch in batches:
            self.batches.append(_Batch(batch, sequence))
            sequence = add_to_sequence(sequence, batch.records)
        self._first = 0
        """The number of batches at the front that are known to be acknowledged: there may be thousands."""
        self.acknowledged = 0
        """The number of all acknowledged batches."""
        self.last_offset = -1
        """The last offset of the batch that was acknowledged last."""
        self.stalled = False
        """Whether an earlier batch of the same round had a retriable error, so that later ones are out of order."""
        self.too_large: int | None = None
        """The bytes of the smallest batch of the same round that was too large for the leader."""

    def next_ones(self) -> list[_Batch]:
        """Return the next batches to send.

        With `first_alone` the first one is: if it were refused, a leader that does not know the producer yet might accept the
        second in its place.
        """
        while self._first < len(self.batches) and self.batches[self._first].offsets is not None:
            self._first += 1
        unacknowledged = map(self.batches.__getitem__, range(self._first, len(self.batches)))
        left = (batch for batch in unacknowledged if batch.offsets is None)
        return [*islice(left, 1 if self._first_alone and not self.acknowledged else MAX_IN_FLIGHT)]

    def split(self) -> None:
        """Split all batches that are at least as large as one that was too large: the leader would refuse them as well."""
        limit, self.too_large = self.too_large, None
        if limit is None:
            return
        batches, self.batches = self.batches, []
        for batch in batches:
            fits = len(batch.encoded.data) < limit or batch.offsets is not None or batch.encoded.records == 1
            self.batches += [batch] if fits else batch.halves()


class _Request(NamedTuple):
    """One Produce request: the batch of each partition in it."""

    node: int
    batches: Mapping[TopicPartition, _Batch]


class InlineProduce:
    """Sends the batches of one transaction until all are acknowledged."""

    def __init__(
        self,
        brokers: TransactionAdmin,
        transactional_id: str,
        fencing: ProducerIdAndEpoch,
        transaction_version: TransactionVersion,
        batches: Mapping[TopicPartition, Sequence[EncodedBatch]],
        sequences: Mapping[TopicPartition, int],
    ) -> None:
        """`sequences` has the next sequence of partitions; others begin with 0."""
        self._brokers = brokers
        self._transactional_id = transactional_id
        self._fencing = fencing
        self._api = PRODUCE_APIS[transaction_version]
        # From Produce 12 on a leader refuses any other first sequence than 0, so none is accepted in place of the first batch.
        first_alone = transaction_version is TransactionVersion.EXPLICIT
        self._queues = {tp: _Queue(some, sequences.get(tp, 0), first_alone=first_alone) for tp, some in batches.items()}
        self._topic_ids: dict[str, bytes] = {}
        """The ids of the topics that the rows go to; zero for a topic without one."""
        self._begun: tuple[list[_Request], Exchange] | None = None
        """The requests of the next round, if they are sent already."""

    def begin(self, deadline: float) -> bool:
        """Send the first requests and return without waiting, if all leaders are known. Return whether they are."""
        left = self._left()
        leaders = self._brokers.known_leaders(left)
        if len(leaders) < len(left):
            return False
        self._begun = self._send(leaders, deadline)
        return True

    def wait(self) -> None:
        """Wait for the responses to the requests of `begin`; `run` handles them."""
        if self._begun is not None:
            self._brokers.client.finish(self._begun[1])

    def run(self, deadline: float) -> FencedOff | Indeterminate | None:
        """Send all batches. Return None if all are acknowledged, otherwise the result of the write.

        Raises:
            BrokerError: a batch is refused with a fatal error; the transaction must be aborted.
        """
        try:
            while self._left():
                stop = self._advance(deadline)
                if stop is not None:
                    return stop
        except KafkaTimeout as error:
            return Indeterminate(str(error))
        return None

    def _left(self) -> list[TopicPartition]:
        """Return the partitions with unacknowledged batches."""
        return [tp for tp, queue in self._queues.items() if queue.next_ones()]

    def _advance(self, deadline: float) -> FencedOff | Indeterminate | None:
        """Send rounds of requests until a batch is acknowledged: only refused batches make the next round wait.

        Raises:
            KafkaTimeout: nothing was acknowledged until the deadline. BrokerError: as `run`.
        """
        attempts = self._brokers.attempts(deadline, "the partitions to take the rows")
        for _ in attempts:
            before = sum(queue.acknowledged for queue in self._queues.values())
            stop = self._send_round(deadline)
            if stop is not None or sum(queue.acknowledged for queue in self._queues.values()) > before:
                return stop
            attempts.waiting_for = f"{format_partitions(self._stalled())} to take rows"
        raise AssertionError

    def _send_round(self, deadline: float) -> FencedOff | Indeterminate | None:
        """Send one round of requests, and handle the responses."""
        if self._begun is None:
            leaders = self._leaders(deadline)
            if (topic := self._follow_topic_ids()) is not None:
                return Indeterminate(f"topic {topic!r} was deleted and created again, and acknowledged rows are lost")
            self._begun = self._send(leaders, deadline)
        (requests, exchange), self._begun = self._begun, None
        for queue in self._queues.values():
            queue.stalled = False
        for request, response in zip(requests, self._brokers.client.finish(exchange), strict=True):
            if isinstance(response, PyProducerError) and not isinstance(response, BrokersUnreachable):
                return Indeterminate(str(response))
            stop = self._on_response(request, response)
            if stop is not None:
                return stop
        for queue in self._queues.values():
            queue.split()
        self._brokers.forget_leaders(self._stalled())
        return None

    def _leaders(self, deadline: float) -> dict[TopicPartition, int]:
        left = self._left()
        leaders = self._brokers.leaders(left, deadline)
        for tp in left:
            if tp not in leaders:
                raise self._brokers.not_found(tp)
        return leaders

    def _follow_topic_ids(self) -> str | None:
        """Send the rest to the topics that have the names now. Return the name of one that is not the topic of acknowledged rows
        (KIP-516); None if there is none."""
        for topic, known in self._topic_ids.items():
            if (newest := self._brokers.topic_id(topic) or NO_UUID) not in (known, NO_UUID):
                if any(queue.acknowledged for tp, queue in self._queues.items() if tp.topic == topic):
                    return topic
                self._topic_ids[topic] = newest
        return None

    def _send(self, leaders: Mapping[TopicPartition, int], deadline: float) -> tuple[list[_Request], Exchange]:
        requests = [*self._next_requests(leaders)]
        for topic, _ in self._queues:
            self._topic_ids.setdefault(topic, self._brokers.topic_id(topic) or NO_UUID)
        api = produce_by_name(self._api) if NO_UUID in self._topic_ids.values() else self._api
        calls = [NodeRequest(request.node, api, self._body(request)) for request in requests]
        return requests, self._brokers.client.begin(calls, deadline)

    def _stalled(self) -> list[TopicPartition]:
        """Return the partitions with a retriable error in the last round."""
        return [tp for tp, queue in self._queues.items() if queue.stalled]

    def spans(self) -> list[TransactionSpan]:
        """Return the offsets of the rows in each partition."""
        found = []
        for tp, queue in self._queues.items():
            offsets = [batch.offsets for batch in queue.batches if batch.offsets is not None]
            first, last = min(first for first, _ in offsets), max(last for _, last in offsets)
            found.append(TransactionSpan(self._fencing.producer_id, *tp, first, last))
        return found

    def _next_requests(self, leaders: Mapping[TopicPartition, int]) -> Iterator[_Request]:
        """Yield the next requests: the first batches of all partitions, then the second ones, up to five of each partition."""
        for turn in range(MAX_IN_FLIGHT):
            by_node: dict[int, list[tuple[TopicPartition, _Batch]]] = {}
            for tp, node in leaders.items():
                batches = self._queues[tp].next_ones()
                if turn < len(batches):
                    by_node.setdefault(node, []).append((tp, batches[turn]))
            for node, ready in by_node.items():
                size = 0
                some: dict[TopicPartition, _Batch] = {}
                for tp, batch in ready:
                    length = len(batch.encoded.data)
                    if some and size + length > REQUEST_BYTES:
                        yield _Request(node, some)
                        size, some = 0, {}
                    size += length
                    some[tp] = batch
                yield _Request(node, some)

    def _body(self, request: _Request) -> ProduceRequest:
        topics = tuple(
            ProduceTopic(
                topic,
                self._topic_ids[topic],
                tuple(
                    ProducePartition(each, self._stamped(request.batches[TopicPartition(topic, each)]))
                    for each in partitions
                ),
            )
            for topic, partitions in by_topic(request.batches).items()
        )
        return ProduceRequest(self._transactional_id, ALL, 30_000, topics)

    def _stamped(self, batch: _Batch) -> bytearray:
        return stamp(batch.encoded.data, *self._fencing, batch.sequence)

    def _on_response(
        self, request: _Request, response: ProduceResponse | PyProducerError
    ) -> FencedOff | Indeterminate | None:
        if isinstance(response, PyProducerError):  # the request was not sent
            for tp in request.batches:
                self._queues[tp].stalled = True
            return None
        rows: dict[tuple[str | bytes, int], ProducePartitionResponse] = {
            (topic.name or topic.topic_id, row.index): row
            for topic in response.responses
            for row in topic.partition_responses
        }
        for tp, batch in request.batches.items():
            row = rows.get(tp) or rows.get((self._topic_ids[tp.topic], tp.partition))
            if row is None:
                return Indeterminate(f"the leader of {format_partitions([tp])} did not answer for a batch")
            stop = self._on_partition_response(tp, batch, row)
            if stop is not None:
                return stop
        return None

    def _on_partition_response(
        self, tp: TopicPartition, batch: _Batch, row: ProducePartitionResponse
    ) -> FencedOff | Indeterminate | None:
        queue, code = self._queues[tp], Code(row.error_code)
        if code is Code.NONE:
            if row.base_offset < 0:
                return Indeterminate(f"the leader of {format_partitions([tp])} did not return the offset of a batch")
            if row.base_offset <= queue.last_offset:  # with `EXPLICIT` a new log takes any first sequence
                name = format_partitions([tp])
                return Indeterminate(f"the offsets of {name} do not increase, as if its topic was created again")
            queue.last_offset = row.base_offset + batch.encoded.records - 1
            batch.offsets = row.base_offset, queue.last_offset
            queue.acknowledged += 1
            return None
        if code in FENCING:
            return FencedOff(code is Code.INVALID_PRODUCER_ID_MAPPING)
        if code is Code.OUT_OF_ORDER_SEQUENCE_NUMBER and not queue.stalled:
            return Indeterminate(f"the leader of {format_partitions([tp])} lacks an earlier batch ({code.name})")
        if code is Code.TOPIC_AUTHORIZATION_FAILED:
            raise missing_right(Right.WRITE_TOPIC, self._brokers.sink, self._brokers.client.user, tp.topic)
        if Action.SPLIT in code.action and batch.encoded.records > 1:
            size = len(batch.encoded.data)
            queue.too_large = size if queue.too_large is None else min(queue.too_large, size)
        elif Action.RETRY not in code.action:
            subject = f"exactlyOnceId {self._brokers.sink!r}: rows for {tp}"
            raise broker_error(code, subject, row.error_message)
        queue.stalled = True
        return None
