"""From Kafka to Kafka exactly once: `jobs/late_flights.py` is killed at random moments, and every late flight is there once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from spark_producer import Producer
from tests.support.kafka_cluster import KafkaCluster
from tests.support.read_back import read_topic
from tests.support.read_confluent import end_offsets
from tests.support.waiting import wait_until

JOB = Path(__file__).parents[2] / "jobs" / "late_flights.py"
ROWS, PARTITIONS, MAX_OFFSETS = 60_000, 4, 4_000
KILLS_OF_CAMPAIGN = 25
MAX_SECONDS = 240.0
AFTER_PROGRESS = 2.5
"""Maximum seconds from a run's first record in the target topic to its kill: several micro-batches."""

GROUP = "late-flights"


def flights(rows: int) -> Iterator[pa.RecordBatch]:
    """Every third flight is late; its number is in the key."""
    for first in range(0, rows, 10_000):
        numbers = range(first, min(first + 10_000, rows))
        values = [json.dumps({"flight": number, "dep_delay": 20 if number % 3 == 0 else 2}) for number in numbers]
        yield pa.record_batch({"key": [str(number) for number in numbers], "value": values})


@contextmanager
def running(servers: str, home: Path, source: str, target: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the job in a process group of its own, which is killed at the end."""
    command = [sys.executable, str(JOB), "--bootstrap-servers", servers, "--source", source, "--target", target]
    command += ["--checkpoint", str(home / "checkpoint"), "--max-offsets", str(MAX_OFFSETS), "--commit-group", GROUP]
    scratch = home / "scratch"
    scratch.mkdir(exist_ok=True)
    environment = os.environ | {"TMPDIR": str(scratch), "SPARK_LOCAL_DIRS": str(scratch)}
    environment |= {"PYSPARK_SUBMIT_ARGS": "--master local[2] --conf spark.ui.enabled=false pyspark-shell"}
    with (home / "job.log").open("ab") as log:
        job = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=environment)
    try:
        yield job
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()


def written(servers: str, target: str) -> int:
    return sum(end_offsets(servers, target).values())


def kill_at_random(servers: str, home: Path, source: str, target: str, choose: random.Random) -> bool:
    """Run the job until it has written something more, and kill it a moment later. Return whether it was still running."""
    before = written(servers, target)
    with running(servers, home, source, target) as job:
        wait_until(
            lambda: job.poll() is not None or written(servers, target) > before,
            "a record of this run",
            seconds=MAX_SECONDS,
            pause=0.02,
            more=lambda: (home / "job.log").read_text(errors="replace")[-3000:],
        )
        time.sleep(choose.uniform(0, AFTER_PROGRESS))  # the test varies the moment of the kill
        return job.poll() is None


def play(servers: str, create_topic: Callable[[str, int], None], home: Path, kills: int, seed: int) -> int:
    """Kill the job `kills` times at most, let it end, and compare; return how often it was killed."""
    source, target = f"flights-{seed}", f"late-{seed}"
    for topic in (source, target):
        create_topic(topic, PARTITIONS)
    with Producer({"bootstrap.servers": servers}) as producer:
        for batch in flights(ROWS):
            producer.send_batch(batch, topic=source)
    choose, killed = random.Random(seed), 0
    for _ in range(kills):
        killed += kill_at_random(servers, home, source, target, choose)
    with running(servers, home, source, target) as job:
        assert job.wait(MAX_SECONDS) == 0, (home / "job.log").read_text(errors="replace")[-3000:]
    found = Counter(row.key for row in read_topic(servers, target, isolation="read_committed"))
    assert found == Counter(str(number).encode() for number in range(0, ROWS, 3))
    return killed


@pytest.mark.spark
@pytest.mark.covers("RD10")
@pytest.mark.parametrize("kills", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_late_flights_are_there_once_after_kills(kafka_4: KafkaCluster, tmp_path: Path, kills: int) -> None:
    assert play(kafka_4.bootstrap_servers, kafka_4.create_topic, tmp_path, kills, seed=-kills) == kills


@pytest.mark.spark
@pytest.mark.campaign
@pytest.mark.timeout(3600)  # every wait within has its own deadline
def test_late_flights_are_there_once_after_many_kills(kafka_4: KafkaCluster, tmp_path: Path) -> None:
    rounds = 5
    for seed in range(2, 2 + rounds):
        home = tmp_path / str(seed)
        home.mkdir()
        assert play(kafka_4.bootstrap_servers, kafka_4.create_topic, home, KILLS_OF_CAMPAIGN // rounds, seed) > 0
