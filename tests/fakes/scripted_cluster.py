"""A cluster without sockets for tests of the producer: answers Metadata and InitProducerId, and Produce when a test releases it.

Owns: what the producer sees as its network (`ScriptedNetwork`), with the rules of a connection: requests in flight are
bounded and answered in order. Must not know: what is tested.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_producer import Producer
from spark_producer.accumulator import ProducerIdAndEpoch
from spark_producer.accumulator.pool import new_memory
from spark_producer.common.cluster import TopicPartition
from spark_producer.config import ProducerConfig, producer_config
from spark_producer.errors import PyProducerError
from spark_producer.metrics import ProducerMetrics
from spark_producer.network import ConnectionSettings
from spark_producer.network.client import Completion
from spark_producer.producer import Parts, parts_of, producer_of
from spark_producer.producer.internals import MAX_SLEEP_S
from spark_producer.protocol import INIT_PRODUCER_ID, METADATA, PRODUCE, AnyApi
from spark_producer.protocol.messages import (
    BatchIndexAndErrorMessage,
    InitProducerIdResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseTopic,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResponse,
)
from spark_producer.record.batch_v2 import read_header
from tests.fakes.accumulator_fakes import DEADLINE, values_in
from tests.fakes.coordinator_answers import coordinated, kind_of
from tests.fakes.sender_fakes import metadata_of
from tests.support.waiting import wait_until

SERVERS = "broker:9092"


@dataclass
class Held:
    """A Produce request that waits for the test's permission."""

    node: int
    body: ProduceRequest
    tag: object


