"""The memory of all encoded batches: a fixed total, buffers of one size that are kept for reuse, and first come, first served.

It follows Kafka's BufferPool, with two differences:

* A thread that releases memory gives it to the oldest request at once, and wakes that request only when it has all it needs.
  So no memory is free while a thread waits, a new request joins the end of the queue (Java's pool lets it overtake), and no
  wake-up can be lost, because the same call serves the next request.
* A request that gets its memory just at the deadline succeeds; Java's pool gives the memory back.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

import numpy as np

from spark_producer.errors import BufferExhausted, ProducerClosed, PyProducerError, RecordTooLarge

MIN_BUFFER_BYTES = 1024
"""Minimum buffer of a batch in bytes, even if `batch.size` is smaller. The batch's objects take as much memory, which the pool
does not count: with a batch for each record they would take several times the memory of the records."""


class Condition(Protocol):
    """The condition under the pool's lock on which a thread waits for memory."""

    def wait(self, timeout: float) -> bool:
        """Release the lock and sleep until another thread notifies, or `timeout` seconds are over; then acquire it again."""

    def notify(self) -> None:
        """Wake the thread that waits. The caller holds the lock."""


class Monitor(NamedTuple):
    """The lock of a pool, and conditions under that lock."""

    lock: AbstractContextManager[object]
    condition: Callable[[], Condition]


def thread_monitor() -> Monitor:
    """Return a lock of `threading`, and its conditions."""
    lock = threading.Lock()
    return Monitor(lock, lambda: threading.Condition(lock))


def new_memory(size: int) -> memoryview:
    """Return `size` new bytes. numpy does not write them, so their pages cost nothing before they are used."""
    return np.empty(size, dtype=np.uint8).data


class _MemoryRequest:
    """A waiting request for memory. It gets one kept buffer, or gathers pieces; once it has all its bytes it is `granted`."""

    __slots__ = ("buffer", "condition", "gathered", "granted", "size")

    def __init__(self, size: int, condition: Condition) -> None:
        self.size = size
        self.gathered = 0
        self.granted = False
        self.buffer: memoryview | None = None
        self.condition = condition


