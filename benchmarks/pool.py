"""What the buffer pool costs: `python -m benchmarks.pool`, nanoseconds for each pair of allocate and release.

Owns: the scenes of the pool alone. Must not know: how the producer uses it.

A pair happens once for each batch, of some thousand rows. Each scene is run several times; the fastest run counts, since
whatever else the machine does only adds.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable

from spark_producer.accumulator import BufferPool

TOTAL, BATCH = 32 << 20, 1_000_000
"""`buffer.memory` and `batch.size` by default"""


def kept(pairs: int) -> None:
    """A kept buffer, taken and given back."""
    pool = BufferPool(TOTAL, BATCH, time.monotonic)
    pool.release(pool.allocate(BATCH, 0))
    for _ in range(pairs):
        pool.release(pool.allocate(BATCH, 0))


def new(pairs: int) -> None:
    """Memory of another size: new each time."""
    pool = BufferPool(TOTAL, BATCH, time.monotonic)
    for _ in range(pairs):
        pool.release(pool.allocate(BATCH // 8, 0))


def in_flight(pairs: int) -> None:
    """As the producer does: twenty batches fly at a time, the oldest comes back first."""
    pool = BufferPool(TOTAL, BATCH, time.monotonic)
    flying = [pool.allocate(BATCH, 0) for _ in range(20)]
    for number in range(pairs):
        pool.release(flying[number % 20])
        flying[number % 20] = pool.allocate(BATCH, 0)


def two_threads(pairs: int) -> None:
    """One thread for each half of the pairs, with room enough for both."""
    pool = BufferPool(TOTAL, BATCH, time.monotonic)

    def work() -> None:
        for _ in range(pairs // 2):
            pool.release(pool.allocate(BATCH, 10))

    _run_beside(work, work)


def exhausted(pairs: int) -> None:
    """One buffer for two threads: almost every request waits and is handed what the other one releases."""
    pool = BufferPool(BATCH, BATCH, time.monotonic)

    def work() -> None:
        for _ in range(pairs // 2):
            buffer = pool.allocate(BATCH, 10)
            time.sleep(0)  # lets the other thread come and queue
            pool.release(buffer)

    _run_beside(work, work)


SCENES: dict[str, tuple[Callable[[int], None], int]] = {
    "a kept buffer": (kept, 100_000),
    "new memory, 16 KiB": (new, 100_000),
    "20 batches in flight": (in_flight, 100_000),
    "two threads": (two_threads, 100_000),
    "two threads, one buffer": (exhausted, 10_000),
}
"""name → scene, and how many pairs it takes to be measured well"""


def _run_beside(*calls: Callable[[], None]) -> None:
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def measure(repetitions: int, share: float = 1.0) -> dict[str, float]:
    """Scene → nanoseconds for each pair, the best of `repetitions`; `share` of the usual number of pairs."""
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
