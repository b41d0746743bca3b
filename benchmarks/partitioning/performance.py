"""One run of a producer at a steady rate, ours or Java's, in a process of its own whose output is parsed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from benchmarks.partitioning.simulation.recorded import PERCENTILES, RECORD_BYTES, Measured
from tests.support.kafka_node import KAFKA_4, KAFKA_39, run_tool

ROOT = Path(__file__).resolve().parents[2]
JAVA = "org.apache.kafka.clients.producer."
COMMON = {"batch.size": "16384", "linger.ms": "5", "acks": "all"}
"""Kafka's defaults since 4.0, which must be set for our producer."""
OLD_STICKY = {"partitioner.class": JAVA + "internals.DefaultPartitioner"}
"""The rule of KIP-480, which Kafka's clients have up to 3.9."""


class Variant(NamedTuple):
    """A partitioner under Java's name and settings, which our producer takes too. `java` is the version that still has it."""

    name: str
    settings: Mapping[str, str]
    java: str = KAFKA_4


class Load(NamedTuple):
    """Records of 512 bytes at `rate` per second for `warmup` + `seconds`; those of the warm-up are not measured.

    Kafka 3.9's ProducerPerformance cannot leave out any, and measures all.
    """

    rate: float
    seconds: float
    warmup: float = 2.0

    @property
    def records(self) -> int:
        """The number of all records, those of the warm-up included."""
        return int(self.rate * (self.warmup + self.seconds))

    @property
    def timeout_s(self) -> float:
        """The seconds after which a run has failed."""
        return 3 * (self.warmup + self.seconds) + 120


def run_ours(servers: str, topic: str, variant: Variant, load: Load) -> Measured:
    """Run with pyproducer."""
    settings = {"bootstrap.servers": servers, **COMMON, **variant.settings}
    warmup = int(load.rate * load.warmup)
    given = {"topic": topic, "records": load.records, "warmup": warmup, "rate": load.rate, "size": RECORD_BYTES}
    command = [sys.executable, "-m", "benchmarks.partitioning.paced", json.dumps({**given, "settings": settings})]
    done = subprocess.run(command, capture_output=True, text=True, timeout=load.timeout_s, cwd=ROOT, check=False)
    if done.returncode:
        raise RuntimeError(f"{variant.name}: {done.stderr}")
    output = json.loads(done.stdout)
    waits = {name: output[name] for name in PERCENTILES}
    return Measured(
        variant.name,
        "pyproducer",
        output["megabytes"],
        output["mean"],
        waits,
        output["requests"],
        output["batch_bytes"],
    )


def run_java(servers: str, topic: str, variant: Variant, load: Load) -> Measured:
    """Run with Kafka's ProducerPerformance."""
    settings = {"bootstrap.servers": servers, **COMMON, **variant.settings}
    arguments = ["--topic", topic, "--num-records", str(load.records), "--record-size", str(RECORD_BYTES)]
    arguments += ["--throughput", str(int(load.rate)), "--print-metrics"]
    if variant.java != KAFKA_39:
        arguments += ["--warmup-records", str(int(load.rate * load.warmup))]
    arguments += ["--producer-props", *(f"{key}={value}" for key, value in settings.items())]
    main = "org.apache.kafka.tools.ProducerPerformance"
    with tempfile.TemporaryDirectory() as home:
        output = run_tool(variant.java, Path(home), main, arguments, load.timeout_s)
    return parse_performance(output)._replace(variant=variant.name, producer=f"Kafka {variant.java}")


def parse_performance(output: str) -> Measured:
    """Parse the last summary of ProducerPerformance's output, which is that of the steady state, and its metrics.

    Raises:
        ValueError: there is no summary, or a metric is missing.
    """
    pattern = (
        r"\(([\d.]+) MB/sec\), ([\d.]+) ms avg latency, [\d.]+ ms max latency, "
        r"(\d+) ms 50th, (\d+) ms 95th, (\d+) ms 99th, (\d+) ms 99\.9th"
    )
    lines = re.findall(pattern, output)
    if not lines:
        raise ValueError(f"ProducerPerformance printed no summary:\n{output[-2000:]}")
    megabytes, mean, *percentiles = (float(number) for number in lines[-1])
    waits = dict(zip(PERCENTILES, percentiles, strict=True))
    return Measured("", "", megabytes, mean, waits, _metric(output, "request-total"), _metric(output, "batch-size-avg"))


def _metric(output: str, name: str) -> float:
    found = re.search(rf"^producer-metrics:{name}:\S* *: *([\d.]+)", output, re.MULTILINE)
    if found is None:
        raise ValueError(f"ProducerPerformance printed no {name}:\n{output[-2000:]}")
    return float(found[1])
