"""A worker's memory beside `buffer.memory` does not depend on the number of partitions that it fills."""

from __future__ import annotations

import subprocess
import sys

import pytest

from spark_producer.broker import LocalBroker
from spark_producer.datasource.write.worker import executor_memory
from tests.support.measured_task import IN_A_BATCH, ROWS

FIXED = 40 << 20
"""Bytes of the Arrow batches in hand, gathered, joined and split, and of the code that is not loaded before the first row."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("partitions", "buffer_memory"),
    [(1, 16 << 20), (1000, 16 << 20), (1000, executor_memory.MIN_BUFFER_MEMORY), (1000, 64 << 20)],
)
def test_a_worker_stays_within_its_buffer_memory_and_a_fixed_part(partitions: int, buffer_memory: int) -> None:
    with LocalBroker() as broker:
        broker.create_topic("t", partitions)
        command = [sys.executable, "-m", "tests.support.measured_task", broker.bootstrap_servers, "t"]
        command += [str(buffer_memory)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    records, grown = map(int, done.stdout.split())
    assert records == ROWS - IN_A_BATCH
    assert grown < buffer_memory + FIXED, f"{grown / (1 << 20):.0f} MiB"
