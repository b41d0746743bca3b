"""The driver of a stream over many micro-batches: what it holds does not grow."""

from __future__ import annotations

import gc
import json
import threading
import tracemalloc
from pathlib import Path

import pytest

from spark_producer.broker import LocalBroker
from spark_producer.config import SourceOptions
from spark_producer.datasource.read.columns import default_columns
from spark_producer.datasource.read.stream_readers import LimitedStreamReader
from tests.unit.datasource.read.topics import fill, settings

WARM, BATCHES = 200, 2000


@pytest.mark.covers("RD21")
@pytest.mark.slow
@pytest.mark.usefixtures("untraced")
def test_threads_descriptors_and_memory_are_flat() -> None:
    with LocalBroker() as broker:
        broker.create_topic("t", 4)
        fill(broker, "t", dict.fromkeys(range(4), 1000))
        given = settings(broker, subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger="4", commitGroup="g")
        reader = LimitedStreamReader(given, default_columns(SourceOptions(subscribe="t")))
        first = at = reader.initialOffset()

        def play(batches: int) -> tuple[int, int, int]:
            """Threads, descriptors, and bytes of Python's objects after some micro-batches."""
            nonlocal at
            for _ in range(batches):
                end = json.loads(json.dumps(reader.latestOffset(at, reader.getDefaultReadLimit())))
                assert len(reader.partitions(at, end)) == (4 if end != at else 0)
                at = end if end != at else first
            gc.collect()
            return (
                threading.active_count(),
                len(list(Path("/proc/self/fd").iterdir())),
                tracemalloc.get_traced_memory()[0],
            )

        tracemalloc.start()
        try:
            threads, descriptors, held = play(WARM)
            later = play(BATCHES)
        finally:
            tracemalloc.stop()
            reader.stop()
        assert later[:2] == (threads, descriptors)
        assert later[2] - held < 200_000, "bytes for 2,000 micro-batches, of the broker in this process too"
