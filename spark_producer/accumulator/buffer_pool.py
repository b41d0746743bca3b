"""The memory of all encoded batches: a fixed total, buffers of one size kept for reuse, first come first served.

Owns: every byte of `buffer.memory`, handed out and free.
Must not know: what is in a buffer.

Follows the seed on the BufferPool (spec: kafka_producer.md §2.1), but for one point where it is stricter than Java's:
who releases memory hands it to the head waiter, and a newcomer queues behind those who wait. So nobody barges in, the
head waiter need not hoard partial memory, and a wake-up cannot be lost.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import numpy as np

from spark_producer.errors import BufferExhausted, ProducerClosed, RecordTooLarge


class _Waiter:
    """A request that waits. Whoever releases enough memory sets `granted`, and `buffer` if a free one fits."""

    def __init__(self, size: int, lock: threading.Lock) -> None:
        self.size = size
        self.granted = False
        self.buffer: memoryview | None = None
        self.changed = threading.Condition(lock)


class BufferPool:
    """Hands out writable memoryviews. Used by the task threads (allocate) and the I/O thread (release).

    Invariants, under the lock: bytes handed out + available = total; the free buffers lie within what is available.
    """

    def __init__(self, total: int, poolable: int, clock: Callable[[], float]) -> None:
        self.total = total
        self.poolable = poolable
        self._clock = clock
        self._lock = threading.Lock()
        self._available = total
        self._free: deque[memoryview] = deque()
        self._waiters: deque[_Waiter] = deque()
        self._closed = False

    @property
    def available(self) -> int:
        """Bytes not handed out."""
        return self._available

    @property
    def has_waiters(self) -> bool:
        """Whether somebody waits for memory: then every batch is worth sending."""
        return bool(self._waiters)

    def try_allocate(self, size: int) -> memoryview | None:
        """A buffer of `size` bytes if there is room at once and nobody waits, else None.

        Raises:
            RecordTooLarge: more than the whole pool. ProducerClosed: closed.
        """
        with self._lock:
            self._check(size)
            if self._waiters or self._available < size:
                return None
            buffer = self._take(size)
        return buffer if buffer is not None else self._create(size)

    def allocate(self, size: int, timeout: float) -> memoryview:
        """A buffer of `size` bytes, waiting up to `timeout` seconds for memory to be released.

        Raises:
            RecordTooLarge: more than the whole pool. BufferExhausted: no memory in time. ProducerClosed: closed.
        """
        with self._lock:
            self._check(size)
            if self._waiters or self._available < size:
                buffer = self._wait(size, timeout)
            else:
                buffer = self._take(size)
        return buffer if buffer is not None else self._create(size)

    def release(self, buffer: memoryview) -> None:
        """Take a buffer back. Legal after close."""
        with self._lock:
            if len(buffer) == self.poolable:
                self._free.append(buffer)
            self._give_back(len(buffer))

    def close(self) -> None:
        """Wake everybody who waits, with an error."""
        with self._lock:
            self._closed = True
            for waiter in self._waiters:
                waiter.changed.notify()

    def _check(self, size: int) -> None:
        if size > self.total:
            raise RecordTooLarge(f"a batch of {size} bytes exceeds kafka.buffer.memory ({self.total}); raise it")
        if self._closed:
            raise ProducerClosed("the producer was closed while it allocated memory")

    def _take(self, size: int) -> memoryview | None:
        """Account for `size` bytes; a free buffer of that size if there is one."""
        self._available -= size
        buffer = self._free.popleft() if size == self.poolable and self._free else None
        while len(self._free) * self.poolable > self._available:
            self._free.pop()  # its memory goes to a request of another size
        return buffer

    def _wait(self, size: int, timeout: float) -> memoryview | None:
        waiter = _Waiter(size, self._lock)
        self._waiters.append(waiter)
        deadline = self._clock() + timeout
        try:
            while not waiter.granted:
                self._check(size)
                remaining = deadline - self._clock()
                if remaining <= 0:
                    raise BufferExhausted(
                        f"no {size} bytes became free within {timeout:.3f} s (kafka.max.block.ms): kafka.buffer.memory is "
                        f"{self.total}, {self._available} of it free. The brokers are slower than the rows come in"
                    )
                waiter.changed.wait(min(remaining, threading.TIMEOUT_MAX))
        except BaseException:
            if waiter.granted:  # interrupted between grant and wake-up
                if waiter.buffer is not None:
                    self._free.append(waiter.buffer)
                self._give_back(size)
            else:
                self._waiters.remove(waiter)
                self._grant()
            raise
        return waiter.buffer

    def _give_back(self, size: int) -> None:
        self._available += size
        self._grant()

    def _grant(self) -> None:
        """Serve those who wait, strictly in order; after close all of them get the error."""
        while not self._closed and self._waiters and self._waiters[0].size <= self._available:
            waiter = self._waiters.popleft()
            waiter.buffer = self._take(waiter.size)
            waiter.granted = True
            waiter.changed.notify()

    def _create(self, size: int) -> memoryview:
        """New memory, outside the lock; numpy leaves it unwritten, so its pages cost nothing before they are used."""
        try:
            return np.empty(size, dtype=np.uint8).data
        except MemoryError:
            with self._lock:
                self._give_back(size)
            raise
