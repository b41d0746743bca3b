"""The comparisons of KIP-480 and KIP-794 as scenes of the simulator."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from benchmarks.partitioning.simulation.simulator import MakeRule, Outcome, Scene, Simulation
from spark_producer.partitioner import LoadView
from spark_producer.partitioner.round_robin import RoundRobinPartitioner
from spark_producer.partitioner.sticky import StickyPartitioner
from spark_producer.partitioner.topic import RowRule
from spark_producer.partitioner.uniform_sticky import UniformStickyPartitioner

SLOW_NODE = 0
MEBIBYTE = 1 << 20


def round_robin(load: LoadView, batch_size: int, chance: random.Random) -> RowRule:
    """Return the default rule up to Kafka 2.3."""
    return RoundRobinPartitioner(random_start=True, choose=chance)


def sticky(load: LoadView, batch_size: int, chance: random.Random) -> RowRule:
    """Return the default rule of Kafka 2.4 to 3.2 (KIP-480)."""
    return StickyPartitioner(batch_size, load=load, choose=chance)


def uniform(load: LoadView, batch_size: int, chance: random.Random) -> RowRule:
    """Return the default rule since 3.3 (KIP-794), but without looking at queues."""
    return UniformStickyPartitioner(batch_size, adaptive=False, load=load, choose=chance)


def adaptive(load: LoadView, batch_size: int, chance: random.Random) -> RowRule:
    """Return the default rule since 3.3, as it is."""
    return UniformStickyPartitioner(batch_size, load=load, choose=chance)


class Variant(NamedTuple):
    """One row of a table."""

    name: str
    rule: MakeRule
    linger: float = 0.005
    availability_timeout: float = 0.0


KIP_794_VARIANTS = (
    Variant("round robin", round_robin),
    Variant("sticky (KIP-480)", sticky, linger=0.0),
    Variant("uniform sticky", uniform),
    Variant("uniform sticky, adaptive", adaptive),
    Variant("adaptive, availability timeout 5 ms", adaptive, availability_timeout=0.005),
)
"""Each rule has the linger of the Kafka version whose default it was: 0 up to 3.9, 5 ms since 4.0."""


def kip_794_scene(megabytes_per_second: float = 1.0, seconds: float = 60.0) -> Scene:
    """Return a scene with three brokers of one partition each, one of which holds each answer back for 20 ms, one by one.

    The records have 512 bytes.
    """
    rate = megabytes_per_second * MEBIBYTE / 512
    return Scene((0, 1, 2), rate=rate, seconds=seconds, record_bytes=512, held={SLOW_NODE: 0.020})


def kip_794(megabytes_per_second: float = 1.0, seconds: float = 60.0) -> dict[str, Outcome]:
    """Simulate the slow broker under each rule."""
    scene = kip_794_scene(megabytes_per_second, seconds)
    return {
        variant.name: Simulation(
            replace(scene, linger=variant.linger, availability_timeout=variant.availability_timeout), variant.rule
        ).run()
        for variant in KIP_794_VARIANTS
    }


class Comparison(NamedTuple):
    """Round robin and sticky in one scene of KIP-480."""

    partitions: int
    linger: float
    rate: float
    round_robin: Outcome
    sticky: Outcome

    @property
    def p99_ratio(self) -> float:
        """The p99 of round robin divided by that of sticky."""
        return self.round_robin.percentile(0.99) / self.sticky.percentile(0.99)


def kip_480_scene(partitions: int, linger: float, rate: float = 10_000.0, seconds: float = 3.0) -> Scene:
    """Return a scene with three producers, three healthy brokers and no keys.

    `rate` is in records of 512 bytes per second and producer. They come in bursts every 10 ms, as from a load generator that
    sleeps to keep its rate.
    """
    leaders = tuple(partition % 3 for partition in range(partitions))
    return Scene(leaders, rate=rate, seconds=seconds, record_bytes=512, producers=3, linger=linger, group=0.01)


def kip_480(rate: float = 10_000.0) -> Iterator[Comparison]:
    """Simulate 16, 64 and 128 partitions with linger 0 and 1000 ms."""
    for linger, seconds in ((0.0, 2.0), (1.0, 5.0)):
        for partitions in (16, 64, 128):
            scene = kip_480_scene(partitions, linger, rate, seconds)
            yield Comparison(
                partitions, linger, rate, Simulation(scene, round_robin).run(), Simulation(scene, sticky).run()
            )
