"""How much `buffer.memory` a Python worker of this application can have: the default where nobody has set it.

Owns: what Spark's configuration leaves to one worker, and the bounds of the default. Must not know: what is put into the memory.

Batches of many partitions share the pool, and brokers are paid by the batch: 1,000 partitions in 32 MiB are batches of 16 KiB,
and of 119 KiB, all that a task of a million rows of 100 B has for each, in 256. What Spark was asked for is a local property of
each task, so every task of an application finds the same.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from spark_producer.datasource.machine_memory import machine_memory

LEAST = 32 << 20
"""Kafka's own default, and ours where Spark's configuration leaves a worker less than `LEAST` needs, or nobody knows"""

MOST = 256 << 20
"""Bytes for full batches of 128 partitions. 4 million rows of 100 B in 4 tasks to 1,000 partitions: 1.6 times the rate
that 32 MiB give, and 1.5 times with 128 MiB (docs/benchmarks.md)"""

WORKER_OVERHEAD = (130 + 40) << 20
"""Bytes of a worker beside the pool: the interpreter with Arrow and PySpark, and rows in hand (docs/compatibility.md)"""

WORKER_ADDRESS_SPACE = (400 + 3 * 73 + 40) << 20
"""The same where the limit is one of address space, which `spark.executor.pyspark.memory` sets: 73 MiB for each of the threads"""

LOCAL_PART = 4
"""In local mode nothing is reserved for workers: of the memory of machine or container they may have this part, all together"""

_JVM_LEAST, _JVM_PART = 256 << 20, 20
"""Of an executor's overhead the JVM itself needs a twentieth of its heap, or 256 MiB"""

_SIZE = re.compile(r"(\d+)([bkmgtp]?)b?")
_UNITS = {unit: 1 << 10 * power for power, unit in enumerate("bkmgtp")}
_PYTHON = ("python", "r")

Read = Callable[[str], str | None]
"""A local property of the task by its name, None where there is none; Spark's configuration is among them"""


def default_buffer_memory(read: Read) -> int:
    """Bytes between `LEAST` and `MOST`: half of what a worker can have beside what it needs anyway."""
    try:
        room = _room(read)
    except (
        ValueError,
        ArithmeticError,
    ):  # a form that this module does not know, or no cores: Spark itself has checked it
        return LEAST
    return max(LEAST, min(room // 2, MOST))


def _room(read: Read) -> int:
    """Bytes that a worker can have for its pool, be it less than nothing."""
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
    return (_overhead(read, heap) - max(_JVM_LEAST, heap // _JVM_PART)) // slots - WORKER_OVERHEAD


def _overhead(read: Read, heap: int) -> int:
    """Bytes beside the heap, for everything that is not Java's (Spark: ResourceProfile, and the steps of its Kubernetes)."""
    given = read("spark.executor.memoryOverhead")
    if given is not None:
        return _bytes(given)
    usual = "0.4" if read("spark.kubernetes.resource.type") in _PYTHON else "0.1"
    factor = read("spark.executor.memoryOverheadFactor") or read("spark.kubernetes.memoryOverheadFactor") or usual
    return max(int(heap * float(factor)), _bytes(read("spark.executor.minMemoryOverhead") or "384m"))


def _cores(read: Read, master: str) -> int:
    """Of an executor; outside of YARN and Kubernetes it has all of its machine unless it is told."""
    given = read("resource.executor.cores") or read("spark.executor.cores")
    if given is None:
        return 1 if master.startswith(("yarn", "k8s")) else os.cpu_count() or 1
    return max(1, int(given))


def _bytes(text: str) -> int:
    """Spark's sizes: `512m`, `8GB`, and MiB where there is no unit."""
    found = _SIZE.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(f"{text!r} is no size")
    return int(found[1]) * _UNITS[found[2] or "m"]