@dataclass
class ScriptedCluster:
    """The state that a test controls. All waits have a deadline; `lock` guards everything."""

    topics: dict[str, int] = field(default_factory=lambda: {"t": 1})
    """Partitions of each topic; all led by node 1."""
    topic_codes: Callable[[str], int] = lambda _: 0
    produce_code: Callable[[TopicPartition], int] = lambda _: 0
    complaints: dict[int, str] = field(default_factory=dict)
    """Error messages of single records of rejected batches."""
    holding: bool = False
    held: list[Held] = field(default_factory=list)
    log: dict[TopicPartition, list[bytes | None]] = field(default_factory=dict)
    waits: list[float] = field(default_factory=list)
    questions: int = 0
    described: int = 0
    """Topics in all Metadata requests."""
    sequences: dict[TopicPartition, list[int]] = field(default_factory=dict)
    """Base sequences of the batches that were accepted."""
    apis: list[AnyApi] = field(default_factory=list)
    """APIs of all requests."""
    wakeups: int = 0
    held_metadata: tuple[object, MetadataResponse] | None = None
    """A response that waits for the test's permission."""
    poll_error: BaseException | None = None
    last_error: PyProducerError | None = None
    fatal_error: PyProducerError | None = None
    reachable: bool = True
    levels: dict[str, int] = field(default_factory=dict)
    """finalized features of the cluster"""
    names: list[str] = field(default_factory=list)
    """Requests of transactions by name: find, init, add, group, offsets, commit, abort."""
    codes: dict[str, list[int]] = field(default_factory=dict)
    """The next error codes of their responses."""
    holding_apis: set[str] = field(default_factory=set)
    """Requests without a response until `release_apis`."""
    holding_ids: bool = False
    """Whether requests for a producer id stay without a response."""

    def __post_init__(self) -> None:
        self.changed = threading.Condition()
        self.done: list[Completion] = []
        self.woken = False
        self.producers: list[Producer] = []
        self.clients: list[ScriptedNetwork] = []
        """The client of every producer, also of one that failed to start."""
        self.ids_asked = 0
        self.held_apis: list[tuple[AnyApi, tuple[object, ...], object]] = []
        self._holding_metadata = False

    # The test's side.

    def connect(self, settings: ConnectionSettings, *, metrics: ProducerMetrics) -> ScriptedNetwork:
        """The network of another producer."""
        self.clients.append(ScriptedNetwork(self, settings))
        return self.clients[-1]

    def producer_with(self, config: ProducerConfig) -> Producer:
        """A producer of this cluster, as the data source makes them."""
        self.producers.append(producer_of(Parts(config, connect=self.connect)))
        return self.producers[-1]

    def producer(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        memory: Callable[[int], memoryview] = new_memory,
        max_sleep: float = MAX_SLEEP_S,
        **options: object,
    ) -> Producer:
        """A producer of this cluster that sends and repeats at once. Options have their names with underscores."""
        usual = {"bootstrap.servers": SERVERS, "linger.ms": 0, "retry.backoff.ms": 1, "retry.backoff.max.ms": 1}
        config = producer_config(usual | {name.replace("_", "."): value for name, value in options.items()})
        parts = Parts(config, connect=self.connect, clock=clock, memory=memory, max_sleep=max_sleep)
        self.producers.append(producer_of(parts))
        return self.producers[-1]

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, DEADLINE), f"not within {DEADLINE:g} s: {what}"

    def wait_for_held(self, count: int) -> None:
        self.wait_for(lambda: len(self.held) == count, f"{count} requests are in flight")

    def release(self, count: int | None = None) -> None:
        """Answer held requests, the oldest first; with None all of them and all that come."""
        with self.changed:
            if count is None:
                self.holding = False
            for _ in range(len(self.held) if count is None else count):
                held = self.held.pop(0)
                self._answer(held)
            self._wake()

    def release_apis(self) -> None:
        """Answer the held requests of transactions, and all that come."""
        with self.changed:
            self.holding_apis.clear()
            held, self.held_apis = self.held_apis, []
            for api, body, tag in held:
                self._coordinate(api, body, tag)
            self._wake()

    def hold_metadata(self) -> None:
        """The next question gets its answer, made when it comes, from `release_metadata`."""
        self._holding_metadata = True

    def release_metadata(self) -> None:
        with self.changed:
            assert self.held_metadata is not None
            tag, body = self.held_metadata
            self.held_metadata = None
            self._complete(tag, METADATA, body)
            self._wake()

    def wake(self, **settings: Any) -> None:
        """Set attributes, and wake the I/O thread so that it sees them."""
        with self.changed:
            for name, value in settings.items():
                setattr(self, name, value)
            self._wake()

    # The network's side.

    def _wake(self) -> None:
        self.woken = True
        self.changed.notify_all()

    def _complete(self, tag: object, api: AnyApi, body: object) -> None:
        self.done.append(Completion(tag, 1, api, body, None, 0.0))

    def _answer(self, held: Held) -> None:
        topics = []
        for topic in held.body.topic_data:
            partitions = []
            for partition in topic.partition_data:
                tp = TopicPartition(topic.name, partition.index)
                code, log = self.produce_code(tp), self.log.setdefault(tp, [])
                offset = len(log) if not code else -1
                if not code:
                    assert isinstance(partition.records, memoryview)
                    self.sequences.setdefault(tp, []).append(read_header(partition.records).base_sequence)
                    log += values_in(partition.records)
                reported = tuple(BatchIndexAndErrorMessage(*row) for row in self.complaints.items()) if code else ()
                partitions.append(ProducePartitionResponse(partition.index, code, offset, record_errors=reported))
            topics.append(ProduceTopicResponse(topic.name, partition_responses=tuple(partitions)))
        self._complete(held.tag, PRODUCE, ProduceResponse(tuple(topics)))

    def take(self, api: AnyApi, body: tuple[object, ...], tag: object) -> None:
        """A request of a transaction."""
        name = kind_of(body)
        self.names.append(name)
        if name in self.holding_apis:
            self.held_apis.append((api, body, tag))
        else:
            self._coordinate(api, body, tag)

    def _coordinate(self, api: AnyApi, body: tuple[object, ...], tag: object) -> None:
        codes = self.codes.get(kind_of(body))
        self._complete(tag, api, coordinated(body, codes.pop(0) if codes else 0, ProducerIdAndEpoch(5, 0), node=1))

    def _ask(self, tag: object, question: MetadataRequest) -> None:
        self.questions += 1
        self.described += len(question.topics or ())
        answer = self.metadata(question)
        if self._holding_metadata:
            self.held_metadata, self._holding_metadata = (tag, answer), False
        else:
            self._complete(tag, METADATA, answer)

    def metadata(self, question: MetadataRequest) -> MetadataResponse:
        answer = metadata_of({}, nodes=(1,))
        topics = []
        for asked in question.topics or ():
            name = asked.name or ""
            code = self.topic_codes(name)
            known = metadata_of({name: (1,) * self.topics.get(name, 0)}).topics
            topics.append(MetadataResponseTopic(error_code=code, name=name) if code else known[0])
        return answer._replace(topics=tuple(topics))


