"""Settings of the interpreter and of the C library, which each of Spark's Python processes gets once."""

from __future__ import annotations

import ctypes
import functools
import gc
import itertools

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h of glibc

MAX_KEPT_BYTES = 32 << 20
"""Maximum size in bytes of an allocation that is kept; it is glibc's maximum for M_MMAP_THRESHOLD."""

KEPT = 64 << 20
"""Maximum bytes that are kept: a quarter of the largest default of `buffer.memory`."""


@functools.cache
def freeze_once() -> None:
    """Exclude everything imported from garbage collection, once per process, after its first piece of work.

    PySpark's daemon collects after every task, and the walk over all modules is most of a small task's cost: without it a task
    takes 4 ms of CPU instead of 42 (measured). The planner and the commit process of a stream are no different. It is done
    only once, since garbage made before a freeze is never collected.
    """
    gc.collect()
    gc.freeze()


_tasks = itertools.count(1)


def gc_freeze_on_second_task() -> None:
    """Freeze at the start of a process's second task what the first one left; call it at the start of every task.

    The end of the first task would be too early: after it PySpark packs the answer with `pa.array`, for which pyarrow imports
    pandas. Its 27,000 objects would cost every later task of the worker 13 ms of CPU; with this freeze it is below 1.
    """
    if next(_tasks) == 2:
        freeze_once()


@functools.cache
def limit_malloc_trim() -> None:
    """Let the C library keep up to `KEPT` freed bytes for the next allocation, instead of returning all large pieces.

    Batches and their compressed forms have a different size each time. Fetching new pages from the kernel for each of them
    takes 11 % of a worker's CPU with lz4, and 7 % with zstd. Only glibc has these settings; they override the `MALLOC_*`
    variables of the environment.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, MAX_KEPT_BYTES)
        mallopt(_M_TRIM_THRESHOLD, KEPT)
