"""The price of dead letters where no row is bad, and where some are: `python -m benchmarks.dead_letters`.

It measures the CPU of the task's thread, which checks, places and encodes rows, in front of an embedded broker. In each round
every scene runs once, one after the other; the figures are medians of the rounds, and of their ratios to the first scene.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks.machine import kernel_facts
from spark_producer.broker import LocalBroker
from spark_producer.config import ProducerConfig, SinkOptions, producer_config
from spark_producer.datasource.write.dead_letters.letters import DeadLetters
from spark_producer.datasource.write.dead_letters.records import LetterOrigin
from spark_producer.datasource.write.worker.task_writer import TaskWriter
from spark_producer.producer import Producer

ROWS, BATCH_ROWS, BAD_EVERY = 400_000, 20_000, 1000
TOPIC, DEAD = "flights", "dead"


class Scene(NamedTuple):
    """Whether dead letters are on, and whether each thousandth row is bad."""

    name: str
    dead_letters: bool
    bad: bool


SCENES = (
    Scene("off", False, False),
    Scene("off, once more", False, False),
    Scene("on, no bad row", True, False),
    Scene("on, each 1,000th row has a bad partition", True, True),
)


class Cost(NamedTuple):
    """Nanoseconds of the task's thread for a row, and what part of those of the first scene that is."""

    nanoseconds: float
    ratio: float


def batches(bad: bool) -> list[pa.RecordBatch]:
    """The rows: keys and values of 100 bytes together, and a partition where the scene has bad ones."""
    random = np.random.default_rng(7)
    found = []
    for _ in range(ROWS // BATCH_ROWS):
        columns: dict[str, Any] = {
            "key": pa.array([b"%09d" % number for number in random.integers(0, 10**9, BATCH_ROWS)], pa.binary()),
            "value": pa.array([random.bytes(91) for _ in range(BATCH_ROWS)], pa.binary()),
        }
        if bad:
            columns["partition"] = pa.array(np.where(np.arange(BATCH_ROWS) % BAD_EVERY, 0, -1), pa.int32())
        found.append(pa.RecordBatch.from_pydict(columns))
    return found


def once(config: ProducerConfig, scene: Scene, rows: list[pa.RecordBatch], producer: Producer) -> float:
    """Write all rows as a task does; return the seconds of this thread."""
    sink = SinkOptions(topic=TOPIC, dead_letter_topic=DEAD if scene.dead_letters else None)
    letters = DeadLetters(producer, sink, LetterOrigin(0, 0, "batch write")) if scene.dead_letters else None
    task = TaskWriter(producer, sink, letters=letters)
    began = time.thread_time()
    for batch in rows:
        task.send(batch)
    took = time.thread_time() - began
    task.flush()
    return took


def measure(rounds: int, warm: int = 1) -> dict[str, Cost]:
    """Return what each scene costs."""
    rows: dict[bool, list[pa.RecordBatch]] = {bad: batches(bad) for bad in (False, True)}
    seconds: dict[str, list[float]] = {scene.name: [] for scene in SCENES}
    with LocalBroker() as broker:
        broker.create_topic(TOPIC, 4)
        broker.create_topic(DEAD, 1)
        config = producer_config({"bootstrap.servers": broker.bootstrap_servers, "buffer.memory": 256 << 20})
        with Producer(config) as producer:
            for number in range(warm + rounds):
                for scene in SCENES:
                    took = once(config, scene, rows[scene.bad], producer)
                    if number >= warm:
                        seconds[scene.name].append(took)
    first = seconds[SCENES[0].name]
    return {
        name: Cost(
            statistics.median(taken) / ROWS * 1e9,
            statistics.median(mine / base for mine, base in zip(taken, first, strict=True)),
        )
        for name, taken in seconds.items()
    }


def render(costs: dict[str, Cost], rounds: int) -> str:
    """Return the page."""
    lines = [
        "# What dead letters cost",
        "",
        "| dead letters | ns a row | of the first |",
        "|---|--:|--:|",
    ]
    lines += [f"| {name} | {cost.nanoseconds:.1f} | {cost.ratio:.3f} |" for name, cost in costs.items()]
    lines += [
        "",
        "CPU of the task's thread for a row of 100 bytes, to four partitions by key, 20,000 rows at a time: checks,",
        "partitioning, encoding. Each scene is compared with the first one of the same round.",
        "",
        f"Made by `python -m benchmarks.dead_letters --rounds {rounds} --out docs/benchmarks_dead_letters.md`:",
        "",
        *kernel_facts(),
    ]
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None, say: Callable[[str], object] = sys.stdout.write) -> None:
    """Measure, and print the page or write it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dead_letters", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, help="file of the page; else it is printed")
    given = parser.parse_args(arguments)
    page = render(measure(given.rounds), given.rounds)
    if given.out is None:
        say(page)
    else:
        given.out.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
