"""A sender with a real accumulator and real metadata; its network is a table, and answers are written by hand.

Must not know: what is tested.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spark_producer.accumulator import PartitionQueue, ProducerBatch, ProducerIdAndEpoch
from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import PyProducerError
from spark_producer.metrics import ProducerMetrics
from spark_producer.protocol import INIT_PRODUCER_ID, METADATA, PRODUCE
from spark_producer.protocol.messages import (
    InitProducerIdResponse,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResponse,
)
from spark_producer.record.batch_v2 import BatchHeader, read_header
from spark_producer.sender import ClientRequest, Metadata, Sender, SenderSettings, SenderStep
from tests.fakes.accumulator_fakes import TP, AccumulatorFakes, accumulator_fakes, values_in
from tests.fakes.metric_events import new_metrics

TOPIC = TP.topic
BACKOFF = 0.1
MAX_AGE = 300.0


def backoff(attempt: int) -> float:
    """Without jitter, so that tables can name times."""
    return BACKOFF * 2.0 ** min(attempt, 3)


class FakeNetwork:
    """A table of the nodes that take requests."""

    def __init__(self) -> None:
        self.unready: set[int] = set()
        self.pauses: dict[int, float] = {}
        self.least: int | None = -1
        self.lost = False
        self.errors: dict[int, PyProducerError] = {}
        self.levels: dict[str, int] = {}

    def ready(self, node: int) -> bool:
        return node not in self.unready

    def least_loaded(self) -> int | None:
        return self.least

    def all_nodes_unavailable(self) -> bool:
        return self.lost

    def next_attempt_in(self, node: int) -> float:
        return self.pauses.get(node, 0.0)

    def last_error(self, node: int) -> PyProducerError | None:
        return self.errors.get(node)

    def finalized_level(self, feature: str) -> int:
        return self.levels.get(feature, 0)


def metadata_of(
    leaders: Mapping[str, Sequence[int]],
    nodes: Sequence[int] = (1, 2),
    *,
    epochs: int = 0,
    codes: Mapping[str, int] | None = None,
    topic_id: bytes = bytes(16),
) -> MetadataResponse:
    """An answer of the cluster: the leader of each partition of each topic."""
    topics = [
        MetadataResponseTopic(
            error_code=(codes or {}).get(name, 0),
            name=name,
            topic_id=topic_id,
            partitions=tuple(
                MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=epochs)
                for index, leader in enumerate(led)
            ),
        )
        for name, led in leaders.items()
    ]
    brokers = tuple(MetadataResponseBroker(node, f"host{node}", 9092) for node in nodes)
    return MetadataResponse(brokers=brokers, topics=tuple(topics))


def answer_to(outgoing: ClientRequest, codes: Mapping[int, int] | int = 0, **fields: Any) -> ProduceResponse:
    """An answer to all batches of a request: error code by partition, offsets from 100 times the sequence."""
    responses = []
    for batch in outgoing.batches:
        code = codes if isinstance(codes, int) else codes.get(batch.topic_partition.partition, 0)
        offset = -1 if code else max(0, batch.base_sequence) + 100
        responses.append(
            ProduceTopicResponse(
                batch.topic_partition.topic,
                partition_responses=(
                    ProducePartitionResponse(
                        batch.topic_partition.partition, code, fields.get("base_offset", offset), **_rest(fields)
                    ),
                ),
            )
        )
    return ProduceResponse(tuple(responses))


def _rest(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name != "base_offset"}


@dataclass
class Sent:
    """One batch as it lay in a request, copied before its buffer is used again."""

    tp: TopicPartition
    header: BatchHeader
    values: list[bytes | None]


def sent_in(outgoing: ClientRequest) -> list[Sent]:
    """The batches in the bytes of a Produce request, which must be those that it names."""
    assert outgoing.api.key == PRODUCE.key
    body = outgoing.body
    assert isinstance(body, ProduceRequest)
    found = []
    for topic in body.topic_data:
        for partition in topic.partition_data:
            records = partition.records
            assert isinstance(records, memoryview)
            tp = TopicPartition(topic.name, partition.index)
            found.append(Sent(tp, read_header(records), values_in(records)))
    assert sorted(sent.tp for sent in found) == sorted(batch.topic_partition for batch in outgoing.batches)
    return found


@dataclass
class SenderFakes:
    """The sender, what it may see, and what it did."""

    fakes: AccumulatorFakes
    metadata: Metadata
    sender: Sender
    metrics: ProducerMetrics
    network: FakeNetwork = field(default_factory=FakeNetwork)
    sent_beside: list[ClientRequest] = field(default_factory=list)

    @property
    def now(self) -> float:
        return self.fakes.clock.now

    def step(self) -> SenderStep:
        step = self.sender.step(self.now, self.network)
        assert step.wake_at is None or step.wake_at > self.now, "a time that has come would make the I/O thread spin"
        nodes = [request.node for request in step.requests]
        assert len(nodes) == len(set(nodes)), "two requests to one node: the second may exceed its requests in flight"
        return step

    def produce(self) -> list[ClientRequest]:
        """Steps until nothing more is sent; the Produce requests."""
        found, self.sent_beside = self.sent_beside, []
        for _ in range(100):
            requests = self.step().requests
            if not requests:
                return found
            assert all(request.api.key == PRODUCE.key for request in requests), [
                request.api.name for request in requests
            ]
            found += requests
        raise AssertionError("the sender does not stop sending")

    def complete(self, outgoing: ClientRequest, body: object = None, error: PyProducerError | None = None) -> None:
        self.sender.on_completion(outgoing.api, outgoing.batches, body, error, self.now)

    def learn(self, response: MetadataResponse) -> None:
        """The sender asks for metadata, and gets this; what it sends beside is found by the next `produce`."""
        requests = self.step().requests
        self.sent_beside += [request for request in requests if request.api.key == PRODUCE.key]
        question = next(request for request in requests if request.api is METADATA)
        self.complete(question, response)

    def get_id(self, producer_id: int = 77, epoch: int = 0) -> None:
        (question,) = self.step().requests
        assert question.api is INIT_PRODUCER_ID
        self.complete(question, InitProducerIdResponse(0, 0, producer_id, epoch))

    def give_id(self, producer_id: int, epoch: int) -> None:
        """Set the producer id, as if the brokers had returned it before the test begins; no request is sent."""
        self.sender._identity.received(producer_id, epoch)

    def batches(self, *values: bytes, partition: int = 0) -> None:
        """Append one full batch for each value."""
        for value in values:
            self.fakes.append(value.ljust(900, b"."), tp=TopicPartition(TOPIC, partition))

    @property
    def error(self) -> Exception | None:
        """Return the error that ended the producer, or the first failure of a batch."""
        return self.fakes.incomplete.error or self.fakes.incomplete.failure


def acquaint(queue: PartitionQueue, identity: ProducerIdAndEpoch, now: float) -> None:
    """Note all earlier sequence numbers as acknowledged: the next batches need not wait for each other."""
    queue.begin(identity)
    queue.last_acked, queue.drained_at = 2**31 - 1, now
    queue.known_to_broker = True


def sender_fakes(
    *,
    acks: int = -1,
    retries: int = 2**31 - 1,
    idempotent: bool = True,
    max_request_size: int = 1 << 20,
    ready: bool = True,
    acquainted: bool = True,
    epoch: int = 0,
    availability_timeout: float = 0.0,
    backoff: Callable[[int], float] = backoff,
    rebootstrap_after: float | None = None,
    leaders: Mapping[str, Sequence[int]] | None = None,
    transactional_id: str | None = None,
    **accumulator: Any,
) -> SenderFakes:
    """A sender; if `ready`, with metadata and a producer id, so that the next step can produce; if `acquainted`, the
    brokers know this id in every partition."""
    fakes = accumulator_fakes(**{"linger": 0, **accumulator})
    metadata = Metadata(max_age=MAX_AGE, backoff=backoff, rebootstrap_after=rebootstrap_after)
    settings = SenderSettings(
        acks,
        30.0,
        max_request_size,
        retries,
        idempotent,
        availability_timeout,
        user="user 'app'",
        transactional_id=transactional_id,
    )
    metrics = new_metrics(fakes.clock.now)
    made = SenderFakes(fakes, metadata, Sender(fakes.accumulator, metadata, settings, backoff, metrics), metrics)
    if ready:
        metadata.request_topics(TOPIC)
        leaders = leaders or {TOPIC: (1, 1, 2)}
        made.learn(metadata_of(leaders))
        if idempotent:
            made.get_id(epoch=epoch)
        if idempotent and acquainted:
            for tp in [
                TopicPartition(topic, partition) for topic in leaders for partition in range(len(leaders[topic]))
            ]:
                acquaint(fakes.incomplete.queue_of(tp), fakes.drainer.current_identity, fakes.clock.now)
    return made


def first_letters(requests: Sequence[ClientRequest]) -> str:
    """The first letter of each batch's first value, in the order sent."""
    return "".join((sent.values[0] or b"?").decode()[0] for outgoing in requests for sent in sent_in(outgoing))


def batches_of(requests: Sequence[ClientRequest]) -> list[ProducerBatch]:
    return [batch for outgoing in requests for batch in outgoing.batches]


def in_flight(made: SenderFakes, *values: bytes, partition: int = 0) -> list[ClientRequest]:
    """Return one request for each value, sent and not yet answered."""
    made.batches(*values, partition=partition)
    requests = made.produce()
    assert len(requests) == len(values)
    return requests