def knowing_the_topic(producer: Producer) -> Producer:
    """After its I/O thread has learnt of topic t: what follows is not timed with that."""
    parts_of(producer).metadata.request_topics("t")
    parts_of(producer).client.wakeup()
    wait_until(lambda: "t" in parts_of(producer).metadata.cluster.topics, "the topic is known")
    return producer


class ScriptedNetwork:
    """A fake of `spark_producer.network.Client`."""

    def __init__(self, cluster: ScriptedCluster, settings: ConnectionSettings) -> None:
        self.cluster = cluster
        self.settings = settings
        self.closed = False

    def ready(self, node: int) -> bool:
        return self.cluster.reachable and len(self.cluster.held) < self.settings.max_in_flight

    def least_loaded(self) -> int | None:
        return 1 if self.cluster.reachable else None

    def ready_with(self, api: AnyApi) -> int | None:
        return None

    def load(self) -> tuple[int, int]:
        return 1, len(self.cluster.held)

    def all_nodes_unavailable(self) -> bool:
        return False

    def next_attempt_in(self, node: int) -> float:
        return 0.0

    def send(self, node: int, api: AnyApi, body: tuple[object, ...], *, tag: object, expect_response: bool) -> None:
        with self.cluster.changed:
            assert self.ready(node), "sent to a node that is not ready"
            self.cluster.apis.append(api)
            if isinstance(body, MetadataRequest):
                self.cluster._ask(tag, body)
            elif isinstance(body, ProduceRequest):
                held = Held(node, body, tag)
                if self.cluster.holding:
                    self.cluster.held.append(held)
                else:
                    self.cluster._answer(held)
            elif api is not INIT_PRODUCER_ID or body[0] is not None:  # with a transactional id
                self.cluster.take(api, body, tag)
            else:
                self.cluster.ids_asked += 1
                if not self.cluster.holding_ids:
                    self.cluster._complete(tag, INIT_PRODUCER_ID, InitProducerIdResponse(0, 0, 5, 0))
            self.cluster.changed.notify_all()

    def poll(self, timeout: float) -> list[Completion]:
        cluster = self.cluster
        with cluster.changed:
            cluster.waits.append(timeout)
            cluster.changed.notify_all()
            end = time.monotonic() + timeout
            while not cluster.done and not cluster.woken and (left := end - time.monotonic()) > 0:
                cluster.changed.wait(left)
            cluster.woken = False
            if cluster.poll_error is not None:
                raise cluster.poll_error
            found, cluster.done = cluster.done, []
            return found

    def take_disconnected(self) -> list[int]:
        return [] if self.cluster.reachable else [-1]

    def last_error(self, node: int) -> PyProducerError | None:
        return self.cluster.last_error

    def finalized_level(self, feature: str) -> int:
        return self.cluster.levels.get(feature, 0)

    def fatal_error(self) -> PyProducerError | None:
        return self.cluster.fatal_error

    def set_nodes(self, nodes: Mapping[int, tuple[str, int]], cluster_id: str | None = None) -> None:
        assert nodes == {1: ("host1", 9092)}

    def wakeup(self) -> None:
        with self.cluster.changed:
            self.cluster.wakeups += 1
            self.cluster._wake()

    def close(self) -> None:
        self.closed = True
