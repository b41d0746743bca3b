"""A cluster in which everything goes wrong by seed: its brokers keep Kafka's rules of sequences and epochs, time is simulated.

Owns: the brokers, the network between, and what happens next. Must not know: what is asserted.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import ConnectionFailed, KafkaTimeout
from spark_producer.protocol import METADATA, PRODUCE
from spark_producer.protocol.messages import (
    InitProducerIdResponse,
    LeaderIdAndEpoch,
    MetadataResponse,
    NodeEndpoint,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResponse,
)
from spark_producer.record.batch_v2 import BatchHeader, read_header
from spark_producer.sender import ClientRequest
from tests.fakes.sender_fakes import TOPIC, SenderFakes, metadata_of

NOT_LEADER, TIMED_OUT, TOO_LARGE, NOT_ENOUGH, NOT_ENOUGH_AFTER, REFUSED = 6, 7, 10, 19, 20, 87
NO_RIGHT = 29
OUT_OF_ORDER, DUPLICATE, STALE_EPOCH = 45, 46, 47
MASK = 2**31 - 1
NODES = (1, 2)
IN_FLIGHT = 5
REQUEST_TIMEOUT = 0.4


def numbers_in(batch: memoryview, header: BatchHeader) -> list[int]:
    """The records' values, which are numbers of eight digits and padding: the last field but one of each record."""
    position, found = 61, []
    for delta in range(header.records_count):
        length, position = varint(batch, position)
        end = position + length
        _, at = varint(batch, position + 1)
        offset_delta, at = varint(batch, at)
        assert offset_delta == delta
        key, at = varint(batch, at)
        assert key == -1
        _, at = varint(batch, at)
        found.append(int(bytes(batch[at : at + 8])))
        position = end
    assert position == header.size
    return found


def varint(data: memoryview, at: int) -> tuple[int, int]:
    raw = shift = 0
    while True:
        raw |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return (raw >> 1) ^ -(raw & 1), at


@dataclass
class Log:
    """A partition: its leader, its records, and what the brokers remember of each producer."""

    leader: int
    largest: int
    """Maximum size of a batch; always the same for a batch, as a real topic's limit is."""
    leader_epoch: int = 0
    records: list[int] = field(default_factory=list)
    epochs: dict[int, tuple[int, int]] = field(default_factory=dict)
    """producer id → epoch and next sequence"""
    remembered: deque[tuple[int, int, int, int, int]] = field(default_factory=lambda: deque(maxlen=5))
    refusals: int = 0
    """Number of batches that are refused with too few replicas before the first is accepted, as of a new topic."""
    denied: bool = False
    """whether the producer's user lacks the right to write; such a batch leaves no trace"""

    def append(self, header: BatchHeader, numbers: list[int]) -> tuple[int, int]:
        """Error code and base offset, as of Kafka's ProducerAppendInfo: of a producer that it does not know the partition
        takes any first sequence."""
        if self.denied:
            return NO_RIGHT, -1
        if self.refusals:
            self.refusals -= 1
            return NOT_ENOUGH, -1
        producer, epoch, sequence = header.producer_id, header.producer_epoch, header.base_sequence
        if producer != -1:
            batch = (producer, epoch, sequence, header.records_count)
            for seen in self.remembered:
                if seen[:4] == batch:
                    return 0, seen[4]
            known, expected = self.epochs.get(producer, (epoch, sequence))
            if epoch < known:
                return STALE_EPOCH, -1
            if sequence != (expected if epoch == known else 0):
                return OUT_OF_ORDER, -1
            self.epochs[producer] = epoch, (sequence + header.records_count) & MASK
            self.remembered.append((*batch, len(self.records)))
        self.records += numbers
        return 0, len(self.records) - len(numbers)


@dataclass
class Flight:
    """A request on its connection; its answer, once the broker has executed it."""

    outgoing: ClientRequest
    deadline: float
    copied: list[tuple[TopicPartition, bytes]]
    answer: object = None


def copied_records(outgoing: ClientRequest) -> list[tuple[TopicPartition, bytes]]:
    """The batches of a request as they lie on the wire now; none if it is another request."""
    copied = []
    if isinstance(outgoing.body, ProduceRequest):
        for topic in outgoing.body.topic_data:
            for partition in topic.partition_data:
                assert isinstance(partition.records, memoryview)
                copied.append((TopicPartition(topic.name, partition.index), bytes(partition.records)))
    return copied


