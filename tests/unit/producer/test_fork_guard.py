"""A producer in a forked child: it says so at once, whatever lock was held, and the worker makes another."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from spark_producer.broker import LocalBroker
from spark_producer.errors import IllegalState
from spark_producer.producer.fork_guard import forbid_after_fork, is_forked
from tests.support.read_back import read_topic

CALLS = ("send_batch", "send_table", "send", "flush", "metrics", "take_report", "partition_count")


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


def test_only_another_process_is_refused() -> None:
    @forbid_after_fork("call")
    class Made:
        def __init__(self, process: int) -> None:
            self.process = process

        def call(self, number: int, *, more: int) -> int:
            """Documented."""
            return number + more

    here, elsewhere = Made(os.getpid()), Made(1)
    assert (here.call(1, more=2), is_forked(here), is_forked(elsewhere)) == (3, False, True)
    assert Made.call.__doc__ == "Documented."
    with pytest.raises(IllegalState, match=r"made in process 1, .* make one in each process"):
        elsewhere.call(1, more=2)
