"""A simulated cluster that loses connections, leaders and answers at random: every row arrives once and in order.

The cluster checks sequences as Kafka does (five batches remembered per producer and partition); time is simulated, and
every decision comes from a seed.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

import pytest

from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import BufferExhausted, ConnectionFailed
from spark_producer.protocol import METADATA, PRODUCE
from spark_producer.protocol.messages import (
    InitProducerIdResponse,
    ProducePartitionResponse,
    ProduceResponse,
    ProduceTopicResponse,
)
from spark_producer.record.batch_v2 import BatchHeader
from spark_producer.sender import ClientRequest
from tests.fakes.sender_fakes import TOPIC, SenderFakes, Sent, acquaint, metadata_of, sender_fakes, sent_in

PARTITIONS = 3
MAX_IN_FLIGHT = 5
NOT_LEADER, TIMED_OUT, NOT_ENOUGH_REPLICAS, OUT_OF_ORDER, DUPLICATE = 6, 7, 19, 45, 46
MASK = 2**31 - 1


@dataclass
class Partition:
    """A log and what its brokers remember of the producer."""

    leader: int
    epoch: int = 0
    expected: int | None = None
    """the next sequence; None as long as the producer is unknown: then any will do, and the first batch is refused once"""
    strangers: int = 0
    rows: list[bytes | None] = field(default_factory=list)
    remembered: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=5))

    def append(self, header: BatchHeader, values: list[bytes | None]) -> int:
        """An error code, as of Kafka's ProducerAppendInfo."""
        if header.producer_id != -1:
            if self.expected is None and not self.strangers:
                self.strangers += 1
                return NOT_ENOUGH_REPLICAS
            last = (header.base_sequence + header.records_count - 1) & MASK
            if (header.base_sequence, last) in self.remembered:
                return DUPLICATE
            if header.base_sequence != self.expected and self.expected is not None:
                return OUT_OF_ORDER
            self.remembered.append((header.base_sequence, last))
            self.expected = (last + 1) & MASK
        self.rows += values
        return 0


@dataclass
class Flight:
    """A request on a connection; its answer, once the broker has carried it out."""

    outgoing: ClientRequest
    copied: list[Sent]
    answer: object = None


class LossyCluster:
    """Two brokers; the sender sees it as its network. Requests of one connection are answered in order, or never."""

    def __init__(self, choose: random.Random, start: int, losses: float) -> None:
        self.choose, self.losses = choose, losses
        self.partitions = [Partition(self.choose.choice((1, 2)), expected=start or None) for _ in range(PARTITIONS)]
        self.flying: dict[int, deque[Flight]] = {-1: deque(), 1: deque(), 2: deque()}

    # What the sender asks of its network.

    def ready(self, node: int) -> bool:
        return len(self.flying[node]) < MAX_IN_FLIGHT

    def least_loaded(self) -> int | None:
        return -1 if self.ready(-1) else None

    def all_nodes_unavailable(self) -> bool:
        return False

    def next_attempt_in(self, node: int) -> float:
        return 0.0

    def last_error(self, node: int) -> None:
        return None

    # What happens.

    def send(self, outgoing: ClientRequest) -> None:
        assert self.ready(outgoing.node)
        copied = sent_in(outgoing) if outgoing.api is PRODUCE else []
        self.flying[outgoing.node].append(Flight(outgoing, copied))

    def happen(self, made: SenderFakes) -> None:
        """One event: a request is carried out, an answer arrives, a connection breaks, or a leader moves."""
        if self.choose.random() < self.losses:
            self.choose.choice((self.lose, self.lose, self.move))(made)
            return
        busy = [node for node, flights in self.flying.items() if flights]
        if not busy:
            return
        flights = self.flying[node := self.choose.choice(busy)]
        if flights[0].answer is not None and self.choose.random() < 0.5:
            flight = flights.popleft()
            made.complete(flight.outgoing, flight.answer)
        else:
            self.carry_out(node, 1)

    def carry_out(self, node: int, count: int) -> None:
        for flight in [flight for flight in self.flying[node] if flight.answer is None][:count]:
            flight.answer = self.answer(node, flight.outgoing, flight.copied)

    def lose(self, made: SenderFakes) -> None:
        """A connection breaks: some of its requests are carried out, but no answer comes."""
        node = self.choose.choice(list(self.flying))
        self.carry_out(node, self.choose.randint(0, MAX_IN_FLIGHT))
        flights, self.flying[node] = self.flying[node], deque()
        for flight in flights:
            made.complete(flight.outgoing, error=ConnectionFailed("the connection broke"))
        made.sender.on_disconnect()

    def move(self, made: SenderFakes) -> None:
        moved = self.choose.choice(self.partitions)
        moved.leader, moved.epoch = 3 - moved.leader, moved.epoch + 1

    def answer(self, node: int, outgoing: ClientRequest, copied: list[Sent]) -> object:
        if outgoing.api is METADATA:
            answer = metadata_of({TOPIC: [partition.leader for partition in self.partitions]})
            partitions = tuple(
                reported._replace(leader_epoch=partition.epoch)
                for reported, partition in zip(answer.topics[0].partitions, self.partitions, strict=True)
            )
            return answer._replace(topics=(answer.topics[0]._replace(partitions=partitions),))
        if outgoing.api is not PRODUCE:
            return InitProducerIdResponse(0, 0, 9, 0)
        codes = [(sent.tp, self.append(node, sent)) for sent in copied]
        return ProduceResponse(
            tuple(
                ProduceTopicResponse(tp.topic, (ProducePartitionResponse(tp.partition, code, -1 if code else 0),))
                for tp, code in codes
            )
        )

    def append(self, node: int, sent: Sent) -> int:
        partition = self.partitions[sent.tp.partition]
        if partition.leader != node:
            return NOT_LEADER
        if self.choose.random() < self.losses:
            return NOT_ENOUGH_REPLICAS
        code = partition.append(sent.header, sent.values)
        return TIMED_OUT if not code and self.choose.random() < self.losses else code