class BufferPool:
    """Allocates writable memoryviews of bytes, which numpy, pyarrow and `sendmsg` use without a copy.

    Task threads may wait in `allocate`. The I/O thread must not wait, because it frees memory: it uses `try_allocate`.

    Three invariants hold under the lock: held + available = total, where `held` are the bytes that are handed out or gathered;
    nothing is available while a thread waits (unless the pool is closed); requests are served in the order of their arrival.

    `record_wait(seconds, exhausted)` is called after every wait, on the thread that waited, without the lock. `memory` gives
    new buffers; it is called without the lock too. `monitor` is the lock.
    """

    def __init__(
        self,
        total: int,
        poolable: int,
        clock: Callable[[], float],
        record_wait: Callable[[float, bool], None] | None = None,
        *,
        memory: Callable[[int], memoryview] = new_memory,
        monitor: Monitor | None = None,
    ) -> None:
        self.total = total
        self.poolable = poolable
        self._clock = clock
        self._record_wait = record_wait
        self._memory = memory
        self._lock, self._condition = monitor or thread_monitor()
        self._unpooled = total
        """free bytes that belong to no kept buffer"""
        self._held = 0
        self._free: deque[memoryview] = deque()
        """kept buffers; the one released last is used first, since its bytes are still in the processor's caches"""
        self._lent: set[int] = set()
        """the identities of the buffers that are handed out, each of which must be released whole, and once"""
        self._requests: deque[_MemoryRequest] = deque()
        self._closed = False

    @property
    def available(self) -> int:
        """The free bytes, which are neither handed out nor gathered for a request that waits."""
        with self._lock:
            return self._available()

    @property
    def waiting(self) -> int:
        """The number of threads that wait for memory."""
        return len(self._requests)

    def try_allocate(self, size: int) -> memoryview | None:
        """Return a buffer of `size` bytes if they are free and no thread waits, otherwise None.

        Raises:
            RecordTooLarge: `size` is more than the whole pool. ProducerClosed: the pool is closed.
            PyProducerError: `size` is less than one byte.
        """
        buffer = None
        with self._lock:
            if self._closed or not 0 < size <= self.total:
                raise self._allocation_error(size)
            if self._requests:
                return None
            if size == self.poolable and self._free:
                self._held += size
                buffer = self._free.pop()
            elif self._unpooled >= size or self._available() >= size:
                self._take_free(size)
            else:
                return None
            assert self._held + self._unpooled + len(self._free) * self.poolable == self.total
        if buffer is None:
            try:
                buffer = self._memory(size)
            except BaseException:
                with self._lock:
                    self._put_back(size, None)
                    self._serve()
                raise
        self._lent.add(id(buffer))
        return buffer

    def allocate(self, size: int, timeout: float) -> memoryview:
        """Return a buffer of `size` bytes, after a wait of up to `timeout` seconds for memory.

        Raises:
            BufferExhausted: no memory became free in time.
            RecordTooLarge, ProducerClosed, PyProducerError: as for `try_allocate`.
        """
        buffer = self.try_allocate(size)
        return self._allocate_waiting(size, timeout) if buffer is None else buffer

    def release(self, buffer: memoryview) -> None:
        """Return a buffer to the pool; it must be the same object that was handed out. This is allowed after `close`.

        Raises:
            PyProducerError: it is not handed out: it was released before, is a part of a buffer, or is not from this pool.
        """
        size = len(buffer)
        with self._lock:
            if id(buffer) not in self._lent:
                raise PyProducerError(
                    f"a buffer of {size} bytes was released twice, or is not from this pool: two batches would share its memory. "
                    "This is a bug of the producer: please report it"
                )
            self._lent.remove(id(buffer))
            self._put_back(size, buffer)
            if self._requests:
                self._serve()
            assert self._held + self._unpooled + len(self._free) * self.poolable == self.total

    def trim(self) -> None:
        """Drop the buffers that are kept for reuse. The number of free bytes stays the same."""
        with self._lock:
            self._drop_kept()

    def close(self) -> None:
        """Raise an error in all waiting threads, and drop the kept buffers.

        The buffers are dropped because a producer that was frozen (`gc.freeze`) is never collected, even long after its close.
        """
        with self._lock:
            self._closed = True
            self._drop_kept()
            for request in self._requests:
                request.condition.notify()

    # --- requests that wait -----------------------------------------------------------------------------------------

    def _allocate_waiting(self, size: int, timeout: float) -> memoryview:
        """Wait for a buffer, as `allocate` does if too little memory is free. On an error all gathered bytes are freed again."""
        began = self._clock()
        request = _MemoryRequest(size, self._condition())
        exhausted = False
        try:
            try:
                with self._lock:
                    self._wait(request, began, timeout)
            except BufferExhausted:
                exhausted = True
                raise
            finally:
                if self._record_wait is not None:
                    self._record_wait(self._clock() - began, exhausted)
            buffer = self._memory(size) if request.buffer is None else request.buffer
            self._lent.add(id(buffer))
            return buffer
        except BaseException:
            with self._lock:
                self._withdraw(request)
            raise

    def _wait(self, request: _MemoryRequest, began: float, timeout: float) -> None:
        """Queue the request, and sleep until it has all its bytes. Wake-ups do not move the deadline."""
        self._requests.append(request)
        self._serve()
        while not request.granted:
            if self._closed:
                raise self._allocation_error(request.size)
            remaining = began + timeout - self._clock()
            if remaining <= 0:
                raise BufferExhausted(
                    f"{request.size} bytes did not become free within {timeout:.3f} s (kafka.max.block.ms): kafka.buffer.memory "
                    f"is {self.total}, {self._available() + request.gathered} of it free, and {len(self._requests) - 1} more "
                    f"requests wait (kafka.batch.size is {self.poolable}). Rows come in faster than the brokers take them"
                )
            request.condition.wait(min(remaining, threading.TIMEOUT_MAX))

    def _withdraw(self, request: _MemoryRequest) -> None:
        """Free the bytes that a request has, and serve the next request."""
        if not request.granted and request in self._requests:
            self._requests.remove(request)
        self._put_back(request.gathered, request.buffer)
        self._serve()
        assert self._held + self._available() == self.total

    def _serve(self) -> None:
        """Give the free bytes to the waiting requests, the oldest first. After `close` requests get an error instead."""
        while self._requests and not self._closed:
            head = self._requests[0]
            if head.size == self.poolable and self._free:
                self._put_back(head.gathered, None)  # from pieces it would need a new buffer, and break up a kept one
                head.buffer = self._free.pop()
                head.gathered = head.size
                self._held += head.size
            else:
                head.gathered += self._take_free(head.size - head.gathered)
            if head.gathered < head.size:
                return
            self._requests.popleft()
            head.granted = True
            head.condition.notify()

    # --- bytes ------------------------------------------------------------------------------------------------------

    def _available(self) -> int:
        return self._unpooled + len(self._free) * self.poolable

    def _take_free(self, limit: int) -> int:
        """Take up to `limit` of the free bytes, and return their number. Kept buffers are dropped for them, the oldest first."""
        while self._unpooled < limit and self._free:
            self._free.popleft()
            self._unpooled += self.poolable
        taken = min(limit, self._unpooled)
        self._unpooled -= taken
        self._held += taken
        return taken

    def _put_back(self, size: int, buffer: memoryview | None) -> None:
        """Free `size` held bytes. `buffer`, if there is one, is kept for reuse if it has the kept size."""
        self._held -= size
        if buffer is not None and size == self.poolable and not self._closed:
            self._free.append(buffer)
        else:
            self._unpooled += size

    def _drop_kept(self) -> None:
        self._unpooled += len(self._free) * self.poolable
        self._free.clear()

    def _allocation_error(self, size: int) -> PyProducerError:
        if self._closed:
            return ProducerClosed("buffer memory was not allocated: the producer is closed")
        if size < 1:
            return PyProducerError(f"a buffer of {size} bytes cannot be allocated: its size must be at least 1")
        return RecordTooLarge(f"a batch of {size} bytes exceeds kafka.buffer.memory ({self.total}). Raise the option")
