"""Writes the rows of one task in a transaction, which is deferred at first. Its rows may go through a spool file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pyarrow as pa

from spark_producer.common.failpoints import failpoint
from spark_producer.config import SinkOptions
from spark_producer.datasource.write.task_settings import TaskSettings
from spark_producer.datasource.write.worker.batch_sizing import gather, pieces
from spark_producer.datasource.write.worker.spool import Spool
from spark_producer.datasource.write.worker.task_writer import task_rows
from spark_producer.errors import ExactlyOnceError, IllegalState
from spark_producer.exactly_once.protocol.task_messages import EncodedBatch
from spark_producer.metrics import WriteReport
from spark_producer.producer import Producer, parts_of
from spark_producer.producer.transactions import PreparedTransaction, Transactions

TASKS_WITH_THE_SAME_LIMIT = 8
"""Number of tasks, in the order of their partitions, until the limit of inline rows halves."""

MIN_INLINE_BYTES = 16 << 10
"""Minimum limit in bytes of inline rows of a task, with any number of tasks."""

SLOW_INPUT = 5.0
"""Seconds for the first rows up to the limit of path A. If they take longer, the input and not the brokers is the bottleneck: a
spool file then costs next to nothing, and without it the transaction would be open while the rows are computed."""

MEMORY_TO_HOLD = 1 / 2
"""Fraction of `buffer.memory` in which a task that spools holds rows back: a producer without free memory sends them. With the
default settings another slice of rows fits into the rest."""

USABLE_PART = 2 / 3
"""Fraction of the transaction timeout that a task may use. The driver does not commit one with less than the rest left."""


def inline_limit(sink: SinkOptions, partition: int) -> int:
    """Return the maximum bytes of inline rows of the task of a partition.

    No task knows the number of tasks. So the limit halves after each eight tasks, and all together stay below 16 times the option
    plus 16 KiB for each task: with the default 4 MiB for 48 tasks, and 16 KiB for each further one.
    """
    maximum = sink.exactly_once_max_inline_bytes
    return max(maximum >> partition // TASKS_WITH_THE_SAME_LIMIT, min(maximum, MIN_INLINE_BYTES))


def transactions_of(producer: Producer) -> Transactions:
    """Return the transactions of a producer.

    Raises:
        IllegalState: it has no transactional id.
    """
    transactions = parts_of(producer).transactions
    if transactions is None:
        raise IllegalState("this producer has no kafka.transactional.id")
    return transactions


class TransactionWriter:
    """Writes the rows of one task. `limit` is the maximum bytes of inline rows; `attempt` counts from 0."""

    def __init__(
        self,
        producer: Producer,
        settings: TaskSettings,
        limit: int,
        attempt: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        sink = settings.sink
        self.producer = producer
        self._rows = task_rows(producer, settings)
        self._parts = parts_of(producer)
        self._transactions = transactions_of(producer)
        self._sink = sink
        self._limit = 0 if self._rows.may_be_refused else limit  # the driver could not write dead letters
        self._always_spools = sink.exactly_once_spool_to_disk == "true" or (
            sink.exactly_once_spool_to_disk == "auto" and attempt > 0
        )
        self._may_spool = sink.exactly_once_spool_to_disk != "false"
        self._clock = clock
        self._began: float | None = None
        """The time at which the transaction began; None while it is deferred."""
        self._spool: Spool | None = None

    def fill(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Append all rows. If they are too many to be inline rows, begin the transaction."""
        started = self._clock()
        self._transactions.begin_deferred()
        for piece in pieces(gather(batches, self._rows.wanted)):
            if self._spool is not None:
                self._spool.add(piece)
            else:
                self._send(piece)
                if self._began is None:
                    self._choose_path(self._clock() - started)
            del piece  # otherwise it would be alive while the next one is read
        if self._spool is not None:
            self._begin()
            for piece in self._spool.batches():
                self._send(piece)

    @property
    def rows(self) -> int:
        """Return the number of rows that the task has appended."""
        return self._rows.rows

    def report_of(self, found: WriteReport) -> WriteReport:
        """Return the task's report, with the dead letters counted separately."""
        return self._rows.report_of(found)

    def take_inline(self) -> tuple[EncodedBatch, ...] | None:
        """Return the encoded rows if they are within the limit; None if they are in the open transaction."""
        batches = self._transactions.take_deferred() if self._began is None and not self._must_begin() else None
        return None if batches is None else tuple(EncodedBatch(*batch) for batch in batches)

    def prepare(self) -> PreparedTransaction:
        """Wait until all rows are acknowledged, and leave the transaction open for the driver."""
        if self._rows.may_come_back:
            if self._transactions.is_deferred:
                self._transactions.release()
            self._rows.flush()
        prepared = self._transactions.prepare()
        self._check_time()
        return prepared

    def abort(self) -> None:
        """Abort the transaction after an error, if the brokers answer. Raises nothing."""
        if not self._transactions.is_deferred:
            self._transactions.try_abort()

    def _must_begin(self) -> bool:
        """Return whether the deferred rows must not go to the driver, since brokers may reject some."""
        return self._rows.may_be_refused and self._transactions.deferred_bytes() > 0

    def close(self) -> None:
        """Remove the spool file, if there is one."""
        if self._spool is not None:
            self._spool.close()

    def _send(self, piece: pa.RecordBatch) -> None:
        before = self._clock()
        self._rows.send(piece)
        if (
            self._began is None and not self._transactions.is_deferred
        ):  # the producer ran out of memory, and released the rows
            self._began = before
        self._check_time()

    def _choose_path(self, seconds: float) -> None:
        """Begin the transaction, or spool the other rows, once there are too many for the driver. They came in `seconds`."""
        spools = self._always_spools or (self._may_spool and seconds >= SLOW_INPUT)
        pool = self._parts.pool
        too_many = self._transactions.deferred_bytes() > self._limit
        if spools and (too_many or pool.available < pool.total * (1 - MEMORY_TO_HOLD)):
            self._spool = Spool()
        elif too_many:
            self._begin()

    def _begin(self) -> None:
        self._began = self._clock()
        self._transactions.release()
        failpoint("task.opened")

    def _check_time(self) -> None:
        if self._began is None:
            return
        seconds, limit = self._clock() - self._began, self._parts.config.transaction_timeout_ms / 1000
        if seconds > limit * USABLE_PART:
            hint = ", or set exactlyOnceSpoolToDisk to true: then it is open only while rows are sent"
            if self._always_spools:
                hint = ", or raise kafka.buffer.memory, which ended before rows could be spooled"
            raise ExactlyOnceError(
                f"the transaction of a task is open for {seconds:.0f} s, more than two thirds of "
                f"kafka.transaction.timeout.ms ({limit:g} s), of which the driver needs a third for the commit. Its rows "
                "are not visible. Raise that option (up to the brokers' transaction.max.timeout.ms), write less in one batch"
                + (hint if self._spool is None else "")
            )
