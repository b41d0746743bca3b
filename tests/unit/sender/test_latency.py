"""Callback − creation ≤ delivery.timeout.ms + one poll, whatever the brokers do. KIP-91; ids RA23, SN38.

Brokers are sound, slow, dead, gone or flapping by seed. Time jumps from event to event, and the I/O thread is awake only
when the network has something or the sender's own `wake_at` has come: a sender that asks to be woken too late, or forgets
to, breaks the bound here.
"""

from __future__ import annotations

import random
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

from spark_producer.accumulator import RecordMetadata
from spark_producer.common.cluster import TopicPartition
from spark_producer.errors import BufferExhausted, DeliveryTimeout
from spark_producer.sender import ClientRequest
from tests.fakes.sender_fakes import TOPIC, SenderFakes, sender_fakes
from tests.fakes.simulated_cluster import IN_FLIGHT, NODES, Flight, SimulatedCluster, copied_records
from tests.support.campaigns import sample_and_campaign

DELIVERY_TIMEOUT = 2.0
REQUEST_TIMEOUT = 0.8
LINGER = 0.05
POLL = 0.004
"""Seconds by which a wait may end too late, as a selector's does."""

NEVER = float("inf")
WRITING = 3.0
"""Seconds in which records are appended."""


class Weather(NamedTuple):
    """Seconds from a request to its answer; for how long the broker is there and gone, in turn; when it falls silent."""

    latency: float
    there: float = NEVER
    gone: float = 0.0
    silent_from: float = NEVER


def weather(choose: random.Random, troubled: float) -> Weather:
    if choose.random() >= troubled:
        return Weather(choose.uniform(0.001, 0.05))
    return choose.choice(
        (
            Weather(choose.uniform(0.2, 1.2 * REQUEST_TIMEOUT)),
            Weather(0.02, silent_from=choose.uniform(0.0, WRITING)),
            Weather(0.02, there=choose.uniform(0.01, WRITING), gone=NEVER),
            Weather(choose.uniform(0.01, 0.3), there=choose.uniform(0.05, 1.0), gone=choose.uniform(0.05, 1.5)),
        )
    )


@dataclass
class TimedFlight(Flight):
    """A request, and when its answer comes."""

    due: float = NEVER


class WeatheredCluster(SimulatedCluster):
    """Brokers with a weather each; the bootstrap server, -1, has one too."""

    def __init__(self, choose: random.Random) -> None:
        super().__init__(choose, trouble=0.0, partitions=3)
        self.weather = {node: weather(choose, 0.7) for node in NODES} | {-1: weather(choose, 0.2)}

    def ready(self, node: int) -> bool:
        return self.is_there(node) and len(self.flying[node]) < IN_FLIGHT

    def next_attempt_in(self, node: int) -> float:
        return 0.0  # the network itself wakes when a node is there again

    def last_error(self, node: int) -> None:
        return None

    def is_there(self, node: int) -> bool:
        there, gone = self.weather[node][1:3]
        return self.now < there if NEVER in (there, gone) else self.now % (there + gone) < there

    def next_change(self, node: int) -> float:
        """When the node comes or goes next."""
        there, gone = self.weather[node][1:3]
        if NEVER in (there, gone):
            return there if self.now < there else NEVER
        turns, phase = divmod(self.now, there + gone)
        return turns * (there + gone) + (there if phase < there else there + gone)

    def send(self, outgoing: ClientRequest) -> None:
        assert self.ready(outgoing.node)
        weather = self.weather[outgoing.node]
        due = self.now + weather.latency if self.now < weather.silent_from else NEVER
        self.flying[outgoing.node].append(
            TimedFlight(outgoing, self.now + REQUEST_TIMEOUT, copied_records(outgoing), due=due)
        )

    def next_event(self) -> float:
        times = [self.next_change(node) for node in self.flying]
        for flights in self.flying.values():
            times += [min(flight.due, flight.deadline) for flight in flights if isinstance(flight, TimedFlight)]
        return min(times)

    def happen(self, made: SenderFakes) -> None:
        """Run all events that are due."""
        for node, flights in self.flying.items():
            if not self.is_there(node) and flights:
                self.carry_out(node, self.choose.randint(0, IN_FLIGHT))
                self.cut(made, node, late=False)
            while (flights := self.flying[node]) and isinstance(flight := flights[0], TimedFlight):
                if self.now >= flight.deadline:
                    self.cut(made, node, late=True)
                elif self.now >= flight.due:
                    self.carry_out(node, 1)
                    flights.popleft()
                    made.complete(flight.outgoing, flight.answer)
                else:
                    break
        if self.choose.random() < 0.02:
            self.move(made)


