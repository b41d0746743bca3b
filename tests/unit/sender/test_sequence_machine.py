"""Any order of sends, answers, losses, expiries and moves keeps the sequences sound (hypothesis). Ids: SN10-SN34, TM7.

A model of brokers takes or refuses what is sent. At every moment no record is in a log twice, records of a partition are in
order, a batch keeps its sequence until a broker saw a gap, and bytes on the wire do not change; at the end all that was
acknowledged is there, every future is done, all memory is back, and every partition takes new records.
"""

from __future__ import annotations

from collections import Counter, deque
from concurrent.futures import Future
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from spark_producer.accumulator import NO_IDENTITY, DrainGate, ProducerBatch, ProducerIdAndEpoch, RecordMetadata
from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import BufferExhausted, ConnectionFailed
from spark_producer.protocol import METADATA, PRODUCE
from spark_producer.protocol.messages import (
    InitProducerIdResponse,
    MetadataResponse,
    ProducePartitionResponse,
    ProduceResponse,
    ProduceTopicResponse,
)
from spark_producer.record.batch_v2 import NO_SEQUENCE
from spark_producer.record.sequence_numbers import add_to_sequence, is_later
from spark_producer.sender import ClientRequest
from spark_producer.sender.identity import LAST_EPOCH
from tests.fakes.sender_fakes import TOPIC, acquaint, metadata_of, sender_fakes
from tests.fakes.sequence_model import OUT_OF_ORDER, SPACE, UNKNOWN_PRODUCER_ID, Habits, Known, ModelPartition

PARTITIONS = 2
NODES = (1, 2)
IN_FLIGHT = 5
DELIVERY_TIMEOUT = 3.0
NOT_LEADER, TIMED_OUT, NOT_ENOUGH, REFUSED = 6, 7, 19, 87
FATES = {"refuse": NOT_ENOUGH, "refuse for good": REFUSED}
GAPS = (OUT_OF_ORDER, UNKNOWN_PRODUCER_ID)
REFUSALS = 3
"""for a gap, of one batch, once brokers do what they should: on its way, after an earlier one was lost, and one to spare"""

NEVER = float("inf")


@dataclass
class Flight:
    """A request on its connection, as it was when it was sent, and its responses, once the broker has handled it."""

    outgoing: ClientRequest
    wire: list[bytes]
    answers: list[ProducePartitionResponse] | None = None


