"""The default of `buffer.memory` in a Python worker: the memory that Spark's configuration leaves to one worker.

The batches of all partitions share the pool, and a broker's cost is per batch. With 1,000 partitions a pool of 32 MiB gives
batches of 16 KiB. A pool of 256 MiB gives batches of 119 KiB, which is all that a task of a million rows of 100 B has for each
partition. Each task has Spark's configuration as its local properties, so every task of an application finds the same default.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from spark_producer.datasource.write.worker.cgroup_memory import machine_memory

MIN_BUFFER_MEMORY = 32 << 20
"""Kafka's own default in bytes. It is the default here too if Spark's configuration leaves less, or cannot be read."""

MAX_BUFFER_MEMORY = 256 << 20
"""Bytes for full batches of 128 partitions. For 4 million rows of 100 B in 4 tasks to 1,000 partitions the rate is 1.6 times
that of 32 MiB; with 128 MiB it is 1.5 times (docs/benchmarks.md)."""

WORKER_OVERHEAD = (130 + 40) << 20
"""Bytes that a worker needs beside the pool, for the interpreter with Arrow and PySpark, and for the rows that it is writing
(docs/options.md, Memory of a worker)."""

WORKER_ADDRESS_SPACE = (400 + 3 * 73 + 40) << 20
"""The same under a limit of address space, which `spark.executor.pyspark.memory` sets: 73 MiB of it are for each thread."""

LOCAL_PART = 4
"""In local mode Spark reserves nothing for workers. All workers together may have one part in `LOCAL_PART` of the memory of the
machine or container."""

_MIN_JVM_BYTES, _JVM_FRACTION = 256 << 20, 20
"""The JVM's part of an executor's overhead: a twentieth of its heap, and at least 256 MiB."""

_SIZE = re.compile(r"(\d+)([bkmgtp]?)b?")
_UNITS = {unit: 1 << 10 * power for power, unit in enumerate("bkmgtp")}
_PYTHON = ("python", "r")

Read = Callable[[str], str | None]
"""Returns a local property of the task by its name, or None. Spark's configuration is among these properties."""


def default_buffer_memory(read: Read) -> int:
    """Return half of the bytes that are left to a worker beside its needs, from `MIN_BUFFER_MEMORY` to `MAX_BUFFER_MEMORY`."""
    try:
        remaining = _remaining_bytes(read)
    except (
        ValueError,
        ArithmeticError,
    ):  # a value has an unknown form, or there are no cores; Spark itself has checked the values
        return MIN_BUFFER_MEMORY
    return max(MIN_BUFFER_MEMORY, min(remaining // 2, MAX_BUFFER_MEMORY))


def _remaining_bytes(read: Read) -> int:
    """Return the bytes that a worker has left for its pool; the number may be negative."""
    master = read("spark.master") or ""
    python = read("resource.pyspark.memory") or read("spark.executor.pyspark.memory")
    if python is not None:
        return _bytes(python) // _cores(read, master) - WORKER_ADDRESS_SPACE
    if master == "local" or master.startswith("local["):
        threads = re.match(r"local\[(\d+)", master)
        slots = 1 if master == "local" else int(threads[1]) if threads else os.cpu_count() or 1
        return machine_memory() // LOCAL_PART // slots - WORKER_OVERHEAD
    if not master:
        return 0
    slots = max(1, _cores(read, master) // int(read("spark.task.cpus") or "1"))
    heap = _bytes(read("spark.executor.memory") or "1g")
    return (_overhead(read, heap) - max(_MIN_JVM_BYTES, heap // _JVM_FRACTION)) // slots - WORKER_OVERHEAD


def _overhead(read: Read, heap: int) -> int:
    """Return the bytes that an executor has beside the heap (Spark's ResourceProfile, and its feature steps for Kubernetes)."""
    given = read("spark.executor.memoryOverhead")
    if given is not None:
        return _bytes(given)
    usual = "0.4" if read("spark.kubernetes.resource.type") in _PYTHON else "0.1"
    factor = read("spark.executor.memoryOverheadFactor") or read("spark.kubernetes.memoryOverheadFactor") or usual
    return max(int(heap * float(factor)), _bytes(read("spark.executor.minMemoryOverhead") or "384m"))


def _cores(read: Read, master: str) -> int:
    """Return the cores of an executor: the setting, or its default, which is all cores of the machine except on YARN and
    Kubernetes."""
    given = read("resource.executor.cores") or read("spark.executor.cores")
    if given is None:
        return 1 if master.startswith(("yarn", "k8s")) else os.cpu_count() or 1
    return max(1, int(given))


def _bytes(text: str) -> int:
    """Return the bytes of one of Spark's sizes (`512m`, `8GB`), which is in MiB if it has no unit."""
    found = _SIZE.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(f"{text!r} is not a size")
    return int(found[1]) * _UNITS[found[2] or "m"]
