"""The rows of one task on their way into a transaction: held back at first, then sent, or gathered in a file before that."""

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
MIN_INLINE_BYTES = 16 << 10
"""Bytes that every task may hand to the driver, however many tasks there are."""

SLOW_INPUT = 5.0
"""Seconds. If the first rows up to the limit of path A take longer to arrive, the input and not the brokers sets the pace: then a
file costs next to nothing, and without it the transaction would be open for as long as the rows take to compute."""

MEMORY_TO_HOLD = 1 / 2
"""The part of `buffer.memory` in which a task that spools holds rows back: where memory ends, the producer sends by itself. By
default the rest has room for another piece."""

USABLE_PART = 2 / 3
"""The part of a transaction's time that a task may use. The driver refuses to commit what has less than the rest left."""


def inline_limit(sink: SinkOptions, partition: int) -> int:
    """Return the bytes that the task of a partition may hand to the driver.

    No task knows how many there are. So half as many are for each next eight, and all together stay below 16 times the option,
    and 16 KiB for each task: with the default 64 MiB.
    """
    most = sink.exactly_once_max_inline_bytes
    return max(most >> partition // TASKS_WITH_THE_SAME_LIMIT, min(most, MIN_INLINE_BYTES))


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
    """The rows of a task, from Spark to the end of its write. `limit` is in bytes, `attempt` counts from 0."""

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
        self._limit = 0 if self._rows.may_be_refused else limit  # the driver could not send rows elsewhere
        self._patient = sink.exactly_once_spool_to_disk == "true" or (
            sink.exactly_once_spool_to_disk == "auto" and attempt > 0
        )
        self._may_spool = sink.exactly_once_spool_to_disk != "false"
        self._clock = clock
        self._began: float | None = None
        """The time at which the transaction was begun; None while rows are held back."""
        self._spool: Spool | None = None

    def fill(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Take all rows."""
        started = self._clock()
        self._transactions.hold()
        for piece in pieces(gather(batches, self._rows.wanted)):
            if self._spool is not None:
                self._spool.add(piece)
            else:
                self._send(piece)
                if self._began is None:
                    self._look_at_held(self._clock() - started)
            del piece  # otherwise it would be alive while the next one is read
        if self._spool is not None:
            self._begin()
            for piece in self._spool.batches():
                self._send(piece)

    @property
    def rows(self) -> int:
        """The number of rows that the task has handed over."""
        return self._rows.rows

    def report_of(self, found: WriteReport) -> WriteReport:
        """Return the task's report, in which dead letters are counted apart."""
        return self._rows.report_of(found)

    def take_inline(self) -> tuple[EncodedBatch, ...] | None:
        """Return the encoded rows, if they are few enough for the driver. None: the transaction is open, and has them."""
        held = self._transactions.take_held() if self._began is None and not self._must_begin() else None
        return None if held is None else tuple(EncodedBatch(*batch) for batch in held)

    def prepare(self) -> PreparedTransaction:
        """Wait until all rows are acknowledged, and leave the transaction open for the driver."""
        if self._rows.may_come_back:
            if self._transactions.holding:
                self._transactions.release()
            self._rows.flush()
        prepared = self._transactions.prepare()
        self._check_time()
        return prepared

    def give_up(self) -> None:
        """End the transaction after an error, as well as it can be done. It raises nothing."""
        if not self._transactions.holding:
            self._transactions.try_abort()

    def _must_begin(self) -> bool:
        """Whether rows are held that the driver must not get."""
        return self._rows.may_be_refused and self._transactions.held_bytes() > 0

    def close(self) -> None:
        """Remove the file, if there is one."""
        if self._spool is not None:
            self._spool.close()

    def _send(self, piece: pa.RecordBatch) -> None:
        before = self._clock()
        self._rows.send(piece)
        if self._began is None and not self._transactions.holding:  # it ran out of memory, and ended the hold by itself
            self._began = before
        self._check_time()

    def _look_at_held(self, seconds: float) -> None:
        """Choose the way of a task that has more rows than the driver takes; `seconds` is the time in which they came."""
        spools = self._patient or (self._may_spool and seconds >= SLOW_INPUT)
        pool = self._parts.pool
        too_many = self._transactions.held_bytes() > self._limit
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
            if self._patient:
                hint = ", or raise kafka.buffer.memory, which ended before rows could be spooled"
            raise ExactlyOnceError(
                f"the transaction of a task is open for {seconds:.0f} s, more than two thirds of "
                f"kafka.transaction.timeout.ms ({limit:g} s), and the driver needs the rest to commit it. Nothing of it is "
                "visible. Raise that option (up to the brokers' transaction.max.timeout.ms), write less in one batch"
                + (hint if self._spool is None else "")
            )
