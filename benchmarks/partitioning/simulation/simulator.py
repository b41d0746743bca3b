"""A producer's queues, its sender and its brokers as a discrete-event simulation around the real partitioners.

The model: records arrive in groups, and a rule of `spark_producer.partitioner` places each group. A batch is ready when it is
full or has lingered. The sender takes one batch per partition and request, has at most `max_in_flight` requests per node, and
is busy for a while with each. A broker works on one request at a time, for a random time around its mean. A slow broker's
answers to a producer are held back one by one. The network's bandwidth, replication, a full buffer and garbage collectors are
not modelled.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import random
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ParamSpec

import numpy as np
import pyarrow as pa

from spark_producer.partitioner import LoadStatistics, LoadView, NodeLatencies, describe_topic
from spark_producer.partitioner.batch_size_estimate import RECORD_FRAME
from spark_producer.partitioner.topic import RowRule
from spark_producer.record.batch_v2 import HEADER_SIZE
from spark_producer.record.columns import CheckedColumns, read_columns

Arguments = ParamSpec("Arguments")

TOPIC = "t"
MakeRule = Callable[[LoadView, int, random.Random], RowRule]
"""(load, batch size, chance) → the rule of one producer."""


@dataclass(frozen=True)
class Scene:
    """The settings of a simulation, in seconds and bytes; `rate` is in records per second and producer.

    `leaders` has the node of each partition; `held` has for each slow node how long each of its answers is held back. The
    costs are round figures for a small machine, and not measurements: only comparisons of results are meaningful.
    """

    leaders: tuple[int, ...]
    rate: float
    seconds: float
    record_bytes: int
    producers: int = 1
    batch_size: int = 16384
    linger: float = 0.0
    held: Mapping[int, float] = field(default_factory=dict)
    availability_timeout: float = 0.0
    max_in_flight: int = 5
    max_request_size: int = 1 << 20
    group: float = 0.001
    """The average seconds between two groups of records."""
    sender_request: float = 60e-6
    sender_batch: float = 15e-6
    broker_request: float = 120e-6
    broker_batch: float = 40e-6
    broker_byte: float = 1 / 300e6
    round_trip: float = 0.3e-3
    seed: int = 794


@dataclass(frozen=True)
class Outcome:
    """The results. `latencies` (seconds, sorted, one per record) are from the arrival to the acknowledgement."""

    latencies: np.ndarray
    seconds: float
    bytes_by_node: Mapping[int, int]
    bytes_by_partition: Mapping[int, int]
    batches_by_node: Mapping[int, int]
    requests: int

    @property
    def records(self) -> int:
        """The number of acknowledged records."""
        return len(self.latencies)

    @property
    def batches(self) -> int:
        """The number of acknowledged batches."""
        return sum(self.batches_by_node.values())

    @property
    def mean(self) -> float:
        """The mean latency in seconds."""
        return float(self.latencies.mean())

    def percentile(self, share: float) -> float:
        """Return the latency in seconds that `share` of the records do not exceed."""
        return float(self.latencies[min(int(share * self.records), self.records - 1)])

    def share_of(self, node: int) -> float:
        """Return the share of the bytes that went to a node."""
        return self.bytes_by_node.get(node, 0) / sum(self.bytes_by_node.values())


class Batch:
    """The records of one partition in a batch: the free bytes, and their arrivals as (time, count)."""

    __slots__ = ("arrivals", "closed", "created", "free_bytes", "partition")

    def __init__(self, partition: int, created: float, free_bytes: int) -> None:
        self.partition, self.created, self.free_bytes = partition, created, free_bytes
        self.closed = False
        self.arrivals: list[tuple[float, int]] = []


class Simulation:
    """One run of a scene under a rule."""

    def __init__(self, scene: Scene, make_rule: MakeRule) -> None:
        self.scene = scene
        self.now = 0.0
        self.latencies: list[tuple[float, int]] = []
        self.bytes_by_node: Counter[int] = Counter()
        self.bytes_by_partition: Counter[int] = Counter()
        self.batches_by_node: Counter[int] = Counter()
        self.requests = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._busy_until: dict[int, float] = {}
        seeds = random.Random(scene.seed)
        self._chance = random.Random(seeds.getrandbits(64))
        for _ in range(scene.producers):
            SimulatedProducer(self, make_rule, random.Random(seeds.getrandbits(64))).begin()

    def at(
        self, time: float, action: Callable[Arguments, None], *arguments: Arguments.args, **named: Arguments.kwargs
    ) -> None:
        """Call `action` at a simulated time."""
        call: Callable[[], None] = functools.partial(action, *arguments, **named)
        heapq.heappush(self._events, (time, next(self._numbers), call))

    def run(self) -> Outcome:
        """Run until the last record is acknowledged."""
        while self._events:
            self.now, _, action = heapq.heappop(self._events)
            action()
        times, counts = np.array(self.latencies).T
        latencies = np.sort(np.repeat(times, counts.astype(np.int64)))
        return Outcome(
            latencies, self.now, self.bytes_by_node, self.bytes_by_partition, self.batches_by_node, self.requests
        )

    def serve(self, node: int, batches: list[Batch], size: int) -> float:
        """Return when the answer to a request leaves a broker, which works on one request at a time."""
        scene = self.scene
        start = max(self.now + scene.round_trip / 2, self._busy_until.get(node, 0.0))
        work = scene.broker_request + scene.broker_batch * len(batches) + scene.broker_byte * size
        end = self._busy_until[node] = start + work * self._chance.expovariate(1.0)
        return end


class SimulatedProducer:
    """The queues and the sender of one producer, which is a `LoadView` for its rule."""

    def __init__(self, simulation: Simulation, make_rule: MakeRule, chance: random.Random) -> None:
        self._simulation, self._scene, self._chance = simulation, simulation.scene, chance
        self._rule = make_rule(self, self._scene.batch_size, chance)
        self._topic = describe_topic(TOPIC, self._scene.leaders)
        self._queues: dict[int, deque[Batch]] = {}
        self._in_flight: Counter[int] = Counter()
        self._released: dict[int, float] = {}
        self._latencies = NodeLatencies(self._scene.availability_timeout)
        self._statistics = LoadStatistics({}, frozenset())
        self._free_at = 0.0
        self._next_pass = float("inf")
        self._owed = 0.0

    # --- what the rule asks -----------------------------------------------------------------------------------------

    def statistics(self, topic: str) -> LoadStatistics:
        """Return the load as of the last pass of the sender."""
        return self._statistics

    def free_bytes(self, topic: str, partition: int) -> int:
        """Return the free bytes of the open batch."""
        queue = self._queues.get(partition)
        return 0 if not queue or queue[-1].closed else queue[-1].free_bytes

    def full_size(self, topic: str, batch_size: int) -> int:
        """Return `batch_size`, since nothing is compressed."""
        return batch_size

    # --- records in -------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Schedule the first group of records."""
        self._simulation.at(self._chance.random() * self._scene.group, self._arrive)

    def _arrive(self) -> None:
        scene, now = self._scene, self._simulation.now
        self._owed += scene.rate * scene.group
        count = int(self._owed)
        self._owed -= count
        if count:
            columns = rows_of(count, scene.record_bytes)
            partitions = self._rule.assign(self._topic, columns, np.arange(count))
            size = int(columns.records.body_sizes[0]) + RECORD_FRAME
            edges = np.flatnonzero(np.diff(partitions)) + 1
            for run in np.split(partitions, edges):
                self._append(int(run[0]), len(run), size)
            self._wake(now)
        if now < scene.seconds:
            self._simulation.at(now + scene.group, self._arrive)

    def _append(self, partition: int, count: int, size: int) -> None:
        now, queue = self._simulation.now, self._queues.setdefault(partition, deque())
        while count:
            if not queue or queue[-1].closed or queue[-1].free_bytes < size:
                if queue:
                    queue[-1].closed = True
                queue.append(Batch(partition, now, max(self._scene.batch_size - HEADER_SIZE, size)))
            batch = queue[-1]
            fit = min(count, batch.free_bytes // size)
            batch.arrivals.append((now, fit))
            batch.free_bytes -= fit * size
            batch.closed = batch.free_bytes < size
            count -= fit

    # --- the sender -------------------------------------------------------------------------------------------------

    def _wake(self, time: float) -> None:
        time = max(time, self._free_at)
        if time < self._next_pass:
            self._next_pass = time
            self._simulation.at(time, self._pass, time)

    def _pass(self, planned: float) -> None:
        if planned != self._next_pass:
            return  # an earlier pass has done its work
        self._next_pass = float("inf")
        now, scene = self._simulation.now, self._scene
        ready, next_time = self._ready(now)
        can_send = {node: self._in_flight[node] < scene.max_in_flight for node in ready}
        queued = {partition: len(queue) for partition, queue in self._queues.items()}
        self._statistics = LoadStatistics(queued, self._latencies.observe(now, can_send))
        self._free_at = now
        for node, partitions in ready.items():
            if can_send[node]:
                self._send(node, partitions)
        if any(can_send.values()):
            next_time = self._free_at  # there may be more
        if next_time is not None:
            self._wake(next_time)

    def _ready(self, now: float) -> tuple[dict[int, list[int]], float | None]:
        ready: dict[int, list[int]] = {}
        next_time: float | None = None
        for partition, queue in self._queues.items():
            head = queue[0]
            due = now if head.closed or len(queue) > 1 else head.created + self._scene.linger
            if due <= now + 1e-9:
                ready.setdefault(self._scene.leaders[partition], []).append(partition)
            else:
                next_time = due if next_time is None else min(next_time, due)
        return ready, next_time

    def _send(self, node: int, partitions: list[int]) -> None:
        scene, batches, size = self._scene, list[Batch](), 0
        self._chance.shuffle(partitions)
        for partition in partitions:
            queue = self._queues[partition]
            bytes_of = scene.batch_size - queue[0].free_bytes
            if batches and size + bytes_of > scene.max_request_size:
                break
            batches.append(queue.popleft())
            size += bytes_of
            if not queue:
                del self._queues[partition]
        self._in_flight[node] += 1
        self._free_at += scene.sender_request + scene.sender_batch * len(batches)
        answered = self._simulation.serve(node, batches, size) + scene.round_trip / 2
        if node in scene.held:
            answered = max(answered, self._released.get(node, 0.0)) + scene.held[node]
            self._released[node] = answered
        self._simulation.at(answered, self._answer, node, batches)

    def _answer(self, node: int, batches: list[Batch]) -> None:
        simulation = self._simulation
        self._in_flight[node] -= 1
        simulation.requests += 1
        for batch in batches:
            size = self._scene.batch_size - batch.free_bytes
            simulation.bytes_by_node[node] += size
            simulation.bytes_by_partition[batch.partition] += size
            simulation.batches_by_node[node] += 1
            simulation.latencies += [(simulation.now - arrived, count) for arrived, count in batch.arrivals]
        self._wake(simulation.now)


@functools.cache
def rows_of(count: int, size: int) -> CheckedColumns:
    """Return `count` rows without keys, with values of `size` bytes."""
    values = pa.array([bytes(size)] * count, pa.binary())
    return read_columns(pa.record_batch({"value": values}), topic=TOPIC, now_ms=0).or_raise()
