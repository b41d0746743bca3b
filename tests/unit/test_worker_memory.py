"""What a worker needs beside `buffer.memory` does not depend on how many partitions it fills."""

from __future__ import annotations

import subprocess
import sys

import pytest

from spark_producer.broker import LocalBroker
from tests.support.measured_task import BUFFER_MEMORY, IN_A_BATCH, ROWS

FIXED = 40 << 20
"""Bytes of the Arrow batches in hand, gathered, joined and split, and of the code that is not loaded before the first row."""


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [1, 1000])
def test_a_worker_stays_within_its_buffer_memory_and_a_fixed_part(partitions: int) -> None:
    with LocalBroker() as broker:
        broker.create_topic("t", partitions)
        command = [sys.executable, "-m", "tests.support.measured_task", broker.bootstrap_servers, "t"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    records, grown = map(int, done.stdout.split())
    assert records == ROWS - IN_A_BATCH
    assert grown < BUFFER_MEMORY + FIXED, f"{grown / (1 << 20):.0f} MiB"
