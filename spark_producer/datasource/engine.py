"""Which engine runs the data source: Spark, or Sail, which has Spark's interface."""

from __future__ import annotations

import sys


def is_sail() -> bool:
    """Return whether Sail runs this process.

    Its tasks are threads of one process, and have no `TaskContext`. Spark's workers run one task at a time.
    """
    return "pysail" in sys.modules


def number_without_context() -> int:
    """Return the number of a task that has no `TaskContext`: in Sail a random one of 31 bits, so that tasks differ; else 0."""
    if not is_sail():
        return 0
    from random import SystemRandom  # Spark's workers do without it

    return SystemRandom().getrandbits(31)