class SequenceMachine(RuleBasedStateMachine):
    """The sender between a machine that writes and a model that judges; the machine is the sender's network too."""

    @initialize(
        start=st.sampled_from((0, SPACE - 3, SPACE - 1)),
        epoch=st.sampled_from((0, LAST_EPOCH - 1, LAST_EPOCH)),
        habits=st.builds(Habits, st.booleans(), st.booleans(), st.booleans()),
    )
    def begin(self, start: int, epoch: int, habits: Habits) -> None:
        self.made = sender_fakes(ready=False, memory=16384, delivery_timeout=DELIVERY_TIMEOUT)
        self.made.network = self  # type: ignore[assignment]
        self.made.metadata.request_topics(TOPIC)
        self.flying: dict[int, deque[Flight]] = {node: deque() for node in NODES}
        self.logs = [ModelPartition(index, (1 << 20, 600)[index], habits) for index in range(PARTITIONS)]
        self.reported: list[tuple[int, Future[RecordMetadata]]] = []
        self.stamps: dict[ProducerBatch, tuple[ProducerIdAndEpoch, int, int]] = {}
        self.gaps = [0] * PARTITIONS
        self.refusals: Counter[ProducerBatch] = Counter()
        self.peace = NEVER
        # A broker that has forgotten the producer, and does not say where its log begins, is asked again and again (SN27).
        self.decidable = habits.has_log_start or not habits.strict
        self.producer_ids = 4711
        accumulator = self.made.fakes.accumulator
        self.made.learn(self._metadata())
        self.made.give_id(4711, epoch)
        self.queues = [accumulator.incomplete.queue_of(TopicPartition(TOPIC, log.index)) for log in self.logs]
        for queue, log in zip(self.queues, self.logs, strict=True):
            if start:  # the brokers know the producer already
                acquaint(queue, self.made.fakes.drainer.current_identity, self.made.now)
                queue.next_sequence, queue.last_acked = start, start - 1
                log.producers[4711] = Known(epoch, start)

    # What the sender asks of its network.

    def ready(self, node: int) -> bool:
        return node not in NODES or len(self.flying[node]) < IN_FLIGHT

    def least_loaded(self) -> int | None:
        return -1

    def all_nodes_unavailable(self) -> bool:
        return False

    def next_attempt_in(self, node: int) -> float:
        return 0.0

    def last_error(self, node: int) -> None:
        return None

    # What happens.

    @rule(partition=st.integers(0, PARTITIONS - 1), count=st.integers(1, 4), width=st.sampled_from((8, 400)))
    def write_and_send(self, partition: int, count: int, width: int) -> None:
        self.write(partition, count, width)
        self.send()

    @rule(partition=st.integers(0, PARTITIONS - 1), count=st.integers(1, 4), width=st.sampled_from((8, 400)))
    def write(self, partition: int, count: int, width: int) -> None:
        for _ in range(count):
            value = (b"%08d" % len(self.reported)).ljust(width, b".")
            try:
                future = self.made.fakes.append_one(value, 1000, tp=TopicPartition(TOPIC, partition))
            except BufferExhausted:
                return
            self.reported.append((partition, future))

    @rule(epoch=st.sampled_from((0, LAST_EPOCH)))
    def send(self, epoch: int = 0) -> None:
        while requests := self.made.step().requests:
            self._send(requests, epoch)

    def _send(self, requests: list[ClientRequest], epoch: int) -> None:
        for outgoing in requests:
            if outgoing.api is METADATA:
                self.made.complete(outgoing, self._metadata())
            elif outgoing.api.key == PRODUCE.key:
                for batch in outgoing.batches:
                    self._check_stamp(batch)
                self.flying[outgoing.node].append(Flight(outgoing, [bytes(batch.data) for batch in outgoing.batches]))
            else:
                self.producer_ids += 1
                self.made.complete(outgoing, InitProducerIdResponse(0, 0, self.producer_ids, epoch))

    @precondition(lambda self: any(self._arriving(node) for node in NODES))
    @rule(
        data=st.data(), fate=st.sampled_from(("take", "take", "take", "take and be late", "refuse", "refuse for good"))
    )
    def arrive(self, data: st.DataObject, fate: str) -> None:
        node = data.draw(st.sampled_from([node for node in NODES if self._arriving(node)]))
        self._carry_out(node, self._arriving(node)[0], fate)

    @precondition(lambda self: any(self._answered(node) for node in NODES))
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        self._deliver(data.draw(st.sampled_from([node for node in NODES if self._answered(node)])))

    @rule(seconds=st.sampled_from((0.05, 0.2, 0.5)))
    def wait(self, seconds: float) -> None:
        self.made.fakes.clock.advance(seconds)

    @rule(data=st.data(), kind=st.sampled_from(("cut", "cut", "move", "retain", "expire")))
    def mishap(self, data: st.DataObject, kind: str) -> None:
        """One rule for all rare events, or the other rules would be too rare."""
        if kind == "cut":
            self._cut(data.draw(st.sampled_from(NODES)), data.draw(st.integers(0, IN_FLIGHT)))
        elif kind == "expire":
            self.made.fakes.clock.advance(DELIVERY_TIMEOUT)
        else:
            log = data.draw(st.sampled_from(self.logs))
            if kind == "move":
                log.leader, log.leader_epoch = 3 - log.leader, log.leader_epoch + 1
            elif self._may_retain(log):
                log.retain()

    # How it happens.

    def _cut(self, node: int, carried_out: int) -> None:
        """The connection breaks: of what was sent the broker gets the first few, and no answer comes."""
        for flight in self._arriving(node)[:carried_out]:
            self._carry_out(node, flight, "take")
        flights, self.flying[node] = self.flying[node], deque()
        for flight in flights:
            self._check_wire(flight)
            self.made.complete(flight.outgoing, error=ConnectionFailed("cut"))
        self.made.sender.on_disconnect()

    def _arriving(self, node: int) -> list[Flight]:
        return [flight for flight in self.flying[node] if flight.answers is None]

    def _answered(self, node: int) -> bool:
        return bool(self.flying[node]) and self.flying[node][0].answers is not None

    def _may_retain(self, log: ModelPartition) -> bool:
        """Brokers that take any sequence of a producer they forgot take a later batch before an earlier one that was
        refused: then the order cannot be kept. So these forget only what has at most one batch under way."""
        queue = self.queues[log.index]
        sequenced = [batch for batch in queue.batches if batch.base_sequence != NO_SEQUENCE]
        return bool(log.records) and (log.habits.strict or len(sequenced) + len(queue.in_flight) <= 1)

    def _carry_out(self, node: int, flight: Flight, fate: str) -> None:
        flight.answers = []
        for batch, data in zip(flight.outgoing.batches, flight.wire, strict=True):
            log = self.logs[batch.topic_partition.partition]
            if log.leader != node:
                found = ProducePartitionResponse(log.index, NOT_LEADER)
            elif fate in FATES:
                found = ProducePartitionResponse(log.index, FATES[fate])
            else:
                found = log.take(memoryview(data))
                if fate == "take and be late" and not found.error_code:
                    found = ProducePartitionResponse(log.index, TIMED_OUT)
            flight.answers.append(found)

    def _deliver(self, node: int) -> None:
        flight = self.flying[node].popleft()
        self._check_wire(flight)
        assert flight.answers is not None
        for batch, found in zip(flight.outgoing.batches, flight.answers, strict=True):
            if found.error_code in GAPS:
                self.gaps[found.index] += 1
                self.refusals[batch] += 1
                assert self.refusals[batch] <= REFUSALS or self.made.now < self.peace or not self.decidable
        self.made.complete(
            flight.outgoing, ProduceResponse((ProduceTopicResponse(TOPIC, partition_responses=tuple(flight.answers)),))
        )

    def _metadata(self) -> MetadataResponse:
        answer = metadata_of({TOPIC: [log.leader for log in self.logs]})
        reported = zip(answer.topics[0].partitions, self.logs, strict=True)
        partitions = tuple(partition._replace(leader_epoch=log.leader_epoch) for partition, log in reported)
        return answer._replace(topics=(answer.topics[0]._replace(partitions=partitions),))

    # What must be so.

    def _check_stamp(self, batch: ProducerBatch) -> None:
        """A batch that may be in the log is never sent under another sequence."""
        gaps = self.gaps[batch.topic_partition.partition]
        if batch in self.stamps:
            identity, sequence, seen = self.stamps[batch]
            assert (identity, sequence) == (batch.identity, batch.base_sequence) or gaps > seen
        self.stamps[batch] = batch.identity, batch.base_sequence, gaps

    def _check_wire(self, flight: Flight) -> None:
        for batch, data in zip(flight.outgoing.batches, flight.wire, strict=True):
            assert bytes(batch.data) == data, "bytes have changed while the network could read them"

    @invariant()
    def the_producer_goes_on(self) -> None:
        assert self.made.fakes.incomplete.error is None

    @invariant()
    def logs_hold_every_record_once_and_in_order(self) -> None:
        for log in self.logs:
            assert log.records == sorted(set(log.records))
            assert all(self.reported[number][0] == log.index for number in log.records)

    @invariant()
    def acknowledged_records_are_where_they_are_said_to_be(self) -> None:
        for number, (partition, future) in enumerate(self.reported):
            if future.done() and future.exception() is None:
                log, offset = self.logs[partition], future.result().offset
                assert log.at(offset) in (number, None) if offset >= 0 else number in {*log.records, *log.deleted}

    @invariant()
    def sequences_under_way_follow_each_other(self) -> None:
        for queue in self.queues:
            waiting = [batch.base_sequence != NO_SEQUENCE for batch in queue.batches]
            assert waiting == sorted(waiting, reverse=True), "a new batch has overtaken one that has a sequence"
            assert len(queue.in_flight) <= (IN_FLIGHT if queue.known_to_broker else 1)
            batches = [*queue.in_flight, *(batch for batch in queue.batches if batch.base_sequence != NO_SEQUENCE)]
            batches.sort(key=lambda batch: batch.number)
            following = None
            for batch in batches:
                assert batch.identity == queue.identity
                assert following is None or batch.base_sequence == following or is_later(batch.base_sequence, following)
                following = add_to_sequence(batch.base_sequence, batch.records_count)
            assert following is None or queue.next_sequence == following or is_later(queue.next_sequence, following)
            assert queue.last_acked < 0 or queue.next_sequence != queue.last_acked

    def teardown(self) -> None:
        """The trouble ends: everything comes to rest, and new records go through."""
        if not hasattr(self, "made"):
            return
        self.peace = self.made.now
        self._come_to_rest()
        written = len(self.reported)
        for partition in range(PARTITIONS):
            self.write(partition, 1, 8)
        self._come_to_rest()
        if self.decidable:
            assert all(future.result(0).offset >= -1 for _, future in self.reported[written:])
        assert all(future.done() for _, future in self.reported)
        assert self.made.fakes.pool.available == self.made.fakes.pool.total
        assert [queue.gate for queue in self.queues] == [DrainGate.OPEN] * PARTITIONS
        self.logs_hold_every_record_once_and_in_order()
        self.acknowledged_records_are_where_they_are_said_to_be()

    def _come_to_rest(self) -> None:
        accumulator = self.made.fakes.accumulator
        self.refusals.clear()
        for _ in range(1000):
            self.send()
            for node in NODES:
                for flight in self._arriving(node):
                    self._carry_out(node, flight, "take")
                while self._answered(node):
                    self._deliver(node)
            if (
                accumulator.incomplete.idle
                and not any(self.flying.values())
                and self.made.fakes.drainer.current_identity is not NO_IDENTITY
            ):
                return
            self.made.fakes.clock.advance(0.1)
        raise AssertionError("the producer does not come to rest")


SequenceMachine.TestCase.settings = settings(max_examples=250, stateful_step_count=50, deadline=None)
TestSequenceMachine = pytest.mark.covers("SN10–SN34")(pytest.mark.slow(SequenceMachine.TestCase))
