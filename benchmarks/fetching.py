"""The fetching engine alone, beside confluent-kafka's consumer: `python -m benchmarks.fetching`, with one real Kafka broker.

Each contender reads every record of a topic in a process of its own; the median of the rounds counts.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from spark_producer.common.cluster import TopicPartition
from spark_producer.consumer.offset_range import OffsetRange
from spark_producer.consumer.read_ranges import read_ranges
from spark_producer.consumer.settings import ALL_COLUMNS, FetchSettings
from spark_producer.kernel.arrays import buffer_of
from spark_producer.network import ConnectionSettings, parse_bootstrap_servers
from tests.support.kafka_cluster import KafkaCluster
from tests.support.kafka_node import KAFKA_4

PARTITIONS = 4
BYTES = 400 << 20
"""The bytes of values in each topic."""
SECONDS = 120.0
ROWS_AT_ONCE = 10_000


class Scene(NamedTuple):
    """A topic: the bytes of each value, and the codec of its batches."""

    value_bytes: int
    codec: str

    @property
    def topic(self) -> str:
        return f"fetched-{self.value_bytes}-{self.codec}"

    def records(self, total: int) -> int:
        return total // self.value_bytes // PARTITIONS * PARTITIONS


class Figures(NamedTuple):
    """One run: million records a second, CPU seconds a million records, MiB of memory at its highest."""

    rate: float
    cpu: float
    memory: float


SCENES = tuple(Scene(size, codec) for size in (100, 1000) for codec in ("none", "zstd", "lz4"))


def fill(servers: str, scene: Scene, total: int) -> None:
    """Write the records of a scene: half of each value is random, so that codecs have something to do."""
    from spark_producer import Producer

    random = np.random.default_rng(1)
    with Producer({"bootstrap.servers": servers, "compression.type": scene.codec}) as producer:
        for first in range(0, scene.records(total), ROWS_AT_ONCE):
            count = min(ROWS_AT_ONCE, scene.records(total) - first)
            body = np.full((count, scene.value_bytes), ord("x"), dtype=np.uint8)
            body[:, ::2] = random.integers(0, 256, (count, (scene.value_bytes + 1) // 2), dtype=np.uint8)
            offsets = np.arange(0, (count + 1) * scene.value_bytes, scene.value_bytes, dtype=np.int32)
            value = pa.Array.from_buffers(pa.binary(), count, [None, buffer_of(offsets), buffer_of(body)])
            partition = pa.array(np.arange(count) % PARTITIONS, pa.int32())
            producer.send_batch(pa.record_batch({"value": value, "partition": partition}), topic=scene.topic)


def read_ours(servers: str, scene: Scene, total: int, columns: frozenset[str], changes: dict[str, int]) -> int:
    """Read every record into columns, and return their number."""
    settings = FetchSettings(ConnectionSettings(tuple(parse_bootstrap_servers(servers))), **changes)  # type: ignore[arg-type]
    each = scene.records(total) // PARTITIONS
    ranges = [OffsetRange(TopicPartition(scene.topic, partition), 0, each) for partition in range(PARTITIONS)]
    return sum(batch.num_rows for _, batch in read_ranges(settings, ranges, columns))


def read_confluent(servers: str, scene: Scene, total: int) -> int:
    """Read every record by `consume`, and return their number."""
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as Assigned

    # By default it stops fetching for a second whenever 100,000 records wait.
    tuned = {"queued.min.messages": 1_000_000, "fetch.queue.backoff.ms": 10}
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "none", "enable.auto.commit": False, **tuned})
    consumer.assign([Assigned(scene.topic, partition, 0) for partition in range(PARTITIONS)])
    found, wanted, deadline = 0, scene.records(total), time.monotonic() + SECONDS
    while found < wanted and time.monotonic() < deadline:
        for message in consumer.consume(ROWS_AT_ONCE, 1.0):
            found += message.error() is None and message.value() is not None
    consumer.close()
    return found


CONTENDERS = ("pyproducer", "pyproducer, value only", "confluent-kafka")


def run_here(contender: str, servers: str, scene: Scene, total: int, changes: dict[str, int]) -> Figures:
    """Read the topic of a scene in this process."""
    if contender != "confluent-kafka":  # modules that a worker loads once
        read_ours(servers, scene, PARTITIONS * scene.value_bytes, frozenset(ALL_COLUMNS), changes)
    before, began = time.process_time(), time.monotonic()
    if contender == "confluent-kafka":
        count = read_confluent(servers, scene, total)
    else:
        columns = frozenset({"value"}) if contender.endswith("only") else frozenset(ALL_COLUMNS)
        count = read_ours(servers, scene, total, columns, changes)
    seconds, cpu = time.monotonic() - began, time.process_time() - before
    assert count == scene.records(total), f"{contender} read {count} of {scene.records(total)} records"
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Figures(count / seconds / 1e6, cpu / count * 1e6, memory)


def run(contender: str, servers: str, scene: Scene, total: int, changes: Sequence[str]) -> Figures:
    """Read the topic of a scene in a process of its own."""
    arguments = [contender, servers, str(scene.value_bytes), scene.codec, str(total), *changes]
    command = [sys.executable, "-m", "benchmarks.fetching", "--here", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(f"{contender}, {scene.topic}: {done.stderr[-2000:]}")
    return Figures(*json.loads(done.stdout))


def rows(servers: str, scenes: Sequence[Scene], total: int, rounds: int, changes: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a table, one scene after the other."""
    yield "| value, codec | contender | M records/s | CPU s/M | MiB |"
    yield "|---|---|--:|--:|--:|"
    for scene in scenes:
        fill(servers, scene, total)
        runs: dict[str, list[Figures]] = {contender: [] for contender in CONTENDERS}
        for _ in range(rounds):
            for contender, found in runs.items():
                found.append(run(contender, servers, scene, total, changes))
        for contender, found in runs.items():
            rate, cpu, memory = (statistics.median(column) for column in zip(*found, strict=True))
            yield f"| {scene.value_bytes} B, {scene.codec} | {contender} | {rate:.2f} | {cpu:.2f} | {memory:.0f} |"


def main() -> None:
    if sys.argv[1:2] == ["--here"]:
        contender, servers, value_bytes, codec, total, *changes = sys.argv[2:]
        changed = {name: int(number) for name, number in (each.split("=") for each in changes)}
        print(json.dumps(run_here(contender, servers, Scene(int(value_bytes), codec), int(total), changed)))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=BYTES, help="bytes of values in each topic")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scenes", nargs="*", default=[f"{each.value_bytes}-{each.codec}" for each in SCENES])
    parser.add_argument("--set", nargs="*", default=[], help="fields of FetchSettings, as partition_bytes=1048576")
    given = parser.parse_args()
    chosen = [each for each in SCENES if f"{each.value_bytes}-{each.codec}" in given.scenes]
    with KafkaCluster(KAFKA_4) as cluster:
        for scene in chosen:
            cluster.create_topic(scene.topic, PARTITIONS)
        for line in rows(cluster.bootstrap_servers, chosen, given.bytes, given.rounds, given.set):
            print(line, flush=True)


if __name__ == "__main__":
    main()
