"""The flush thread: it flushes a half of the write cache that is full or old, and retries until that succeeds."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Final

from spark_producer.broker.storage.disk import DISK_FULL_ERRNOS
from spark_producer.broker.storage.tiered.counters import FlushCounters
from spark_producer.broker.storage.tiered.flush import Flush, FlushTargets
from spark_producer.broker.storage.tiered.options import TieredOptions
from spark_producer.common.escape import escaping_logger
from spark_producer.errors import BrokerError

CLOSE_TIMEOUT_S: Final = 60.0
EXPIRY_INTERVAL_S: Final = 1.0
ERROR_PREFIX_CHARS: Final = 24
"""Number of characters by which messages of full-disk errors are compared; numbers that change follow after them."""

logger = escaping_logger(__name__)


class Flusher:
    """Flushes to `targets`. `start` starts its thread; `flush_now` flushes in the thread of the caller.

    A failed flush is repeated from the step that failed, with the same half: the halves are not swapped meanwhile, and the mark
    does not move. After `flush_tries` failures `flushes_failed` is called with an error message, and there is no further attempt.
    `cleared` is called after each flush, when a half is free again. `collect_garbage` is called between
    flushes (see `between_flushes`), and returns the seconds after which it is due again. `expire` is called every second, for the
    tail cache when nothing is written.
    """

    def __init__(
        self,
        targets: FlushTargets,
        options: TieredOptions,
        *,
        flushes_failed: Callable[[str], None],
        cleared: Callable[[], None],
        collect_garbage: Callable[[], float] = lambda: math.inf,
        expire: Callable[[], object] = lambda: None,
        counters: FlushCounters | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counters = counters if counters is not None else FlushCounters()
        self._targets = targets
        self._options = options
        self._flushes_failed, self._cleared, self._collect_garbage, self._expire = (
            flushes_failed,
            cleared,
            collect_garbage,
            expire,
        )
        self._clock = clock
        self._wake = threading.Event()
        self._running = threading.Lock()
        self._closing = False
        self._flush: Flush | None = None
        self._failures = 0
        self._retry_at = 0.0
        self._collect_at = math.inf
        self._next_due = clock() + options.flush_interval_s
        self._logged_error = ""
        """The last logged error, which is not logged again."""
        self._thread = threading.Thread(target=self._run, name="flush", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Wake the thread, which then checks for work. This does not block."""
        self._wake.set()

    @property
    def is_stopped(self) -> bool:
        """Whether too many flushes have failed, so that there are no further attempts."""
        return self._failures >= self._options.flush_tries

    def flush_now(self) -> None:
        """Flush all batches of the write cache.

        Raises:
            OSError: the disk refused; batches that were not flushed are still in the write cache and in the journal.
            BrokerError: the journal has failed.
        """
        with self._running:
            self._finish()
            while self._targets.write_cache.swap():
                self._finish()

    def between_flushes(self, work: Callable[[], object]) -> bool:
        """Call `work` while no flush is running; return whether it was called.

        A failed flush counts as running until it is repeated, even if it never is: the index may have rows of it that are not
        valid yet, and garbage collection would consider its batches not needed.
        """
        with self._running:
            if self._flush is None:
                work()
            return self._flush is None

    def if_idle(self, work: Callable[[], object]) -> bool:
        """As `between_flushes`, but return False without blocking if a flush or `work` is running."""
        if not self._running.acquire(blocking=False):
            return False
        try:
            if self._flush is None:
                work()
            return self._flush is None
        finally:
            self._running.release()

    def _finish(self) -> None:
        """Flush the swapped half, if there is one."""
        waiting = self._targets.write_cache.flushing
        if waiting is None or self.is_stopped:
            return
        half, mark = waiting
        if self._flush is None:
            self._flush = Flush(half, mark, self._targets)
        size, begin = half.bytes, self._clock()
        try:
            self._flush.run()
        except OSError as error:
            self._failed(error)
            raise
        self._flush, self._failures = None, 0
        self.counters.count += 1
        self.counters.bytes += size
        self.counters.us += int((self._clock() - begin) * 1_000_000)
        self._cleared()

    def _failed(self, error: OSError) -> None:
        if error.errno in DISK_FULL_ERRNOS:
            self._found_no_space(error)
            return
        self._failures += 1
        self._retry_at = self._clock() + self._options.flush_retry_s
        self.counters.failed += 1
        if not self.is_stopped:
            logger.error("flush %d of the same batches failed: %s", self._failures, error)
        else:
            self._flushes_failed(
                f"the broker accepts no more records: {self._failures} flushes of its write cache failed, the last with: "
                f"{error}. Repair the disk, then restart the broker; no record is lost, all are in the journal"
            )

    def _found_no_space(self, error: OSError) -> None:
        """Retry later, without a limit: a full disk does not count as a failure."""
        self._retry_at = self._clock() + self._options.flush_retry_s
        self.counters.failed += 1
        what = error.strerror or str(error)
        if self._logged_error != what[:ERROR_PREFIX_CHARS]:
            self._logged_error = what[:ERROR_PREFIX_CHARS]
            logger.error("the write cache is not flushed, which is retried until the disk has space: %s", error)

    def _run(self) -> None:
        while not self._closing:
            self._wake.wait(self._seconds_to_wait())
            self._wake.clear()
            try:
                self._expire()
                with self._running:
                    self._round()
                if self._flush is None:
                    self._logged_error = ""
            except OSError as error:
                self._refused(error)
            except BrokerError as error:  # the journal has failed: the files are left as they are for a recovery
                logger.error("the flush thread stops: %s", error)
                return
            except Exception as error:  # any error: without this thread the write cache would stay full
                logger.exception("the flush thread has failed")
                self._flushes_failed(
                    f"the broker accepts no more records: its flush thread has failed with {error!r}. Restart the broker"
                )
                return

    def _refused(self, error: OSError) -> None:
        """Log an error of the disk once: a full disk raises it again every second."""
        what = error.strerror or str(error)  # without the file, which may differ
        if self._flush is None and self._logged_error != what:  # `_failed` logs the error of a flush
            self._logged_error = what
            logger.warning("the flush thread continues after an error: %s", error)

    def _seconds_to_wait(self) -> float:
        if self.is_stopped:
            return EXPIRY_INTERVAL_S
        due = min(self._next_due, self._collect_at) if self._flush is None else self._retry_at
        return min(max(0.0, due - self._clock()), EXPIRY_INTERVAL_S)

    def _round(self) -> None:
        if self._closing or (self._flush is not None and self._clock() < self._retry_at):
            return
        self._finish()
        if self._clock() >= self._next_due:
            self._next_due = self._clock() + self._options.flush_interval_s
            if self._targets.write_cache.swap():
                self._finish()
        self._collect_at = (
            math.inf
        )  # after an error of the disk, the next round is after `EXPIRY_INTERVAL_S`, not at once
        self._targets.catalog.store()
        if self._flush is None:  # see `between_flushes`
            self._collect_at = self._collect_garbage() + self._clock()

    def close(self) -> None:
        """Stop the thread. The batches in the write cache stay there: see `flush_now`."""
        self._closing = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_TIMEOUT_S)