class SimulatedCluster:
    """Two brokers and a bootstrap server, as the sender's network. `trouble`: how probable each mishap is."""

    def __init__(self, choose: random.Random, trouble: float, partitions: int) -> None:
        self.choose, self.trouble = choose, trouble
        self.logs = [Log(choose.choice(NODES), choose.choice((600, 1 << 30))) for _ in range(partitions)]
        for log in self.logs:
            log.refusals = choose.choice((0, 1, 1, 3))
        self.flying: dict[int, deque[Flight]] = {node: deque() for node in (-1, *NODES)}
        self.unready_until = dict.fromkeys((-1, *NODES), 0.0)
        self.now = 0.0
        self.producer_ids = 40
        self.former: list[list[Log]] = []
        """the logs of the topic before it was deleted and created again"""
        self.with_ids = True
        """whether Metadata has topic ids"""
        self.errors = [NOT_ENOUGH, NOT_ENOUGH, REFUSED]
        """error codes of batches that are refused without a reason of their own"""

    def accept_every_batch(self) -> None:
        """Accept batches of all sizes, and each of them in the end."""
        self.errors.remove(REFUSED)
        for log in self.logs:
            log.largest = 1 << 30

    # What the sender asks of its network.

    def ready(self, node: int) -> bool:
        return self.now >= self.unready_until[node] and len(self.flying[node]) < IN_FLIGHT

    def least_loaded(self) -> int | None:
        return next((node for node in (-1, *NODES) if self.ready(node)), None)

    def next_attempt_in(self, node: int) -> float:
        return max(0.0, self.unready_until[node] - self.now)

    def last_error(self, node: int) -> None:
        return None

    def all_nodes_unavailable(self) -> bool:
        return False

    def finalized_level(self, feature: str) -> int:
        return 0

    # What happens.

    def send(self, outgoing: ClientRequest) -> None:
        assert self.ready(outgoing.node)
        self.flying[outgoing.node].append(Flight(outgoing, self.now + REQUEST_TIMEOUT, copied_records(outgoing)))

    def happen(self, made: SenderFakes) -> None:
        """Requests that are late end their connection; then one event."""
        for node, flights in self.flying.items():
            if flights and self.now >= flights[0].deadline:
                self.cut(made, node, late=True)
        if self.choose.random() < self.trouble:
            self.choose.choice((self.lose, self.move, self.pause))(made)
            return
        busy = [node for node, flights in self.flying.items() if flights and self.now >= self.unready_until[node]]
        if not busy:
            return
        node = self.choose.choice(busy)
        flight = self.flying[node][0]
        if flight.answer is None:
            self.carry_out(node, self.choose.randint(1, 3))
        else:
            self.flying[node].popleft()
            made.complete(flight.outgoing, flight.answer)

    def carry_out(self, node: int, count: int) -> None:
        for flight in [flight for flight in self.flying[node] if flight.answer is None][:count]:
            flight.answer = self.answer(node, flight)

    def lose(self, made: SenderFakes) -> None:
        node = self.choose.choice(list(self.flying))
        self.carry_out(node, self.choose.randint(0, IN_FLIGHT))
        self.cut(made, node, late=False)

    def cut(self, made: SenderFakes, node: int, *, late: bool) -> None:
        flights, self.flying[node] = self.flying[node], deque()
        for flight in flights:
            own = late and self.now >= flight.deadline
            made.complete(flight.outgoing, error=KafkaTimeout("late") if own else ConnectionFailed("cut"))
        made.sender.on_disconnect()

    def move(self, made: SenderFakes) -> None:
        moved = self.choose.choice(self.logs)
        moved.leader, moved.leader_epoch = 3 - moved.leader, moved.leader_epoch + 1

    def create_again(self) -> None:
        """The topic is deleted and created again: its logs are empty, and know no producer."""
        self.former.append(self.logs)
        self.logs = [Log(self.choose.choice(NODES), log.largest) for log in self.logs]

    def pause(self, made: SenderFakes) -> None:
        """A broker is slow, throttles (KIP-219), or is gone for a while."""
        node = self.choose.choice(NODES)
        self.unready_until[node] = self.now + self.choose.choice((0.01, 0.1, 1.0))

    # Answers.

    def answer(self, node: int, flight: Flight) -> object:
        if flight.outgoing.api is METADATA:
            return self.metadata()
        if flight.outgoing.api.key != PRODUCE.key:
            self.producer_ids += 1
            return InitProducerIdResponse(0, 0, self.producer_ids, 32766 if self.choose.random() < 0.3 else 0)
        reported = [self.produce(node, tp, memoryview(data)) for tp, data in flight.copied]
        endpoints = tuple(NodeEndpoint(known, f"host{known}", 9092) for known in NODES)
        return ProduceResponse((ProduceTopicResponse(TOPIC, partition_responses=tuple(reported)),), 0, endpoints)

    def metadata(self) -> MetadataResponse:
        """The metadata of a broker, which may be stale."""
        known, logs = len(self.former), self.logs
        if self.former and self.choose.random() < self.trouble:
            known, logs = known - 1, self.former[-1]
        topic_id = (known + 1 if self.with_ids else 0).to_bytes(16, "big")
        answer = metadata_of({TOPIC: [log.leader for log in logs]}, topic_id=topic_id)
        partitions = tuple(
            reported._replace(leader_epoch=log.leader_epoch)
            for reported, log in zip(answer.topics[0].partitions, logs, strict=True)
        )
        return answer._replace(topics=(answer.topics[0]._replace(partitions=partitions),))

    def produce(self, node: int, tp: TopicPartition, data: memoryview) -> ProducePartitionResponse:
        log = self.logs[tp.partition]
        if log.leader != node:
            hint = LeaderIdAndEpoch(log.leader, log.leader_epoch) if self.choose.random() < 0.5 else LeaderIdAndEpoch()
            return ProducePartitionResponse(tp.partition, NOT_LEADER, current_leader=hint)
        if len(data) > log.largest:
            return ProducePartitionResponse(tp.partition, TOO_LARGE)
        header = read_header(data)
        if self.choose.random() < self.trouble:
            return ProducePartitionResponse(tp.partition, self.choose.choice(self.errors))
        code, offset = log.append(header, numbers_in(data, header))
        if not code and self.choose.random() < self.trouble:
            code, offset = self.choose.choice((TIMED_OUT, NOT_ENOUGH_AFTER)), -1
        return ProducePartitionResponse(tp.partition, code, offset)
