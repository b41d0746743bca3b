"""A worker that forks makes a producer of its own, whatever lock was held."""

from __future__ import annotations

import subprocess
import sys

import pytest

from spark_producer.broker import LocalBroker
from tests.support.read_back import read_topic

CALLS = ("send_batch", "send_table", "send", "flush", "metrics", "take_report", "partition_count")


@pytest.mark.slow
def test_a_forked_child_is_refused_at_once_and_the_worker_makes_a_new_producer() -> None:
    with LocalBroker() as broker:
        broker.create_topic("t", 1)
        command = [sys.executable, "-W", "error", "-m", "tests.support.forked", broker.bootstrap_servers, "t"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
        values = [row.value for row in read_topic(broker.bootstrap_servers, "t", timeout=20)]
    refused = [f"refused {name}" for name in CALLS]
    expected = [*refused, "failed True", "with", "closed", "written 1", "child 0", "written 1"]
    assert done.stdout.splitlines() == expected, done.stderr
    assert values == [b"before", b"child", b"after"]