@dataclass
class Writer:
    """Rows in, as fast as memory allows."""

    choose: random.Random
    written: list[list[bytes]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])
    total: int = 0

    def write(self, made: SenderFakes) -> None:
        partition = self.choose.randrange(PARTITIONS)
        rows = [b"%d:%d" % (partition, self.total + n) for n in range(self.choose.randint(1, 60))]
        try:
            for row in rows:  # one by one: a full pool refuses a row, and takes back none before it
                made.fakes.append(row.ljust(self.choose.randint(10, 200), b"."), tp=TopicPartition(TOPIC, partition))
                self.written[partition].append(row)
                self.total += 1
        except BufferExhausted:
            return


def run(
    seed: int, *, idempotent: bool = True, in_order: bool = False, losses: float = 0.05
) -> tuple[Writer, LossyCluster, SenderFakes]:
    choose = random.Random(seed)
    start = choose.choice((0, 2**31 - 100)) if idempotent else 0
    made = sender_fakes(
        ready=False, idempotent=idempotent, linger=0.005, memory=32768, delivery_timeout=1e9, keep_order=in_order
    )
    made.metadata.request_topics(TOPIC)
    if idempotent:
        made.give_id(9, 0)
    for partition in range(PARTITIONS if start else 0):
        queue = made.fakes.incomplete.queue_of(TopicPartition(TOPIC, partition))
        acquaint(queue, made.fakes.drainer.current_identity, made.now)
        queue.next_sequence, queue.last_acked = start, start - 1
    cluster, writer = LossyCluster(choose, start, losses), Writer(choose)
    made.network = cluster  # type: ignore[assignment]
    turn = 0
    while turn < 1500 or not made.fakes.incomplete.idle:
        turn += 1
        assert turn < 20_000, "the rows do not get through"
        if turn == 1500:
            made.fakes.incomplete.begin_close()
        if turn < 1500 and choose.random() < 0.3:
            writer.write(made)
        step = made.step()
        for outgoing in step.requests:
            cluster.send(outgoing)
        if not step.requests:
            cluster.happen(made)
            made.fakes.clock.advance(choose.random() * 0.02)
        assert made.error is None, made.error
    return writer, cluster, made


def received(partition: Partition) -> list[bytes]:
    return [(row or b"").rstrip(b".") for row in partition.rows]


@pytest.mark.covers("SN14", "SN15", "SN18", "SN26")
@pytest.mark.slow
@pytest.mark.parametrize(("seed", "losses"), [*((seed, 0.05) for seed in range(8)), (31, 0.08), (1, 0.2)])
def test_every_row_once_and_in_order(seed: int, losses: float) -> None:
    """Seed 31 has a leader that moves while answers of the former one are under way."""
    writer, cluster, made = run(seed, losses=losses)
    assert writer.total > 500
    for partition, written in zip(cluster.partitions, writer.written, strict=True):
        assert received(partition) == written
    assert made.fakes.pool.available == made.fakes.pool.total
    assert made.sender.take_report().retries > 10


@pytest.mark.parametrize("seed", range(3))
def test_one_in_flight_without_idempotence_loses_nothing_and_keeps_the_order_of_first_arrivals(seed: int) -> None:
    writer, cluster, _ = run(seed, idempotent=False, in_order=True)
    for partition, written in zip(cluster.partitions, writer.written, strict=True):
        assert list(dict.fromkeys(received(partition))) == written


def test_a_sound_cluster_needs_no_retry() -> None:
    writer, cluster, made = run(99, losses=0.0)
    assert [received(partition) for partition in cluster.partitions] == writer.written
    unknown = sum(partition.strangers for partition in cluster.partitions)
    assert made.sender.take_report().retries == unknown, "one for each partition to which the producer was unknown"
