"""What the tests of the buffer pool share: a small pool, and threads that wait in it.

Owns: the certainty that a request has queued before the test goes on. Must not know: what is tested.
"""

from __future__ import annotations

from spark_producer.accumulator.pool import BufferPool
from tests.stages.workbench import FakeClock, Runner, until

TOTAL, POOLABLE = 1000, 100


def pool_of(total: int = TOTAL, poolable: int = POOLABLE) -> BufferPool:
    return BufferPool(total, poolable, FakeClock())


def free_buffers(pool: BufferPool) -> int:
    return len(pool._free)


def waiting(pool: BufferPool, count: int) -> None:
    until(lambda: len(pool._waiters) == count, f"{count} requests wait")


def blocked(pool: BufferPool, size: int, timeout: float = 1e6) -> Runner:
    """A thread that waits in `allocate`, behind those that wait already."""
    before = len(pool._waiters)
    runner = Runner(lambda: pool.allocate(size, timeout))
    waiting(pool, before + 1)
    return runner
