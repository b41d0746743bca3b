"""The scenes: each is played once to one engine, in a new directory, and gives its figures."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.broker_engines.load import Client, Waits, create_topic, fetch, produce, produce_together
from benchmarks.broker_engines.node import disk_used, running
from spark_producer.broker import BrokerSettings, LocalBroker

KIB: Final = 1024
MIB: Final = 1024 * 1024
PRODUCERS: Final = 8
FETCH: Final = MIB
"""The bytes that a reader asks for at a time."""
SLOW_FORCE_MS: Final = 5.0
"""Additional time of a force on a disk that is reached by a network."""
STARTS: Final = 20

Figures = dict[str, float]
Play = Callable[[str, Path, float], Figures]
"""Plays a scene to an engine in a directory; the last argument shortens it, 1.0 for the usual length."""


@dataclass(frozen=True)
class Scene:
    """A scene: what its `rate` counts, and whether less of it is better."""

    name: str
    title: str
    unit: str
    play: Play
    lower_is_better: bool = False


def _times(count: int, share: float) -> int:
    return max(2, int(count * share))


def _percentiles(waits: Waits) -> Figures:
    each = sorted(waits.each)
    return {"p50": each[len(each) // 2] * 1000, "p99": each[len(each) * 99 // 100] * 1000}


def small_produces(engine: str, directory: Path, share: float) -> Figures:
    """One producer, five batches of 1 KiB in flight."""
    count = _times(20_000, share)
    with running(engine, directory) as node:
        create_topic(node.port, 1)
        produce(node.port, 0, KIB, count // 10)
        cpu = node.cpu
        waits = produce(node.port, 0, KIB, count)
        return {"rate": count / waits.seconds, "cpu": (node.cpu - cpu) / count * 1e6, **_percentiles(waits)}


def unsynced(engine: str, directory: Path, share: float) -> Figures:
    """Eight producers, five batches of 32 KiB in flight each."""
    return _together(engine, directory, _times(800, share), None)


def durable(engine: str, directory: Path, share: float) -> Figures:
    """The same, and each batch is on the disk before it is acknowledged."""
    return _together(engine, directory, _times(250, share), 0.0)


def durable_slow_disk(engine: str, directory: Path, share: float) -> Figures:
    """The same, and a force takes 5 ms longer."""
    return _together(engine, directory, _times(50, share), SLOW_FORCE_MS)


def _together(engine: str, directory: Path, count: int, force_ms: float | None) -> Figures:
    with running(engine, directory, force_ms=force_ms) as node:
        create_topic(node.port, PRODUCERS)
        warm_up = max(2, count // 10)
        produce(node.port, 0, 32 * KIB, warm_up)
        cpu = node.cpu
        waits = produce_together(node.port, PRODUCERS, 32 * KIB, count)
        size = PRODUCERS * count / 32  # MiB
        used = {"disk": disk_used(directory) / (size + warm_up / 32), "memory": node.memory}
        return {"rate": size / waits.seconds, "cpu": (node.cpu - cpu) / size * 1e3, **_percentiles(waits), **used}


def catch_up(engine: str, directory: Path, share: float) -> Figures:
    """A reader begins at the start of what a broker of an earlier life has kept: batches of 32 KiB."""
    return _catch_up(engine, directory, 32 * KIB, _times(256, share))


def catch_up_small(engine: str, directory: Path, share: float) -> Figures:
    """The same with batches of 1 KiB."""
    return _catch_up(engine, directory, KIB, _times(24, share))


def catch_up_durable(engine: str, directory: Path, share: float) -> Figures:
    """The same with batches of 32 KiB, each of which was on the disk before it was acknowledged."""
    return _catch_up(engine, directory, 32 * KIB, _times(64, share), 0.0)


def _catch_up(engine: str, directory: Path, size: int, mebibytes: int, force_ms: float | None = None) -> Figures:
    count = mebibytes * MIB // size
    with running(engine, directory, force_ms=force_ms) as node:
        create_topic(node.port, 1)
        produce(node.port, 0, size, count)
    with running(engine, directory, force_ms=force_ms) as node, Client(node.port) as client:
        cpu, began, offset, taken = node.cpu, time.perf_counter(), 0, 0
        while offset < count:
            offset, some = fetch(client, 0, offset, FETCH)
            taken += some
        seconds = time.perf_counter() - began
        return {"rate": taken / MIB / seconds, "cpu": (node.cpu - cpu) / (taken / MIB) * 1e3}


def tail(engine: str, directory: Path, share: float) -> Figures:
    """32 batches of 32 KiB are written, then read by a reader that has read all before them; only reading is timed."""
    return _tail(engine, directory, _times(150, share), None)


def tail_durable(engine: str, directory: Path, share: float) -> Figures:
    """The same, and each batch is on the disk before it is acknowledged."""
    return _tail(engine, directory, _times(40, share), 0.0)


def _tail(engine: str, directory: Path, times: int, force_ms: float | None) -> Figures:
    with running(engine, directory, force_ms=force_ms) as node, Client(node.port) as client:
        create_topic(node.port, 1)
        offset, taken, seconds = 0, 0, 0.0
        for _ in range(times):
            produce(node.port, 0, 32 * KIB, 32)
            began, end = time.perf_counter(), offset + 32
            while offset < end:
                offset, some = fetch(client, 0, offset, FETCH)
                taken += some
            seconds += time.perf_counter() - began
        return {"rate": taken / MIB / seconds}


def starting(engine: str, directory: Path, share: float) -> Figures:
    """A `LocalBroker` with one topic is started and closed, in this process."""
    took = []
    for _ in range(_times(STARTS, share)):
        cpu, began = time.process_time(), time.perf_counter()
        with LocalBroker(settings=BrokerSettings(storage_engine=engine)) as broker:
            broker.create_topic("t")
        took.append((time.perf_counter() - began, time.process_time() - cpu))
    middle = sorted(took)[len(took) // 2]
    return {"rate": middle[0] * 1000, "cpu": middle[1] * 1000}


def restarting(engine: str, directory: Path, share: float) -> Figures:
    """A broker whose earlier life has kept 40,000 batches, and has ended well, is started until it answers."""
    return _restarting(engine, directory, share, None, kills=False)


def restarting_killed(engine: str, directory: Path, share: float) -> Figures:
    """The same, and the earlier life was killed."""
    return _restarting(engine, directory, share, None, kills=True)


def restarting_killed_durable(engine: str, directory: Path, share: float) -> Figures:
    """The same, and each batch was on the disk before it was acknowledged."""
    return _restarting(engine, directory, share / 10, 0.0, kills=True)


def _restarting(engine: str, directory: Path, share: float, force_ms: float | None, *, kills: bool) -> Figures:
    with running(engine, directory, force_ms=force_ms) as node:
        create_topic(node.port, 1)
        produce(node.port, 0, KIB, _times(40_000, share))
        if kills:
            node.kill()
    began = time.perf_counter()
    with running(engine, directory, force_ms=force_ms) as node, Client(node.port) as client:
        fetch(client, 0, 0, FETCH)
        return {"rate": (time.perf_counter() - began) * 1000, "cpu": node.cpu * 1000, "memory": node.memory}


SCENES: Final[Mapping[str, Scene]] = {
    scene.name: scene
    for scene in (
        Scene("small", "Produces of 1 KiB, one producer", "Produces/s", small_produces),
        Scene("unsynced", "32 KiB, 8 producers, not forced", "MiB/s", unsynced),
        Scene("durable", "32 KiB, 8 producers, forced", "MiB/s", durable),
        Scene("durable-slow", "32 KiB, 8 producers, forced, a force takes 5 ms longer", "MiB/s", durable_slow_disk),
        Scene("catch-up", "Catching up, Fetches of 1 MiB, batches of 32 KiB", "MiB/s", catch_up),
        Scene("catch-up-small", "Catching up, Fetches of 1 MiB, batches of 1 KiB", "MiB/s", catch_up_small),
        Scene("tail", "Reading the end, Fetches of 1 MiB, batches of 32 KiB", "MiB/s", tail),
        Scene("catch-up-durable", "Catching up, batches of 32 KiB, forced", "MiB/s", catch_up_durable),
        Scene("tail-durable", "Reading the end, batches of 32 KiB, forced", "MiB/s", tail_durable),
        Scene("start", "`LocalBroker`: start, one topic, close", "ms", starting, lower_is_better=True),
        Scene("restart", "Start with 40,000 batches of 1 KiB", "ms", restarting, lower_is_better=True),
        Scene("restart-killed", "The same, after SIGKILL", "ms", restarting_killed, lower_is_better=True),
        Scene(
            "restart-killed-durable",
            "Start with 4,000 batches of 1 KiB, forced, after SIGKILL",
            "ms",
            restarting_killed_durable,
            lower_is_better=True,
        ),
    )
}
