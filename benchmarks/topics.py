"""The cost of many topics: `python -m benchmarks.topics`, against the embedded broker in a process of its own.

The scenes have one row for each of many topics. A user notices the wait for new topics; the number of topics named in all
questions says how it grows.
"""

from __future__ import annotations

import argparse
import gc
import re
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from unittest.mock import patch

import pyarrow as pa

from spark_producer import Producer
from spark_producer.common.cluster import NO_LEADER
from spark_producer.sender import Metadata

SMALL_POOL = 1 << 20
"""The bytes of `buffer.memory` in the scene that measures the other memory of a producer."""

DEADLINE = 30.0
"""The seconds within which the broker must end."""


class NewTopics(NamedTuple):
    """One write to topics that did not exist before. `asked` is the number of topics named in all questions."""

    topics: int
    seconds: float
    asked: int
    kept_bytes: int


@contextmanager
def counted_questions() -> Iterator[list[int]]:
    """Yield a list to which each question adds the number of topics that it names."""
    names: list[int] = []
    request = Metadata.request

    def counting(self: Metadata, now: float, node: int = NO_LEADER) -> object:
        question = request(self, now, node)
        if question is not None:
            names.append(len(question.topics or ()))
        return question

    with patch.object(Metadata, "request", counting):
        yield names


@contextmanager
def broker(partitions: int = 1) -> Iterator[str]:
    """Run an embedded broker, whose new topics have `partitions` partitions, and yield its address."""
    command = [sys.executable, "-m", "spark_producer", "broker", "--port", "0", "--partitions", str(partitions)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"broker on (\S+),", process.stdout.readline())
            if found is None:
                raise RuntimeError("the embedded broker did not start: see above")
            yield found[1]
        finally:
            process.terminate()
            process.wait(DEADLINE)


def in_one_batch(topics: int, prefix: str, servers: str) -> NewTopics:
    """Send one batch with a row for each topic, and wait until all are acknowledged."""
    batch = pa.record_batch({"topic": [f"{prefix}-{number}" for number in range(topics)], "value": [b"x"] * topics})
    with counted_questions() as names, Producer({"bootstrap.servers": servers}) as producer:
        began = time.monotonic()
        producer.send_batch(batch)
        producer.flush()
        return NewTopics(topics, time.monotonic() - began, sum(names), 0)


def one_after_the_other(topics: int, prefix: str, servers: str) -> NewTopics:
    """Send one record to each topic, and measure what the producer keeps afterwards."""
    options = {"bootstrap.servers": servers, "buffer.memory": SMALL_POOL}
    with counted_questions() as names, Producer(options) as producer:
        producer.send(f"{prefix}-first", b"x").result()
        tracemalloc.start()
        began = time.monotonic()
        for number in range(topics):
            producer.send(f"{prefix}-{number}", b"x")
        producer.flush()
        seconds = time.monotonic() - began
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        return NewTopics(topics, seconds, sum(names), kept)


def main() -> None:
    """Print a line for each scene."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.topics", description="What many topics cost.")
    parser.add_argument("--topics", type=int, default=2_000)
    parser.add_argument("--repetitions", type=int, default=3)
    arguments = parser.parse_args()
    for number in range(arguments.repetitions):
        with broker() as servers:
            found = in_one_batch(arguments.topics, f"batch{number}", servers)
        print(f"{found.topics} new topics in one batch: {found.seconds:.2f} s, {found.asked} descriptions asked for")
    with broker() as servers:
        found = one_after_the_other(arguments.topics // 2, "single", servers)
    print(
        f"{found.topics} sends to new topics: {found.asked} descriptions asked for, {found.kept_bytes / 1e6:.1f} MB kept "
        f"({found.seconds:.1f} s, traced)"
    )


if __name__ == "__main__":
    main()
