"""The garbage collector of Spark's Python processes.

Owns: the one freeze of each process. Must not know: what the process does.
"""

from __future__ import annotations

import functools
import gc


@functools.cache
def freeze_once() -> None:
    """Move everything imported out of the garbage collector's sight, once per process, after its first piece of work.

    PySpark's daemon collects after every task, and the walk over all modules is most of a small task's cost: 42 → 4 ms of
    CPU (spec: performance.md §4). The planner and the commit process of a stream are no different. Once only: garbage made
    before a freeze is never collected.
    """
    gc.collect()
    gc.freeze()
