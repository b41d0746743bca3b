"""The cost of the buffer pool: `python -m benchmarks.pool` prints nanoseconds for each pair of allocate and release.

A pair happens once for each batch, which has some thousand rows. Each scene is run several times, and the fastest run counts,
since other work of the machine can only make a run slower.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable

from spark_producer.accumulator import BufferPool

TOTAL, BATCH = 32 << 20, 1_000_000
"""The defaults of `buffer.memory` and `batch.size`."""


def kept(pairs: int) -> None:
    """Take a buffer that the pool keeps, and give it back."""
    pool = BufferPool(TOTAL, BATCH, time.monotonic)
    pool.release(pool.allocate(BATCH, 0))
    for _ in range(pairs):
        pool.release(pool.allocate(BATCH, 0))


def new(pairs: int) -> None:
    """Take memory of another size, which is new each time."""
    pool = BufferPool(TOTAL, BATCH, time.monotonic)
    for _ in range(pairs):
        pool.release(pool.allocate(BATCH // 8, 0))


def in_flight(pairs: int) -> None:
    """Use the pool as the producer does: twenty batches are in flight, and the oldest comes back first."""
    pool = BufferPool(TOTAL, BATCH, time.monotonic)
    flying = [pool.allocate(BATCH, 0) for _ in range(20)]
    for number in range(pairs):
        pool.release(flying[number % 20])
        flying[number % 20] = pool.allocate(BATCH, 0)


def two_threads(pairs: int) -> None:
    """Share the pairs between two threads, with enough memory for both."""
    pool = BufferPool(TOTAL, BATCH, time.monotonic)

    def work() -> None:
        for _ in range(pairs // 2):
            pool.release(pool.allocate(BATCH, 10))

    _run_beside(work, work)


def exhausted(pairs: int) -> None:
    """Share one buffer between two threads: almost every request waits, and gets what the other thread releases."""
    pool = BufferPool(BATCH, BATCH, time.monotonic)

    def work() -> None:
        for _ in range(pairs // 2):
            buffer = pool.allocate(BATCH, 10)
            time.sleep(0)  # lets the other thread run and queue
            pool.release(buffer)

    _run_beside(work, work)


SCENES: dict[str, tuple[Callable[[int], None], int]] = {
    "a kept buffer": (kept, 100_000),
    "new memory, 16 KiB": (new, 100_000),
    "20 batches in flight": (in_flight, 100_000),
    "two threads": (two_threads, 100_000),
    "two threads, one buffer": (exhausted, 10_000),
}
"""Name → scene, and the number of pairs that it needs for a good measurement."""


def _run_beside(*calls: Callable[[], None]) -> None:
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def measure(repetitions: int, share: float = 1.0) -> dict[str, float]:
    """Return scene → nanoseconds for each pair, the best of `repetitions` with `share` of the usual number of pairs."""
    results = {}
    for name, (scene, usual) in SCENES.items():
        pairs = max(2, int(usual * share))
        times = []
        for _ in range(repetitions):
            began = time.perf_counter()
            scene(pairs)
            times.append((time.perf_counter() - began) / pairs * 1e9)
        results[name] = min(times)
    return results


def main() -> None:
    """Print a line for each scene."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pool", description="What the buffer pool costs.")
    parser.add_argument("--repetitions", type=int, default=7)
    for name, nanoseconds in measure(parser.parse_args().repetitions).items():
        print(f"{name:<26}{nanoseconds:>10,.0f} ns")


if __name__ == "__main__":
    main()