@dataclass
class Written:
    """A record: when its batch was created, when its writer heard of it."""

    created: float
    future: Future[RecordMetadata] = field(default_factory=Future)
    called_at: float = -1.0


@dataclass
class Run:
    """One schedule."""

    choose: random.Random
    made: SenderFakes
    cluster: WeatheredCluster
    written: list[Written] = field(default_factory=list)

    def write(self) -> None:
        clock, tp = self.made.fakes.clock, TopicPartition(TOPIC, self.choose.randrange(3))
        for _ in range(self.choose.randint(1, 10)):
            one = Written(clock.now)

            def called(_: RecordMetadata, __: Exception | None, one: Written = one) -> None:
                one.called_at = clock.now

            value = (b"%08d" % len(self.written)).ljust(self.choose.randint(8, 300), b".")
            try:
                one.future = self.made.fakes.append_one(value, 1000, called, tp)
            except BufferExhausted:
                return
            one.created = self.made.fakes.queue(tp).batches[-1].created
            self.written.append(one)

    def play(self) -> None:
        made, cluster, clock = self.made, self.cluster, self.made.fakes.clock
        accumulator = made.fakes.accumulator
        writes = sorted(clock.now + self.choose.uniform(0, WRITING) for _ in range(40))
        for _ in range(20_000):
            cluster.now = clock.now
            step = made.step()
            for outgoing in step.requests:
                cluster.send(outgoing)
            if step.requests:
                continue
            if not writes and accumulator.incomplete.idle and not any(cluster.flying.values()):
                return
            if not accumulator.incomplete.sleeps(step.wake_at):
                continue
            times = [cluster.next_event(), *writes[:1], *([] if step.wake_at is None else [step.wake_at])]
            assert min(times) < NEVER, "the I/O thread would sleep for ever"
            clock.now = max(clock.now, min(times)) + self.choose.random() * POLL
            cluster.now = clock.now
            accumulator.incomplete.wakes()
            cluster.happen(made)
            while writes and writes[0] <= clock.now:
                writes.pop(0)
                self.write()
        raise AssertionError("the producer does not come to rest")


def run(seed: int) -> Run:
    choose = random.Random(seed)
    made = sender_fakes(
        ready=False,
        idempotent=choose.random() < 0.8,
        linger=choose.choice((0.0, LINGER)),
        memory=choose.choice((8192, 65536)),
        delivery_timeout=DELIVERY_TIMEOUT,
    )
    made.fakes.clock.now = 0.0
    made.metadata.request_topics(TOPIC)
    cluster = WeatheredCluster(choose)
    made.network = cluster  # type: ignore[assignment]
    schedule = Run(choose, made, cluster)
    schedule.play()
    return schedule


def outcomes(first: int, count: int) -> tuple[int, int]:
    """Records that were delivered and that expired, in all schedules; every one within the bound."""
    delivered = expired = 0
    for seed in range(first, first + count):
        schedule = run(seed)
        for one in schedule.written:
            assert one.future.done(), f"seed {seed}"
            took = one.called_at - one.created
            assert 0 <= took <= DELIVERY_TIMEOUT + POLL, f"seed {seed}: {took:.4f} s"
            error = one.future.exception(0)
            delivered += error is None
            expired += isinstance(error, DeliveryTimeout)
        assert schedule.made.fakes.pool.available == schedule.made.fakes.pool.total, f"seed {seed}"
    return delivered, expired


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 200, 50))
def test_kip91_no_record_takes_longer_than_its_delivery_timeout(first: int) -> None:
    delivered, expired = outcomes(first, 50)
    assert delivered > 1000
    assert expired > 100


@pytest.mark.slow
@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("first", sample_and_campaign(range(10_000, 14_000, 500)))
def test_kip91_in_thousands_of_schedules_no_record_takes_longer(first: int) -> None:
    delivered, expired = outcomes(first, 500)
    assert delivered > 10_000
    assert expired > 1000
