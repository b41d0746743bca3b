"""A task in a process of its own, which reports how much memory it took:
`python -m tests.support.measured_task SERVERS TOPIC BYTES`.

Owns: the rows, the measure. Must not know: what is too much.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_producer.config import SinkOptions, producer_config
from spark_producer.datasource.write.task_settings import TaskSettings
from spark_producer.datasource.write.worker import task

ROWS, IN_A_BATCH = 1_500_000, 10_000
"""Rows of 100 bytes and more, 170 MB in all, as Spark hands them over."""


def arrow_batches() -> Iterator[pa.RecordBatch]:
    """All rows, each with a key of its own."""
    for first in range(0, ROWS, IN_A_BATCH):
        keys = pc.cast(pa.array(np.arange(first, first + IN_A_BATCH)), pa.string())
        yield pa.record_batch({"key": keys, "value": pc.ascii_rpad(keys, 100)})


def memory(kind: str) -> int:
    """Bytes of this process: `VmRSS` now, `VmHWM` at most so far."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith(f"{kind}:"))


def main(servers: str, topic: str, buffer_memory: str) -> None:
    """Write the rows; print the records written, and the bytes that the process grew by."""
    config = producer_config({"bootstrap.servers": servers, "buffer.memory": buffer_memory})
    settings = TaskSettings(config, SinkOptions(topic=topic))
    batches = arrow_batches()
    first = next(batches)
    before = memory("VmRSS")
    del first
    report = task.write_task(settings, batches)
    print(report.report.records, memory("VmHWM") - before)


if __name__ == "__main__":
    main(*sys.argv[1:])
