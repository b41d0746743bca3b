"""What Spark's Python processes are told once: settings of the interpreter and of the C library that hold for a whole process.

Owns: these settings. Must not know: what the process does.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import itertools

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h of glibc

LARGEST_KEPT = 32 << 20
"""Bytes of an allocation; the most that glibc takes for M_MMAP_THRESHOLD."""

KEPT = 64 << 20
"""Bytes: half of what `buffer.memory` is at most by default."""


@functools.cache
def freeze_once() -> None:
    """Move everything imported out of the garbage collector's sight, once per process, after its first piece of work.

    PySpark's daemon collects after every task, and the walk over all modules is most of a small task's cost: 42 → 4 ms of
    CPU (measured). The planner and the commit process of a stream are no different. Once only: garbage made
    before a freeze is never collected.
    """
    gc.collect()
    gc.freeze()


_tasks = itertools.count(1)


def freeze_at_second_task() -> None:
    """Call where a task begins: the second one of a process freezes what the first one left, PySpark's own imports too.

    The end of the first task would be too early. When it is over PySpark packs its answer with `pa.array`, for which pyarrow
    imports pandas: 27,000 objects, and 13 ms of CPU for every later task of the worker; now it is below 1.
    """
    if next(_tasks) == 2:
        freeze_once()


@functools.cache
def keep_memory_once() -> None:
    """Let the C library keep up to `KEPT` freed bytes for the next allocation, instead of returning all large pieces.

    The batches that are filled before they are compressed, and what a codec makes of them, have other sizes each time. Pages
    that come anew from the kernel for each are 11 % of a worker's CPU with lz4, 7 % with zstd. Only glibc has these settings;
    they win over `MALLOC_*` variables of the environment.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGEST_KEPT)
        mallopt(_M_TRIM_THRESHOLD, KEPT)
